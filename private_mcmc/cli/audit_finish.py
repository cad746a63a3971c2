"""How every audit command ends: its report, and an exit code that says whether a claim was refuted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from private_mcmc.report import Report

REFUTED = 1


def finish(
    sound: bool,
    report: Report,
    record: dict[str, Any],
    as_json: bool,
    html: Path | None,
    shown: Report | None = None,
) -> None:
    """Show or print what was found and end with its exit code; ``shown``: less than the whole report."""
    from private_mcmc.report import plain

    if as_json:
        typer.echo(json.dumps(plain(record), indent=2, ensure_ascii=False))
    else:
        (report if shown is None else shown).show()
    # Last, so that what was found is told even if the disk has filled up meanwhile.
    if html is not None:
        report.to_html(html)
    raise typer.Exit(0 if sound else REFUTED)
