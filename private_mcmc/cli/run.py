"""``private-mcmc run MODEL.py:model --rows rows.toml …`` and ``fit people.csv --schema …``: plan and run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.common import (
    AdjacencyOption,
    ArgsOption,
    JsonOption,
    KeyOption,
    ModelArgument,
    load_model,
    near_private_rows,
    read_arguments,
    read_rows,
)
from private_mcmc.cli.study import (
    DatasetOption,
    FamilyOption,
    FormulaOption,
    GuaranteeOption,
    LedgerOption,
    MaxErrorOption,
    OptionalDelta,
    OptionalEpsilon,
    OutOption,
    PlanOption,
    PriorOption,
    ProfileOption,
    PublicRowsOption,
    PurposeOption,
    YesOption,
    as_guarantee,
    confirm,
    opened,
    planned_elsewhere,
    read_max_error,
    read_profile,
    read_question,
    saved_plan,
    show,
    tell,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Target, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.data import Schema
    from private_mcmc.planning import Plan


def run(
    model: ModelArgument,
    data: Annotated[Path, typer.Option(help="CSV file of private rows, with a header")],
    out: OutOption,
    rows: Annotated[
        Path | None, typer.Option("--rows", help="TOML file: a domain for every column of a row")
    ] = None,
    epsilon: OptionalEpsilon = None,
    delta: OptionalDelta = None,
    saved: PlanOption = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="fields of a vector column, as NAME=field,field,…; may be repeated"),
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(help="what a cell that is no number counts as, as FIELD=NUMBER; otherwise refused"),
    ] = None,
    missing_code: Annotated[
        list[str] | None,
        typer.Option(help="numbers that stand for a missing value, as FIELD=NUMBER,NUMBER,…"),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--n", help="public: bound on the number of rows (add_remove), of slots (zero_out), of persons"
        ),
    ] = None,
    present: Annotated[
        str | None,
        typer.Option(help="field that is 1 where a row holds a person, else its slot is empty (zero_out)"),
    ] = None,
    adjacency: AdjacencyOption = "replace_one",
    args: ArgsOption = None,
    guarantee: GuaranteeOption = "run",
    max_error: MaxErrorOption = None,
    public_rows: PublicRowsOption = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = None,
    key: KeyOption = None,
    purpose: PurposeOption = "",
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a planned private path on a CSV file and write its dossier.

    The predicted error is shown, and nothing is spent before it is confirmed.
    """
    from private_mcmc.cli.table import Missing, read_columns
    from private_mcmc.data.same_table import Marks, check_apart, data_marks, refuse_changed
    from private_mcmc.dossier import new_dossier
    from private_mcmc.dossier.record import small_delta, warnings_of
    from private_mcmc.inference import Bookkeeping, Execution, PrivateMCMC
    from private_mcmc.inference.record import About
    from private_mcmc.planning import plan

    relation, wanted = check_adjacency(adjacency), as_guarantee(guarantee)
    (program, source), fate = load_model(model), Missing.parse(missing or [], missing_code or [])
    made: Plan | None = None
    if saved is not None:
        planned_elsewhere(
            epsilon=epsilon,
            delta=delta,
            rows=rows,
            n=n,
            args=args,
            max_error=max_error,
            public_rows=public_rows,
        )
        made = saved_plan(saved, program, relation, wanted)
        declared, relation = made.rows, made.target.adjacency
    elif rows is None or epsilon is None:
        raise DeclarationError("give --rows and --epsilon, or --plan.")
    else:
        Target(epsilon, 1e-6 if delta is None else delta, relation)
        declared = read_rows(rows)
        if relation != "replace_one" and n is None:
            raise DeclarationError(
                f"adjacency={adjacency!r} hides the number of rows: give a public one, --n."
            )
        if declared.unit is not None and n is None:
            raise DeclarationError(
                f"persons by {declared.unit.name!r}: give their number, which is public, --n."
            )
    if relation != "zero_out" and present is not None:
        raise DeclarationError("--present: slots may be empty under --adjacency zero_out only.")
    check_apart(data, public_rows)
    public, books = read_arguments(args), opened(ledger, dataset, key)
    bar = not as_json and sys.stderr.isatty()
    with new_dossier(out) as place:
        with near_private_rows():
            marks = data_marks(data) if data.is_file() else Marks({}, b"")
            columns = read_columns(data, declared, column or [], fate, present)
            refuse_changed(data, marks)
        known = None if public_rows is None else read_columns(public_rows, declared, column or [], fate)
        if made is None and epsilon is not None:
            count = len(next(iter(columns.values()))) if n is None else n
            target = Target(epsilon, small_delta(count) if delta is None else delta, relation)
            made = plan(
                program,
                declared,
                target,
                n=count,
                guarantee=wanted,
                model_args=public,
                max_error=read_max_error(max_error),
                public_rows=known,
                progress_bar=bar,
            )
        if made is None:
            raise DeclarationError("there is no plan.")
        said = warnings_of(made.target, made.n, books)
        confirm(made, said, yes, as_json, books, dataset)
        driver = PrivateMCMC.from_plan(
            made,
            execution=Execution(progress_bar=bar),
            bookkeeping=Bookkeeping(books, dataset, purpose, known_by=marks.known_by),
        )
        with near_private_rows():
            refuse_changed(data, marks)
            driver.run(**columns)
        study = driver.kept(About(table=data.name, model=source))
        place.write(study)
    tell(study.warnings[len(said) :])
    show(study, [], 0.9, as_json, out)


