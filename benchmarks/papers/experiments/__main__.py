"""The papers' attacks on networks, one command each; ``--help`` says the rest."""

from __future__ import annotations

import typer

from benchmarks.papers.experiments.commands import figure, hf
from private_mcmc.cli import main

app = typer.Typer(add_completion=False, no_args_is_help=True)
for experiment in (hf, figure):
    app.command()(experiment)

if __name__ == "__main__":
    main(app)
