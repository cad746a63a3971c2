"""Minibatches: rows drawn as the schedule declares, and their clipped sum times its public factor.

The draws cost time in proportion to the batch, not to the data: under independent choices with
probability ``q`` the gaps between chosen rows are independent geometric numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from private_mcmc.accounting.sensitivity import batch_factor
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.gradient import ClippedGradient, Columns
from private_mcmc.schedule import Batch, Schedule

# Above this share of the rows a mask over all of them costs less than drawing and gathering.
_LARGE_SHARE = 0.125

First = jax.Array | int | None


class StepKeys(NamedTuple):
    """Keys of a chain's steps: one stream for the noise, another for the batches where there are any."""

    steps: jax.Array
    batches: jax.Array | None = None

    def of_chains(self, k: jax.Array, chains: int) -> jax.Array:
        """One key for each chain's batch at step ``k``: chains draw their batches independently.

        Raises:
            DeclarationError: without a stream for batches.
        """
        if self.batches is None:
            raise DeclarationError("this schedule draws batches: give Streams a key for batches.")
        return jax.random.split(jax.random.fold_in(self.batches, k), chains)


class ListedRows(NamedTuple):
    """Prepared rows, the numbers of those that are present first in ``order``, and how many are."""

    rows: Any
    order: jax.Array
    number: jax.Array


class BatchSum(NamedTuple):
    """``prepare(columns, present, everyone)`` once a run; ``total(u, rows, k, key, first)`` at step ``k``.

    ``first`` is the number of the first row that is here (``None``: every row is), and ``everyone`` tells
    which of all rows are present. Batches are drawn from all rows: those elsewhere add zero here.
    """

    prepare: Callable[..., Any]
    total: Callable[..., jax.Array]


def batch_sum(gradient: ClippedGradient, schedule: Schedule) -> BatchSum:
    """``f · Σ_{i in batch} clip_C(∇v_i)`` with the public ``f = 1/q`` or ``n/b``; ``f = 1`` for all rows.

    **Guarantee**: ``f`` never depends on the number of rows that were drawn or are present, so one row
    adds at most ``f·C``. Batches of ``poisson``, ``fixed`` and ``cyclic`` are drawn from all
    ``num_rows`` slots, and absent rows add zero; ``truncated_poisson`` draws among present rows only,
    and a batch above the cap keeps a uniform subset, as its statement assumes.
    """
    batch = schedule.batch
    if batch is None:
        return BatchSum(_prepared(gradient), lambda u, rows, k, key, first=None: gradient.total(u, rows))
    draw = _SCHEMES[batch.scheme](gradient, schedule, batch)
    prepare = _prepared(gradient)
    if batch.scheme == "truncated_poisson":
        prepare = _listed(gradient.prepare, schedule.num_rows)
    factor = batch_factor(schedule)
    return BatchSum(prepare, lambda u, rows, k, key, first=None: factor * draw(u, rows, k, key, first))


