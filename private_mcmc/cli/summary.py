"""``private-mcmc summary study/``: a study's answers in the table's units, all from released draws."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from private_mcmc.cli.common import JsonOption
from private_mcmc.cli.study import ProfileOption, read_profile, show


def summary(
    study: Annotated[Path, typer.Argument(help="the folder that private-mcmc fit or run wrote")],
    profile: ProfileOption = None,
    prob: Annotated[float, typer.Option(help="of the intervals")] = 0.9,
    forest: Annotated[Path | None, typer.Option(help="draw the forest plot to this PNG file")] = None,
    as_json: JsonOption = False,
) -> None:
    """Coefficients, odds or rate ratios and predictions of a study: free, as often as you like."""
    from private_mcmc.dossier import Study

    found = Study.load(study)
    if forest is not None:
        found.answers(prob).draw_forest(forest)
    show(found, [read_profile(text) for text in profile or []], prob, as_json)
