"""``private-mcmc verify study/``: recompute every privacy number of a dossier, without private data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from private_mcmc.cli.common import JsonOption

NOT_VERIFIED = 1


def verify(
    dossier: Annotated[Path, typer.Argument(help="the folder that private-mcmc fit or run wrote")],
    ledger: Annotated[Path | None, typer.Option(help="also compare with the charge in this ledger")] = None,
    key: Annotated[Path | None, typer.Option(help="file with the ledger owner's secret key")] = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute every privacy number of a dossier from its folder alone, and compare its files.

    Exit code: 0 verified, 1 not verified, 3 error.
    """
    from private_mcmc.dossier import verify_dossier

    books = None
    if ledger is not None:
        from private_mcmc.release import Ledger

        books = Ledger(ledger, None if key is None else key.read_bytes().strip())
    found = verify_dossier(dossier, books)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        found.report().show()
    raise typer.Exit(0 if found else NOT_VERIFIED)
