"""The preconditioner as a change of variables: with ``M = AAᵀ`` and ``θ = Au`` the step is isotropic.

In ``u`` a preconditioned Langevin step is a plain one: ``u' = u − γ Aᵀ∇U(Au) + √(2γ) ξ``, distances are
``‖u − u'‖ = ‖M^{-1/2}(θ − θ')‖`` and gradients ``‖Aᵀ∇v‖ = ‖M^{1/2}∇v‖``, the two norms of the accountant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float

from private_mcmc.accounting.langevin.sensitivity import whitened_noise
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Matrix, Schedule


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


def noise_colour(schedule: Schedule) -> Callable[[jax.Array], jax.Array]:
    """``ξ ↦ A^{-1}Bξ`` with ``BBᵀ = noise``: standard normals to the noise of a whitened step."""
    mixed = whitened_noise(schedule)
    if mixed is None:
        return lambda standard: standard
    if mixed.ndim == 1:
        return lambda standard: standard * mixed
    return lambda standard: standard @ mixed.T


# Projected states stay this much inside the set, so that rounding cannot move them out.
_INSIDE = 1.0 - 2.0**-40
_FAR = 1e100


def projection(schedule: Schedule) -> Callable[[jax.Array], jax.Array]:
    """The nearest point of the schedule's set, for whitened states of shape ``(chains, p)``.

    Without ``box`` a finite ``diameter`` means the ball ``‖M^{-1/2}θ‖ ≤ diameter/2``; with it, every
    coordinate of ``θ`` is clipped to its half-width, which under diagonal ``M`` is the nearest point in
    ``‖M^{-1/2}·‖`` too. A state that is not a number becomes the origin.

    **Guarantee**: all states it returns are within ``schedule.diameter`` of each other.
    """
    if schedule.box is None and not math.isfinite(schedule.diameter):
        return lambda u: u
    if schedule.noise is not None:
        raise DeclarationError("a projected chain needs noise 2γM: leave out noise= or the projection.")
    if schedule.box is None:
        radius = min(_INSIDE * schedule.diameter / 2, _FAR)

        def to_ball(u: Float[Array, "chains p"]) -> Float[Array, "chains p"]:
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
