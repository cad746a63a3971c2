"""The record of a table, a check or a comparison: one release of noised sums, and its page."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from private_mcmc.analysis import read_analysis
from private_mcmc.analysis.analysis import Analysis, Released
from private_mcmc.data.schema import Schema
from private_mcmc.dossier.page import columns_of, of_two, of_whom, protection, sections
from private_mcmc.dossier.record import ReleaseRecord, texts
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Fields, Record
from private_mcmc.release import SumsPlan
from private_mcmc.report import Facts, Report, as_csv
from private_mcmc.target import check_adjacency

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Query(ReleaseRecord):
    """One release of noised sums. Every value in it is public or released.

    Attributes: those of every record, and
        kind: ``describe``, ``check`` or ``compare``.
        question: what was asked, from which cells and their weights are made again.
        gdp: what was paid: noise follows from it.
        released: the noised sums.

    Example:
        >>> pmc.Query.load("nowhere")
        Traceback (most recent call last):
            ...
        private_mcmc.errors.DeclarationError: nowhere: no dossier; name the folder that fit wrote.
    """

    kind: str
    question: Fields
    gdp: float
    released: tuple[float, ...]

    @property
    def subject(self) -> str:
        """The kind and the fields."""
        return f"{self.kind} {self.analysis.title}"

    @property
    def claims(self) -> str:
        """A mark of rows and question."""
        text = json.dumps([self.rows, self.kind, self.question], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def analysis(self) -> Analysis:
        """What was asked.

        Raises:
            DeclarationError: for a question that is none.
        """
        return read_analysis(self.kind, Schema.from_dict(texts(self.schema)), self.question)

    @property
    def mechanism(self) -> SumsPlan:
        """What was released, by its price."""
        return self.analysis.mechanism(self.gdp, self.n, check_adjacency(self.adjacency))

    @property
    def found(self) -> Released:
        """The released sums by family."""
        mechanism = self.mechanism
        if len(self.released) != mechanism.noise.size:
            raise DeclarationError(f"released: {len(self.released)} numbers, not {mechanism.noise.size}.")
        return self.analysis.released(mechanism, self.released)

    def report(self, prob: float = 0.9) -> Report:
        """The dossier's page: a function of the record alone."""
        asked = Facts((*of_whom(self), ("question", self.subject), *protection(self)))
        return sections(
            self,
            f"{self.subject}, {self.table}",
            self.analysis.blocks(self.found, prob),
            [asked, columns_of(self.analysis.schema, self.analysis.fields)],
            [of_two(self), *self.analysis.remarks],
            "The schema's bounds and levels, the fields, cells and bins",
        )

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def lines(self, prob: float = 0.9) -> list[Record]:
        """The answers as lines, all with the same columns."""
        if not 0 < prob < 1:
            raise DeclarationError(f"prob={prob}: must be between 0 and 1.")
        return self.analysis.lines(self.found, prob)

    def answers(self, prob: float = 0.9) -> pandas.DataFrame:
        """The answers as a data frame, with the columns of ``answers.csv``; ``prob`` is of the intervals."""
        import pandas

        return pandas.DataFrame(self.lines(prob))

    def to_csv(self, prob: float = 0.9) -> str:
        """The answers as the text of a CSV file."""
        return as_csv(self.lines(prob))
