"""Rows stored in float32, multiplied and added in float64.

Narrowing is a map of one row: it changes which row is summed, not how sums round. An entry never grows, so
every bound on a row that was proved or enforced in float64 holds for what is stored.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.kernels.gradient.affine import AffineBlocks, AffineRows
from private_mcmc.kernels.gradient.clipping import ClippedGradient, Columns, widened
from private_mcmc.kernels.gradient.general import GeneralRows
from private_mcmc.schedule import Storage

# Rounding to the nearest float32 enlarges a number by less than this makes it smaller.
_SHRINK = 1.0 - 2.0**-23
_SMALLEST_NORMAL = 2.0**-126


def narrowed(values: jax.Array) -> jax.Array:
    """As float32, with ``|narrowed(x)| ≤ |x|`` for every entry, and none infinite."""
    largest = float(np.finfo(np.float32).max)
    smaller = jnp.clip(values * _SHRINK, -largest, largest)
    return jnp.where(jnp.abs(smaller) < _SMALLEST_NORMAL, 0.0, smaller).astype(jnp.float32)


def stored(gradient: ClippedGradient, storage: Storage) -> ClippedGradient:
    """The same sum over rows that are held in ``storage`` between steps.

    **Guarantee**: that of ``gradient``: a row's term has norm at most ``C``, since the cap of its slope was
    found for the longer design, and never grows itself.
    """
    if storage == "float64":
        return gradient

    def prepare(columns: Columns, present: jax.Array) -> Any:
        rows = gradient.prepare(widened(columns), present)
        if isinstance(rows, AffineBlocks):
            return AffineBlocks(tuple(part._replace(design=narrowed(part.design)) for part in rows.parts))
        if isinstance(rows, AffineRows):
            # Caps are narrowed with their designs; a batch is widened when it has been selected.
            return rows._replace(table=narrowed(rows.table))
        # General rows are widened block by block.
        return rows._replace(columns=columns) if isinstance(rows, GeneralRows) else rows

    return ClippedGradient(prepare, gradient.total)
