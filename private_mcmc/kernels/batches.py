"""Minibatches: rows drawn as the schedule declares, and their clipped sum times its public factor.

The draws cost time in proportion to the batch, not to the data: under independent choices with
probability ``q`` the gaps between chosen rows are independent geometric numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from private_mcmc.accounting.steps import batch_factor
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.gradient import ClippedGradient, PreparedRows
from private_mcmc.schedule import Schedule

# Above this share of the rows a mask over all of them costs less than drawing and gathering.
_LARGE_SHARE = 0.125


def successes(chance: jax.Array, rate: float, last: jax.Array | int, end: int) -> jax.Array:
    """The next successes after ``last`` in trials of probability ``rate``; ``end`` for those beyond it.

    ``chance`` are as many uniform numbers of ``[0, 1)``. Gaps are ``⌊log(1 − U) / log(1 − q)⌋``, so the
    positions below ``end`` are those of independent trials.
    """
    # 1 − U lies in (0, 1]: its logarithm is finite.
    slope = math.log1p(-rate) if rate < 1 else -math.inf
    gap = (jnp.minimum(jnp.floor(jnp.log1p(-chance) / slope), end) + 1).astype(int)
    first = jnp.minimum(last + gap[0], end)
    # Sums that stop at the end need no more digits than it.
    positions = jax.lax.associative_scan(lambda a, b: jnp.minimum(a + b, end), gap.at[0].set(first))
    # The smallest usual type: positions drawn ahead take memory.
    return jnp.asarray(positions).astype(jnp.int32 if end < 2**31 else int)


First = jax.Array | int | None


class BatchDraw(NamedTuple):
    """What tells the batch of one chain at step ``k``: the stream of the chains, and numbers drawn before."""

    stream: jax.Array
    k: jax.Array
    chain: jax.Array
    drawn: jax.Array | None = None

    @property
    def key(self) -> jax.Array:
        """Of this chain and step alone; made where it is needed, which with ``drawn`` is seldom."""
        return jax.random.fold_in(jax.random.fold_in(self.stream, self.k), self.chain)


def streams(batches: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Two streams of the batches' key: what all chains draw together, and what each draws alone."""
    if batches is None:
        raise DeclarationError("this schedule draws batches: give Streams a key for batches.")
    return jax.random.fold_in(batches, 0), jax.random.fold_in(batches, 1)


class BatchSum(NamedTuple):
    """``total(u, rows, draw, first)`` at every step.

    ``first`` is the number of the first row that is here (``None``: every row is). Batches are drawn from all
    rows; what is summed here are those of its rows that are here.
    ``draw(key)`` are the numbers that all chains draw at a step, ``(chains, size)``, where there are any.
    """

    total: Callable[..., jax.Array]
    draw: Callable[[jax.Array], jax.Array] | None = None


def batch_sum(gradient: ClippedGradient, schedule: Schedule) -> BatchSum:
    """``f · Σ_{i in batch} clip_C(∇v_i)`` with the public ``f = 1/q``; of all rows where ``q`` is left out.

    **Guarantee**: ``f`` never depends on the number of rows that were drawn or are present, so one row
    adds at most ``f·C``. Batches are drawn from all ``num_rows`` slots, and absent rows add zero.
    """
    rate = 1.0 if schedule.rate is None else schedule.rate
    n, size, factor = schedule.num_rows, drawn_size(schedule), batch_factor(schedule)

    def total(u: jax.Array, rows: PreparedRows, draw: BatchDraw, first: First = None) -> jax.Array:
        if not size:
            return factor * gradient.total(u, _masked(rows, jax.random.uniform(draw.key, (n,)) < rate, first))

        def more(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            number, last, found = carry
            chance = jax.random.uniform(jax.random.fold_in(draw.key, number), (size,))
            index = successes(chance, rate, last, n)
            return number + 1, index[-1], found + gradient.total(u, _chosen(rows, index, n, first))

        drawn = jnp.asarray(draw.drawn)
        start = jnp.asarray(0), drawn[-1], gradient.total(u, _chosen(rows, drawn, n, first))
        return factor * jax.lax.while_loop(lambda carry: carry[1] < n, more, start)[2]

    def drawn(key: jax.Array) -> jax.Array:
        chance = jax.random.uniform(key, (schedule.num_chains, size))
        return jax.vmap(partial(successes, rate=rate, last=-1, end=n))(chance)

    return BatchSum(total, drawn if size else None)


def drawn_size(schedule: Schedule) -> int:
    """Numbers that can be drawn ahead for one batch of one chain; zero where they are not."""
    if schedule.rate is None or schedule.rate > _LARGE_SHARE:
        return 0
    mean = schedule.num_rows * schedule.rate
    # Larger batches, one in several hundred, are drawn in several blocks.
    return min(schedule.num_rows, math.ceil(mean + 3 * math.sqrt(mean) + 4))


def _chosen(rows: PreparedRows, numbers: jax.Array, n: int, first: First) -> PreparedRows:
    """The rows with these ``numbers``, of which ``n`` is no row; where rows lie elsewhere, all that are here
    with the others absent.
    """
    if first is not None:
        return _masked(rows, jnp.zeros(n, dtype=bool).at[numbers].set(True, mode="drop"), first)
    index = jnp.clip(numbers, 0, rows.present.shape[0] - 1)
    chosen = jax.tree.map(lambda leaf: leaf.at[index].get(mode="promise_in_bounds"), rows)
    return chosen._replace(present=chosen.present & (numbers < n))


def _masked(rows: PreparedRows, keep: jax.Array, first: First) -> PreparedRows:
    size = rows.present.shape[0]
    filled = jnp.pad(keep, (0, size if first is not None else size - keep.shape[0]))
    if first is not None:
        # A start beyond the last row is moved back to the filling, which is absent.
        filled = jax.lax.dynamic_slice_in_dim(filled, first, size)
    return rows._replace(present=rows.present & filled)
