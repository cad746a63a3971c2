"""``private-mcmc fit people.csv --schema schema.yaml --formula "death ~ age" --epsilon 1 --out study/``."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from private_mcmc.cli.common import AdjacencyOption, JsonOption, ask, near_private_rows
from private_mcmc.errors import DeclarationError
from private_mcmc.files import NewFile, new_file, write_whole
from private_mcmc.target import check_adjacency

if TYPE_CHECKING:
    from private_mcmc.data import Answers, Schema, Study
    from private_mcmc.planning import Plan

ProfileOption = Annotated[
    list[str] | None, typer.Option(help="predict for a profile, as age=60,sex=male; may be repeated")
]


def fit(
    table: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, Stata, SPSS or SAS file")],
    schema: Annotated[Path, typer.Option(help="what its cells may be: see private-mcmc init")],
    epsilon: Annotated[float | None, typer.Option(help="ε of the target")] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder for what is released; made if there is none")
    ] = None,
    formula: Annotated[
        str | None, typer.Option(help="such as 'death ~ age + log(kappa) + (1 | region)'")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="a NumPyro model in its place, FILE.py:FUNCTION; arguments are fields")
    ] = None,
    family: Annotated[
        str, typer.Option(help="bernoulli, poisson, gaussian, categorical, cumulative, …")
    ] = "bernoulli",
    prior: Annotated[
        list[str] | None,
        typer.Option(help="on the users' scale, as 'age ~ normal(0, 0.1)' or 'sigma = 12'; may be repeated"),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="δ of the target; by default 1e-6, or less where rows are many")
    ] = None,
    adjacency: AdjacencyOption = "replace_one",
    n: Annotated[
        int | None, typer.Option("--n", help="public bound on the number of rows (add_remove, zero_out)")
    ] = None,
    guarantee: Annotated[str, typer.Option(help="'run', or 'posterior' for the posterior as well")] = "run",
    max_error: Annotated[
        float | None, typer.Option(help="refuse a larger predicted error, in posterior sds")
    ] = None,
    profile: ProfileOption = None,
    ledger: Annotated[Path | None, typer.Option(help="ledger file to charge")] = None,
    dataset: Annotated[str | None, typer.Option(help="the ledger's name for the table")] = None,
    purpose: Annotated[str, typer.Option(help="the owner's words for the ledger's history")] = "",
    show_model: Annotated[
        bool, typer.Option("--show-model", help="print the NumPyro model and stop")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask before the budget is spent")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fit a model privately and answer in the table's own units.

    The predicted error is shown, and nothing is spent before it is confirmed.
    """
    from private_mcmc.data.schema import Schema
    from private_mcmc.data.study import texts
    from private_mcmc.inference.fit import plan_fit
    from private_mcmc.inference.question import question

    declared, priors = Schema.load(schema), prior or []
    function = None
    if model is not None:
        from private_mcmc.cli.common import load_model

        function = load_model(model)
    asked = question(declared, formula, family=family, priors=priors, model=function)
    if model is not None:
        asked = replace(asked, source=Path(model.rpartition(":")[0]).read_text(encoding="utf-8"))
    if show_model:
        typer.echo(asked.source, nl=False)
        return
    if epsilon is None or out is None:
        raise DeclarationError("give --epsilon and --out, or --show-model.")
    if guarantee not in ("run", "posterior"):
        raise DeclarationError(f"--guarantee {guarantee!r}: 'run' or 'posterior'.")
    profiles = [read_profile(text) for text in profile or []]
    _check_profiles(declared, asked.fields, profiles)
    books = None
    if ledger is not None:
        from private_mcmc.release import Ledger

        books = Ledger(ledger)

    with _study_file(out) as place:
        with near_private_rows():
            planned = plan_fit(
                table,
                asked,
                epsilon=epsilon,
                delta=delta,
                adjacency=check_adjacency(adjacency),
                n=n,
                guarantee="posterior" if guarantee == "posterior" else "run",
                max_error=max_error,
            )
        confirm(planned.plan, planned.warnings(books), yes, as_json)
        bar = not as_json and sys.stderr.isatty()
        with near_private_rows():
            study = planned.run(ledger=books, dataset=dataset, purpose=purpose, progress_bar=bar)
        place.write(study.to_json())
    write_whole(out / "model.py", study.model)
    write_whole(out / "schema.yaml", Schema.from_dict(texts(study.schema)).to_yaml())
    show(study, profiles, out / "forest.png", 0.9, as_json)


