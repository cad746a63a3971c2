"""Whether what a row says of the parameter is computed by LAPACK, as a multivariate Normal density is."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp

from private_mcmc.model.row_model import RowModel
from private_mcmc.potential.flatten import abstract, row_shapes


@lru_cache(maxsize=8)
def calls_lapack(reading: RowModel) -> bool:
    """Whether gradients of rows side by side are computed by calls of LAPACK.

    A call for many matrices hands them to threads of XLA's pool and waits for them, on a thread of that pool:
    of as many programs at once as there are threads each waits for the others, for ever (jaxlib 0.10).
    """
    two = {name: abstract((2, *one.shape), one.dtype) for name, one in row_shapes(reading.rows).items()}
    gradients = jax.jit(jax.vmap(jax.grad(reading.row_loss), in_axes=(None, 0)))
    with jax.enable_x64(True):
        return "lapack" in gradients.lower(jnp.zeros(reading.dim), two).as_text()
