"""Clipping persons whose rows enter through one affine predictor each, ``η_ij = x_ij·θ + o_ij``.

A person's gradient is ``Σ_j ψ'(η_ij)·Aᵀx_ij`` over that person's rows: one pass over the designs gives the
slopes, a second one the gradients, whose norms and sum use the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.kernels.gradient.affine import offsets, read_by_slope, usable_designs
from private_mcmc.kernels.gradient.clipping import Clip, Columns, around, times, weight
from private_mcmc.kernels.whitening import Whitening
from private_mcmc.model import Predictor

# Of more rows the sums over a person's rows are one product instead of so many terms.
_FEW_ROWS = 24
_DESIGN, _OFFSET, _READ = "design", "offset", "read "


def person_columns(predictor: Predictor, whitening: Whitening, columns: Columns) -> Columns:
    """What a sum needs of every person: whitened designs ``(n, k, p)``, offsets, what slopes read.

    Rows that a person lacks, or whose design is longer than proved, are marked as not there.
    """
    count, each = columns[OWN_ROWS].shape
    rows = {
        name: column.reshape(count * each, *column.shape[2:])
        for name, column in columns.items()
        if name != OWN_ROWS
    }
    design, usable = usable_designs(predictor, whitening, rows)
    own = (columns[OWN_ROWS] > 0) & usable.reshape(count, each)
    found = {_DESIGN: design.reshape(count, each, -1) * own[..., None], OWN_ROWS: own}
    offset = offsets(predictor, rows)
    if offset is not None:
        found[_OFFSET] = offset.reshape(count, each)
    read = read_by_slope(predictor, rows)
    return found | {
        _READ + name: column.reshape(count, each, *column.shape[1:]) for name, column in read.items()
    }


def affine_persons(
    predictor: Predictor, clip: Clip
) -> Callable[[jax.Array, Columns, jax.Array, jax.Array | None], jax.Array]:
    """``(u, columns, present, weights) ↦ Σ_i w_i clip_C(Σ_j ψ'(η_ij)·Aᵀx_ij)`` of ``person_columns``."""
    score = jax.vmap(jax.vmap(jax.grad(predictor.loss)))

    def of_block(
        u: Float[Array, " p"],
        columns: Columns,
        present: Bool[Array, " persons"],
        weights: Float[Array, " persons"] | None,
    ) -> Float[Array, " p"]:
        design = columns[_DESIGN]
        count, each, dim = design.shape
        eta = (design.reshape(count * each, dim) @ u).reshape(count, each)
        read = {name.removeprefix(_READ): columns[name] for name in columns if name.startswith(_READ)}
        slope = score(eta + columns[_OFFSET] if _OFFSET in columns else eta, read)
        slope = jnp.where(columns[OWN_ROWS], slope, 0.0)
        if each <= _FEW_ROWS:
            gradient = reduce(jnp.add, [slope[:, j, None] * design[:, j] for j in range(each)])
        else:
            gradient = jnp.einsum("nk,nkp->np", slope, design)
        norm = jnp.linalg.norm(gradient, axis=-1)
        usable = present & jnp.isfinite(norm)
        factors = times(weight(norm, around(clip, dim), usable), weights)
        return factors @ jnp.where(usable[:, None], gradient, 0.0)

    return of_block
