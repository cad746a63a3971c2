"""``private-mcmc fit``, ``resume``, ``describe``, ``check``, ``compare``: plan, ask, charge, run and keep."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, cast, get_type_hints

import typer

from private_mcmc.arguments import OF_FITS, checked_guarantee, remarks_on_delta
from private_mcmc.cli.common import (
    AdjacencyOption,
    EngineOption,
    FamilyOption,
    FormulaOption,
    GuaranteeOption,
    JsonOption,
    MaxErrorOption,
    MaxPassesOption,
    ModelOption,
    OptionalDelta,
    PriorOption,
    SchemaOption,
    ask,
    echo,
    load_model,
    read_engine,
    read_question,
    split_names,
    tell,
)
from private_mcmc.cli.study import show_answers, show_release
from private_mcmc.errors import DeclarationError, clean_errors
from private_mcmc.target import Adjacency, Target, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.accounting import Statement
    from private_mcmc.analysis import Analysis
    from private_mcmc.inference.declared import Look
    from private_mcmc.planning import History, Plan
    from private_mcmc.release import Ledger

Given = TypeVar("Given", bound="ChargedOptions")

TableArgument = Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, Stata, SPSS; folders of Parquet")]
StudyArgument = Annotated[Path, typer.Argument(help="the folder that private-mcmc fit wrote")]


@dataclass(frozen=True, kw_only=True)
class ChargedOptions:
    """What every command that spends is told; the fields' names are the options'."""

    epsilon: Annotated[float | None, typer.Option("--epsilon", help="ε of the target")] = None
    delta: OptionalDelta = None
    n: Annotated[
        int | None,
        typer.Option(
            "--n", help="public: bound on the number of rows (add_remove), of slots (zero_out), of persons"
        ),
    ] = None
    adjacency: AdjacencyOption = "replace_one"
    ledger: Annotated[Path | None, typer.Option(help="ledger file to charge")] = None
    dataset: Annotated[str | None, typer.Option(help="the ledger's name for the table")] = None
    purpose: Annotated[str, typer.Option(help="the owner's words for the ledger's history")] = ""
    yes: Annotated[bool, typer.Option("--yes", help="do not ask before the budget is spent")] = False
    engine: EngineOption = None
    as_json: JsonOption = False

    @property
    def relation(self) -> Adjacency:
        """The adjacency, checked."""
        return check_adjacency(self.adjacency)

    def books(self) -> Ledger | None:
        """The ledger, before any work; it must know the data set."""
        from private_mcmc.release import Ledger

        if (self.ledger is None) != (self.dataset is None):
            raise DeclarationError("give --ledger and --dataset, both or neither.")
        if self.ledger is None or self.dataset is None:
            return None
        books = Ledger(self.ledger)
        books.balance(self.dataset)
        return books

    def confirm(self, target: Target, price: Statement, ledger: Ledger | None, unit: str) -> None:
        """Say what is left and what this spends; go on only if that is confirmed."""
        from private_mcmc.release.ledger import affordable
        from private_mcmc.report import at_most

        if ledger is not None and self.dataset is not None:
            kept = ledger.balance(self.dataset)
            affordable(kept, price, unit or None)
            echo(f"The ledger has {kept.what_fits()} left.", err=True)
        if self.yes:
            return
        echo(f"This spends ε = {at_most(target.epsilon, 6)} at δ = {at_most(target.delta, 6)}.", err=True)
        try:
            agreed = ask("Go on? [y/N]").lower() in ("y", "yes")
        except EOFError:
            agreed = False
        if not agreed:
            raise DeclarationError("not confirmed: nothing was spent. Answer y, or give --yes in scripts.")


def with_options(record: type[Given]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function whose first argument is a ``record``: its fields become options."""
    hints, made = get_type_hints(record, include_extras=True), cast("Callable[..., Given]", record)
    shared = {name: one.replace(annotation=hints[name]) for name, one in signature(record).parameters.items()}

    def spread(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = signature(function, eval_str=True).parameters.values()
        options = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in (*own, *shared.values())]
        options.sort(key=lambda one: one.default is not Parameter.empty)

        def command(**given: object) -> None:
            function(made(**{name: given.pop(name) for name in shared}), **given)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {one.name: one.annotation for one in options}
        command.__signature__ = Signature(options)  # type: ignore[attr-defined]
        return command

    return spread


