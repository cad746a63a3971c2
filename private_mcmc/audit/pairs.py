"""Pairs of data sets that are likely to leak most: rows at the extremes of their domain, a silent crowd."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.audit.confidence import FloatArray
from private_mcmc.audit.mechanism import Pair
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.gradient import clipped_gradient
from private_mcmc.kernels.whitening import whitening
from private_mcmc.modeling import RowModel
from private_mcmc.preflight.extremes import PublicRow, extreme_rows
from private_mcmc.preflight.pairs import DataSet as PublicDataSet
from private_mcmc.preflight.records import Refutation
from private_mcmc.schedule import Schedule

_PROBES = 5
_MOST_ROWS = 64


def worst_pairs(model: RowModel, schedule: Schedule, most: int = 3) -> tuple[Pair, ...]:
    """The ``most`` pairs of extreme rows whose clipped gradients differ most, averaged over public probes.

    The other rows are the domain's most silent one (they would only add curvature, which hides), and
    for the best pair also copies of its own first row.
    """
    rows = extreme_rows(model.rows)[:_MOST_ROWS]
    gradients = _gradients(model, schedule, rows)
    sizes = np.linalg.norm(gradients, axis=-1).mean(axis=1)
    silent = rows[int(np.argmin(sizes))]
    best: list[tuple[PublicRow, PublicRow | None]]
    if schedule.adjacency == "replace_one":
        ordered = sorted(permutations(range(len(rows)), 2), key=lambda ij: -_apart(gradients, *ij))
        best = [(rows[i], rows[j]) for i, j in ordered[: 2 * most : 2]]
    else:
        best = [(rows[int(i)], None) for i in np.argsort(-sizes)[:most]]
    n = schedule.num_rows
    if schedule.adjacency != "replace_one" and n < 2:
        raise DeclarationError("n=1: an audit under add_remove or zero_out needs at least 2 rows.")
    found = [pair_of_rows(silent, n - 1, *rows) for rows in best]
    if n > 1:
        found.append(pair_of_rows(best[0][0], n - 1, *best[0]))
    return tuple(found)


def pair_of_rows(others: PublicRow, count: int, first: PublicRow | None, second: PublicRow | None) -> Pair:
    """``count`` copies of ``others``, then ``first`` or ``second`` (``None``: absent)."""

    def columns(last: PublicRow | None) -> dict[str, npt.NDArray[Any]]:
        listed = [others] * count + ([last] if last is not None else [])
        return {name: np.stack([np.asarray(row[name]) for row in listed]) for name in others}

    return Pair(
        columns(first), columns(second), f"{_words(first)} | {_words(second)}, others {_words(others)}"
    )


def refutation_pair(refutation: Refutation) -> Pair:
    """The pair of data sets on which preflight refuted a posterior.

    Raises:
        DeclarationError: if the refutation shows one data set only.
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
    return Pair(_stacked(shared + only_first), _stacked(shared + left), "preflight's refutation")


def _listed(data: PublicDataSet) -> list[PublicRow]:
    return [row for row, times in data.rows for _ in range(times)]


def _same(one: PublicRow, two: PublicRow) -> bool:
    return all(np.array_equal(one[name], two[name]) for name in one)


def _gradients(model: RowModel, schedule: Schedule, rows: list[PublicRow]) -> FloatArray:
    """Clipped gradients of every row at the probes, shape ``(rows, probes, p)``."""
    change = whitening(schedule.preconditioner, model.dim)
    gradient = clipped_gradient(model, change, schedule.clip)
    probes = np.random.default_rng(0).normal(size=(_PROBES, model.dim))
    probes[0] = 0.0
    with jax.enable_x64(True):
        columns = model.rows.project(_stacked(rows))

        def of_row(row: dict[str, jax.Array]) -> jax.Array:
            single = {name: value[None] for name, value in row.items()}
            prepared = gradient.prepare(single, jnp.ones(1, dtype=bool))
            return jax.vmap(lambda u: gradient.total(u, prepared))(jnp.asarray(probes))

        return np.asarray(jax.jit(jax.vmap(of_row))(columns), dtype=np.float64)


def _apart(gradients: FloatArray, i: int, j: int) -> float:
    return float(np.linalg.norm(gradients[i] - gradients[j], axis=-1).mean())


def _stacked(rows: list[PublicRow]) -> dict[str, npt.NDArray[Any]]:
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}


def _words(row: PublicRow | None) -> str:
    if row is None:
        return "absent"
    return " ".join(f"{name}={np.asarray(value).tolist()}" for name, value in sorted(row.items()))
