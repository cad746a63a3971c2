"""Bounding a row's influence without bias in any model whose outcome takes a few values.

Clipping scales a row's gradient by how far its own outcome pulls it. Where the gradient grows with the
parameters, as in networks and products of latents, clipped rows then vote by majority, and the chain runs
away to ever more confident parameters. A weight that is the same whatever the row's outcome keeps the
expected score at zero (conditionally unbiased bounded influence: Künsch, Stefanski, Carroll 1989).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from private_mcmc.model import RowModel

Row: TypeAlias = Mapping[str, Any]
Loss: TypeAlias = Callable[[jax.Array, Row], jax.Array]


def weighted_loss(
    loss: Loss, outcomes: Mapping[str, jax.Array], root: ArrayLike, clip: float | jax.Array
) -> Loss:
    """``v`` whose gradient is ``min(1, C / max_y ‖Aᵀ∇v(θ, x, y)‖) ∇v``; its value means nothing.

    The maximum is over ``outcomes``, shape ``(values, …)`` by name; ``root`` is ``A``, ``clip`` is ``C``.
    """
    score = jax.grad(loss)

    def weighted(theta: jax.Array, row: Row) -> jax.Array:
        held = jax.lax.stop_gradient(theta)
        each = jax.vmap(lambda outcome: score(held, {**row, **outcome}))(dict(outcomes))
        steepest = jnp.max(jnp.linalg.norm(each @ jnp.asarray(root, dtype=each.dtype), axis=-1))
        weight = jnp.minimum(1.0, clip / jnp.maximum(steepest, 1e-30))
        return jax.lax.stop_gradient(weight) * loss(theta, row)

    return weighted


def weighted_model(
    reading: RowModel, outcomes: Mapping[str, jax.Array], root: ArrayLike, clip: float
) -> RowModel:
    """The model with that loss. Its rows are no longer functions of an affine predictor."""
    loss = weighted_loss(reading.row_loss, outcomes, root, clip)
    return replace(reading, row_loss=loss, predictor=None, predictors=None)