def _poisson(gradient: ClippedGradient, schedule: Schedule, batch: Batch) -> Callable[..., jax.Array]:
    n, rate = schedule.num_rows, float(batch.rate or 0.0)
    size = min(n, math.ceil(n * rate + 3 * math.sqrt(n * rate) + 4))

    def masked(u: jax.Array, rows: Any, k: jax.Array, key: jax.Array, first: First) -> jax.Array:
        keep = jax.random.uniform(key, (n,)) < rate
        return gradient.total(u, _masked(rows, keep, first))

    def gathered(u: jax.Array, rows: Any, k: jax.Array, key: jax.Array, first: First) -> jax.Array:
        def add(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            block, last, total = carry
            index = bernoulli_positions(jax.random.fold_in(key, block), rate, size, last, n)
            chosen = selected(rows, jnp.minimum(index, n - 1), index < n, first)
            return block + 1, index[-1], total + gradient.total(u, chosen)

        start = jnp.asarray(0), jnp.asarray(-1), jnp.zeros_like(u)
        total: jax.Array = jax.lax.while_loop(lambda carry: carry[1] < n, add, start)[2]
        return total

    return masked if rate > _LARGE_SHARE else gathered


def _truncated(gradient: ClippedGradient, schedule: Schedule, batch: Batch) -> Callable[..., jax.Array]:
    n, rate, cap = schedule.num_rows, float(batch.rate or 0.0), int(batch.size or 0)
    rare = max(rate, cap / n) <= _LARGE_SHARE

    def total(u: jax.Array, rows: ListedRows, k: jax.Array, key: jax.Array, first: First) -> jax.Array:
        for_number, for_subset = jax.random.split(key)
        # The first `cap` positions tell min(Binomial(count, q), cap); given it, the subset is uniform.
        drawn = jnp.sum(bernoulli_positions(for_number, rate, cap, jnp.asarray(-1), n) < rows.number)
        if rare:
            index = distinct(for_subset, cap, rows.number, drawn)
        else:
            index = shuffled(for_subset, n, rows.number)[:cap]
        keep = jnp.arange(cap) < drawn
        return gradient.total(u, selected(rows.rows, rows.order[index], keep, first))

    return total


def _fixed(gradient: ClippedGradient, schedule: Schedule, batch: Batch) -> Callable[..., jax.Array]:
    n, size = schedule.num_rows, int(batch.size or 0)

    def total(u: jax.Array, rows: Any, k: jax.Array, key: jax.Array, first: First) -> jax.Array:
        if size <= _LARGE_SHARE * n:
            index = distinct(key, size, jnp.asarray(n), jnp.asarray(size))
        else:
            index = shuffled(key, n, jnp.asarray(n))[:size]
        return gradient.total(u, selected(rows, index, jnp.ones(size, dtype=bool), first))

    return total


def _cyclic(gradient: ClippedGradient, schedule: Schedule, batch: Batch) -> Callable[..., jax.Array]:
    size = int(batch.size or 0)
    passes = schedule.num_rows // size

    def total(u: jax.Array, rows: Any, k: jax.Array, key: jax.Array, first: First) -> jax.Array:
        index = jnp.remainder(k, passes) * size + jnp.arange(size)
        return gradient.total(u, selected(rows, index, jnp.ones(size, dtype=bool), first))

    return total


_SCHEMES = {"poisson": _poisson, "truncated_poisson": _truncated, "fixed": _fixed, "cyclic": _cyclic}


def bernoulli_positions(key: jax.Array, rate: float, size: int, last: jax.Array, end: int) -> jax.Array:
    """The next ``size`` successes after ``last`` in trials of probability ``rate``; ``end`` for those beyond.

    Gaps are ``⌊log U / log(1 − q)⌋``, so the positions below ``end`` are those of independent trials.
    """
    # 1 − U lies in (0, 1]: its logarithm is finite.
    logarithm = jnp.log1p(-jax.random.uniform(key, (size,)))
    slope = math.log1p(-rate) if rate < 1 else -math.inf
    gap = jnp.minimum(jnp.floor(logarithm / slope), end) + 1
    # All sums are floats (below 2^52, or 2^20 in float32), so that products add them exactly.
    if size * (end + 1) < 2.0 ** (8 * gap.dtype.itemsize - 12):
        return jnp.minimum(last + running_sums(gap), end).astype(int)
    gap = gap.astype(int)
    first = jnp.minimum(last + gap[0], end)
    found: jax.Array = jax.lax.associative_scan(lambda a, b: jnp.minimum(a + b, end), gap.at[0].set(first))
    return found


def running_sums(values: jax.Array) -> jax.Array:
    """Cumulative sums by two small triangular products, several times faster than a scan.

    They are exact for whole numbers whose sums are floats.
    """
    size = values.shape[0]
    width = math.isqrt(size - 1) + 1
    table = jnp.pad(values, (0, width * width - size)).reshape(width, width)
    within = jnp.matmul(table, jnp.triu(jnp.ones_like(table)), precision="highest")
    before = jnp.matmul(jnp.tril(jnp.ones_like(table), -1), within[:, -1], precision="highest")
    return (within + before[:, None]).ravel()[:size]


def distinct(key: jax.Array, size: int, bound: jax.Array, needed: jax.Array) -> jax.Array:
    """``size`` numbers below ``bound``, the first ``needed`` of them a uniform draw without replacement.

    Repeated numbers are drawn again until none is left. The procedure treats all numbers alike, so that
    every ordered choice of distinct numbers is equally probable.
    """
    place, below = jnp.arange(size), jnp.maximum(bound, 1)

    def repeated(values: jax.Array) -> jax.Array:
        order = jnp.argsort(values, stable=True)
        ranked = values[order]
        same = jnp.concatenate([jnp.zeros(1, dtype=bool), ranked[1:] == ranked[:-1]])
        return jnp.zeros(size, dtype=bool).at[order].set(same) & (place < needed)

    def again(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        attempt, values, bad = carry
        fresh = jax.random.randint(jax.random.fold_in(key, attempt), (size,), 0, below)
        values = jnp.where(bad, fresh, values)
        return attempt + 1, values, repeated(values)

    start = jnp.asarray(0), jnp.zeros(size, dtype=int), jnp.ones(size, dtype=bool)
    values: jax.Array = jax.lax.while_loop(lambda carry: jnp.any(carry[2]), again, start)[1]
    return values


def shuffled(key: jax.Array, n: int, count: jax.Array) -> jax.Array:
    """A uniform order of the numbers below ``count``, followed by the rest."""
    weight = jax.random.uniform(key, (n,))
    return jnp.argsort(jnp.where(jnp.arange(n) < count, weight, 2.0))


def selected(rows: Any, index: jax.Array, keep: jax.Array, first: First = None) -> Any:
    """The rows numbered ``index``, those without ``keep``, or that are not here, absent."""
    if first is not None:
        size = rows.present.shape[0]
        index = index - first
        keep = keep & (index >= 0) & (index < size)
        index = jnp.clip(index, 0, size - 1)
    chosen = jax.tree.map(lambda leaf: leaf.at[index].get(mode="promise_in_bounds"), rows)
    return chosen._replace(present=chosen.present & keep)


def _masked(rows: Any, keep: jax.Array, first: First) -> Any:
    size = rows.present.shape[0]
    filled = jnp.pad(keep, (0, size if first is not None else size - keep.shape[0]))
    if first is not None:
        # A start beyond the last row is moved back to the filling, which is absent.
        filled = jax.lax.dynamic_slice_in_dim(filled, first, size)
    return rows._replace(present=rows.present & filled)


def _prepared(gradient: ClippedGradient) -> Callable[..., Any]:
    return lambda columns, present, everyone=None: gradient.prepare(columns, present)


def _listed(prepare: Callable[[Columns, jax.Array], Any], n: int) -> Callable[..., ListedRows]:
    def listed(columns: Columns, present: jax.Array, everyone: jax.Array | None = None) -> ListedRows:
        rows = prepare(columns, present)
        known = present if everyone is None else everyone
        return ListedRows(rows, jnp.argsort(~known, stable=True)[:n], jnp.sum(known))

    return listed
