"""``describe``, ``check`` and ``compare``: one release of noised sums each, charged, and its record.

The table is read and the release planned first; nothing is spent by then.
"""

from __future__ import annotations

import math
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from private_mcmc.accounting import gdp
from private_mcmc.analysis import Analysis, Check, Comparison, Description
from private_mcmc.analysis.analysis import Studied, thinned
from private_mcmc.arguments import arguments_checked
from private_mcmc.data.schema import Schema
from private_mcmc.data.table import refuse_changed
from private_mcmc.domains.cells import Marks
from private_mcmc.dossier.folder import Query
from private_mcmc.dossier.record import StudyRecord, enter, warnings_of
from private_mcmc.errors import DeclarationError, NotYetSupported, clean_errors
from private_mcmc.inference.bookkeeping import Bookkeeping
from private_mcmc.inference.declared import Engine
from private_mcmc.inference.execute_plan import release_sums, row_sums
from private_mcmc.inference.question import Question, even_edges
from private_mcmc.inference.raw_release import Keep, authenticated
from private_mcmc.inference.reading import read_for, schema_of
from private_mcmc.release import Filter, Ledger, SumsPlan
from private_mcmc.release.noise import FloatArray
from private_mcmc.report import json_types
from private_mcmc.target import Adjacency, Target

_LIBRARIES = ("numpy", "jax", "opendp", "matplotlib")
_RANDOMNESS = {"source": "operating system", "generator": "OpenDP"}


@dataclass(frozen=True)
class Books:
    """Where a query is charged, and how much it may cost: ``epsilon``, or a ``share`` of a whole budget.

    Raises:
        DeclarationError: unless exactly one of both is given; a share needs a ledger.
    """

    epsilon: float | None = None
    delta: float | None = None
    share: float | None = None
    charged: Bookkeeping = field(default_factory=Bookkeeping)

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.share is None):
            raise DeclarationError("give epsilon=… or share=…, of the ledger's squared budget, not both.")
        if self.share is not None and (self.charged.ledger is None or self.delta is not None):
            raise DeclarationError(
                "share=…: of a ledger's budget, with its δ: give ledger and dataset, no delta."
            )
        if self.share is not None and not 0 < self.share <= 1:
            raise DeclarationError(f"share={self.share}: above 0, at most 1.")

    @property
    def whole(self) -> Filter | None:
        """The ledger's budget, where a share of it is taken."""
        ledger, dataset = self.charged.ledger, self.charged.dataset
        if self.share is None or ledger is None or dataset is None:
            return None
        return ledger.balance(dataset).filter


