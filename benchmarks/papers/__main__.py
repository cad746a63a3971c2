"""``python -m benchmarks.papers [000|001|002|004|beyond|docs]``: the papers' claims beside our numbers."""

from __future__ import annotations

import importlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.papers import docs
from benchmarks.papers.pages.page import Page
from private_mcmc.cli import main
from private_mcmc.errors import DeclarationError
from private_mcmc.system import check_writable, write_whole

PAGES = {
    "000": ("bjrd", "Bertazzi, Johnston, Roberts, Durmus: privacy of Markov chain Monte Carlo"),
    "001": ("hf", "Heller, Fetaya: SGLD is not private although its posterior is"),
    "002": ("bfg", "Bravo, Flores-Mella, Guzmán: privacy curves beyond nonexpansive iterations"),
    "004": ("bkpp", "Borovykh, Kantas, Parpas, Pavliotis: anisotropic Langevin dynamics"),
    "beyond": ("beyond", "What we know that the papers do not"),
}
_HERE = Path(__file__).parent
app = typer.Typer(add_completion=False)


def make(key: str, full: bool = False) -> Page:
    """The page of one paper, with its run time.

    Raises:
        DeclarationError: for a name that is not in ``PAGES``.
    """
    if key not in PAGES:
        raise DeclarationError(f"{key!r}: choose one of {', '.join(PAGES)}, or docs.")
    began = time.perf_counter()
    page: Page = importlib.import_module(f"benchmarks.papers.pages.{PAGES[key][0]}").page(full)
    return replace(page, seconds=time.perf_counter() - began)


def written() -> dict[str, str]:
    """The two pages beside this file, from the fast settings."""
    records: list[dict[str, Any]] = [make(key).to_dict() for key in PAGES]
    return {
        "README.md": docs.papers_page(records[:-1]),
        "BEYOND.md": docs.beyond_page(records[-1]),
    }


def _theorem_iv_1(epsilon: float, epsilon_run: float, delta: float) -> dict[str, float]:
    """Theorem IV.1 of 001 as a calculator, at α = 2, β = 1, x_h = 1.8, x_l = 0.9, γ₁ = 0.1."""
    from benchmarks.papers.pages.hf.theorem import calculated

    (rows, slope), (enough, its_slope, shown) = calculated(epsilon, epsilon_run, delta)
    return {
        "rows by the proof": rows,
        "slope by the proof": slope,
        "rows enough": enough,
        "their slope": its_slope,
        "SGLD's ε at least": shown,
    }


def _writable(path: Path | None) -> Path | None:
    if path is not None:
        check_writable(path)
    return path


@app.command()
def papers(
    paper: Annotated[str, typer.Argument(help="000, 001, 002, 004, beyond; IV.1; docs")] = "",
    full: Annotated[bool, typer.Option("--full", help="the paper's sizes: minutes")] = False,
    html: Annotated[Path | None, typer.Option(help="write the page to this file", callback=_writable)] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", help="write every number to this file", callback=_writable)
    ] = None,
    epsilon: Annotated[float, typer.Option(help="IV.1: ε of the posterior")] = 0.5,
    epsilon_run: Annotated[float, typer.Option(help="IV.1: ε′ that SGLD shall not reach")] = 38.0,
    delta: Annotated[float, typer.Option(help="IV.1: δ of both")] = 1e-3,
) -> None:
    """A paper's claims beside our numbers: status, plots, why they differ. Without a paper: the list."""
    if not paper:
        for key, (_, title) in PAGES.items():
            typer.echo(f"{key:8}{title}")
        typer.echo("IV.1    Theorem IV.1 of 001 as a calculator: --epsilon, --epsilon-run, --delta")
        return
    if paper.upper() == "IV.1":
        typer.echo(json.dumps(_theorem_iv_1(epsilon, epsilon_run, delta)))
        return
    if paper == "docs":
        for name, text in written().items():
            write_whole(_HERE / name, text)
        return
    page = make(paper, full)
    page.report.show()
    if as_json is not None:
        write_whole(as_json, json.dumps(page.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
    if html is not None:
        page.report.to_html(html)


if __name__ == "__main__":
    main(app)
