"""What steps draw, for groups of steps at once: in bulk a number costs a fraction of one drawn alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp


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
