"""Synthetic times to an event: drawn from the hazard that a model's own term has, cut off by the rows' own.

A term of a time ``t`` and a flag of the event is that of a censored time exactly where
``∂v(t, 0)/∂t = exp(v(t, 0) − v(t, 1))``: without the event it is the cumulative hazard, up to a constant, and
the event takes the log hazard off it. How it is written has no part in this: with a ``numpyro.factor``, a
censored distribution or integrated latents. Of a time under observation that begins late it holds as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains import Binary
from private_mcmc.model import RowModel
from private_mcmc.planning.stages import Array
from private_mcmc.records import Record

_POINTS, _TRIED = 129, 6
_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class EventTimes:
    """The columns of a censored time, and public times over which its hazard is added up.

    Attributes:
        time: name of the column of the time.
        event: name of the column that tells whether the event was seen.
        grid: times from the domain's least to its largest, closer together at its beginning.
    """

    time: str
    event: str
    grid: Array

    def drawn(self, loss: Callable[[Record], jax.Array], row: Record, key: jax.Array) -> Record:
        """The time of an event with the hazard of ``loss``, and its flag; cut off at the row's own time."""
        seen = jnp.asarray(row[self.event])

        def without(time: jax.Array) -> jax.Array:
            return loss({**row, self.time: time, self.event: jnp.zeros_like(seen)})

        grid = jnp.asarray(self.grid)
        hazard = jax.vmap(without)(grid)
        hazard = jax.lax.cummax(jnp.nan_to_num(hazard - hazard[0], nan=0.0))
        reached = jax.random.exponential(key)
        when = jnp.where(reached > hazard[-1], jnp.inf, jnp.interp(reached, hazard, grid))
        last = jnp.asarray(row[self.time])
        return {self.time: jnp.minimum(when, last), self.event: (when <= last).astype(seen.dtype)}


def event_times(reading: RowModel) -> EventTimes | None:
    """The columns of ``reading``, of one row, that are a time to an event and its flag, if two are."""
    if not any(site.family == "Unit" or "Censored" in site.family for site in reading.observations):
        return None
    columns = reading.rows.columns
    flags = [name for name, domain in columns.items() if isinstance(domain, Binary)]
    times = [
        name
        for name, domain in columns.items()
        if domain.event_shape == ()
        and np.issubdtype(domain.dtype, np.floating)
        and _is_bounded(reading, name)
    ]
    for event in flags:
        for time in times:
            if _is_hazard(reading, time, event):
                low, high = (float(end) for end in columns[time].interval())
                return EventTimes(time, event, low + (high - low) * np.linspace(0.0, 1.0, _POINTS) ** 3)
    return None


def _is_bounded(reading: RowModel, name: str) -> bool:
    return bool(np.all(np.isfinite(reading.rows.columns[name].interval())))


def _is_hazard(reading: RowModel, time: str, event: str) -> bool:
    with jax.enable_x64(True):
        rows = reading.rows.project(reading.rows.synthetic(5, _TRIED))
        low, high = (float(end) for end in reading.rows.columns[time].interval())
        # Inside, where no end of the domain and no public cut is likely to be.
        share = np.linspace(0.137, 0.861, _TRIED)
        thetas = jnp.asarray(0.4 * np.random.default_rng(0).normal(size=(_TRIED, reading.dim)))

        def sides(theta: jax.Array, row: Record, at: jax.Array) -> tuple[jax.Array, jax.Array]:
            def loss(time_: jax.Array, seen: int) -> jax.Array:
                flag = jnp.asarray(seen, jnp.asarray(row[event]).dtype)
                return jnp.asarray(reading.row_loss(theta, {**row, time: time_, event: flag}))

            rate = jnp.exp(loss(at, 0) - loss(at, 1))
            return jax.grad(loss)(at, 0), rate

        slope, rate = map(np.asarray, jax.vmap(sides)(thetas, rows, jnp.asarray(low + (high - low) * share)))
    with np.errstate(invalid="ignore"):
        return bool(np.all(rate > 0) and np.all(np.abs(slope - rate) <= _TOLERANCE * (1 + rate)))
