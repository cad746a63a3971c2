"""Losses of one predictor along a line, Huberised where clipping binds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.model import Predictor
from private_mcmc.preflight.refute.peaks import Array

_CHUNK = 1024
_FARTHEST = 1e8


def in_chunks(function: Callable[[Array], ArrayLike]) -> Callable[[Array], Array]:
    """``function``, which maps ``(k,)`` to ``(…, k)`` for one ``k``, for any number of points, in float64.

    A few recent answers are kept, because two densities are evaluated on the same grids.
    """

    @functools.lru_cache(maxsize=24)
    def at(key: bytes) -> Array:
        return chunked(function, np.frombuffer(key, dtype=np.float64), _CHUNK)

    return lambda points: at(np.ascontiguousarray(points, dtype=np.float64).tobytes())


def chunked(function: Callable[[Array], ArrayLike], points: Array, size: int) -> Array:
    """``function`` of points along the first axis, ``size`` of them at a time; its last axis is theirs."""
    count = -(-len(points) // size)
    padded = np.concatenate([points, np.repeat(points[-1:], count * size - len(points), axis=0)])
    with jax.enable_x64(True):
        parts = [np.asarray(function(part)) for part in np.split(padded, count)]
    return np.concatenate(parts, axis=-1)[..., : len(points)]


def line_losses(
    predictor: Predictor,
    rows: Mapping[str, np.ndarray],
    scale: np.ndarray,
    offset: np.ndarray,
    limit: np.ndarray,
) -> Callable[[Array], Array]:
    """``t ↦ h(scale·t + offset)`` for every row: ``(t,) -> (rows, t)``.

    ``h`` is the row's loss ``ψ`` where ``|ψ'| ≤ limit`` and goes on as a straight line beyond, which is
    what clipping the score at ``limit`` integrates to when ``ψ`` is convex. ``limit`` is infinite where
    clipping never binds.
    """
    columns = {name: jnp.asarray(column) for name, column in rows.items()}
    with jax.enable_x64(True):
        low, high = _knots(predictor, columns, limit)
        loss = jax.vmap(predictor.loss, in_axes=(0, {name: None for name in rows}))
    slope = np.where(np.isfinite(limit), limit, 0.0)
    numbers = np.stack([scale, offset, low, high, slope])

    @jax.jit
    def each(t: jax.Array, numbers: jax.Array, columns: dict[str, jax.Array]) -> jax.Array:
        def one(numbers: jax.Array, row: dict[str, jax.Array]) -> jax.Array:
            scale, offset, low, high, slope = numbers
            eta = scale * t + offset
            # Where nothing is clipped the knots are infinite and the slopes unused.
            below, above = jnp.minimum(eta - low, 0.0), jnp.maximum(eta - high, 0.0)
            tail = jnp.where(below < 0, -slope * below, 0.0) + jnp.where(above > 0, slope * above, 0.0)
            return loss(jnp.clip(eta, low, high), row) + tail

        return jax.vmap(one, in_axes=(1, 0))(numbers, columns)

    return in_chunks(lambda t: each(t, numbers, columns))


def _knots(
    predictor: Predictor, columns: Mapping[str, jax.Array], limit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where the increasing score of each row reaches ``−limit`` and ``limit``; infinite where never."""
    count = len(limit)
    if not np.any(np.isfinite(limit)):
        return np.full(count, -np.inf), np.full(count, np.inf)
    score = jax.jit(jax.vmap(jax.grad(predictor.loss)))
    ends = []
    for sign in (-1.0, 1.0):
        inside, outside = np.full(count, -sign * _FARTHEST), np.full(count, sign * _FARTHEST)
        reached = sign * np.asarray(score(outside, columns)) > limit
        for _ in range(100):
            middle = 0.5 * (inside + outside)
            beyond = sign * np.asarray(score(middle, columns)) > limit
            inside, outside = np.where(beyond, inside, middle), np.where(beyond, middle, outside)
        ends.append(np.where(reached, inside, sign * np.inf))
    return ends[0], ends[1]
