"""From a table and an analysis to the record of a query: read and planned first, nothing spent."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from private_mcmc.accounting import gdp
from private_mcmc.analysis import Analysis
from private_mcmc.data.table import Marks, refuse_changed
from private_mcmc.dossier.query import Query
from private_mcmc.dossier.record import privacy_numbers, warnings_of
from private_mcmc.errors import DeclarationError, clean_errors
from private_mcmc.inference.bookkeeping import Bookkeeping
from private_mcmc.inference.question import Question
from private_mcmc.inference.reading import read_for
from private_mcmc.inference.sums import RowSums, row_sums
from private_mcmc.records import Fields
from private_mcmc.release import SumsPlan
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
            raise DeclarationError(
                "give epsilon=…, or share=… of the ledger's whole squared budget; one of them."
            )
        if self.share is not None and (self.charged.ledger is None or self.delta is not None):
            raise DeclarationError(
                "share=…: of a ledger's budget, with its δ: give ledger and dataset, no delta."
            )
        if self.share is not None and not 0 < self.share <= 1:
            raise DeclarationError(f"share={self.share}: above 0, at most 1.")

    def price(self, target: Target) -> float:
        """The budget in Gaussian DP, for a target that is read where ``epsilon`` is given."""
        if self.share is None:
            return gdp.budget(target.epsilon, target.delta)
        # A little less than a root of it, whose square may round up.
        return float(np.sqrt(self.share * float(self._whole.limit))) * (1 - 1e-12)

    @property
    def least_delta(self) -> float | None:
        """The δ that numbers are told at: the ledger's for a share, or as given."""
        return self.delta if self.share is None else self._whole.delta

    @property
    def _whole(self) -> Any:
        ledger, dataset = self.charged.ledger, self.charged.dataset
        if ledger is None or dataset is None:
            raise DeclarationError("share=…: give a ledger.")
        return ledger.balance(dataset).dataset.filter


@dataclass(frozen=True, eq=False, repr=False)
class PlannedQuery:
    """A query that is ready to run: nothing is spent, and its rows are the curator's."""

    analysis: Analysis
    target: Target
    gdp: float
    table: object
    marks: Marks
    sums: RowSums
    books: Books

    @property
    def mechanism(self) -> SumsPlan:
        """What is released."""
        return self.sums.mechanism

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before this is spent."""
        return warnings_of(self.target, self.mechanism.num_rows, self.books.charged.ledger)

    @property
    def expected(self) -> tuple[str, ...]:
        """What noise to expect."""
        return self.analysis.expected(self.mechanism)

    def run(self, keep: Callable[[Fields], None] | None = None) -> Query:
        """Charge, sum, add noise; ``keep`` is given the whole record before the charge is settled."""
        refuse_changed(self.table, self.marks)
        record = self._record
        whole = None if keep is None else lambda found, _: keep(replace(record, **found).to_dict())
        known, person = self.marks.known_by, self.analysis.schema.unit
        books = replace(self.books.charged, known_by=known, person=person, keep=whole)
        found = self.sums.release(books, f"{record.subject}, claims {record.claims}")
        made = replace(record, **found)
        books.know(made.ledger, made.fingerprint)
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
            privacy=privacy_numbers(statement, self.target.epsilon, self.target.delta),
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
    table: object, analysis: Analysis, books: Books, adjacency: Adjacency, n: int | None
) -> PlannedQuery:
    """Read a table for an analysis, and find what each row adds; nothing is spent.

    Raises:
        DeclarationError: for declarations that do not fit one another.
        DataSchemaError: for a table that does not fit its schema; fields are named, nothing else.
    """
    asked = Question(analysis.schema, analysis.fields, analysis.rows, _no_model, "")
    # Without one the ε of the target follows from what the share buys.
    epsilon = 1.0 if books.epsilon is None else books.epsilon
    columns, marks, count, target = read_for(table, asked, epsilon, books.least_delta, adjacency, n)
    price = books.price(target)
    mechanism = analysis.mechanism(price, count, adjacency)
    if books.epsilon is None:
        target = replace(target, epsilon=mechanism.statement.epsilon(target.delta))
    sums = row_sums(analysis.of_row, analysis.rows, mechanism, columns, target, analysis.random)
    return PlannedQuery(analysis, target, price, table, marks, sums, books)


def _no_model() -> None:
    """No model is run."""