@dataclass(frozen=True, eq=False, repr=False)
class PlannedQuery:
    """A query that is ready to run: nothing is spent, and its rows are the curator's."""

    analysis: Analysis
    target: Target
    gdp: float
    table: object
    marks: Marks
    mechanism: SumsPlan
    exact: FloatArray
    books: Books

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before this is spent."""
        return warnings_of(self.target, self.mechanism.num_rows, self.books.charged.ledger)

    @property
    def expected(self) -> tuple[str, ...]:
        """What noise to expect."""
        return self.analysis.expected(self.mechanism)

    def run(self, keep: Keep | None = None) -> Query:
        """Charge, sum, add noise; ``keep`` is given the whole record before the charge is settled."""
        refuse_changed(self.table, self.marks)
        record = self._record
        told = authenticated(keep, self.books.charged.ledger)
        whole = None if told is None else lambda found, _: told(replace(record, **found).to_dict())
        known, person = self.marks.known_by, self.analysis.schema.unit
        books = replace(self.books.charged, known_by=known, person=person, keep=whole)
        words = f"{record.subject}, claims {record.claims}"
        found = release_sums(self.mechanism, self.exact, books, words)
        made = replace(record, **found)
        enter(books.ledger, made)
        return made

    @property
    def _record(self) -> Query:
        """The record without what is released."""
        analysis, statement = self.analysis, self.mechanism.statement
        return Query(
            library=version("private-mcmc"),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            table=Path(self.table).name if isinstance(self.table, str | Path) else "a table in memory",
            schema=analysis.schema.to_dict(),
            rows=json_types(analysis.rows.to_dict()),
            epsilon=float(self.target.epsilon),
            delta=float(self.target.delta),
            adjacency=self.target.adjacency,
            n=self.mechanism.num_rows,
            statement=statement.to_dict(),
            ledger=None,
            warnings=self.warnings,
            versions={"python": platform.python_version()} | {name: version(name) for name in _LIBRARIES},
            randomness=_RANDOMNESS,
            kind=analysis.kind,
            question=json_types(analysis.question()),
            gdp=self.gdp,
            released=(),
        )


@clean_errors
def plan_query(
    table: object,
    analysis: Analysis,
    books: Books,
    adjacency: Adjacency,
    n: int | None,
    engine: Engine | None = None,
) -> PlannedQuery:
    """Read a table for an analysis, and find what each row adds; nothing is spent.

    Raises:
        DeclarationError: for declarations that do not fit one another.
        DataSchemaError: for a table that does not fit its schema; fields are named, nothing else.
    """
    asked = Question(analysis.schema, analysis.fields, analysis.rows, lambda: None, "")  # no model is run
    whole = books.whole
    # Without one the ε of the target follows from what the share buys.
    epsilon, delta = (1.0, whole.delta) if whole else (books.epsilon or 0.0, books.delta)
    columns, marks, count, target = read_for(table, asked, epsilon, delta, adjacency, n, engine)
    price = gdp.budget(target.epsilon, target.delta)
    if whole is not None and books.share is not None:
        # A little less than a root of it, whose square may round up.
        price = float(np.sqrt(books.share * float(whole.limit))) * (1 - 1e-12)
    mechanism = analysis.mechanism(price, count, adjacency)
    if whole is not None:
        target = replace(target, epsilon=mechanism.statement.epsilon(target.delta))
    exact = row_sums(analysis.of_row, analysis.rows, mechanism, columns, target, analysis.random, engine)
    return PlannedQuery(analysis, target, price, table, marks, mechanism, exact, books)


# Of a number whose quartiles are wanted.
_BINS = 16


def description(
    schema: Schema,
    fields: Sequence[str] = (),
    by: Sequence[str] = (),
    means: Sequence[str] = (),
    bins: Mapping[str, Sequence[float]] | None = None,
    sampling: bool = False,
) -> Description:
    """What is described: all fields if none is named, quartiles of numbers other than ``means``."""
    every = [one.name for one in schema.fields if one.is_used]
    shown = tuple(dict.fromkeys((*fields, *means))) if fields or means else tuple(every)
    edges = {name: tuple(float(edge) for edge in given) for name, given in (bins or {}).items()}
    for name in shown:
        field = schema[name]
        if not field.is_category and name not in (*means, *edges, *by):
            if field.type != "number":
                field = replace(field, maximum=field.range[1] + 1)
            even = even_edges(field, _BINS)
            edges[name] = tuple(np.unique(even if field.type == "number" else np.ceil(even)).tolist())
    return Description(schema, shown, tuple(by), edges, sampling)


@clean_errors
@arguments_checked
def describe(
    table: object,
    schema: Schema | str | Path,
    *,
    fields: Sequence[str] = (),
    by: Sequence[str] = (),
    means: Sequence[str] = (),
    bins: Mapping[str, Sequence[float]] | None = None,
    sampling: bool = False,
    epsilon: float | None = None,
    delta: float | None = None,
    share: float | None = None,
    adjacency: Adjacency = "replace_one",
    n: int | None = None,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    purpose: str = "",
    engine: Engine | None = None,
) -> Query:
    """Counts by level, means, sds and quartiles with intervals: ``describe(table, schema, epsilon=0.2)``.

    **Guarantee**: what ``Query.statement`` says of the release, for the adjacency: one Gaussian mechanism for
    all numbers. Schema, fields, cells and bins are public and were not chosen by looking at the table.
    **Cost**: ``(ε, δ)``, or a share of a ledger's squared budget, once. Persons with several rows count once,
    with the average of their rows.

    Args:
        table: path of a CSV, Parquet, Arrow, Stata or SPSS file, a data frame, or a dict of columns.
        schema: what its cells may be, or the path of its file.
        fields: categories are counted by level; of numbers there are mean, sd and quartiles. All if left out.
        by: fields whose levels (of numbers: bins) make the cells of the table.
        means: numbers of which there are mean and sd alone, which leaves more of the budget to the others.
        bins: edges of numbers, that quartiles are told between; 16 bins of the declared range if left out.
        sampling: whether intervals are to hold the sampling of these people from a larger population too.
        epsilon: of the target.
        delta: of the target; a power of ten of at most ``1e-6`` and ``1/(10 n)`` if left out.
        share: of the ledger's whole squared budget, in place of ``epsilon``.
        adjacency: of the target.
        n: public bound on the number of rows, or the number of persons, as of :func:`fit`.
        ledger: charged before the sums are made.
        dataset: the ledger's name for the table.
        purpose: the owner's words for the ledger's history.
        engine: who holds the rows: :class:`private_mcmc.Devices`, or :class:`private_mcmc.Ray`, whose
            workers read them of files.

    Raises:
        DeclarationError: for declarations that do not fit one another.
        DataSchemaError: for a table that does not fit its schema; fields are named, nothing else.
        BudgetExceeded: if the ledger has too little left.

    Example:
        >>> schema = pmc.Schema.from_dict({"fields": [
        ...     {"name": "age", "type": "number", "constraints": {"minimum": "18", "maximum": "95"}},
        ...     {"name": "died", "type": "boolean"},
        ... ]})
        >>> rng = np.random.default_rng(0)
        >>> people = {"age": rng.uniform(20, 90, 2000), "died": rng.random(2000) < 0.3}
        >>> books = pmc.Ledger.create("books.db")
        >>> _ = books.declare("people", pmc.Target(epsilon=5.0, delta=1e-6))
        >>> table = pmc.describe(people, schema, by=["died"], share=0.05, ledger=books, dataset="people")
        >>> [line["statistic"] for line in table.lines()][:4]
        ['count', 'mean', 'sd', 'quantile 0.25']
    """
    asked = description(schema_of(schema), fields, by, means, bins, sampling)
    books = Books(epsilon, delta, share, Bookkeeping(ledger, dataset, purpose))
    return _run(table, asked, books, adjacency, n, engine)


def _run(
    table: object, asked: Analysis, books: Books, adjacency: Adjacency, n: int | None, engine: Engine | None
) -> Query:
    planned = plan_query(table, asked, books, adjacency, n, engine)
    said = () if isinstance(asked, Description) else planned.expected
    for words in (*planned.warnings, *said):
        warnings.warn(words, stacklevel=3)
    return planned.run()


def studied(study: StudyRecord) -> Studied:
    """A released study as checks and comparisons need it.

    Raises:
        NotYetSupported: for a model of one's own, or released expectations.
    """
    if not study.formula or not study.draws:
        raise NotYetSupported("check and compare take studies of a formula, with released draws.")
    gdp = study.price.gdp
    return Studied(
        fingerprint=study.fingerprint,
        schema=study.design.schema,
        formula=study.formula,
        family=study.family,
        priors=study.priors,
        draws=thinned(study.draws),
        gdp=math.inf if gdp is None else float(gdp),
    )


@clean_errors
@arguments_checked
def check(
    study: StudyRecord,
    table: object,
    *,
    by: Sequence[str] = (),
    epsilon: float | None = None,
    delta: float | None = None,
    share: float | None = None,
    adjacency: Adjacency = "replace_one",
    n: int | None = None,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    purpose: str = "",
    engine: Engine | None = None,
) -> Query:
    """Whether a study's model fits a table: counts of groups, predictions and outcomes, and a test.

    **Guarantee**: what ``Query.statement`` says of the release: one Gaussian mechanism. ``by`` is public and
    was not chosen by looking at the table; the study may have been.
    **Cost**: as of :func:`describe`. The same people were fitted, which the test's law does not hold: said.

    Args:
        study: of a formula.
        table: the one that was fitted, or another of the same schema.
        by: categories whose levels make the groups; more than the formula has, to find what it lacks.
        epsilon: of the target; it and what follows as of :func:`describe`.

    Raises:
        DeclarationError: for declarations that do not fit one another.
        NotYetSupported: for a study of a model of one's own.

    Example:
        >>> study = pmc.Study.load("study")  # doctest: +SKIP
        >>> pmc.check(study, "people.csv", by=["region"], epsilon=0.2).report().show()  # doctest: +SKIP
    """
    asked = Check.planned(studied(study), by)
    books = Books(epsilon, delta, share, Bookkeeping(ledger, dataset, purpose))
    return _run(table, asked, books, adjacency, n, engine)


@clean_errors
@arguments_checked
def compare(
    first: StudyRecord,
    second: StudyRecord,
    table: object,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    share: float | None = None,
    adjacency: Adjacency = "replace_one",
    n: int | None = None,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    purpose: str = "",
    engine: Engine | None = None,
) -> Query:
    """Which of two studies predicts a table better: a noised mean difference of log predictive densities.

    **Guarantee**: what ``Query.statement`` says of the release: one Gaussian mechanism. Differences are
    clipped at a bound that was chosen from synthetic people. **Cost**: as of :func:`describe`.

    Args:
        first: study A, of a formula.
        second: study B, of the same outcome and schema.
        table: the one that was fitted, or another of the same schema.
        epsilon: of the target; it and what follows as of :func:`describe`.

    Raises:
        DeclarationError: for studies of different outcomes or schemas.
        NotYetSupported: for a study of a model of one's own.

    Example:
        >>> one, other = (pmc.Study.load(name) for name in ("study", "other"))  # doctest: +SKIP
        >>> pmc.compare(one, other, "people.csv", epsilon=0.2).report().show()  # doctest: +SKIP
    """
    asked = Comparison.planned(studied(first), studied(second))
    books = Books(epsilon, delta, share, Bookkeeping(ledger, dataset, purpose))
    return _run(table, asked, books, adjacency, n, engine)