@with_options(ChargedOptions)
def fit(
    options: ChargedOptions,
    table: TableArgument,
    schema: Annotated[Path | None, typer.Option(help="what its cells may be: see private-mcmc init")] = None,
    formula: FormulaOption = None,
    model: ModelOption = None,
    family: FamilyOption = "bernoulli",
    prior: PriorOption = None,
    show_model: Annotated[
        bool, typer.Option("--show-model", help="print the NumPyro model and stop")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="folder for the dossier; made if there is none")] = None,
    guarantee: GuaranteeOption = OF_FITS,
    max_error: MaxErrorOption = None,
    max_passes: MaxPassesOption = None,
    bounds_share: Annotated[
        float | None,
        typer.Option(help="of the squared budget, for fields with bounds: private; 0.1 if left out"),
    ] = None,
    described: Annotated[
        Path | None, typer.Option(help="a table that describe wrote: predict errors for people like its")
    ] = None,
) -> None:
    """Fit a model privately, answer in the table's own units, and write the dossier.

    The predicted error is shown, and nothing is spent before it is confirmed.
    """
    from rich.console import Console

    from private_mcmc.dossier import load_record, new_dossier
    from private_mcmc.inference.fitting import plan_fit
    from private_mcmc.inference.question import SHARE

    if schema is None:
        raise DeclarationError(
            f"--schema: what cells may be is declared first: private-mcmc init {table} --out schema.yaml "
            "writes what a person then checks, and --schema schema.yaml names it."
        )
    asked = read_question(schema, formula, model, family, prior or [])
    if show_model:
        echo(asked.source, nl=False)
        return
    if out is None or options.epsilon is None:
        raise DeclarationError("give --out FOLDER, where the dossier is written, and --epsilon.")
    books, shown = options.books(), not options.as_json and sys.stderr.isatty()
    with new_dossier(out) as dossier:
        planned = clean_errors(plan_fit)(
            table,
            asked,
            epsilon=options.epsilon,
            delta=options.delta,
            adjacency=options.relation,
            n=options.n,
            guarantee=checked_guarantee(guarantee),
            max_error=max_error,
            max_passes=max_passes,
            bounds_share=SHARE if bounds_share is None else bounds_share,
            described=None if described is None else load_record(described),
            progress_bar=shown,
            engine=read_engine(options.engine),
        )
        made, remarks = planned.plan, planned.warnings(books)
        made.report(asked.units).show(Console(stderr=options.as_json))
        said = remarks_on_delta(made.target.delta, made.n)
        tell([words for words in remarks if words not in said])
        options.confirm(made.target, made.statement, books, asked.schema.unit)
        study = clean_errors(planned.run)(
            ledger=books,
            dataset=options.dataset,
            purpose=options.purpose or formula or "",
            progress_bar=shown,
            keep=dossier.keep,
            look=_look(options.as_json, options.yes, max_error, asked.units),
        )
        dossier.write(study)
    tell(study.warnings[len(remarks) :])
    show_answers(study, options.as_json, out)


def _look(as_json: bool, yes: bool, limit: float | None, units: Mapping[str, str]) -> Look:
    """Show what the cheap stages say of the error; stop above ``--max-error``, or if a person says so."""
    from rich.console import Console

    from private_mcmc.inference.fitting import exceeds
    from private_mcmc.planning.policy import predict_after
    from private_mcmc.planning.prediction import coefficient_table
    from private_mcmc.report import Facts, Report, number

    def look(plan: Plan, releases: History) -> bool:
        expected = predict_after(plan, releases)
        told = ("predicted error of posterior means", f"{number(expected.rms, 2)} posterior sds")
        each = (coefficient_table(expected, units, "by what was released"),) if expected.coefficients else ()
        page = Report("After the first stages, by what they released", (Facts((told,)), *each))
        page.show(Console(stderr=as_json))
        if limit is not None and exceeds(expected, limit):
            tell(["The error is larger than --max-error: nothing more is bought."])
            return True
        if limit is not None or yes or not sys.stdin.isatty():
            return False
        return ask("Buy the rest? [Y/n]").lower() in ("n", "no")

    return look


