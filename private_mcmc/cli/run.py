"""``private-mcmc run MODEL.py:model --rows rows.toml …`` and ``fit people.csv --schema …``: plan and run."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from private_mcmc.cli.common import (
    AllOption,
    ArgsOption,
    ChargedOptions,
    FamilyOption,
    FormulaOption,
    JsonOption,
    KeyOption,
    MaxErrorOption,
    ModelArgument,
    OptionalRows,
    PriorOption,
    ProfileOption,
    PublicRowsOption,
    ask,
    echo,
    load_model,
    open_ledger,
    read_arguments,
    read_max_error,
    read_profile,
    read_question,
    read_rows,
    shortened,
    show_prediction,
    tell,
    with_options,
)
from private_mcmc.cli.study import show_answers
from private_mcmc.errors import DeclarationError, PrivateMCMCError, clean_errors
from private_mcmc.records import Fields, Model
from private_mcmc.target import (
    OF_FITS,
    Guarantee,
    Target,
    checked_guarantee,
    remarks_on_delta,
    small_delta,
)

if TYPE_CHECKING:
    from private_mcmc.data import Schema
    from private_mcmc.dossier import Study
    from private_mcmc.inference.execute_plan import Look
    from private_mcmc.planning import History, Plan
    from private_mcmc.release import Ledger


class Prepared(NamedTuple):
    """A planned run before anything is spent: remarks on it, units of its coefficients, and how it runs."""

    plan: Plan
    remarks: Sequence[str]
    units: Mapping[str, str]
    run: Callable[[], Study]


@dataclass(frozen=True, kw_only=True)
class RunOptions(ChargedOptions):
    """What ``fit`` and ``run`` are both told."""

    out: Annotated[Path | None, typer.Option(help="folder for the dossier; made if there is none")] = None
    saved: Annotated[
        Path | None,
        typer.Option("--plan", help="a plan that private-mcmc plan --save wrote, in place of a target"),
    ] = None
    guarantee: Annotated[str, typer.Option(help="'run', or 'posterior' for the posterior as well")] = OF_FITS
    max_error: MaxErrorOption = None
    public_rows: PublicRowsOption = None

    @property
    def wanted(self) -> Guarantee:
        """The guarantee, checked."""
        return checked_guarantee(self.guarantee)

    @property
    def progress_bar(self) -> bool:
        """Whether somebody looks at one."""
        return not self.as_json and sys.stderr.isatty()

    def saved_plan(self, model: Model, **options: object) -> Plan | None:
        """The plan of ``--plan``, if there is one; it has decided these options, and what else it is for."""
        from private_mcmc.planning import Plan

        if self.saved is None:
            return None
        mine = {name: getattr(self, name) for name in ("delta", "n", "max_error", "public_rows")}
        if given := [name.replace("_", "-") for name, value in (mine | options).items() if value is not None]:
            raise DeclarationError(
                f"--plan: the plan has decided {', '.join(f'--{name}' for name in given)}; leave it out."
            )
        made = Plan.load(self.saved, model)
        for asked, usual, decided in (
            (self.relation, "replace_one", made.target.adjacency),
            (self.wanted, OF_FITS, made.guarantee),
        ):
            if asked not in (usual, decided):
                raise DeclarationError(f"--plan: the plan was made for {decided!r}, not for {asked!r}.")
        return made

    def keep(self, made: Plan, out: Path) -> str:
        """Write the plan beside the folder that was to be, so that its minutes are not lost; says where."""
        if self.saved is not None or made.before:  # bounds that are bought change the plan
            return ""
        names = (f"{out.name}-plan{k or ''}.json" for k in itertools.count())
        place = next(one for name in names if not os.path.lexists(one := out.parent / name))
        try:
            made.save(place)
        except PrivateMCMCError:  # arguments that no file holds, or a folder that cannot be written
            return ""
        return (
            f" The plan is kept: the same command with --plan {place} in place of --epsilon goes on with it."
        )

    def look(self, units: Mapping[str, str]) -> Look:
        """Show what the cheap stages say of the error; stop above ``--max-error``, or if a person says so."""
        from private_mcmc.inference.fitting import exceeds
        from private_mcmc.planning.prediction import predict_after

        limit = read_max_error(self.max_error)

        def look(plan: Plan, releases: History) -> bool:
            expected = predict_after(plan, releases)
            show_prediction(expected, units, self.as_json, self.whole)
            if limit is not None and exceeds(expected, limit):
                tell(["The error is larger than --max-error: nothing more is bought."])
                return True
            if limit is not None or self.yes or not sys.stdin.isatty():
                return False
            return ask("Buy the rest? [Y/n]").lower() in ("n", "no")

        return look

    def carry_out(
        self,
        out: Path,
        books: Ledger | None,
        prepare: Callable[[Callable[[Fields], None]], Prepared],
        profiles: Sequence[dict[str, str]] = (),
    ) -> None:
        """Plan, ask, run, write the dossier, and show its answers."""
        from rich.console import Console

        from private_mcmc.dossier import new_dossier

        with new_dossier(out) as dossier:
            made, remarks, units, run = clean_errors(prepare)(dossier.keep)
            shortened(made.report(units), self.whole).show(Console(stderr=self.as_json))
            shown = remarks_on_delta(made.target.delta, made.n)
            tell([words for words in remarks if words not in shown])
            self.confirm(made.target, made.statement, books, partial(self.keep, made, out))
            study = clean_errors(run)()
            dossier.write(study)
        tell(study.warnings[len(remarks) :])
        show_answers(study, profiles, 0.9, self.as_json, out, self.whole)


@with_options(RunOptions)
def run(
    options: RunOptions,
    model: ModelArgument,
    data: Annotated[Path, typer.Option(help="CSV file of private rows, with a header")],
    rows: OptionalRows = None,
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
    present: Annotated[
        str | None,
        typer.Option(help="field that is 1 where a row holds a person, else its slot is empty (zero_out)"),
    ] = None,
    args: ArgsOption = None,
) -> None:
    """Run a planned private path on a CSV file and write its dossier.

    The predicted error is shown, and nothing is spent before it is confirmed.
    """
    from private_mcmc.cli.table import read_columns, read_fates
    from private_mcmc.data.apart import check_apart
    from private_mcmc.data.readers import source_of
    from private_mcmc.data.table import data_marks, refuse_changed, refuse_empty
    from private_mcmc.dossier.record import warnings_of
    from private_mcmc.inference import Bookkeeping, Execution, PrivateMCMC
    from private_mcmc.inference.execute_plan import PlannedRun
    from private_mcmc.inference.last_run import About
    from private_mcmc.inference.raw_release import Keeper
    from private_mcmc.planning import plan

    epsilon, delta, n = options.epsilon, options.delta, options.n
    (program, source), fate = load_model(model), read_fates(missing or [], missing_code or [])
    saved = options.saved_plan(program, epsilon=epsilon, rows=rows, args=args)
    if saved is not None:
        declared, target = saved.rows, saved.target
    elif rows is None or epsilon is None:
        raise DeclarationError("give --rows and --epsilon, or --plan.")
    else:
        declared = read_rows(rows)
        target = Target(epsilon, small_delta(1) if delta is None else delta, options.relation)
        if target.adjacency != "replace_one" and n is None:
            raise DeclarationError(
                f"adjacency={target.adjacency!r} hides the number of rows: give a public one, --n."
            )
        if declared.unit is not None and n is None:
            raise DeclarationError(
                f"persons by {declared.unit.name!r}: give their number, which is public, --n."
            )
    if target.adjacency != "zero_out" and present is not None:
        raise DeclarationError("--present: slots may be empty under --adjacency zero_out only.")
    if options.out is None:
        raise DeclarationError("give --out FOLDER, where the dossier is written.")
    check_apart(data, options.public_rows)
    public, books = read_arguments(args), options.books()

    def prepare(keep: Callable[[Fields], None]) -> Prepared:
        source_of(data)  # what is no table is refused in its own words
        marks = data_marks(data)
        columns = read_columns(data, declared, column or [], fate, present)
        refuse_changed(data, marks)
        if target.adjacency == "replace_one" and declared.unit is None:
            refuse_empty(data, columns)
        made = planned(len(next(iter(columns.values())))) if saved is None else saved
        about = About(table=data.name, model=source)
        kept = Keeper(keep, made, about, made)
        driver = PrivateMCMC.of_run(
            PlannedRun(made, Execution(progress_bar=options.progress_bar), options.look({})),
            Bookkeeping(books, options.dataset, options.purpose, known_by=marks.known_by, keep=kept),
        )

        def carried_out() -> Study:
            refuse_changed(data, marks)
            driver.run(**columns)
            return driver.kept(about)

        return Prepared(made, warnings_of(made.target, made.n, books), {}, carried_out)

    def planned(here: int) -> Plan:
        count, shaping = here if n is None else n, options.public_rows
        return plan(
            program,
            declared,
            replace(target, delta=small_delta(count)) if delta is None else target,
            n=count,
            guarantee=options.wanted,
            model_args=public,
            max_error=read_max_error(options.max_error),
            public_rows=None if shaping is None else read_columns(shaping, declared, column or [], fate),
            progress_bar=options.progress_bar,
        )

    options.carry_out(options.out, books, prepare)


@with_options(RunOptions)
def fit(
    options: RunOptions,
    table: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, Stata, SPSS; folders of Parquet")],
    schema: Annotated[Path | None, typer.Option(help="what its cells may be: see private-mcmc init")] = None,
    formula: FormulaOption = None,
    model: Annotated[
        str | None, typer.Option(help="a NumPyro model in its place, FILE.py:FUNCTION; arguments are fields")
    ] = None,
    family: FamilyOption = "bernoulli",
    prior: PriorOption = None,
    bounds_share: Annotated[
        float | None,
        typer.Option(help="of the squared budget, for fields with bounds: private; 0.1 if left out"),
    ] = None,
    profile: ProfileOption = None,
    show_model: Annotated[
        bool, typer.Option("--show-model", help="print the NumPyro model and stop")
    ] = False,
) -> None:
    """Fit a model privately, answer in the table's own units, and write the dossier.

    The predicted error is shown, and nothing is spent before it is confirmed.
    """
    from private_mcmc.inference.fitting import plan_fit, with_plan
    from private_mcmc.inference.question import SHARE

    if schema is None:
        raise DeclarationError(
            f"--schema: what cells may be is declared first: private-mcmc init {table} --output schema.yaml "
            "writes what a person then checks, and --schema schema.yaml names it."
        )
    asked = read_question(schema, formula, model, family, prior or [])
    if show_model:
        echo(asked.source, nl=False)
        return
    out, epsilon = options.out, options.epsilon
    if out is None or (epsilon is None) == (options.saved is None):
        lacks = ["--out FOLDER, where the dossier is written"] * (out is None)
        lacks += ["one of --epsilon and --plan"] * ((epsilon is None) == (options.saved is None))
        raise DeclarationError(f"give {', and '.join(lacks)} (or --show-model).")
    profiles = [read_profile(text) for text in profile or []]
    _check_profiles(asked.schema, asked.fields, profiles)
    saved, books = options.saved_plan(asked.model, bounds_share=bounds_share), options.books()

    def prepare(keep: Callable[[Fields], None]) -> Prepared:
        if saved is not None:
            planned = with_plan(table, asked, saved)
        elif epsilon is not None:
            planned = plan_fit(
                table,
                asked,
                epsilon=epsilon,
                delta=options.delta,
                adjacency=options.relation,
                n=options.n,
                guarantee=options.wanted,
                max_error=read_max_error(options.max_error),
                bounds_share=SHARE if bounds_share is None else bounds_share,
                public_rows=options.public_rows,
                progress_bar=options.progress_bar,
            )

        def carried_out() -> Study:
            return planned.run(
                ledger=books,
                dataset=options.dataset,
                purpose=options.purpose,
                progress_bar=options.progress_bar,
                keep=keep,
                look=options.look(asked.units),
            )

        return Prepared(planned.plan, planned.warnings(books), asked.units, carried_out)

    options.carry_out(out, books, prepare, profiles)


def _check_profiles(schema: Schema, fields: Sequence[str], profiles: Sequence[dict[str, str]]) -> None:
    """Raise before anything is spent what a prediction would."""
    from private_mcmc.data.profiles import profile_value

    for profile in profiles:
        if unknown := sorted(set(profile) - set(fields)):
            raise DeclarationError(f"--profile: {unknown} are not in the model; it reads {list(fields)}.")
        for name, text in profile.items():
            profile_value(schema[name], text)


def resume(
    study: Annotated[Path, typer.Argument(help="the folder of a fit that was killed")],
    table: Annotated[Path, typer.Argument(help="the very table that it was started with")],
    ledger: Annotated[Path, typer.Option(help="that was charged")],
    key: KeyOption = None,
    model: Annotated[str | None, typer.Option(help="FILE.py:FUNCTION, of a fit without a formula")] = None,
    whole: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Go on with a fit that was killed: bounds and stages that it has bought are not bought again."""
    from private_mcmc.dossier.folder import finish, kept_in
    from private_mcmc.inference.fitting import resume as resumed

    program, source = (None, "") if model is None else load_model(model)
    books, keep, shown = (
        open_ledger(ledger, key),
        partial(kept_in, study),
        not as_json and sys.stderr.isatty(),
    )
    made = clean_errors(resumed)(
        study, table, books, model=program, source=source, progress_bar=shown, keep=keep
    )
    finish(study, made)
    tell(made.warnings)
    show_answers(made, [], 0.9, as_json, study, whole)
