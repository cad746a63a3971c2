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
        one, two = _length(self.first), _length(self.second)
        shared = max(one, two) - 1
        sizes = one == two if adjacency == "replace_one" else abs(one - two) == 1
        same = self.first.keys() == self.second.keys() and all(
            np.array_equal(np.asarray(self.first[k])[:shared], np.asarray(self.second[k])[:shared])
            for k in self.first
        )
        if not (sizes and same and min(one, two) >= 1):
            raise DeclarationError(
                f"pair {self.name!r}: {one} and {two} rows are not adjacent under {adjacency!r}; "
                "the data sets must agree in every row but the last."
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