def resume(
    study: Annotated[Path, typer.Argument(help="the folder of a fit that was killed")],
    table: Annotated[Path, typer.Argument(help="the very table that it was started with")],
    ledger: Annotated[Path, typer.Option(help="that was charged")],
    model: Annotated[str | None, typer.Option(help="FILE.py:FUNCTION, of a fit without a formula")] = None,
    engine: EngineOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a fit that was killed: bounds and stages that it has bought are not bought again."""
    from private_mcmc.dossier.folder import NewDossier
    from private_mcmc.inference.fitting import resume as resumed
    from private_mcmc.inference.raw_release import RawRelease
    from private_mcmc.release import Ledger

    program, source = (None, "") if model is None else load_model(model)
    books, dossier, raw = Ledger(ledger), NewDossier(study), RawRelease.load(study, Ledger(ledger))
    shown = not as_json and sys.stderr.isatty()
    made = clean_errors(resumed)(
        study,
        table,
        books,
        model=program,
        source=source,
        progress_bar=shown,
        keep=dossier.keep,
        write=dossier.write,
        look=_look(as_json, False, raw.max_error, raw.asked(program).units),
        engine=read_engine(engine),
    )
    tell(made.warnings)
    show_answers(made, as_json, study)


@dataclass(frozen=True, kw_only=True)
class QueryOptions(ChargedOptions):
    """What commands that ask for sums are told."""

    out: Annotated[Path, typer.Option(help="folder for the dossier; made if there is none")]
    share: Annotated[
        float | None, typer.Option(help="of the ledger's whole squared budget, in place of --epsilon")
    ] = None
    prob: Annotated[float, typer.Option(help="of the intervals that are shown")] = 0.9

    def carry_out(self, table: Path, analysis: Analysis) -> None:
        """Plan, ask, charge, release, write the dossier, and show its answers."""
        from private_mcmc.dossier import new_dossier
        from private_mcmc.inference.bookkeeping import Bookkeeping
        from private_mcmc.inference.describe import Books, plan_query

        if not 0 < self.prob < 1:
            raise DeclarationError(f"--prob {self.prob}: must be between 0 and 1.")
        opened = self.books()
        charged = Bookkeeping(opened, self.dataset, self.purpose or f"{analysis.kind} {analysis.title}")
        books = Books(self.epsilon, self.delta, self.share, charged)
        with new_dossier(self.out) as dossier:
            planned = plan_query(table, analysis, books, self.relation, self.n, read_engine(self.engine))
            tell(planned.warnings)
            tell(planned.expected)
            self.confirm(planned.target, planned.mechanism.statement, opened, analysis.schema.unit)
            made = planned.run(dossier.keep)
            dossier.write(made)
        title, found = made.subject[:1].upper() + made.subject[1:], {"answers": made.lines(self.prob)}
        blocks = made.analysis.blocks(made.found, self.prob)
        show_release(title, blocks, found, made, self.out, self.as_json)


def _edges(given: Sequence[str]) -> dict[str, list[float]]:
    from private_mcmc.data.fields import is_number, plain_number

    found = {}
    for text in given:
        name, equals, edges = text.partition("=")
        parts = edges.split(",")
        if not equals or not all(map(is_number, parts)):
            raise DeclarationError(f"--bins {text!r}: FIELD=NUMBER,NUMBER,NUMBER, as in age=18,40,65,95.")
        found[name.strip()] = [plain_number(part) for part in parts]
    return found


@with_options(QueryOptions)
def describe(
    options: QueryOptions,
    table: TableArgument,
    schema: SchemaOption,
    fields: Annotated[str | None, typer.Option(help="such as age,sex; all fields if left out")] = None,
    by: Annotated[str | None, typer.Option(help="fields whose levels make cells, such as sex,region")] = None,
    mean: Annotated[str | None, typer.Option(help="numbers of which mean and sd alone are wanted")] = None,
    bins: Annotated[
        list[str] | None,
        typer.Option(help="edges that quartiles are told between, as age=18,40,65,95; may be repeated"),
    ] = None,
    sampling: Annotated[
        bool, typer.Option("--sampling", help="intervals also hold the sampling of these people")
    ] = False,
) -> None:
    """Counts, means, sds and quartiles of a table, with intervals, and their dossier.

    One mechanism for all numbers; nothing is spent before it is confirmed.
    """
    from private_mcmc.data.schema import Schema
    from private_mcmc.inference.describe import description

    shown, cells, means = map(split_names, (fields, by, mean))
    asked = description(Schema.load(schema), shown, cells, means, _edges(bins or []), sampling)
    options.carry_out(table, asked)


@with_options(QueryOptions)
def check(
    options: QueryOptions,
    study: StudyArgument,
    table: TableArgument,
    by: Annotated[
        str | None, typer.Option(help="categories whose levels make groups, such as region,sex")
    ] = None,
) -> None:
    """Whether a study's model fits: calibration or PIT by group, with a test, and its dossier.

    Which misfits would be found is said before anything is spent.
    """
    from private_mcmc.analysis import Check
    from private_mcmc.dossier import Study
    from private_mcmc.inference.describe import studied

    options.carry_out(table, Check.planned(studied(Study.load(study)), split_names(by)))


@with_options(QueryOptions)
def compare(
    options: QueryOptions,
    study: StudyArgument,
    other: Annotated[Path, typer.Argument(help="the folder of another fit of the same outcome")],
    table: TableArgument,
) -> None:
    """Which of two studies predicts better: a mean difference with its interval, and its dossier."""
    from private_mcmc.analysis import Comparison
    from private_mcmc.dossier import Study
    from private_mcmc.inference.describe import studied

    first, second = (studied(Study.load(place)) for place in (study, other))
    options.carry_out(table, Comparison.planned(first, second))
