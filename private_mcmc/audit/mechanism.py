"""What an audit attacks: a mechanism that can be run many times on either of two adjacent data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import Statement
from private_mcmc.audit.confidence import FloatArray
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency

DataSet = Mapping[str, npt.NDArray[Any]]
Score = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two made-up adjacent data sets: columns by name, the row in which they differ is the last one.

    Under ``replace_one`` both have the same number of rows; otherwise ``second`` lacks the last row of
    ``first``, or the other way round. Data sets of an audit are public.
    """

    first: DataSet
    second: DataSet
    name: str = "given"

    def check(self, adjacency: Adjacency) -> None:
        """Raise ``DeclarationError`` unless the data sets are adjacent, all but the last row equal."""
        if not self.first or self.first.keys() != self.second.keys():
            raise DeclarationError(f"pair {self.name!r}: both data sets need the same columns, at least one.")
        lengths = [{len(column) for column in data.values()} for data in (self.first, self.second)]
        if any(len(found) > 1 for found in lengths):
            raise DeclarationError(f"pair {self.name!r}: the columns of a data set differ in length.")
        one, two = _length(self.first), _length(self.second)
        wanted = "as many rows in both" if adjacency == "replace_one" else "one row more in one of them"
        if not (one == two if adjacency == "replace_one" else abs(one - two) == 1) or min(one, two) < 1:
            raise DeclarationError(
                f"pair {self.name!r}: {one} and {two} rows are not adjacent under {adjacency!r}, which "
                f"asks for {wanted}."
            )
        shared = max(one, two) - 1
        apart = sorted(
            name
            for name in self.first
            if not np.array_equal(
                np.asarray(self.first[name])[:shared], np.asarray(self.second[name])[:shared]
            )
        )
        if apart:
            raise DeclarationError(
                f"pair {self.name!r}: not adjacent, columns {apart} differ before the last row; put the row "
                "in which the data sets differ last."
            )

    def last_rows(self) -> tuple[DataSet | None, DataSet | None]:
        """The differing row of the first and of the second data set, ``None`` where it is absent."""
        one, two = _length(self.first), _length(self.second)

        def row(data: DataSet, size: int) -> DataSet | None:
            if size < max(one, two):
                return None
            return {name: np.asarray(column)[-1] for name, column in data.items()}

        return row(self.first, one), row(self.second, two)


def _no_scores(pair: Pair) -> Mapping[str, Score]:
    return {}


def _no_pairs() -> tuple[Pair, ...]:
    return ()


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A mechanism under attack.

    Attributes:
        name: in words.
        statement: what is claimed of one run.
        draw: ``(data set, number of runs, seed) ↦`` outputs of shape ``(runs, d)``, independent of one
            another and of every other seed's.
        scores: ready-made attacks on a pair: name to a score of outputs, larger where ``second`` is
            likelier. Whatever they compute, the bounds stay valid.
        pairs: pairs of data sets that are likely to leak most, for when none is given.
    """

    name: str
    statement: Statement
    draw: Callable[[DataSet, int, np.random.SeedSequence], FloatArray]
    scores: Callable[[Pair], Mapping[str, Score]] = _no_scores
    pairs: Callable[[], tuple[Pair, ...]] = _no_pairs


def _length(data: DataSet) -> int:
    return len(next(iter(data.values())))
