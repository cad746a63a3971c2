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
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.stats import truncnorm

from private_mcmc.model import RowModel
from private_mcmc.planning.stages import Array
from private_mcmc.potential.potential import Potential
from private_mcmc.potential.rowwise import EXACT, at_each
from private_mcmc.records import Fields
from private_mcmc.release import SecondMoments
from private_mcmc.schedule import Schedule
from private_mcmc.system import RUN_ONCE

Flags: TypeAlias = npt.NDArray[np.bool_]

_MOST_UNEQUAL, _LEAST = 1e-12, 1e-100
# No direction of a metric has less than this of the noise's norm, or of a typical curvature.
_FLOOR_OF_NOISE, _FLOOR_OF_LEVEL = 0.5, 0.4
# Curvatures that noise allows: so many are averaged over, none flatter than this share of a typical one; of
# hidden ones the degrees of freedom over the dimension.
ALLOWED, _FLATTEST, _WISHART = 64, 0.02, 2
# Rows of a block, and the most numbers in it.
_BLOCK, _NUMBERS = 512, 2**20


def in_blocks(function: Callable[[Array], Any], rows: Array) -> Any:
    """``function`` of an array, which goes row by row, in blocks of one public shape.

    Its one compiled program serves any number of rows, such as that of states, which may be released.
    """
    count, size = len(rows), max(1, min(_BLOCK, _NUMBERS // max(rows[:1].size, 1)))
    rows = np.concatenate([rows, np.repeat(rows[-1:], -count % size, axis=0)])
    parts = [function(rows[first : first + size]) for first in range(0, max(count, 1), size)]
    return jax.tree.map(lambda *each: np.concatenate(each)[:count], *parts)


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def prior_slopes(reading: RowModel, thetas: npt.ArrayLike) -> jax.Array:
    """``∇K`` at each of ``thetas``, shape ``(states, p)``; compiled once for a model."""
    return jnp.asarray(at_each(reading.prior_slope, jnp.asarray(thetas)))


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def row_slopes(reading: Potential, thetas: npt.ArrayLike, rows: Fields) -> jax.Array:
    """``∇v`` of each of ``rows`` at each of ``thetas``, shape ``(states, rows, p)``; likewise."""
    slope, given = reading.row_slope, dict(rows)
    return jnp.asarray(jax.lax.map(lambda theta: at_each(partial(slope, theta), given), jnp.asarray(thetas)))


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def prior_curvature(reading: RowModel, theta: npt.ArrayLike) -> jax.Array:
    """``∇²K`` at ``theta``, shape ``(p, p)``."""
    return jnp.asarray(jax.hessian(reading.neg_log_prior)(jnp.asarray(theta)))


def site_values(reading: Potential, draws: Array) -> dict[str, Array]:
    """Draws ``(draws, p)`` as values of the model's sites, ``(draws, …)``."""
    with jax.enable_x64(True), jax.default_matmul_precision(EXACT):
        return dict(in_blocks(partial(_constrained, reading), draws))


@partial(jax.jit, static_argnums=0)
def _constrained(reading: Potential, draws: jax.Array) -> Fields:
    return dict(at_each(reading.constrain, draws))


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
    """Symmetric matrices, ``(…, p, p)``, with their eigenvalues raised to ``least``."""
    values, vectors = np.linalg.eigh(matrix)
    raised: Array = vectors * np.maximum(values, least)[..., None, :] @ vectors.swapaxes(-1, -2)
    return (raised + raised.swapaxes(-1, -2)) / 2


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
    for each in random.permutation(normal_between(level, sd / math.sqrt(dim), 0.0, math.inf)):
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


def normal_between(mean: float, sd: float, low: float, high: float) -> Array:
    """``ALLOWED`` quantiles of ``N(mean, sd²)`` given that it is between, evenly spaced in probability."""
    at, sd = (np.arange(ALLOWED) + 0.5) / ALLOWED, max(sd, 1e-300)
    return np.asarray(truncnorm.ppf(at, (low - mean) / sd, (high - mean) / sd, mean, sd))


def metric_of(schedule: Schedule) -> Array:
    """``M``, ``(p, p)``."""
    metric = np.eye(schedule.dim) if schedule.preconditioner is None else np.asarray(schedule.preconditioner)
    return np.diag(metric) if metric.ndim == 1 else metric


# Of what rows add to the curvature in a path's metric, which is 1 or less where the metric was made for as
# much information as they have: median, and sd of the logarithm, before the path.
_MEDIAN, _SD_OF_LOG = 0.1, 1.5
# Of the curvature between a path and the parameter over that near the path: sd of the logarithm.
_SECANT = 1.2
_GRID = np.geomspace(1e-4, 4.0, 200)
_DRAWS = 256
# Of the share of the curvature that a bound on influence leaves, before the path: mean, sd, least.
_SHARE, _SD_OF_SHARE, _LEAST_SHARE = 0.8, 0.25, 0.2
# Of a path that started far away; stretches agree where they differ by two sds in every direction.
_BURN_INS, _SAME = (0.0, 0.1, 0.3, 0.5, 0.7), 4.0


class Steps(NamedTuple):
    """A path step by step: ``said`` of ``G`` has noise ``N(0, M^{-1}/precisions)``.

    As ``θ_{k+1} − θ_k = −γM(∇K + wΣ∇v) + N(0, 2γM)``, whatever the start and the prior.

    Attributes:
        states: where steps were taken, ``(steps, p)``.
        said: ``(steps, p)``.
        precisions: ``w²γ/2``, ``(steps,)``.
        metric: ``M``, ``(p, p)``.
        weight: ``w``.
    """

    states: Array
    said: Array
    precisions: Array
    metric: Array
    weight: float

    @classmethod
    def of(cls, schedule: Schedule, states: Array, prior_scores: Array) -> Steps:
        """``states`` are ``(steps + 1, p)``, the start first; ``prior_scores`` ``∇K`` there."""
        metric, sizes = metric_of(schedule), np.asarray(schedule.step_sizes)
        sizes = np.broadcast_to(sizes, len(states) - 1)
        moved = -np.diff(states, axis=0) / sizes[:, None] @ np.linalg.inv(metric)
        said = (moved - prior_scores[:-1]) / schedule.temper
        return cls(states[:-1], said, sizes * schedule.temper**2 / 2, metric, schedule.temper)

    def between(self, first: int, last: int) -> Steps:
        """Some of them."""
        states, said, precisions = (each[first:last] for each in self[:3])
        return Steps(states, said, precisions, self.metric, self.weight)

    @property
    def centre(self) -> Array:
        """Mean of the states, ``(p,)``."""
        return np.asarray(self.states.mean(axis=0))

    @property
    def score(self) -> Array:
        """Mean of ``G`` there, ``(p,)``."""
        return np.asarray(self.said.mean(axis=0))

    @property
    def precision(self) -> Array:
        """Of the noise of that mean, ``(p, p)``."""
        return np.asarray(self.precisions.sum() * self.metric)

    def settled(self, curvature: Array) -> Steps:
        """Those from where two stretches, one after the other, imply the same mode up to their noise."""
        count = len(self.states)
        for share in _BURN_INS:
            first = int(share * count)
            middle = first + (count - first) // 2
            early, late = self.between(first, middle), self.between(middle, count)
            off = late.score - early.score - curvature @ (late.centre - early.centre)
            noise = 1 / early.precisions.sum() + 1 / late.precisions.sum()
            if off @ self.metric @ off <= _SAME * noise * len(off):
                break
        return self.between(first, count)

    def centred(self, each: Array) -> Array:
        """Less its mean over the steps, weighted by precision, ``(steps, k)``."""
        return np.asarray(each - self.precisions / self.precisions.sum() @ each)

    def shares(self, curvature: Array) -> Array:
        """What the path allows of the share ``s`` of this curvature that it met, ``(draws,)``."""
        expected = self.centred(self.states) @ curvature
        in_metric = expected @ self.metric
        precision = float(self.precisions @ np.sum(in_metric * expected, axis=1)) + _SD_OF_SHARE**-2
        seen = float(self.precisions @ np.sum(in_metric * self.centred(self.said), axis=1))
        mean = (seen + _SHARE * _SD_OF_SHARE**-2) / precision
        allowed = normal_between(mean, precision**-0.5, _LEAST_SHARE, 1.0)
        return np.asarray(np.random.default_rng(1).permutation(allowed))

    def curvatures(self, read: Flags) -> Array:
        """``sH`` as the path alone allows, zero but of the ``read`` parameters: ``(draws, p, p)``.

        Along an axis of the states' scatter in the metric every eigenvalue has the posterior that a
        regression of gradients on states leaves under a log-Normal prior, times a log-Normal factor: between
        the path and ``θ`` outcomes level off and rows are clipped otherwise than near the path.
        """
        root = np.linalg.cholesky(self.metric[np.ix_(read, read)])
        said = self.centred(seen_alone(self.said, self.metric, read) @ root)
        at = self.centred(np.linalg.solve(root, self.states[:, read].T).T)
        scatter, axes = np.linalg.eigh((at * self.precisions[:, None]).T @ at)
        slope = np.einsum("k,ki,ki->i", self.precisions, at @ axes, said @ axes) / np.maximum(scatter, 1e-300)
        prior = np.square(np.log(_GRID / _MEDIAN) / _SD_OF_LOG)[:, None]
        grid = _GRID / self.weight
        logs = -(scatter * np.square(grid[:, None] - slope) + prior) / 2
        below = np.cumsum(np.exp(logs - logs.max(axis=0)), axis=0)
        even, random = (np.arange(_DRAWS) + 0.5) / _DRAWS, np.random.default_rng(0)
        drawn = [
            grid[np.searchsorted(one, one[-1] * random.permutation(even)).clip(max=len(grid) - 1)]
            for one in below.T
        ]
        factors = np.exp(_SECANT * random.standard_normal((len(axes), _DRAWS)))
        back = np.eye(len(read))[:, read] @ np.linalg.inv(root).T @ axes
        return np.asarray(np.einsum("ij,jk,lj->kil", back, np.stack(drawn) * factors, back))


def seen_alone(said: Array, precision: Array, read: Flags) -> Array:
    """What was said of parameters that are read, less the noise that the others show: ``(…, k)``.

    Where ``read`` noise has precision ``P`` it is ``P_rr`` then, and ``P_rr^{-1} P_ru`` times the others'
    is taken off.
    """
    inner, outer = precision[np.ix_(read, read)], precision[np.ix_(read, ~read)]
    return np.asarray(said[..., read] + said[..., ~read] @ np.linalg.solve(inner, outer).T)
