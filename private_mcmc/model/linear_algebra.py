"""Factors, systems and axes of the small matrices of many rows, by JAX's elementary operations.

On CPUs ``jaxlib`` (0.10) computes them by LAPACK. It divides a batch of 200,000 floating-point operations or
more among the threads of XLA, and the thread that called it waits for them: a program with as many such
calls at once as there are threads waits for ever. Here no thread waits for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Row by row compiles in a second and is a few times faster; a loop compiles at once, whatever the size.
_UNROLLED = 8


def _triangular_solve(
    a: jax.Array, b: jax.Array, *, left_side: bool, lower: bool, transpose_a: bool, **others: bool
) -> jax.Array:
    """As ``jax.lax.linalg.triangular_solve`` of real numbers: ``x`` with ``A x = b`` or ``x A = b``."""
    b = b if left_side else b.mT
    if transpose_a == left_side:
        a, lower = a.mT, not lower
    a = jnp.tril(a) if lower else jnp.triu(a)
    if others["unit_diagonal"]:
        a = a.at[..., jnp.arange(a.shape[-1]), jnp.arange(a.shape[-1])].set(1.0)
    # Its slopes are the solutions of systems again.
    found: jax.Array = jax.lax.custom_linear_solve(
        lambda x: a @ x,
        b,
        lambda _, right: _substituted(a, right, lower),
        lambda _, right: _substituted(a.mT, right, not lower),
    )
    return found if left_side else found.mT


def _substituted(a: jax.Array, b: jax.Array, lower: bool) -> jax.Array:
    """Row after row of ``x``, of those before it."""
    size = a.shape[-1]
    if size <= _UNROLLED:
        rows: dict[int, jax.Array] = {}
        for i in range(size) if lower else reversed(range(size)):
            rest = b[..., i, :]
            for j, row in rows.items():
                rest = rest - a[..., i, j, None] * row
            rows[i] = rest / a[..., i, i, None]
        return jnp.stack([rows[i] for i in range(size)], axis=-2)

    def solve(k: jax.Array, x: jax.Array) -> jax.Array:
        i = k if lower else size - 1 - k
        return x.at[..., i, :].set((b[..., i, :] - (a[..., i, None, :] @ x)[..., 0, :]) / a[..., i, i, None])

    found: jax.Array = jax.lax.fori_loop(0, size, solve, jnp.zeros_like(b))
    return found


@jax.custom_jvp
def _cholesky(a: jax.Array) -> jax.Array:
    """The lower ``L`` with ``L Lᵀ = A``, column after column; NaN where there is none."""

    def column(j: jax.Array, factor: jax.Array) -> jax.Array:
        rest = a[..., :, j] - (factor @ factor[..., j, :, None])[..., 0]
        return factor.at[..., :, j].set(rest / jnp.sqrt(rest[..., j, None]))

    factor = jnp.tril(jax.lax.fori_loop(0, a.shape[-1], column, jnp.zeros_like(a)))
    return jnp.where(jnp.isfinite(factor).all((-2, -1), keepdims=True), factor, jnp.nan)


@_cholesky.defjvp
def _slope(at: tuple[jax.Array], move: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """``dL = L Φ(L⁻¹ dA L⁻ᵀ)`` with ``Φ`` the lower triangle and half of the diagonal (Murray 2016)."""
    factor = _cholesky(*at)
    solve = partial(_triangular_solve, lower=True, unit_diagonal=False)
    inner = solve(factor, *move, left_side=False, transpose_a=True)
    inner = solve(factor, inner, left_side=True, transpose_a=False)
    return factor, factor @ ((jnp.tril(inner) + jnp.tril(inner, -1)) / 2)


_SWEEPS = 10


def eigh(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues and eigenvectors, as columns, of a symmetric matrix, in no order (Jacobi 1846).

    Each rotation of a sweep takes one pair of coordinates apart. Not to be differentiated.
    """
    pairs = np.tile(np.stack(np.triu_indices(a.shape[-1], 1), axis=1), (_SWEEPS, 1))

    def rotate(at: tuple[jax.Array, jax.Array], pair: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        a, axes = at
        off, gap = a[pair[0], pair[1]], a[pair[1], pair[1]] - a[pair[0], pair[0]]
        half = jnp.where(gap < 0, -2, 2) * off
        tangent = jnp.where(off == 0, 0.0, half / (jnp.abs(gap) + jnp.sqrt(gap**2 + half**2)))
        cosine = 1 / jnp.sqrt(1 + tangent**2)
        turn = cosine * jnp.stack([jnp.stack([1.0, tangent]), jnp.stack([-tangent, 1.0])])
        a = a.at[:, pair].set(a[:, pair] @ turn)
        return (a.at[pair].set(turn.T @ a[pair]), axes.at[:, pair].set(axes[:, pair] @ turn)), None

    (a, axes), _ = jax.lax.scan(rotate, (a, jnp.eye(a.shape[-1], dtype=a.dtype)), jnp.asarray(pairs))
    return jnp.diagonal(a), axes


def bind(primitive: Any, *operands: jax.Array, **params: Any) -> Any:
    """``primitive.bind(*operands, **params)``, by no LAPACK where it need not be."""
    here = _OWN.get(primitive.name)
    if here is None or not jnp.issubdtype(operands[0].dtype, jnp.floating):
        return primitive.bind(*operands, **params)
    return here(*operands, **params)


_OWN: Mapping[str, Callable[..., jax.Array]] = {"triangular_solve": _triangular_solve, "cholesky": _cholesky}
