"""``private-mcmc summary study/``: a study's answers in the table's units, all from released draws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.common import JsonOption
from private_mcmc.cli.study import ProfileOption, read_profile, show

if TYPE_CHECKING:
    from private_mcmc.data import Answers


def summary(
    study: Annotated[Path, typer.Argument(help="the folder that private-mcmc fit or run wrote")],
    profile: ProfileOption = None,
    prob: Annotated[float, typer.Option(help="of the intervals")] = 0.9,
    forest: Annotated[Path | None, typer.Option(help="draw the forest plot to this PNG file")] = None,
    marginal: Annotated[
        bool, typer.Option("--marginal", help="how the mean moves with each field, at each profile, instead")
    ] = False,
    over: Annotated[
        Path | None,
        typer.Option(
            help="average over public margins: a table of profiles with a column weight, never private rows"
        ),
    ] = None,
    effects: Annotated[
        Path | None, typer.Option(help="draw the mean along every field to PNG files in this folder")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Coefficients, odds or rate ratios and predictions of a study: free, as often as you like."""
    from private_mcmc.dossier import Study

    found, profiles = Study.load(study), [read_profile(text) for text in profile or []]
    if forest is not None:
        found.answers(prob).draw_forest(forest)
    if effects is not None:
        draw(found.answers(prob), profiles[0] if profiles else {}, effects)
    if over is not None:
        tell_average(found.answers(prob), over, marginal, as_json)
    elif marginal:
        tell_marginal(found.answers(prob), profiles or [{}], as_json)
    else:
        show(found, profiles, prob, as_json)


def draw(answers: Answers, profile: dict[str, str], folder: Path) -> None:
    """A figure of every field of the formula, as PNG."""
    from private_mcmc.data.fields import identifier
    from private_mcmc.report import png

    folder.mkdir(parents=True, exist_ok=True)
    for name in answers.fields:
        png(answers.effect_plot(name, profile), folder / f"effect-{identifier(name)}.png")


def tell_marginal(answers: Answers, profiles: list[dict[str, str]], as_json: bool) -> None:
    """Effects at each profile, as tables or JSON."""
    from private_mcmc.data.effect_tables import effects_table
    from private_mcmc.report import Report, plain

    if as_json:
        found = [[plain(one) for one in answers.marginal_effects(profile)] for profile in profiles]
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    tables = tuple(effects_table(answers, [profile]) for profile in profiles)
    Report("Effects at stated profiles", tables).show()


def tell_average(answers: Answers, over: Path, marginal: bool, as_json: bool) -> None:
    """The average prediction over public margins, or average marginal effects."""
    from private_mcmc.data.effect_tables import average_table, effects_table
    from private_mcmc.data.profiles import read_margins
    from private_mcmc.report import Report, plain

    profiles, weights = read_margins(over)
    if as_json:
        found = answers.average_effects(profiles, weights) if marginal else answers.average(profiles, weights)
        typer.echo(json.dumps(plain(found), ensure_ascii=False))
    elif marginal:
        Report("Average marginal effects", (effects_table(answers, profiles, weights),)).show()
    else:
        Report("Average", (average_table(answers, profiles, weights),)).show()
