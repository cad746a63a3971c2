"""What several commands need from the shell: a model file, row domains, a target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.files import check_writable

if TYPE_CHECKING:
    from private_mcmc.domains import Rows

ModelArgument = Annotated[str, typer.Argument(help="a NumPyro model, as FILE.py:FUNCTION")]
RowsOption = Annotated[Path, typer.Option("--rows", help="TOML file: a domain for every column of a row")]
NumRows = Annotated[int, typer.Option("--n", help="number of rows (its public bound under add_remove)")]
Epsilon = Annotated[float, typer.Option(help="ε of the target")]
Delta = Annotated[float, typer.Option(help="δ of the target")]
AdjacencyOption = Annotated[str, typer.Option(help="replace_one, add_remove or zero_out")]
ArgsOption = Annotated[Path | None, typer.Option(help="TOML file: the model's public arguments")]


def _writable(path: Path | None) -> Path | None:
    if path is not None:
        check_writable(path)
    return path


# Checked when the command line is read, before any work.
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="write an HTML report to this file", callback=_writable)
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]


def read_rows(path: Path) -> Rows:
    """The row domains of a TOML file."""
    from private_mcmc.domains import Rows

    return Rows.from_toml(path)
