"""Estimates from releases: second moments and curvature known up to noise, means and draws from paths.

Moments are refined round by round in the metric of the last round.

In the metric of an estimate every direction is as large as every other, so that the noise, whose size is
set by the longest row, no longer hides the small ones (the idea of private preconditioning: Kamath, Li,
Singhal, Ullman 2019; Biswas, Dong, Kamath, Ullman 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.stats import truncnorm

from private_mcmc.model import RowModel
from private_mcmc.planning.stages import Array
from private_mcmc.potential.rowwise import at_each
from private_mcmc.release import SecondMoments
from private_mcmc.schedule import Schedule
from private_mcmc.system import RUN_ONCE

_MOST_UNEQUAL, _LEAST = 1e-12, 1e-100
# No direction of a metric has less than this of the noise's norm, or of a typical curvature.
_FLOOR_OF_NOISE, _FLOOR_OF_LEVEL = 0.5, 0.4
# Curvatures that noise allows: so many are averaged over, none flatter than this share of a typical one; of
# hidden ones the degrees of freedom over the dimension.
ALLOWED, _FLATTEST, _WISHART = 64, 0.02, 2
# Rows of a block, and the most numbers in it.
_BLOCK, _NUMBERS = 512, 2**20


def in_blocks(function: Callable[..., Any], *arrays: Any) -> Any:
    """``function`` of arrays of equally many rows, which goes row by row, in blocks of one public shape.

    Its one compiled program serves any number of rows, such as that of states, which may be released.
    """
    count, width = len(arrays[0]), max(np.size(one) // max(len(one), 1) for one in arrays)
    size = max(1, min(_BLOCK, _NUMBERS // max(width, 1)))
    missing = -count % size
    arrays = tuple(np.concatenate([one, np.repeat(one[-1:], missing, axis=0)]) for one in arrays)
    blocks = (tuple(one[first : first + size] for one in arrays) for first in range(0, max(count, 1), size))
    parts = [jax.tree.map(np.asarray, function(*block)) for block in blocks]
    return jax.tree.map(lambda *each: np.concatenate(each)[:count], *parts)


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def prior_slopes(reading: RowModel, thetas: npt.ArrayLike) -> jax.Array:
    """``∇K`` at each of ``thetas``, shape ``(states, p)``; compiled once for a model."""
    return jnp.asarray(at_each(jax.grad(reading.neg_log_prior), jnp.asarray(thetas)))


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def prior_curvature(reading: RowModel, theta: npt.ArrayLike) -> jax.Array:
    """``∇²K`` at ``theta``, shape ``(p, p)``."""
    return jnp.asarray(jax.hessian(reading.neg_log_prior)(jnp.asarray(theta)))


def root_of(precision: Array) -> Array:
    """The symmetric ``A`` with ``A² = precision^{-1}``: so that what sums round off turns no axes."""
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    # No release, and no prior at whose draws rows tell nothing, makes a metric that float64 cannot factor.
    return np.asarray(vectors / np.sqrt(values.clip(max(_MOST_UNEQUAL * values[-1], _LEAST))) @ vectors.T)


def inverse_of(precision: Array) -> Array:
    """As :func:`root_of`, squared: of what a release may have made singular."""
    root = root_of(precision)
    return np.asarray(root @ root.T)


def spectral_norm(noise_sd: float, dim: int) -> float:
    """About the spectral norm of a symmetric noise matrix."""
    return noise_sd * math.sqrt(2.0 * dim)


def floored(matrix: Array, least: float) -> Array:
    """A symmetric matrix with its eigenvalues raised to ``least``."""
    values, vectors = np.linalg.eigh(matrix)
    raised: Array = (vectors * np.maximum(values, least)) @ vectors.T
    return (raised + raised.T) / 2


class Believed(NamedTuple):
    """What is believed of a released matrix ``S``: ``level I + axes diag(share apart) axesᵀ``.

    In a metric of its own the matrix is about a multiple of ``I``. Noise of sd ``σ`` scatters its ``d`` other
    entries around that by ``σ²d`` in all; what ``S`` scatters beyond that, a share ``ρ`` of the whole, is the
    matrix's own (Stein's rule). Of an axis whose eigenvalue is further from the others, ``x``, than any of
    the noise's, ``e = σ√(2p)``, the share ``√(x² − e²)/x`` is (Donoho, Gavish, Johnstone 2018), if that is
    more.
    """

    level: float
    apart: Array
    axes: Array
    share: Array

    @classmethod
    def of(cls, released: SecondMoments) -> Believed:
        """Of moments in about their own metric."""
        dim, sd = len(released.matrix), released.noise_sd
        level = float(np.trace(released.matrix)) / dim
        apart, axes = np.linalg.eigh(released.matrix - level * np.eye(dim))
        scatter = max(float(np.square(apart).sum()), 1e-300)
        own = max(1.0 - sd**2 * (dim * (dim + 1) / 2 - 1) / scatter, 0.0)
        beyond = np.sqrt(np.maximum(apart**2 - spectral_norm(sd, dim) ** 2, 0.0))
        return cls(level, apart, axes, np.maximum(own, beyond / np.maximum(np.abs(apart), 1e-300)))


def too_noisy(released: SecondMoments) -> bool:
    """Whether noise is larger than a typical eigenvalue."""
    dim = len(released.matrix)
    return bool(np.trace(released.matrix) < dim * spectral_norm(released.noise_sd, dim))


def shrunk(released: SecondMoments) -> Array:
    """The matrix that is believed, of no direction less than noise allows: for metrics, ``(p, p)``."""
    dim, found = len(released.matrix), Believed.of(released)
    level = max(found.level, released.noise_sd / math.sqrt(dim), 1e-9)
    values = np.maximum(
        level + found.share * found.apart,
        min(_FLOOR_OF_NOISE * spectral_norm(released.noise_sd, dim), _FLOOR_OF_LEVEL * level),
    )
    return np.asarray((found.axes * np.maximum(values, 1e-9 * level)) @ found.axes.T)


def allowed_by_noise(released: SecondMoments) -> list[Array]:
    """Matrices that may have been released as ``S``, drawn by a public key.

    What is believed of ``S`` (:class:`Believed`) is so up to its noise. What noise hides, the rest, is as
    uneven as a Wishart matrix of ``2p`` degrees of freedom, or of more where noise would show that: some
    directions have next to nothing, as those of levels that nobody is in, or of columns that determine each
    other. The multiple is positive, and Normal given that.
    """
    dim, sd, random = len(released.matrix), released.noise_sd, np.random.default_rng(0)
    level, apart, axes, share = Believed.of(released)
    believed, hides = np.outer(share, share), np.outer(1 - share, 1 - share)
    made = []
    levels = positive_normal(level, sd / math.sqrt(dim), ALLOWED)
    for each in random.permutation(levels):
        noise = np.tril(random.standard_normal((dim, dim)), -1) / math.sqrt(2.0)
        noise = sd * (noise + noise.T + np.diag(random.standard_normal(dim)))
        even = float(np.trace(noise)) / dim * np.eye(dim)
        freedom = max(_WISHART * dim, 2 * (each / sd) ** 2)
        # Bartlett's factors of a Wishart matrix.
        root = np.tril(random.standard_normal((dim, dim)), -1)
        root = root + np.diag(np.sqrt(random.chisquare(freedom - np.arange(dim))))
        hidden = each * (root @ root.T / freedom - np.eye(dim))
        matrix = each * np.eye(dim) + np.diag(share * apart)
        matrix = matrix + believed**0.25 * (noise - even) + hides**0.25 * hidden
        made.append(floored(axes @ matrix @ axes.T, _FLATTEST * each))
    return made


def positive_normal(mean: float, sd: float, count: int) -> Array:
    """Quantiles of ``N(mean, sd²)`` given that it is positive, evenly spaced in probability."""
    at = (np.arange(count) + 0.5) / count
    return np.asarray(truncnorm.ppf(at, -mean / max(sd, 1e-300), np.inf, loc=mean, scale=sd))


def metric_of(schedule: Schedule) -> Array:
    """``M``, ``(p, p)``."""
    metric = np.eye(schedule.dim) if schedule.preconditioner is None else np.asarray(schedule.preconditioner)
    return np.diag(metric) if metric.ndim == 1 else metric
