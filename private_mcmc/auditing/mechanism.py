"""What an audit attacks: a mechanism that can be run many times on either of two adjacent data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import Statement
from private_mcmc.auditing.confidence import FloatArray
from private_mcmc.domains.columns import PRESENT, holds_person
from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency

DataSet = Mapping[str, npt.NDArray[np.generic]]
Score = Callable[[FloatArray], FloatArray]

_WANTED = {
    "replace_one": "as many rows in both, all present, of which one differs",
    "zero_out": "equal slots but for one that is empty in one of them (a column 'present', False there)",
    "add_remove": "one of them is the other without one row, the order kept",
}


class Pair(NamedTuple):
    """Two synthetic data sets, columns by name; a column ``present`` marks slots without a row by False."""

    first: DataSet
    second: DataSet
    name: str = "given"

    def differing(self, adjacency: Adjacency) -> tuple[int | None, int | None]:
        """The slot of the differing row in the first and in the second data set, ``None`` where absent.

        What the columns hold in an empty slot does not matter; slots that a data set lacks are empty.

        Raises:
            DeclarationError: unless the data sets are adjacent.
        """
        names = sorted(self.first.keys() - {PRESENT})
        if not names or self.second.keys() - {PRESENT} != set(names):
            raise DeclarationError(f"pair {self.name!r}: both data sets need the same columns, at least one.")
        if any(len({len(column) for column in data.values()}) > 1 for data in self[:2]):
            raise DeclarationError(f"pair {self.name!r}: the columns of a data set differ in length.")
        one, two = (_rows(data, names) for data in self[:2])
        places = _removed(one, two) if adjacency == "add_remove" else _changed(one, two, adjacency)
        if places is None:
            raise DeclarationError(
                f"pair {self.name!r}: {len(one)} and {len(two)} rows are not adjacent, "
                f"{adjacency!r} asks for this: {_WANTED[adjacency]}."
            )
        return places


# The numbers of a row, or no row.
_Slots = list[tuple[object, ...] | None]
_Places = tuple[int | None, int | None]


def _rows(data: DataSet, names: list[str]) -> _Slots:
    columns = [np.asarray(data[name]) for name in names]
    flat = [column.reshape(len(column), -1).tolist() for column in columns]
    present = present_slots(data, length(data))
    return [sum(map(tuple, row), ()) if here else None for here, *row in zip(present, *flat, strict=True)]


def _changed(one: _Slots, two: _Slots, adjacency: Adjacency) -> _Places | None:
    slots = list(zip_longest(one, two))
    unequal = [place for place, (here, there) in enumerate(slots) if here != there]
    if adjacency == "zero_out":
        if len(unequal) != 1 or None not in slots[unequal[0]]:
            return None
        place = unequal[0]
        return (None, place) if slots[place][0] is None else (place, None)
    if not slots or len(unequal) > 1 or any(None in pair for pair in slots):
        return None
    place = unequal[0] if unequal else len(slots) - 1
    return place, place


def _removed(one: _Slots, two: _Slots) -> _Places | None:
    here, there = ([place for place, row in enumerate(side) if row is not None] for side in (one, two))
    if len(here) < len(there):
        places = _removed(two, one)
        return places and places[::-1]
    longer, shorter = [one[place] for place in here], [two[place] for place in there]
    at = next((i for i, (a, b) in enumerate(zip(longer, shorter, strict=False)) if a != b), len(shorter))
    if not shorter or longer[:at] + longer[at + 1 :] != shorter:
        return None
    return here[at], None


def length(data: DataSet) -> int:
    """The number of slots that a data set gives."""
    return len(next(iter(data.values())))


def present_slots(data: DataSet, slots: int) -> npt.NDArray[np.bool_]:
    """Which of ``slots`` slots hold a row."""
    present = np.zeros(slots, dtype=bool)
    present[: length(data)] = holds_person(np.asarray(data.get(PRESENT, True)))
    return present


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A mechanism under attack.

    Attributes:
        name: in words.
        statement: what is claimed of one run.
        draw: ``(data set, number of runs, seed) ↦`` outputs of shape ``(runs, d)``, independent of one
            another and of every other seed's.
        scores: ready-made attacks on a pair of data sets, a tuple ``(first, second, name)``: name to a score
            of outputs, larger where ``second`` is likelier. Whatever they compute, the bounds stay valid.

    Example:
        >>> def draw(data, runs, seed):
        ...     return data["x"].sum() + 2.0 * np.random.default_rng(seed).normal(size=(runs, 1))
        >>> claim = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=2.0)
        >>> noised_sum = pmc.Mechanism("noised sum", claim, draw)
        >>> noised_sum.draw({"x": np.array([1.0])}, 5, np.random.SeedSequence(0)).shape
        (5, 1)
    """

    name: str
    statement: Statement
    draw: Callable[[DataSet, int, np.random.SeedSequence], FloatArray]
    scores: Callable[[Pair], Mapping[str, Score]] = lambda pair: {}
