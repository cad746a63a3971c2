"""Pairs of data sets that are likely to leak most: extreme rows among equal, silent ones."""

from __future__ import annotations

from functools import partial
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.auditing.confidence import FloatArray
from private_mcmc.auditing.mechanism import Pair
from private_mcmc.domains.numeric import PRESENT
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.gradient.clipped import schedule_gradient
from private_mcmc.kernels.whitening import whitening
from private_mcmc.model import RowModel
from private_mcmc.preflight.records import Refutation
from private_mcmc.preflight.refute.pairs import DataSet as PublicDataSet
from private_mcmc.preflight.refute.pairs import PublicRow, extreme_rows, stacked
from private_mcmc.schedule import Schedule

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
    one, two = (_listed(data) for data in (refutation.first, refutation.second))
    left = list(two)
    shared, only_first = [], []
    for row in one:
        twin = next((index for index, other in enumerate(left) if _same(row, other)), None)
        if twin is None:
            only_first.append(row)
        else:
            shared.append(left.pop(twin))
    return Pair(stacked(shared + only_first), stacked(shared + left), "preflight's refutation")


def _listed(data: PublicDataSet) -> list[PublicRow]:
    return [row for row, times in data.rows for _ in range(times)]


def _same(one: PublicRow, two: PublicRow) -> bool:
    return all(np.array_equal(one[name], two[name]) for name in one)


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
    ordered = sorted(permutations(range(len(rows)), 2), key=lambda ij: -_apart(gradients, *ij))
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
    sizes: FloatArray = np.linalg.norm(gradients, axis=-1).mean(axis=1)
    return sizes


def _apart(gradients: FloatArray, i: int, j: int) -> float:
    return float(np.linalg.norm(gradients[i] - gradients[j], axis=-1).mean())


def _words(row: PublicRow | None) -> str:
    if row is None:
        return "absent"
    return " ".join(f"{name}={np.asarray(value).tolist()}" for name, value in sorted(row.items()))
