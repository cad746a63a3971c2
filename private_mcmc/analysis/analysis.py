"""What every question of noised sums declares, before a table is looked at, and reads off its releases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax

from private_mcmc.data.schema import Schema
from private_mcmc.domains import Rows
from private_mcmc.records import Fields, Record
from private_mcmc.release import Family, Sums, SumsPlan, plan_sums
from private_mcmc.report import Block
from private_mcmc.target import Adjacency

# A cell and a number in [−1, 1] of one row for one family, as of ``Contribution``.
Part = tuple[jax.Array, jax.Array | None]


@dataclass(frozen=True)
class Released:
    """Sums that were released of a table, with what is public of it.

    Attributes:
        sums: by family.
        n: number of rows or persons, or its bound.
        exact: whether exactly ``n`` count, which is public under ``replace_one`` where each row is a person.
    """

    sums: tuple[Sums, ...]
    n: int
    exact: bool


class Analysis(ABC):
    """A question whose answer is one release of noised sums, and what is computed from it.

    ``question`` is its record; ``of_row`` is a function of one row, of public facts and of releases alone.
    """

    kind: ClassVar[str]
    schema: Schema

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """What is read of the table."""

    @property
    @abstractmethod
    def families(self) -> tuple[Family, ...]:
        """Cells, and what is summed in them."""

    @abstractmethod
    def of_row(self, row: Fields) -> Sequence[Part]:
        """What one row adds to each family."""

    @abstractmethod
    def question(self) -> Record:
        """Plain JSON types, from which the analysis can be made again."""

    @abstractmethod
    def blocks(self, found: Released, prob: float) -> list[Block]:
        """The answers, for a page or a terminal."""

    @abstractmethod
    def lines(self, found: Released, prob: float) -> list[Record]:
        """The answers as lines of a file, all with the same columns."""

    @property
    @abstractmethod
    def title(self) -> str:
        """In a few words."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know of the answers."""
        return ()

    @abstractmethod
    def expected(self, mechanism: SumsPlan) -> tuple[str, ...]:
        """What can be said of the answers before anything is spent."""

    @property
    def random(self) -> bool:
        """Whether a row has a uniform number of its own, ``row["uniform"]``, as part of the mechanism."""
        return False

    @cached_property
    def rows(self) -> Rows:
        """Domains of the columns."""
        return self.schema.rows(self.fields)

    def mechanism(self, gdp: float, n: int, adjacency: Adjacency) -> SumsPlan:
        """What is released for ``gdp``-GDP."""
        return plan_sums(
            gdp, self.families, num_rows=n, adjacency=adjacency, unit=self.rows.unit, what=self.kind
        )

    def released(self, mechanism: SumsPlan, values: Any) -> Released:
        """Numbers of a record as what they are of."""
        statement = mechanism.statement
        exact = statement.adjacency == "replace_one" and statement.unit is None
        return Released(mechanism.released(values), mechanism.num_rows, exact)


def interval(value: float, sd: float, z: float, low: float, high: float) -> tuple[float, float]:
    """``value ± z sd`` as far as it lies in ``[low, high]``, and never empty."""
    inside = min(max(value, low), high)
    return max(min(value - z * sd, inside), low), min(max(value + z * sd, inside), high)
