"""The root of the command line; each command lives in its own file."""

from __future__ import annotations

import sys

import typer

from private_mcmc.cli.demo import demo
from private_mcmc.errors import PrivateMCMCError

ERROR = 3

app = typer.Typer(
    name="private-mcmc",
    help="Differentially private Bayesian inference for NumPyro models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo)


@app.callback()
def _root() -> None:
    """Differentially private Bayesian inference for NumPyro models."""


def main() -> None:
    """Run a command; the library's own errors become one readable message and exit code 3."""
    try:
        app()
    except PrivateMCMCError as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(ERROR)
