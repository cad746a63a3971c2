"""What steps draw: numbers for many steps at once, and random subsets of numbered rows.

A subset costs what is drawn rather than all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

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

    def ahead(self, stream: jax.Array, first: jax.Array, count: int) -> Window:
        """The numbers of ``count`` steps from ``first`` on, and those that share their groups."""
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
    # All sums are floats (below 2^52, or 2^20 in float32), so that products add them exactly.
    if len(chance) * (end + 1) < 2.0 ** (8 * gap.dtype.itemsize - 12):
        return jnp.minimum(last + running_sums(gap), end).astype(_whole(end))
    gap = gap.astype(int)
    first = jnp.minimum(last + gap[0], end)
    positions = jax.lax.associative_scan(lambda a, b: jnp.minimum(a + b, end), gap.at[0].set(first))
    return jnp.asarray(positions).astype(_whole(end))


def _whole(end: int) -> type:
    """The smallest usual type that holds ``end``: positions drawn ahead take memory."""
    return jnp.int32 if end < 2**31 else int


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
