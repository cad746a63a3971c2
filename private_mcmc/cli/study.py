"""``private-mcmc summary study/``, and what ``fit`` and ``run`` share: a question before, answers after."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from private_mcmc.cli.common import JsonOption, ask, open_ledger
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Model, Record

if TYPE_CHECKING:
    from private_mcmc.data import Answers
    from private_mcmc.dossier import Study
    from private_mcmc.inference.question import Question
    from private_mcmc.planning import Plan
    from private_mcmc.planning.frontier import MaxError
    from private_mcmc.release import Ledger


OutOption = Annotated[Path, typer.Option(help="folder for the dossier; made if there is none")]
MaxErrorOption = Annotated[
    list[str] | None,
    typer.Option(help="refuse a larger predicted error, in posterior sds; or as age=0.01, in its own unit"),
]
GuaranteeOption = Annotated[str, typer.Option(help="'run', or 'posterior' for the posterior as well")]
FormulaOption = Annotated[str | None, typer.Option(help="such as 'death ~ age + log(kappa) + (1 | region)'")]
FamilyOption = Annotated[str, typer.Option(help="bernoulli, poisson, gaussian, categorical, cumulative, …")]
PriorOption = Annotated[
    list[str] | None,
    typer.Option(help="on the users' scale, as 'age ~ normal(0, 0.1)' or 'sigma = 12'; may be repeated"),
]
PlanOption = Annotated[
    Path | None,
    typer.Option("--plan", help="a plan that private-mcmc plan --save wrote, in place of a target"),
]
OptionalEpsilon = Annotated[float | None, typer.Option("--epsilon", help="ε of the target")]
OptionalDelta = Annotated[
    float | None,
    typer.Option("--delta", help="δ of the target; by default 1e-6, or less where rows are many"),
]
LedgerOption = Annotated[Path | None, typer.Option(help="ledger file to charge")]
DatasetOption = Annotated[str | None, typer.Option(help="the ledger's name for the table")]
PurposeOption = Annotated[str, typer.Option(help="the owner's words for the ledger's history")]
PublicRowsOption = Annotated[
    Path | None,
    typer.Option("--public-rows", help="a table like the private one that is public: it shapes the plan"),
]
YesOption = Annotated[bool, typer.Option("--yes", help="do not ask before the budget is spent")]
ProfileOption = Annotated[
    list[str] | None, typer.Option(help="predict for a profile, as age=60,sex=male; may be repeated")
]


def opened(ledger: Path | None, dataset: str | None, key: Path | None) -> Ledger | None:
    """The ledger, before any work; it must know the data set."""
    if (ledger is None) != (dataset is None) or (key is not None and ledger is None):
        raise DeclarationError("give --ledger and --dataset, both or neither; --key is that ledger's.")
    if ledger is None or dataset is None:
        return None
    books = open_ledger(ledger, key)
    books.balance(dataset)
    return books


def read_question(
    schema: Path, formula: str | None, model: str | None, family: str, priors: Sequence[str]
) -> Question:
    """The question that a schema and a formula, or a model file, ask."""
    from private_mcmc.cli.common import load_model
    from private_mcmc.data.schema import Schema
    from private_mcmc.inference.question import question

    function, source = (None, "") if model is None else load_model(model)
    asked = question(Schema.load(schema), formula, family=family, priors=priors, model=function)
    return asked if model is None else replace(asked, source=source)


def as_guarantee(word: str) -> Literal["run", "posterior"]:
    """Raises ``DeclarationError`` for another word."""
    if word not in ("run", "posterior"):
        raise DeclarationError(f"--guarantee {word!r}: 'run' or 'posterior'.")
    return "posterior" if word == "posterior" else "run"


def read_max_error(given: Sequence[str] | None) -> MaxError | None:
    """A number, or ``COEFFICIENT=NUMBER`` for some of them."""
    from private_mcmc.data.cells import plain_number

    if not given:
        return None
    pairs = [item.rpartition("=") for item in given]
    limits = {name.strip(): plain_number(value) for name, _, value in pairs}
    if any(math.isnan(limit) for limit in limits.values()) or ("" in limits and len(given) > 1):
        raise DeclarationError(
            f"--max-error {' '.join(given)}: one number, as 0.5, or COEFFICIENT=NUMBER, as age=0.01 and "
            "'sex[male]=0.2', one in each --max-error."
        )
    return limits.get("", limits)


def planned_elsewhere(**options: object) -> None:
    """Raise ``DeclarationError`` for an option that a saved plan has decided already."""
    if given := [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]:
        raise DeclarationError(f"--plan: the plan has decided {', '.join(given)}; leave it out.")


def saved_plan(path: Path, model: Model, adjacency: str, guarantee: str) -> Plan:
    """The plan in a file; raises for an adjacency or a guarantee that is asked for and is not the plan's."""
    from private_mcmc.planning import Plan

    made = Plan.load(path, model)
    for asked, usual, decided in (
        (adjacency, "replace_one", made.target.adjacency),
        (guarantee, "run", made.guarantee),
    ):
        if asked not in (usual, decided):
            raise DeclarationError(f"--plan: the plan was made for {decided!r}, not for {asked!r}.")
    return made


