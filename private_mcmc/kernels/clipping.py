"""What every clipped gradient is, the guards that keep each row's term inside the clip, and its coordinates.

The preconditioner is a change of variables: with ``M = AAᵀ`` and ``θ = Au`` a Langevin step is a plain one,
``u' = u − γ Aᵀ∇U(Au) + √(2γ) ξ``. Distances are ``‖u − u'‖ = ‖M^{-1/2}(θ − θ')‖`` and gradients
``‖Aᵀ∇v‖ = ‖M^{1/2}∇v‖``, the two norms of the accountant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Bool, Float

from private_mcmc.accounting.steps import CLIP_SLACK
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.schedule import Matrix

Columns = Mapping[str, jax.Array]
# A pytree of arrays, of a kind that only the gradient that prepared it looks into.
PreparedRows = Any
# A number of the schedule; an array where a simulation compiles one step for many clips.
Clip = float | jax.Array

# Squares of smaller entries underflow: added to a norm, this keeps it an upper bound of the true one.
UNDERFLOW = 1e-140


@dataclass(frozen=True, eq=False)
class Whitening:
    """``A`` with ``AAᵀ = M``: ``None`` (identity), a vector (diagonal) or a lower triangular matrix."""

    root: npt.NDArray[np.float64] | jax.Array | None

    @property
    def largest(self) -> float:
        """A bound of the spectral norm of ``A``, rounded up."""
        if self.root is None:
            return 1.0
        norm = np.max(self.root) if self.root.ndim == 1 else np.linalg.norm(self.root, 2)
        return float(norm) * (1 + 1e-9)

    def to_parameter(self, u: Float[Array, "*batch p"]) -> Float[Array, "*batch p"]:
        """``θ = Au``."""
        if self.root is None:
            return u
        root = jnp.asarray(self.root)
        return u * root if root.ndim == 1 else u @ root.T

    def from_parameter(self, theta: Float[Array, "*batch p"]) -> Float[Array, "*batch p"]:
        """``u = A^{-1}θ``."""
        if self.root is None:
            return theta
        if self.root.ndim == 1:
            return theta / self.root
        inverse: jax.Array = jnp.linalg.inv(jnp.asarray(self.root))
        return theta @ inverse.T

    def pull_back(self, gradient: Float[Array, "*batch p"]) -> Float[Array, "*batch p"]:
        """``Aᵀg``, the gradient with respect to ``u``."""
        if self.root is None:
            return gradient
        root = jnp.asarray(self.root)
        return gradient * root if root.ndim == 1 else gradient @ root


def whitening(preconditioner: Matrix | None, dim: int) -> Whitening:
    """Factor the schedule's ``M``: ``None``, diagonal or full, positive definite."""
    if preconditioner is None:
        return Whitening(None)
    matrix = np.asarray(preconditioner, dtype=np.float64)
    if matrix.shape not in ((dim,), (dim, dim)):
        raise DeclarationError(f"preconditioner has shape {matrix.shape}: use ({dim},) or ({dim}, {dim}).")
    if matrix.ndim == 1:
        if not (np.all(matrix > 0) and np.all(np.isfinite(matrix))):
            raise DeclarationError("preconditioner: every diagonal entry must be positive and finite.")
        return Whitening(np.sqrt(matrix))
    if not np.array_equal(matrix, matrix.T):
        raise DeclarationError("preconditioner: the matrix must be exactly symmetric.")
    try:
        return Whitening(np.asarray(np.linalg.cholesky(matrix), dtype=np.float64))
    except np.linalg.LinAlgError as error:
        raise DeclarationError("preconditioner: the matrix must be positive definite.") from error


@dataclass(frozen=True, eq=False)
class ClippedGradient:
    """``prepare(columns, present)`` once a run, then ``total(u, prepared)`` at every step.

    **Guarantee**: for every ``u`` (NaN included) and every row, present or not, that row's term in
    ``total`` has Euclidean norm at most ``C`` in the whitened coordinates, i.e. dual norm at most ``C``;
    at most ``C(1 + CLIP_SLACK)`` where rows do not enter through one predictor, which every price includes.
    A row that is not present contributes exactly zero.
    """

    prepare: Callable[[Columns, jax.Array], PreparedRows]
    total: Callable[[jax.Array, PreparedRows], jax.Array]


def widened(columns: Columns) -> dict[str, jax.Array]:
    """Real columns in the widest float in force; whole numbers as they are."""
    wide = jax.dtypes.canonicalize_dtype(jnp.float64)
    return {
        name: column.astype(wide) if jnp.issubdtype(column.dtype, jnp.floating) else column
        for name, column in columns.items()
    }


def inside(clip: Clip, entries: int) -> Clip:
    """The clip, less the rounding of a norm of ``entries`` squares and of the products after it.

    A computed sum of ``m`` squares is off by at most ``m u/(1 − m u)`` of itself, ``u = 2⁻⁵³``, in any order
    (Higham 2002, §4.2), its root by half of that; a few more roundings scale the row.
    """
    return clip * (1.0 - max(2.0**-40, (entries + 64) * 2.0**-53))


def around(clip: Clip, entries: int) -> Clip:
    """``inside`` of a clip that is wider by the slack that every price includes.

    Rows whose proved bound is the clip itself are then not scaled at all: scaled rows are no gradients, and
    their sum need not be that of a convex potential.
    """
    return inside(clip * (1.0 + CLIP_SLACK), entries)


def held(value: jax.Array, cap: jax.Array | float) -> jax.Array:
    """``value`` clipped to ``[−cap, cap]``, elementwise; what is not a number becomes ``cap``."""
    return jnp.where(value < cap, jnp.where(value > -cap, value, -cap), cap)


def clipped_sum(
    gradients: Float[Array, "rows p"],
    present: Bool[Array, " rows"],
    clip: Clip,
    weights: Float[Array, " rows"] | None = None,
) -> Float[Array, " p"]:
    """``Σ_i w_i min(1, C/‖g_i‖) g_i`` over the rows that are present and whose gradient is finite."""
    norm = jnp.linalg.norm(gradients, axis=-1)
    usable = present & jnp.isfinite(norm)
    limit = around(clip, gradients.shape[-1])
    factors = jnp.where(usable, jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-300)), 0.0)
    return times(factors, weights) @ jnp.where(usable[:, None], gradients, 0.0)


def times(factors: jax.Array, weights: jax.Array | None) -> jax.Array:
    """``factors``, multiplied by the weights of synthetic rows where there are any."""
    return factors if weights is None else weights * factors


@cache
def check_arithmetic() -> None:
    """Refuse a compiler that takes every number for finite, once in a process: no guard above would hold."""

    @jax.jit
    def kept(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        held_slopes = held(jnp.exp(rows[:, 0]) - jnp.exp(2 * rows[:, 0]), jnp.ones(len(rows)))
        return clipped_sum(rows, jnp.ones(len(rows), dtype=bool), 1.0), held_slopes

    with jax.enable_x64(True):
        rows = jnp.asarray([[np.nan, 1.0], [np.inf, 1.0], [1e200, -np.inf], [800.0, np.nan], [3.0, 4.0]])
        total, slopes = map(np.asarray, kept(rows))
    if not (np.allclose(total, [0.6, 0.8], rtol=1e-9) and np.all(np.abs(slopes) <= 1.0)):
        raise ReleaseError(
            "compiled code here takes every number for finite (XLA_FLAGS with fast math that does not honour "
            "NaNs and infinities?), so that no row's bound is enforced: unset these flags and start anew."
        )
