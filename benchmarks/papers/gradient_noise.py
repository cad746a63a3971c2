"""Noise whose size follows the gradient: studied by audits, never certified."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt


def proportional(gradient: jax.Array, scale: float) -> jax.Array:
    """Variance ``scale·|g_i|`` of every coordinate's noise, shape ``(p,)``."""
    return scale * jnp.abs(gradient)


def per_layer(gradient: jax.Array, layers: npt.NDArray[np.int64], scale: float) -> jax.Array:
    """Variance ``scale·max_{j in i's layer} |g_j|``: one for all coordinates of a layer, shape ``(p,)``.

    ``layers``: the layer of every coordinate, known when this is traced; a layer's lie side by side.
    """
    # A scatter would take most of a step's time.
    parts = jnp.split(jnp.abs(gradient), np.flatnonzero(np.diff(layers)) + 1)
    return jnp.concatenate([jnp.broadcast_to(scale * part.max(), part.shape) for part in parts])