def confirm(
    made: Plan,
    said: Sequence[str],
    yes: bool,
    as_json: bool,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    units: Mapping[str, str] | None = None,
) -> None:
    """Show what a plan is expected to err and what to know of it; go on only if that is confirmed."""
    from rich.console import Console

    made.report(units).show(Console(stderr=as_json))
    tell(said)
    if ledger is not None and dataset is not None:
        typer.echo(f"The ledger has {ledger.room_for(dataset, made.statement)} left.", err=True)
    if yes:
        return
    typer.echo(f"This spends ε = {made.target.epsilon:g} at δ = {made.target.delta:g}.", err=True)
    try:
        agreed = ask("Go on? [y/N]").lower() in ("y", "yes")
    except EOFError:
        agreed = False
    if not agreed:
        raise DeclarationError("not confirmed: nothing was spent. Answer y, or give --yes in scripts.")


def tell(said: Sequence[str]) -> None:
    """Remarks, on standard error."""
    for words in said:
        typer.echo(f"Note: {words}", err=True)


def show(
    study: Study, profiles: Sequence[dict[str, str]], prob: float, as_json: bool, out: Path | None = None
) -> None:
    """Print a study's answers, what they cost, and where the dossier is."""
    from private_mcmc.dossier.claims import widening
    from private_mcmc.dossier.page import results
    from private_mcmc.report import Block, Report, Text

    price = study.price.summary(study.delta).splitlines()
    statement = "\n".join(line.strip() for line in price[:2])
    answers = study.answers(prob) if study.formula else None
    if as_json:
        found = _record(study, answers, profiles, statement)
        found |= {} if out is None else {"dossier": str(out)}
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    blocks: list[Block] = results(study, prob)[:1]
    if profiles and answers is not None:
        blocks.append(answers.predictions(profiles))
    blocks += [*widening(study), Text(statement)]
    if out is not None:
        page, check = out / "dossier.html", f"private-mcmc verify {out}"
        blocks.append(Text(f"Dossier: {page}. Check it anywhere, without the table: `{check}`"))
    Report("Answers", tuple(blocks)).show()


def read_profile(text: str) -> dict[str, str]:
    """``age=60,sex=male`` by name."""
    found = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise DeclarationError(f"--profile {text!r}: FIELD=VALUE,FIELD=VALUE, as in age=60,sex=male.")
        found[name.strip()] = value.strip()
    return found


def _record(
    study: Study, answers: Answers | None, profiles: Sequence[dict[str, str]], statement: str
) -> Record:
    from private_mcmc.report import plain

    found: Record = {
        "n": study.n,
        "epsilon": study.epsilon,
        "delta": study.delta,
        "adjacency": study.adjacency,
        "predicted": study.predicted,
        "expected": study.expected,
        "passes": study.passes,
        "warnings": list(study.warnings),
        "statement": statement,
        "fingerprint": study.fingerprint,
    }
    if answers is None:
        return found | {
            "sites": {name: values.mean(axis=0).tolist() for name, values in study.arrays.items()}
        }
    return found | {
        "formula": study.formula,
        "family": study.family,
        "coefficients": [plain(one) for one in answers.summary()],
        "predictions": [plain(answers.predict(profile)) for profile in profiles],
    }


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