def show(
    study: Study, profiles: Sequence[dict[str, str]], forest: Path | None, prob: float, as_json: bool
) -> None:
    """Print a study's answers; also draw the forest plot."""
    from private_mcmc.accounting import Statement
    from private_mcmc.report import Report, Text

    lines = Statement.from_dict(study.statement).summary(study.delta).splitlines()
    statement = "\n".join(line.strip() for line in lines[:2])
    if not study.formula:
        words = f"Draws are in study.json, in the model's own units.\n{statement}"
        typer.echo(json.dumps({"statement": statement}) if as_json else words)
        return
    answers = study.answers(prob)
    if forest is not None:
        answers.draw_forest(forest)
    if as_json:
        typer.echo(json.dumps(_record(study, answers, profiles, statement), ensure_ascii=False))
        return
    tables = [answers.table()]
    if profiles:
        tables.append(answers.predictions(profiles))
    Report("Answers", (*tables, Text(statement))).show()


def read_profile(text: str) -> dict[str, str]:
    """``age=60,sex=male`` by name.

    Raises:
        DeclarationError: for anything else.
    """
    found = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise DeclarationError(f"--profile {text!r}: FIELD=VALUE,FIELD=VALUE, as in age=60,sex=male.")
        found[name.strip()] = value.strip()
    return found


def _record(
    study: Study, answers: Answers, profiles: Sequence[dict[str, str]], statement: str
) -> dict[str, Any]:
    from private_mcmc.report import plain

    return {
        "formula": study.formula,
        "family": study.family,
        "n": study.n,
        "predicted": plain(dict(study.predicted)),
        "warnings": list(study.warnings),
        "coefficients": [plain(one) for one in answers.summary()],
        "predictions": [plain(answers.predict(profile)) for profile in profiles],
        "statement": statement,
    }


def _check_profiles(schema: Schema, fields: Sequence[str], profiles: Sequence[dict[str, str]]) -> None:
    """Raise before anything is spent what a prediction would."""
    from private_mcmc.data.profiles import profile_value

    for profile in profiles:
        if unknown := sorted(set(profile) - set(fields)):
            raise DeclarationError(f"--profile: {unknown} are not in the model; it reads {list(fields)}.")
        for name, text in profile.items():
            profile_value(schema[name], text)


def confirm(made: Plan, said: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Show what a plan is expected to err and what to know of it; go on only if that is confirmed.

    Raises:
        DeclarationError: otherwise.
    """
    from rich.console import Console

    made.report().show(Console(stderr=as_json))
    for words in said:
        typer.echo(f"Note: {words}", err=True)
    if yes:
        return
    typer.echo(f"This spends ε = {made.target.epsilon:g} at δ = {made.target.delta:g}.", err=True)
    try:
        agreed = ask("Go on? [y/N]").lower() in ("y", "yes")
    except EOFError:
        agreed = False
    if not agreed:
        raise DeclarationError("not confirmed: nothing was spent. Answer y, or give --yes in scripts.")


@contextlib.contextmanager
def _study_file(out: Path) -> Iterator[NewFile]:
    """The place of the record, in a folder that is made for it and not left behind empty."""
    from private_mcmc.data.study import RECORD

    made = not out.exists()
    if made:
        try:
            out.mkdir(parents=True)
        except OSError as error:
            raise DeclarationError(f"{out}: the folder cannot be made ({error.strerror}).") from None
    try:
        with new_file(out / RECORD) as place:
            yield place
    finally:
        if made:
            with contextlib.suppress(OSError):  # it is not empty
                out.rmdir()
