"""``private-mcmc papers …``: the papers' claims beside our numbers, run from the checkout that has them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import typer

from private_mcmc.errors import DeclarationError


def papers(context: typer.Context) -> None:
    """Claims of the papers beside our numbers: 000, 001, 002, 004 or beyond; --full, --html, --json.

    The same as python -m benchmarks.papers in a checkout of the project. The papers' own bounds and
    experiments are not in the installed package.
    """
    root = Path(__file__).parents[2]
    if not (root / "benchmarks" / "papers" / "__main__.py").is_file():
        raise DeclarationError(
            "papers: the papers' own bounds and experiments are not in the installed package. "
            "In a checkout of the project: python -m benchmarks.papers."
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    app: typer.Typer = importlib.import_module("benchmarks.papers.__main__").app
    code = app(context.args, standalone_mode=False, prog_name="private-mcmc papers")
    raise typer.Exit(code if isinstance(code, int) else 0)
