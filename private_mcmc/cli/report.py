"""``private-mcmc report`` and ``verify study/``: a dossier, a ledger or a plan is shown, or recomputed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.common import HtmlOption, JsonOption, KeyOption, open_ledger
from private_mcmc.errors import DeclarationError

if TYPE_CHECKING:
    from private_mcmc.report import Report


_SQLITE = b"SQLite format 3"


def report(
    what: Annotated[Path, typer.Argument(help="a dossier's folder, a ledger file, or a saved plan")],
    key: KeyOption = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a dossier, a ledger or a plan. A dossier that was interrupted is completed."""
    page = _page(what, key)
    if as_json:
        typer.echo(json.dumps(page.to_dict(), ensure_ascii=False))
    else:
        page.show()
    if html is not None:
        page.to_html(html)


def _page(what: Path, key: Path | None) -> Report:
    from private_mcmc.dossier.record import RECORD

    if what.is_dir() or what.name == RECORD:
        from private_mcmc.dossier import Study
        from private_mcmc.dossier.folder import finish, is_complete

        folder = what if what.is_dir() else what.parent
        study = Study.load(folder)
        if not is_complete(folder):
            finish(folder, study)
        return study.report()
    if not what.exists():
        raise DeclarationError(
            f"{what}: there is nothing. Name a dossier's folder, a ledger, or a saved plan."
        )
    with what.open("rb") as file:
        first = file.read(len(_SQLITE))
    if first == _SQLITE:
        return open_ledger(what, key).report()
    return _plan(what)


def _plan(what: Path) -> Report:
    """A saved plan, as it stands in its file: only its model could make it again."""
    from private_mcmc.planning.policy import SavedPlan
    from private_mcmc.report import Facts, Note, Report, number

    try:
        saved = SavedPlan(what)
    except DeclarationError:
        raise DeclarationError(f"{what}: no dossier, no ledger and no saved plan.") from None
    target, expected = saved.target, saved.prediction
    items = (
        ("guarantee", saved.guarantee),
        ("target", f"ε = {target.epsilon:g} at δ = {target.delta:g}, {target.adjacency}"),
        ("rows", f"{saved.n:,}"),
        ("columns", ", ".join(name for name, _ in saved.rows.items)),
        ("predicted error of posterior means", f"{number(expected.rms, 2)} {expected.unit}"),
        ("weight of the likelihood", number(saved.temper)),
    )
    note = Note("As it stands in the file. `run --plan` and `fit --plan` check it against the model.")
    return Report("A plan", (Facts(items), note))


NOT_VERIFIED = 1


def verify(
    dossier: Annotated[Path, typer.Argument(help="the folder that private-mcmc fit or run wrote")],
    ledger: Annotated[Path | None, typer.Option(help="also compare with the charge in this ledger")] = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute every privacy number of a dossier from its folder alone, and compare its files.

    Exit code: 0 verified, 1 not verified, 3 error.
    """
    from private_mcmc.dossier import verify_dossier

    found = verify_dossier(dossier, None if ledger is None else open_ledger(ledger, key))
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        found.report().show()
    raise typer.Exit(0 if found else NOT_VERIFIED)
