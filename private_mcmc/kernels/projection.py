"""Projections of a chain's state onto a ball or a box around the origin, in the metric of its noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Schedule

# Projected states stay this much inside the set, so that rounding cannot move them out.
_INSIDE = 1.0 - 2.0**-40
_FAR = 1e100


def projection(schedule: Schedule) -> Callable[[jax.Array], jax.Array]:
    """The nearest point of the schedule's set, for whitened states of shape ``(chains, p)``.

    Without ``box`` a finite ``diameter`` means the ball ``‖M^{-1/2}θ‖ ≤ diameter/2``; with it, every
    coordinate of ``θ`` is clipped to its half-width, which under diagonal ``M`` is the nearest point in
    ``‖M^{-1/2}·‖`` too. A state that is not a number becomes the origin.

    **Guarantee**: all states it returns are within ``schedule.diameter`` of each other.

    Raises:
        DeclarationError: for noise that is not a multiple of ``M``.
    """
    if schedule.box is None and not math.isfinite(schedule.diameter):
        return lambda u: u
    if schedule.noise is not None:
        raise DeclarationError("a projected chain needs noise 2γM: leave out noise= or the projection.")
    if schedule.box is None:
        radius = min(_INSIDE * schedule.diameter / 2, _FAR)

        def to_ball(u: jax.Array) -> jax.Array:
            # Clipped first: the square of a huge state overflows, and clipping moves no two states apart.
            near = jnp.clip(_finite(u), -_FAR, _FAR)
            norm = jnp.linalg.norm(near, axis=-1, keepdims=True)
            return near * (radius / jnp.maximum(norm, radius))

        return to_ball
    half = _INSIDE * np.asarray(schedule.box)
    if schedule.preconditioner is not None:
        half = half / np.sqrt(np.asarray(schedule.preconditioner))
    return lambda u: jnp.clip(_finite(u), -half, half)


def _finite(u: jax.Array) -> jax.Array:
    return jnp.nan_to_num(u, nan=0.0)