def fit(
    table: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, Stata, SPSS or SAS file")],
    schema: Annotated[Path | None, typer.Option(help="what its cells may be: see private-mcmc init")] = None,
    epsilon: OptionalEpsilon = None,
    out: Annotated[Path | None, typer.Option(help="folder for the dossier; made if there is none")] = None,
    formula: FormulaOption = None,
    model: Annotated[
        str | None, typer.Option(help="a NumPyro model in its place, FILE.py:FUNCTION; arguments are fields")
    ] = None,
    family: FamilyOption = "bernoulli",
    prior: PriorOption = None,
    delta: OptionalDelta = None,
    adjacency: AdjacencyOption = "replace_one",
    n: Annotated[
        int | None, typer.Option("--n", help="public: bound on the number of rows (add_remove), of persons")
    ] = None,
    guarantee: GuaranteeOption = "run",
    max_error: MaxErrorOption = None,
    bounds_share: Annotated[
        float | None,
        typer.Option(help="of the squared budget, for fields with bounds: private; 0.1 if left out"),
    ] = None,
    saved: PlanOption = None,
    public_rows: PublicRowsOption = None,
    profile: ProfileOption = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = None,
    key: KeyOption = None,
    purpose: PurposeOption = "",
    show_model: Annotated[
        bool, typer.Option("--show-model", help="print the NumPyro model and stop")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit a model privately, answer in the table's own units, and write the dossier.

    The predicted error is shown, and nothing is spent before it is confirmed.
    """
    from private_mcmc.dossier import new_dossier
    from private_mcmc.inference.fit_plan import plan_fit, with_plan
    from private_mcmc.inference.question import SHARE

    if schema is None:
        raise DeclarationError(
            f"--schema: what cells may be is declared first: private-mcmc init {table} --output schema.yaml "
            "writes what a person then checks, and --schema schema.yaml names it."
        )
    asked = read_question(schema, formula, model, family, prior or [])
    if show_model:
        typer.echo(asked.source, nl=False)
        return
    if out is None or (epsilon is None) == (saved is None):
        lacks = ["--out FOLDER, where the dossier is written"] * (out is None)
        lacks += ["one of --epsilon and --plan"] * ((epsilon is None) == (saved is None))
        raise DeclarationError(f"give {', and '.join(lacks)} (or --show-model).")
    relation, wanted = check_adjacency(adjacency), as_guarantee(guarantee)
    profiles = [read_profile(text) for text in profile or []]
    _check_profiles(asked.schema, asked.fields, profiles)
    made: Plan | None = None
    if saved is not None:
        planned_elsewhere(
            delta=delta, n=n, max_error=max_error, bounds_share=bounds_share, public_rows=public_rows
        )
        made = saved_plan(saved, asked.model, relation, wanted)
    books, bar = opened(ledger, dataset, key), not as_json and sys.stderr.isatty()
    with new_dossier(out) as place:
        with near_private_rows():
            if made is not None:
                planned = with_plan(table, asked, made)
            elif epsilon is not None:
                planned = plan_fit(
                    table,
                    asked,
                    epsilon=epsilon,
                    delta=delta,
                    adjacency=relation,
                    n=n,
                    guarantee=wanted,
                    max_error=read_max_error(max_error),
                    bounds_share=SHARE if bounds_share is None else bounds_share,
                    public_rows=public_rows,
                    progress_bar=bar,
                )
        said = planned.warnings(books)
        confirm(planned.plan, said, yes, as_json, books, dataset, asked.units)
        with near_private_rows():
            study = planned.run(ledger=books, dataset=dataset, purpose=purpose, progress_bar=bar)
        place.write(study)
    tell(study.warnings[len(said) :])
    show(study, profiles, 0.9, as_json, out)


def _check_profiles(schema: Schema, fields: Sequence[str], profiles: Sequence[dict[str, str]]) -> None:
    """Raise before anything is spent what a prediction would."""
    from private_mcmc.data.profiles import profile_value

    for profile in profiles:
        if unknown := sorted(set(profile) - set(fields)):
            raise DeclarationError(f"--profile: {unknown} are not in the model; it reads {list(fields)}.")
        for name, text in profile.items():
            profile_value(schema[name], text)
