"""``fit``: from a table, a schema and a formula to a study; read and planned first, nothing spent."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from private_mcmc.accounting import Statement
from private_mcmc.arguments import OF_FITS, Guarantee, arguments_checked
from private_mcmc.data.schema import Schema
from private_mcmc.data.table import refuse_changed
from private_mcmc.domains.cells import Marks
from private_mcmc.domains.columns import PRESENT
from private_mcmc.dossier.folder import Query, Study, held
from private_mcmc.dossier.record import ReleaseRecord, warnings_of
from private_mcmc.errors import DeclarationError, clean_errors
from private_mcmc.inference.bookkeeping import Bill, Bookkeeping
from private_mcmc.inference.columns import BLOCK, checked, on_the_host
from private_mcmc.inference.declared import Engine, Execution, Look, Outcome, stopping
from private_mcmc.inference.driver import PrivateMCMC
from private_mcmc.inference.execute_plan import PlannedRun
from private_mcmc.inference.last_run import About
from private_mcmc.inference.question import SHARE, BoundsPlan, Question, doubts, plan_bounds, question
from private_mcmc.inference.raw_release import Keep, RawRelease, authenticated, so_far
from private_mcmc.inference.reading import described_people, read_columns, read_for, read_once, schema_of
from private_mcmc.kernels.gradient import check_arithmetic
from private_mcmc.planning import History, Plan, Prediction, plan
from private_mcmc.records import Fields, Model
from private_mcmc.release import Ledger
from private_mcmc.report.document import announce
from private_mcmc.system import warn_of_what_was_paid
from private_mcmc.target import Adjacency, Target

_OUTER = "That is with the outer ranges; those that are bought are narrower, and usually leave a smaller one."


@dataclass(frozen=True, eq=False, repr=False)
class Planned:
    """A fit that is ready to run. Nothing has been spent; its columns are the curator's.

    With ``bounds`` that are bought before it, ``plan`` is the one for the outer ranges. ``columns`` were read
    from the ``table`` while it had these ``marks``; one that is no longer the same is refused. ``stages`` is
    the plan of what is left of the target after bounds were bought, ``rest`` that target. ``engine`` holds
    the rows. ``max_error``: above which the run stops after its cheap stages.
    """

    asked: Question
    plan: Plan
    table: object
    columns: Fields
    marks: Marks
    bounds: BoundsPlan | None = None
    stages: Plan | None = None
    rest: Target | None = None
    engine: Engine | None = None
    max_error: float | None = None

    def read(self, schema: Schema) -> Fields:
        """What the model reads of the table, by this schema of it."""
        found = read_columns(self.table, schema, self.asked, self.plan.target.adjacency, self.engine)
        refuse_changed(self.table, self.marks)
        return found

    @property
    def _block(self) -> int | None:
        """How many rows, or persons, are in memory at a time, where not all are."""
        unit = self.asked.rows.unit
        return max(1, BLOCK // (unit.rows if unit else 1)) if on_the_host(self.columns) else None

    def warnings(self, ledger: Ledger | None) -> tuple[str, ...]:
        """What to know before this is spent."""
        bought = () if self.bounds is None else self.bounds.notes
        doubted = doubts(self.plan.n, self.plan.prediction, "" if self.bounds is None else _OUTER)
        return (*self.asked.notes, *bought, *doubted, *warnings_of(self.plan.target, self.plan.n, ledger))

    def run(
        self,
        *,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        purpose: str = "",
        progress_bar: bool = True,
        **how: Any,
    ) -> Study:
        """Charge, buy the bounds that nobody knows, run and release; ``how`` as of ``carried_out``."""
        known, person = self.marks.known_by, self.asked.schema.unit
        books = Bookkeeping(ledger, dataset, purpose, known_by=known, person=person)
        refuse_changed(self.table, self.marks)
        if self.bounds is None:
            driver, about = self.carried_out(books, progress_bar, **how)
            return driver.kept(about)
        if progress_bar:  # before the bounds are charged
            announce(self.plan.opening)
        # The run would refuse only after its bounds were paid for.
        check_arithmetic()
        given = {name: column for name, column in self.columns.items() if name != PRESENT}
        checked(self.plan, (), given, self.columns.get(PRESENT), Execution(rows_on_device=self._block))
        words = self.asked.formula or "a model of one's own"
        with books.charge(Bill(self.plan.statement, words, self.marks.known_by, staged=True)) as paid:
            driver, about = self._bought(self.bounds, paid, progress_bar, **how)
        return driver.kept(about)

    def _bought(
        self, bounds: BoundsPlan, books: Bookkeeping, progress_bar: bool, **how: Any
    ) -> tuple[PrivateMCMC, About]:
        """Buy the bounds, charged before their noise is drawn, plan with what is left, and run."""
        outer, whole = self.asked.schema, self.plan
        keep = authenticated(how.get("keep"), books.ledger)

        def released(made: Plan, asked: Question) -> Fields:
            about = replace(self, asked=asked, bounds=None).about(books.ledger)
            nothing = Outcome(made.statement, None)
            return so_far(made, about, None, bounds.rest, self.max_error, nothing, books.standing)

        if keep is not None and books.reserved is not None:
            keep(released(replace(whole, before=()), self.asked))  # of a kill from here on its folder tells
        exact = bounds.sums(outer, self.read(bounds.marked(outer)), self.engine)
        books.pay(bounds.mechanism.statement)
        asked = _of_bought(self.asked, bounds.bought(outer, exact))
        if keep is not None:  # planning takes long
            first = replace(books, keep=lambda made, _: keep(released(made, asked)))
            first.hand_on(whole, books.standing)
        again: dict[str, Any] = {"max_passes": whole.max_passes, "progress_bar": progress_bar}
        made = plan_asked(asked, bounds.rest, whole.n, whole.guarantee, **again)
        ready = replace(self, asked=asked, bounds=None, rest=bounds.rest, stages=made)
        ready = replace(ready, plan=bounds.beside(made), columns=ready.read(asked.schema))
        return ready.carried_out(books, progress_bar, **how)

    def about(self, ledger: Ledger | None) -> About:
        """What the study says of its question."""
        asked = self.asked
        return About(
            table=Path(self.table).name if isinstance(self.table, str | Path) else "a table in memory",
            model=asked.source,
            schema=asked.schema.to_dict(),
            formula=asked.formula,
            family=asked.family,
            priors=asked.priors,
            warnings=self.warnings(ledger),
        )

    def carried_out(
        self,
        books: Bookkeeping,
        progress_bar: bool,
        keep: Keep | None = None,
        look: Look | None = None,
        bought: tuple[tuple[Statement, ...], History] = ((), ()),
    ) -> tuple[PrivateMCMC, About]:
        """Run the stages that are not ``bought`` yet: the driver, and what its study says of the question.

        ``keep`` is given what was released, from which the study can be made again, before the charge is
        settled; ``look`` decides after the cheap stages whether the rest is bought, or else ``max_error``.
        """
        about = self.about(books.ledger)
        if (told := authenticated(keep, books.ledger)) is not None:
            now = (self.plan, about, self.stages or self.plan, self.rest, self.max_error)
            books = replace(books, keep=lambda outcome, charge: told(so_far(*now, outcome, charge)))
        if look is None and self.max_error is not None:
            look = stopping(partial(exceeds, max_error=self.max_error))
        shown = Execution(progress_bar=progress_bar, rows_on_device=self._block, engine=self.engine)
        driver = PrivateMCMC.of_run(PlannedRun(self.plan, shown, look, bought), books)
        driver.run(**self.columns)
        return driver, about


def plan_asked(asked: Question, target: Target, n: int, guarantee: Guarantee, **options: Any) -> Plan:
    """The plan of a question: for the target, or what bounds that were bought have left of it."""
    given = options | {"n": n, "guarantee": guarantee, "model_args": asked.public(n)}
    found: Plan = plan(asked.model, asked.rows, target, coefficients=asked.coefficients, **given)
    return found


def _of_bought(asked: Question, bought: Schema) -> Question:
    """The question in the bought ranges; they are paid for, so that in one that it cannot be asked in
    (its knots lie outside) it is asked in the outer ones.
    """
    try:
        return asked.on(bought)
    except DeclarationError as error:
        kept = f"The declared ranges are kept: in those that were bought the model cannot be asked ({error})."
        outer = tuple(replace(field, bounds="") for field in asked.schema.fields)
        again = asked.on(replace(asked.schema, fields=outer))
        return replace(again, notes=(*again.notes, kept))


def plan_fit(
    table: object,
    asked: Question,
    *,
    epsilon: float,
    delta: float | None = None,
    adjacency: Adjacency = "replace_one",
    n: int | None = None,
    guarantee: Guarantee = OF_FITS,
    max_error: float | None = None,
    max_passes: int | None = None,
    bounds_share: float = SHARE,
    described: ReleaseRecord | None = None,
    progress_bar: bool = True,
    engine: Engine | None = None,
) -> Planned:
    """Read a table and plan: see :func:`fit`."""
    columns, marks, rows, target = read_for(table, asked, epsilon, delta, adjacency, n, engine)
    bounds = plan_bounds(asked.schema, asked.fields, target, rows, bounds_share)
    own = target if bounds is None else bounds.rest
    alike = None if described is None else described_people(asked, described)
    most: dict[str, Any] = {"max_error": max_error, "max_passes": max_passes, "people": alike}
    made = plan_asked(asked, own, rows, guarantee, progress_bar=progress_bar, **most)
    made = made if bounds is None else bounds.beside(made)
    return Planned(asked, made, table, columns, marks, bounds, engine=engine, max_error=max_error)


@clean_errors
@arguments_checked
def fit(
    table: object,
    schema: Schema | str | Path,
    formula: str | None = None,
    *,
    epsilon: float,
    delta: float | None = None,
    adjacency: Adjacency = "replace_one",
    family: str = "bernoulli",
    priors: Sequence[str] = (),
    model: Model | None = None,
    guarantee: Guarantee = OF_FITS,
    max_error: float | None = None,
    max_passes: int | None = None,
    stop_if: Callable[[Prediction], bool] | None = None,
    bounds_share: float = SHARE,
    described: Query | None = None,
    n: int | None = None,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    purpose: str = "",
    progress_bar: bool = True,
    engine: Engine | None = None,
) -> Study:
    """Plan, run and release: ``fit("people.csv", schema, "death ~ age + sex", epsilon=1.0)``.

    **Guarantee**: what ``Study.statement`` says of the release, for the adjacency. ``schema``, ``formula``,
    ``priors`` and every option are public and were not chosen by looking at the table.
    **Cost**: (ε, δ), once. What is computed from the study is free; another fit is charged again.

    Args:
        table: path of a CSV, Parquet, Arrow, Stata or SPSS file, a data frame, or a dict of columns.
        schema: what its cells may be, or the path of its file.
        formula: such as ``"death ~ age + log(kappa) + (1 | region)"``.
        epsilon: of the target.
        delta: of the target; a power of ten of at most ``1e-6`` and ``1/(10 n)`` if left out.
        adjacency: of the target.
        family: such as ``"bernoulli"``, ``"poisson"`` or ``"gaussian"``.
        priors: such as ``"age ~ normal(0, 0.1)"``, on the user's scale.
        model: a NumPyro model in place of a formula; its arguments are fields of the schema.
        guarantee: what meets the target: the run alone, or the posterior as well.
        max_error: refuse a larger predicted error of posterior means, in posterior sds. After the cheap
            stages, which predict better, buy no more if it is larger then.
        max_passes: the most passes over the rows of all stages; bounds that are bought take one more.
        stop_if: decides that in place of ``max_error``, given the new prediction. A study that was stopped
            has no coefficients; the ledger has the rest of the budget again.
        bounds_share: of the squared budget, for fields with ``bounds: private``, all together.
        described: a table that :func:`describe` released of these people: errors are predicted for people
            like them, in the place of synthetic ones; free.
        n: public bound on the number of rows, where the adjacency hides it; the number of persons who may
            have several rows, some of them perhaps none.
        ledger: charged before the run.
        dataset: the ledger's name for the table.
        purpose: the owner's words for the ledger's history.
        progress_bar: show what the plan tries and steps done.
        engine: who holds the rows: :class:`private_mcmc.Devices`, or :class:`private_mcmc.Ray`, whose
            workers read them of files.

    Raises:
        DeclarationError: for declarations that do not fit one another.
        DataSchemaError: for a table that does not fit its schema; fields are named, nothing else.
        NotPrivate: for a predicted error above ``max_error``.
        BudgetExceeded: if the ledger has too little left.

    Example:
        >>> schema = pmc.Schema.from_dict({"fields": [
        ...     {"name": "age", "type": "number", "constraints": {"minimum": "18", "maximum": "95"}},
        ...     {"name": "died", "type": "boolean"},
        ... ]})
        >>> rng = np.random.default_rng(0)
        >>> table = {"age": rng.uniform(20, 90, 2000), "died": rng.random(2000) < 0.3}
        >>> books = pmc.Ledger.create("books.db")
        >>> _ = books.declare("people", pmc.Target(epsilon=5.0, delta=1e-6))
        >>> study = pmc.fit(
        ...     table, schema, "died ~ age", epsilon=3.0, ledger=books, dataset="people", progress_bar=False
        ... )
        >>> [coefficient.name for coefficient in study.answers().summary()]
        ['Intercept', 'age']
    """
    asked = question(schema_of(schema), formula, family=family, priors=priors, model=model)
    Bookkeeping(ledger, dataset)  # refuses one without the other
    planned = plan_fit(
        table,
        asked,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        n=n,
        guarantee=guarantee,
        max_error=max_error,
        max_passes=max_passes,
        bounds_share=bounds_share,
        described=described,
        progress_bar=progress_bar,
        engine=engine,
    )
    said = planned.warnings(ledger)
    for words in said:
        warnings.warn(words, stacklevel=2)
    look = None if stop_if is None else stopping(stop_if)
    study = planned.run(ledger=ledger, dataset=dataset, purpose=purpose, progress_bar=progress_bar, look=look)
    for words in study.warnings[len(said) :]:
        warn_of_what_was_paid(words)
    return study


def exceeds(prediction: Prediction, max_error: float) -> bool:
    """Whether a predicted error is larger than allowed, or no number."""
    return not prediction.rms <= max_error


def resume(
    folder: Path,
    table: object,
    ledger: Ledger,
    *,
    model: Model | None = None,
    source: str = "",
    progress_bar: bool = True,
    keep: Keep | None = None,
    write: Callable[[Study], None] | None = None,
    look: Look | None = None,
    engine: Engine | None = None,
) -> Study:
    """Go on with a fit that was killed: with the bounds and the stages that it has bought, under its charge.

    A stage that was charged and whose release was lost is not bought again. ``source``: text of ``model``,
    which a study shows, and says things of; ``write`` is given the study while the folder is held. The fit's
    ``max_error`` holds here too, if no ``look`` takes its place.

    Raises:
        DeclarationError: for a folder without such a fit, another model, or where a release was lost.
        LedgerError: for another table, or a charge that is settled.
        OutputError: while the fit, or another process that goes on with it, still runs.
    """
    with held(folder):
        raw = RawRelease.load(folder, ledger)
        if raw.charge is None or not raw.about.schema:
            raise DeclarationError(
                f"{folder}: only a fit that was charged to a ledger is resumed; `private-mcmc report` "
                "shows what another run has released."
            )
        charge = ledger.reopen(raw.charge["charge"])
        asked = raw.asked(model)
        bought = raw.statement.parts
        if [one.to_dict() for one in bought] != [statement for statement, _ in charge.stages]:
            raise DeclarationError(
                f"{folder}: a stage was charged whose release is not here, and nothing is bought twice. "
                f"`private-mcmc report {folder} --ledger {ledger.path.name}` ends the run: what it has not "
                "bought is free again."
            )
        if plan_bounds(asked.schema, asked.fields, raw.target, raw.n) is not None:
            raise DeclarationError(
                f"{folder}: was stopped before it bought its bounds. `private-mcmc report {folder} --ledger "
                f"{ledger.path.name}` ends it, and all is free again."
            )
        columns, marks = read_once(table, asked, raw.target.adjacency, raw.n, engine)
        kept: dict[str, Any] = {"known_by": marks.known_by, "person": asked.schema.unit, "reserved": charge}
        books = Bookkeeping(ledger, raw.charge["dataset"], charge.purpose, **kept)
        made = raw.planned(model)
        if made is None:
            if not raw.about.formula and source != raw.about.model:
                raise DeclarationError(f"{folder}: bounds were bought for another model than the file has.")
            again: dict[str, Any] = {"max_passes": raw.max_passes, "progress_bar": progress_bar}
            made = plan_asked(asked, raw.rest or raw.target, raw.n, raw.guarantee, **again)
        history, following = raw.history(made)
        if following is None:
            raise DeclarationError(f"{folder}: all is bought: `private-mcmc report` makes the dossier.")
        ready = Planned(asked, raw.of_whole(made), table, columns, marks, None, made, raw.rest, engine)
        ready = replace(ready, max_error=raw.max_error)
        with ledger.settled(charge):
            driver, about = ready.carried_out(books, progress_bar, keep, look, (bought, history))
        study = driver.kept(about)
        if write is not None:
            write(study)
    return study
