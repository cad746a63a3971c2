"""Minibatches: rows drawn as the schedule declares, and their clipped sum times its public factor.

The draws cost time in proportion to the batch, not to the data: under independent choices with
probability ``q`` the gaps between chosen rows are independent geometric numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from private_mcmc.accounting.langevin.sensitivity import batch_factor
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.gradient.clipping import ClippedGradient, Columns, PreparedRows
from private_mcmc.schedule import Batch, Schedule

# Up to so many numbers are compared in pairs, which costs less than sorting them.
_FEW = 1024


class Window(NamedTuple):
    """What the steps ``first, first + 1, …`` draw, one after the other along the first axis."""

    first: jax.Array
    values: jax.Array


@dataclass(frozen=True)
class PredrawnNoise:
    """The numbers that steps draw, ``draw(key)`` for ``size`` steps at a time, ``(size, …)``.

    A group's key is the stream's, folded with the number of the group: what a step draws depends on the
    stream and on its own number only. ``outside`` is what a step beyond a window gets: no other's numbers.
    """

    draw: Callable[[jax.Array], jax.Array]
    size: int
    outside: float

    def ahead(self, stream: jax.Array | Window, first: jax.Array, count: int) -> Window:
        """The numbers of ``count`` steps from ``first`` on, and those that share their groups."""
        if isinstance(stream, Window):
            return stream
        begin = first // self.size
        # So many groups hold all steps, wherever in its group the first one stands.
        groups = begin + jnp.arange(-(-(count + self.size - 1) // self.size))
        # One after the other: a group stays in cache between the rounds of its cipher.
        values = jax.lax.map(lambda group: self._group(stream, group), groups)
        return Window(begin * self.size, values.reshape(-1, *values.shape[2:]))

    def at(self, source: jax.Array | Window, k: jax.Array) -> jax.Array:
        """The numbers of step ``k``, from a window or drawn now from a stream's key."""
        if isinstance(source, Window):
            row = source.values.at[k - source.first]
            return row.get(mode="fill", fill_value=self.outside, wrap_negative_indices=False)
        return self._group(source, k // self.size)[k % self.size]

    def _group(self, stream: jax.Array, number: jax.Array) -> jax.Array:
        return self.draw(jax.random.fold_in(stream, number))


def successes(chance: jax.Array, rate: float, last: jax.Array | int, end: int) -> jax.Array:
    """The next successes after ``last`` in trials of probability ``rate``; ``end`` for those beyond it.

    ``chance`` are as many uniform numbers of ``[0, 1)``. Gaps are ``⌊log(1 − U) / log(1 − q)⌋``, so the
    positions below ``end`` are those of independent trials.
    """
    # 1 − U lies in (0, 1]: its logarithm is finite.
    slope = math.log1p(-rate) if rate < 1 else -math.inf
    gap = jnp.minimum(jnp.floor(jnp.log1p(-chance) / slope), end) + 1
    gap = gap.astype(int)
    first = jnp.minimum(last + gap[0], end)
    # Sums that stop at the end need no more digits than it.
    positions = jax.lax.associative_scan(lambda a, b: jnp.minimum(a + b, end), gap.at[0].set(first))
    # The smallest usual type: positions drawn ahead take memory.
    return jnp.asarray(positions).astype(jnp.int32 if end < 2**31 else int)


def distinct(key: jax.Array, size: int, bound: jax.Array, needed: jax.Array) -> jax.Array:
    """``size`` numbers below ``bound``, the first ``needed`` of them a uniform draw without replacement.

    Repeated numbers are drawn again until none is left. The procedure treats all numbers alike, so that
    every ordered choice of distinct numbers is equally probable.
    """
    place, below = jnp.arange(size), jnp.maximum(bound, 1)

    def repeated(values: jax.Array) -> jax.Array:
        if size <= _FEW:
            equal = (values[:, None] == values) & (place < place[:, None])
            return jnp.any(equal, axis=1) & (place < needed)
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


# Above this share of the rows a mask over all of them costs less than drawing and gathering.
_LARGE_SHARE = 0.125

# A group of draws has about so many numbers.
_GROUP_ELEMENTS = 2**12

First = jax.Array | int | None
Sum = Callable[[jax.Array, PreparedRows, "BatchDraw", First], jax.Array]


class BatchStreams(NamedTuple):
    """Keys of batches: for what all chains draw together, or its numbers, and for each chain alone."""

    together: jax.Array | Window
    alone: jax.Array


# All that a place where rows lie is given of a run's randomness: nothing tells the noise from it.
BatchKeys = jax.Array | BatchStreams | None


class StepKeys(NamedTuple):
    """Keys of a chain's steps, or what was drawn with them: one stream for the noise, another for batches."""

    steps: jax.Array | Window
    batches: BatchKeys = None


def batch_streams(batches: BatchKeys) -> BatchStreams:
    """The two streams of the batches' key."""
    if batches is None:
        raise DeclarationError("this schedule draws batches: give Streams a key for batches.")
    if isinstance(batches, BatchStreams):
        return batches
    return BatchStreams(jax.random.fold_in(batches, 0), jax.random.fold_in(batches, 1))


class BatchDraw(NamedTuple):
    """What tells the batch of one chain at step ``k``: the run's key, and numbers drawn for many steps."""

    stream: jax.Array
    k: jax.Array
    chain: jax.Array
    drawn: jax.Array | None = None

    @property
    def key(self) -> jax.Array:
        """Of this chain and step alone; made where it is needed, which with ``drawn`` is seldom."""
        return jax.random.fold_in(jax.random.fold_in(self.stream, self.k), self.chain)


class BatchSum(NamedTuple):
    """``prepare(columns, present)`` once a run; ``total(u, rows, draw, first)`` at every step.

    ``first`` is the number of the first row that is here (``None``: every row is). Batches are drawn from all
    rows; what is summed here are those of its rows that are here.
    ``draws`` are the numbers that all chains draw at a step, ``(chains, size)``, where ``total`` wants some.
    """

    prepare: Callable[[Columns, jax.Array], PreparedRows]
    total: Callable[..., jax.Array]
    draws: PredrawnNoise | None = None


def batch_sum(gradient: ClippedGradient, schedule: Schedule) -> BatchSum:
    """``f · Σ_{i in batch} clip_C(∇v_i)`` with the public ``f = 1/q`` or ``n/b``; ``f = 1`` for all rows.

    **Guarantee**: ``f`` never depends on the number of rows that were drawn or are present, so one row
    adds at most ``f·C``. Batches are drawn from all ``num_rows`` slots, and absent rows add zero.
    """
    batch = schedule.batch
    if batch is None:
        return BatchSum(gradient.prepare, lambda u, rows, draw, first=None: gradient.total(u, rows))
    total = _SCHEMES[batch.scheme](gradient, schedule, batch)
    factor = batch_factor(schedule)

    def scaled(u: jax.Array, rows: PreparedRows, draw: BatchDraw, first: First = None) -> jax.Array:
        return factor * total(u, rows, draw, first)

    return BatchSum(gradient.prepare, scaled, _draws(schedule, batch))


def _draws(schedule: Schedule, batch: Batch) -> PredrawnNoise | None:
    """What of the batches is independent of the rows and small beside them."""
    size, n, chains = drawn_size(schedule), schedule.num_rows, schedule.num_chains
    if size == 0:
        return None
    steps = max(1, _GROUP_ELEMENTS // (chains * size))

    def poisson(key: jax.Array) -> jax.Array:
        chance = jax.random.uniform(key, (steps, chains, size))
        first = partial(successes, rate=float(batch.rate or 0.0), last=-1, end=n)
        return jax.vmap(jax.vmap(first))(chance)

    def fixed(key: jax.Array) -> jax.Array:
        one = partial(distinct, size=size, bound=jnp.asarray(n), needed=jnp.asarray(size))
        return jax.vmap(jax.vmap(one))(jax.random.split(key, (steps, chains)))

    return PredrawnNoise(poisson if batch.scheme == "poisson" else fixed, steps, outside=n)


def drawn_size(schedule: Schedule) -> int:
    """Numbers that can be drawn ahead for one batch of one chain; zero where they are not."""
    batch, n = schedule.batch, schedule.num_rows
    if batch is not None and batch.scheme == "poisson" and float(batch.rate or 0.0) <= _LARGE_SHARE:
        mean = n * float(batch.rate or 0.0)
        # Larger batches, one in several hundred, are drawn in several blocks.
        return min(n, math.ceil(mean + 3 * math.sqrt(mean) + 4))
    if batch is not None and batch.scheme == "fixed" and int(batch.size or 0) <= _LARGE_SHARE * n:
        return int(batch.size or 0)
    return 0


def _poisson(gradient: ClippedGradient, schedule: Schedule, batch: Batch) -> Sum:
    n, rate, size = schedule.num_rows, float(batch.rate or 0.0), drawn_size(schedule)

    def masked(u: jax.Array, rows: PreparedRows, draw: BatchDraw, first: First) -> jax.Array:
        keep = jax.random.uniform(draw.key, (n,)) < rate
        return gradient.total(u, _masked(rows, keep, first))

    def gathered(u: jax.Array, rows: PreparedRows, draw: BatchDraw, first: First) -> jax.Array:
        def of(numbers: jax.Array) -> jax.Array:
            return _summed(gradient, u, rows, Chosen(numbers, n, ordered=True), first)

        def more(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            number, last, total = carry
            chance = jax.random.uniform(jax.random.fold_in(draw.key, number), (size,))
            index = successes(chance, rate, last, n)
            return number + 1, index[-1], total + of(index)

        drawn = jnp.asarray(draw.drawn)
        start = jnp.asarray(0), drawn[-1], of(drawn)
        total: jax.Array = jax.lax.while_loop(lambda carry: carry[1] < n, more, start)[2]
        return total

    return gathered if size else masked


def _fixed(gradient: ClippedGradient, schedule: Schedule, batch: Batch) -> Sum:
    n, size = schedule.num_rows, int(batch.size or 0)

    def total(u: jax.Array, rows: PreparedRows, draw: BatchDraw, first: First) -> jax.Array:
        index = shuffled(draw.key, n, jnp.asarray(n))[:size] if draw.drawn is None else draw.drawn
        return _summed(gradient, u, rows, Chosen(index, n), first)

    return total


_SCHEMES = {"poisson": _poisson, "fixed": _fixed}


class Chosen(NamedTuple):
    """Numbers below ``bound`` of the rows of a batch; ``bound`` is no row. ``ordered``: they ascend."""

    numbers: jax.Array
    bound: int
    ordered: bool = False


def _summed(
    gradient: ClippedGradient, u: jax.Array, rows: PreparedRows, chosen: Chosen, first: First
) -> jax.Array:
    """The clipped sum over those chosen rows that are here.

    Where rows lie in several places, each works on windows that hold its own share of the batch: nearly
    always one of them.
    """
    if first is None:
        return gradient.total(u, _selected(rows, chosen.numbers, chosen.numbers < chosen.bound))
    here, size = rows.present.shape[0], chosen.numbers.shape[0]
    mean = size * here / chosen.bound
    width = min(size, math.ceil(mean + 3 * math.sqrt(mean) + 4))
    numbers = chosen.numbers if chosen.ordered else jnp.sort(chosen.numbers)
    begin = jnp.sum(numbers < first)
    end = jnp.sum(numbers < jnp.minimum(first + here, chosen.bound))
    filled = jnp.pad(numbers, (0, width))

    def of(at: jax.Array) -> jax.Array:
        window = jax.lax.dynamic_slice_in_dim(filled, at, width) - first
        return gradient.total(u, _selected(rows, window, at + jnp.arange(width) < end))

    def more(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        at, total = carry
        return at + width, total + of(at)

    start = begin + width, of(begin)
    total: jax.Array = jax.lax.while_loop(lambda carry: carry[0] < end, more, start)[1]
    return total


def _selected(rows: PreparedRows, index: jax.Array, keep: jax.Array) -> PreparedRows:
    """The rows numbered ``index``, those without ``keep`` absent."""
    index = jnp.clip(index, 0, rows.present.shape[0] - 1)
    chosen = jax.tree.map(lambda leaf: leaf.at[index].get(mode="promise_in_bounds"), rows)
    return chosen._replace(present=chosen.present & keep)


def _masked(rows: PreparedRows, keep: jax.Array, first: First) -> PreparedRows:
    size = rows.present.shape[0]
    filled = jnp.pad(keep, (0, size if first is not None else size - keep.shape[0]))
    if first is not None:
        # A start beyond the last row is moved back to the filling, which is absent.
        filled = jax.lax.dynamic_slice_in_dim(filled, first, size)
    return rows._replace(present=rows.present & filled)
