"""Private second moments ``XᵀX`` of rows of bounded norm: what a preconditioner may be chosen from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement, capped
from private_mcmc.accounting.mechanisms import second_moments_sensitivity
from private_mcmc.accounting.rounding import product_up
from private_mcmc.domains.columns import numeric_column
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.release.noise import FloatArray, GaussianNoise, gaussian_noise
from private_mcmc.target import Adjacency

_CHUNK = 4096
_UNIT = 2.0**-53


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """A released ``XᵀX`` plus symmetric noise; using it further costs nothing.

    It certifies nothing about the rows: no norm bound, curvature or smoothness may be read from it.

    Attributes:
        matrix: shape ``(p, p)``, symmetric; eigenvalues may be negative, floor them at a public value.
        noise_sd: sd of a diagonal entry's noise; off the diagonal it is smaller by ``√2``.
        statement: what the release cost.
    """

    matrix: FloatArray
    noise_sd: float
    statement: Statement

    def __repr__(self) -> str:
        return f"SecondMoments(dim={len(self.matrix)}, noise_sd={self.noise_sd:.4g})\n{self.statement}"


def floored(matrix: FloatArray, least: float) -> FloatArray:
    """A symmetric matrix with its eigenvalues raised to ``least > 0``: post-processing of a release."""
    if not least > 0:
        raise DeclarationError(f"least={least}: eigenvalues are floored at a positive public number.")
    values, vectors = np.linalg.eigh(matrix)
    raised: FloatArray = (vectors * np.maximum(values, least)) @ vectors.T
    return (raised + raised.T) / 2


@dataclass(frozen=True)
class SecondMomentsPlan:
    """The mechanism, known before anything is spent.

    Rows are mapped into the ball ``‖x‖ ≤ R`` (non-finite rows to 0), summed in float64, and the upper
    triangle, its off-diagonal part times ``√2`` (then the Euclidean norm is the Frobenius norm), gets
    isotropic discrete Gaussian noise. A row may also be several vectors, a matrix ``V`` with Frobenius norm
    at most ``R`` that adds ``VᵀV``: the difference of two such matrices is no larger.

    **Guarantee**: ``√2R²/τ``-GDP under ``replace_one`` with ``p ≥ 2``, else ``R²/τ``-GDP. The noise drawn
    is a little larger than ``τ``: it also covers the rounding of two float64 sums and the noise grid.
    **Assumptions**: at most ``num_rows`` rows.
    Source: Dong, Roth, Su 2022; Higham 2002, section 3.1 (rounding).

    Attributes:
        vectors: the most vectors of one row.
        noise: the noise on the ``p(p+1)/2`` coordinates.
        statement: the cost.
    """

    radius: float
    dim: int
    num_rows: int
    noise: GaussianNoise
    statement: Statement
    vectors: int = 1

    def release(self, rows: npt.ArrayLike) -> SecondMoments:
        """Sum, add noise, return. ``rows`` has shape ``(n, p)`` or ``(n, k, p)`` and is curator-side."""
        return self.released(self.noised(self.sums(rows)))

    def sums(self, rows: npt.ArrayLike) -> FloatArray:
        """``Σ VᵀV`` of the rows of one partition or block, or of all: curator-side.

        The sums of blocks, and then of partitions, are added with a rounding each, for which the noise has
        room.
        """
        array = numeric_column("rows", rows)
        if array.ndim not in (2, 3) or array.shape[-1] != self.dim:
            raise DataSchemaError(f"rows of shape (n, {self.dim}) or (n, k, {self.dim}) are needed.")
        if array.ndim == 3 and array.shape[1] > self.vectors:
            raise DataSchemaError(f"more vectors in a row than the declared {self.vectors}.")
        if array.shape[0] > self.num_rows:
            raise DataSchemaError(f"more rows than the declared {self.num_rows}.")
        return _gram(array, self.radius)

    def noised(self, exact: FloatArray) -> FloatArray:
        """The sums of all rows with noise, drawn once; symmetric."""
        upper = np.triu_indices(self.dim)
        weight = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
        noised = self.noise.release(exact[upper] * weight) / weight
        matrix = np.zeros((self.dim, self.dim))
        matrix[upper] = noised
        matrix.T[upper] = noised
        return matrix

    def released(self, matrix: FloatArray) -> SecondMoments:
        """What ``noised`` gave, with its price."""
        return SecondMoments(matrix, self.noise.sd, self.statement)


def plan_second_moments(
    gdp: float, *, radius: float, dim: int, num_rows: int, adjacency: Adjacency, vectors: int = 1
) -> SecondMomentsPlan:
    """Plan a release of cost ``gdp``-GDP; ``num_rows`` is ``n``, under ``add_remove`` the public ``n_max``.

    ``vectors`` is the most vectors that one row adds, with joint norm at most ``radius``.
    """
    if not (num_rows >= 1 and vectors >= 1 and dim >= 1 and 0 < gdp < math.inf and 0 < radius < math.inf):
        raise DeclarationError(
            f"num_rows={num_rows}, vectors={vectors}, dim={dim}, gdp={gdp}, radius={radius}: at least one "
            "each, and a positive budget and radius."
        )
    exact, size = second_moments_sensitivity(radius, dim, adjacency), dim * (dim + 1) // 2
    tau = product_up(exact, over=(gdp,))
    noise = gaussian_noise(exact / tau, exact + _rounding(radius, dim, num_rows, vectors), size)
    what = f"second moments of rows clipped at the norm {radius:g}"
    statement = accounting.gaussian(adjacency=adjacency, sensitivity=exact, scale=tau, dim=size, what=what)
    return SecondMomentsPlan(radius, dim, num_rows, noise, capped(statement, num_rows), vectors)


def _rounding(radius: float, dim: int, num_rows: int, vectors: int = 1) -> float:
    """Most that float64 adds to the difference of two computed sums, in the Frobenius norm.

    Every entry is a sum of ``k`` rounded products, off by ``k u/(1 − k u) Σ|x_i x_j|``; the matrix of
    ``Σ|x_i x_j|`` has Frobenius norm at most ``n R²``. The sums of blocks (``math.fsum``), and then of
    partitions, round once more each. A row's own norm is enforced up to ``(kp + 8)u``.
    """
    additions = min(num_rows, _CHUNK) * vectors + -(-num_rows // _CHUNK) + 8
    load = additions * _UNIT
    norm_slack = 4 * (dim * vectors + 8) * _UNIT
    underflow = num_rows * vectors * dim * 2.0**-1070
    allowance = 2 * load / (1 - load) * num_rows * radius**2 * (1 + norm_slack) + 2 * norm_slack * radius**2
    allowance += underflow
    if not allowance < radius**2:
        raise DeclarationError(f"num_rows={num_rows}: float64 sums of so many rows carry no useful bound.")
    return allowance


def _gram(rows: npt.NDArray[np.generic], radius: float) -> FloatArray:
    total = np.zeros((rows.shape[-1], rows.shape[-1]))
    for first in range(0, len(rows), _CHUNK):
        chunk = _into_ball(np.asarray(rows[first : first + _CHUNK], dtype=np.float64), radius)
        vectors = chunk.reshape(-1, rows.shape[-1])
        total += vectors.T @ vectors
    return total


def _into_ball(rows: FloatArray, radius: float) -> FloatArray:
    """Rows scaled to norm at most ``radius``; a row that is not finite, or too large to square, becomes 0."""
    apart = (slice(None), *(None,) * (rows.ndim - 1))
    with np.errstate(all="ignore"):
        norms = np.sqrt(np.square(rows).reshape(len(rows), -1).sum(axis=1))
        finite = np.isfinite(norms)
        scale = np.where(norms > radius, radius / norms, 1.0)
        return np.where(finite[apart], rows * scale[apart], 0.0)
