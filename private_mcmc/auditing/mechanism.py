"""What an audit attacks: a mechanism that can be run many times on either of two adjacent data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import Statement
from private_mcmc.auditing.confidence import FloatArray
from private_mcmc.domains.numeric import PRESENT, holds_person
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Schedule
from private_mcmc.target import Adjacency

DataSet = Mapping[str, npt.NDArray[np.generic]]
Score = Callable[[FloatArray], FloatArray]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two synthetic adjacent data sets: columns by name, which differ in one row, wherever it stands.

    A column ``present`` of truth values marks slots without a row; what the other columns hold there does
    not matter. Under ``replace_one`` both data sets have the same slots and one row differs; under
    ``zero_out`` one slot is empty in one of them (a data set with fewer rows than the other is one whose
    last slots are empty); under ``add_remove`` one of them is the other without one row, the order of the
    rows kept. Data sets of an audit are public.

    Example:
        >>> pmc.Pair({"x": np.array([0.0, 1.0])}, {"x": np.array([0.0, 0.0])}).differing("replace_one")
        (1, 1)
    """

    first: DataSet
    second: DataSet
    name: str = "given"

    def differing(self, adjacency: Adjacency) -> tuple[int | None, int | None]:
        """The slot of the differing row in the first and in the second data set, ``None`` where absent.

        Raises:
            DeclarationError: unless the data sets are adjacent.
        """
        if not self.first or self.first.keys() - {PRESENT} != self.second.keys() - {PRESENT}:
            raise DeclarationError(f"pair {self.name!r}: both data sets need the same columns, at least one.")
        lengths = [{len(column) for column in data.values()} for data in (self.first, self.second)]
        if any(len(counts) > 1 for counts in lengths):
            raise DeclarationError(f"pair {self.name!r}: the columns of a data set differ in length.")
        if adjacency == "add_remove":
            return self._removed()
        if adjacency == "zero_out":
            return self._emptied()
        return self._replaced()

    def _replaced(self) -> tuple[int, int]:
        one, two = length(self.first), length(self.second)
        here, there = present_slots(self.first, one), present_slots(self.second, two)
        if one != two or one < 1 or not (here.all() and there.all()):
            raise self._apart(one, two, "as many rows in both, all of them present")
        unequal = np.flatnonzero(~self._equal(np.arange(one), np.arange(two)))
        if unequal.size > 1:
            raise DeclarationError(
                f"pair {self.name!r}: not adjacent, the rows {unequal.tolist()} differ; one row may."
            )
        place = int(unequal[0]) if unequal.size else one - 1
        return place, place

    def _emptied(self) -> tuple[int | None, int | None]:
        slots = max(length(self.first), length(self.second))
        here, there = present_slots(self.first, slots), present_slots(self.second, slots)
        changed = np.flatnonzero(here != there)
        if changed.size != 1:
            raise self._apart(int(here.sum()), int(there.sum()), "one slot that is empty in one of them")
        both = np.flatnonzero(here & there)
        unequal = both[~self._equal(both, both)]
        if unequal.size:
            raise DeclarationError(
                f"pair {self.name!r}: not adjacent, the rows {unequal.tolist()} differ as well as the one "
                "that is absent. Under 'zero_out' an absent row is an empty slot (a column 'present' with "
                "False there): the other rows stay in their own."
            )
        place = int(changed[0])
        return (place, None) if here[place] else (None, place)

    def _removed(self) -> tuple[int | None, int | None]:
        here = np.flatnonzero(present_slots(self.first, length(self.first)))
        there = np.flatnonzero(present_slots(self.second, length(self.second)))
        if abs(len(here) - len(there)) != 1 or min(len(here), len(there)) < 1:
            raise self._apart(len(here), len(there), "one row more in one of them")
        if len(here) > len(there):
            return self._left_out(here, there, self._equal), None
        return None, self._left_out(there, here, lambda longer, shorter: self._equal(shorter, longer))

    def _left_out(
        self,
        longer: npt.NDArray[np.intp],
        shorter: npt.NDArray[np.intp],
        equal: Callable[[npt.NDArray[np.intp], npt.NDArray[np.intp]], Mask],
    ) -> int:
        """The slot of the row of the longer data set that the shorter one lacks."""
        unequal = np.flatnonzero(~equal(longer[:-1], shorter))
        place = int(unequal[0]) if unequal.size else len(shorter)
        if not equal(longer[place + 1 :], shorter[place:]).all():
            raise DeclarationError(
                f"pair {self.name!r}: not adjacent, more differs than one row that is left out (from "
                f"row {place} on); the other rows keep their order."
            )
        return int(longer[place])

    def _equal(self, ours: npt.NDArray[np.intp], theirs: npt.NDArray[np.intp]) -> Mask:
        """Whether row ``ours[i]`` of the first data set equals row ``theirs[i]`` of the second."""
        equal = np.ones(len(ours), dtype=bool)
        for name in self.first.keys() - {PRESENT}:
            one, two = np.asarray(self.first[name])[ours], np.asarray(self.second[name])[theirs]
            if one.shape != two.shape:
                raise DeclarationError(f"pair {self.name!r}: column {name!r} has two shapes of a row.")
            equal &= (one == two).all(axis=tuple(range(1, one.ndim)))
        return equal

    def _apart(self, one: int, two: int, wanted: str) -> DeclarationError:
        return DeclarationError(
            f"pair {self.name!r}: {one} and {two} rows are not adjacent: this relation asks for {wanted}."
        )


def length(data: DataSet) -> int:
    """The number of slots that a data set gives."""
    return len(next(iter(data.values())))


def present_slots(data: DataSet, slots: int) -> Mask:
    """Which of ``slots`` slots hold a row."""
    present = np.zeros(slots, dtype=bool)
    present[: length(data)] = holds_person(np.asarray(data.get(PRESENT, True)))
    return present


def in_slots(data: DataSet, schedule: Schedule) -> DataSet:
    """Under ``zero_out``, a data set of fewer rows than slots with the slots after them empty."""
    n, count = schedule.num_rows, length(data)
    if schedule.adjacency != "zero_out" or PRESENT in data or not 0 < count < n:
        return data
    filling = {name: np.repeat(np.asarray(column)[-1:], n - count, axis=0) for name, column in data.items()}
    slots = {name: np.concatenate([column, filling[name]]) for name, column in data.items()}
    return {**slots, PRESENT: np.arange(n) < count}


def no_scores(pair: Pair) -> Mapping[str, Score]:
    """Nothing that knows the mechanism."""
    return {}


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
    scores: Callable[[Pair], Mapping[str, Score]] = no_scores
    pairs: Callable[[], tuple[Pair, ...]] = tuple
