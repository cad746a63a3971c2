"""What an audit attacks: a mechanism that can be run many times on either of two adjacent data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import Statement
from private_mcmc.auditing.confidence import FloatArray
from private_mcmc.domains.columns import PRESENT, holds_person
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.gradient.clipped import schedule_gradient
from private_mcmc.kernels.gradient.clipping import whitening
from private_mcmc.model import RowModel
from private_mcmc.preflight.refute.pairs import PublicRow, extreme_rows, stacked
from private_mcmc.preflight.refute.refutation import Refutation
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
        if len(here) < len(there):
            return Pair(self.second, self.first, self.name)._removed()[::-1]
        unequal = np.flatnonzero(~self._equal(here[:-1], there))
        place = int(unequal[0]) if unequal.size else len(there)
        if not self._equal(here[place + 1 :], there[place:]).all():
            raise DeclarationError(
                f"pair {self.name!r}: not adjacent, more differs than one row that is left out (from "
                f"row {place} on); the other rows keep their order."
            )
        return int(here[place]), None

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


_PROBES = 5
_MOST_ROWS = 64
# How far from the silent row towards the extremes rows are looked for that do not reach the clip, and how
# far below it they must stay.
_SHARES = (0.5, 0.2, 0.05, 0.01, 0.001)
_BELOW = 0.9


def worst_pairs(model: RowModel, schedule: Schedule, most: int = 3) -> tuple[Pair, ...]:
    """Pairs that are likely to leak most, the likeliest first, from clipped gradients at public probes.

    The ``most`` pairs of extreme rows whose gradients differ most, beside copies of the domain's most silent
    row (others would only add curvature, which hides). The best of them also beside copies of its own first
    row, and in the first and in a middle slot, since a fault may treat slots unequally. Then pairs of rows
    whose gradients do not reach the clip: what a fault gives away there, two rows that both saturate hide.
    """
    rows = extreme_rows(model.rows)[:_MOST_ROWS]
    sizes = _sizes(_gradients(model, schedule, rows))
    silent = rows[int(np.argmin(sizes))]
    n, presence = schedule.num_rows, schedule.adjacency != "replace_one"
    if presence and n < 2:
        raise DeclarationError("n=1: an audit under add_remove or zero_out needs at least 2 rows.")
    best = _apart_most(model, schedule, rows, most, presence)
    among = partial(pair_of_rows, count=n - 1, holes=schedule.adjacency == "zero_out")
    pairs = [among(silent, first=one, second=two) for one, two in best]
    if n > 1:
        one, two = best[0]
        pairs.append(among(one, first=one, second=two))
        places = sorted({0, n // 2} - {n - 1})
        pairs += [among(silent, first=one, second=two, place=place) for place in places]
    quiet = _quiet(model, schedule, rows, silent)
    if quiet:
        one, two = _apart_most(model, schedule, quiet, 1, presence)[0]
        pairs.append(among(silent, first=one, second=two))
        if not presence:
            # Opposite and small, and of one direction but different size.
            pairs.append(among(silent, first=best[0][0], second=one))
    return tuple(pairs)


def pair_of_rows(
    others: PublicRow,
    count: int,
    first: PublicRow | None,
    second: PublicRow | None,
    place: int | None = None,
    holes: bool = False,
) -> Pair:
    """``count`` copies of ``others``, and ``first`` or ``second`` (``None``: absent) in slot ``place``.

    The slot is the last one if left out. An absent row leaves its slot empty with ``holes``, and otherwise
    none.
    """
    slot = count if place is None else place

    def columns(one: PublicRow | None) -> dict[str, npt.NDArray[np.generic]]:
        filling = [others] if holes else []
        listed = [others] * slot + (filling if one is None else [one]) + [others] * (count - slot)
        table = {name: np.stack([np.asarray(row[name]) for row in listed]) for name in others}
        if holes and one is None:
            table[PRESENT] = np.arange(len(listed)) != slot
        return table

    where = "" if slot == count else f" in slot {slot}"
    return Pair(
        columns(first), columns(second), f"{_words(first)} | {_words(second)}{where}, others {_words(others)}"
    )


def refutation_pair(refutation: Refutation) -> Pair:
    """The pair of data sets on which preflight refuted a posterior.

    Raises:
        DeclarationError: if the refutation shows one data set only.

    Example:
        >>> from private_mcmc.models import bounded_mean, bounded_mean_rows
        >>> report = pmc.preflight(bounded_mean, bounded_mean_rows(), pmc.Target(3.0, 1e-6), n=10)
        >>> pmc.refutation_pair(report.refutation).differing("replace_one")
        (9, 9)
    """
    if refutation.first is None or refutation.second is None:
        raise DeclarationError("this refutation shows a single data set, not a pair.")
    one, left = (
        [row for row, times in data.rows for _ in range(times)]
        for data in (refutation.first, refutation.second)
    )
    shared, only_first = [], []
    for row in one:
        equal = (all(np.array_equal(row[name], other[name]) for name in row) for other in left)
        twin = next((index for index, same in enumerate(equal) if same), None)
        if twin is None:
            only_first.append(row)
        else:
            shared.append(left.pop(twin))
    return Pair(stacked(shared + only_first), stacked(shared + left), "preflight's refutation")


def _gradients(model: RowModel, schedule: Schedule, rows: list[PublicRow]) -> FloatArray:
    """Clipped gradients of every row at the probes, shape ``(rows, probes, p)``."""
    change = whitening(schedule.preconditioner, model.dim)
    gradient = schedule_gradient(model, change, schedule)
    probes = np.random.default_rng(0).normal(size=(_PROBES, model.dim))
    probes[0] = 0.0
    with jax.enable_x64(True):
        columns = model.rows.project(stacked(rows))

        def of_row(row: dict[str, jax.Array]) -> jax.Array:
            single = {name: value[None] for name, value in row.items()}
            prepared = gradient.prepare(single, jnp.ones(1, dtype=bool))
            return jax.vmap(lambda u: gradient.total(u, prepared))(jnp.asarray(probes))

        return np.asarray(jax.jit(jax.vmap(of_row))(columns), dtype=np.float64)


def _apart_most(
    model: RowModel, schedule: Schedule, rows: list[PublicRow], most: int, presence: bool
) -> list[tuple[PublicRow, PublicRow | None]]:
    """Pairs of ``rows`` whose gradients differ most; single ones where the other data set lacks the row."""
    gradients = _gradients(model, schedule, rows)
    if presence:
        return [(rows[int(i)], None) for i in np.argsort(-_sizes(gradients))[:most]]
    ordered = sorted(
        permutations(range(len(rows)), 2), key=lambda ij: -_sizes(gradients[ij[0]] - gradients[ij[1]])
    )
    return [(rows[i], rows[j]) for i, j in ordered[: 2 * most : 2]]


def _quiet(model: RowModel, schedule: Schedule, rows: list[PublicRow], silent: PublicRow) -> list[PublicRow]:
    """Rows between ``silent`` and the extremes, as far out as their gradients stay below the clip."""
    for share in _SHARES:
        between = [_between(silent, row, share) for row in rows]
        gradients = _gradients(model, schedule, between)
        below = np.linalg.norm(gradients, axis=-1).max(axis=1) < _BELOW * schedule.clip
        quiet = [row for row, fits in zip(between, below, strict=True) if fits]
        if len(quiet) >= 2 and _sizes(_gradients(model, schedule, quiet)).max() > 0:
            return quiet
    return []


def _between(silent: PublicRow, row: PublicRow, share: float) -> PublicRow:
    """So far from ``silent`` to ``row`` in real columns; whole numbers as in ``row``."""

    def blend(zero: npt.ArrayLike, value: npt.ArrayLike) -> npt.ArrayLike:
        if not np.issubdtype(np.asarray(value).dtype, np.floating):
            return value
        return (1 - share) * np.asarray(zero) + share * np.asarray(value)

    return {name: blend(silent[name], value) for name, value in row.items()}


def _sizes(gradients: FloatArray) -> FloatArray:
    """Mean norms over the probes, which are the last axis but one."""
    sizes: FloatArray = np.linalg.norm(gradients, axis=-1).mean(axis=-1)
    return sizes


def _words(row: PublicRow | None) -> str:
    if row is None:
        return "absent"
    return " ".join(f"{name}={np.asarray(value).tolist()}" for name, value in sorted(row.items()))
