"""What paths say of the parameter, where the rows' score is linear: Normal given the curvature.

Near a path the rows' mean gradient is ``G(θ') = s·(H(θ' − θ) + z)``, with ``z ~ N(0, H)`` the sample's
deviation at the parameter ``θ``, and ``s`` the share of the curvature that bounding rows' influence leaves; a
path is a noisy mean of it. ``H`` is unknown: draws are those that the noise of a released matrix allows, or
that the path alone allows where none was bought. The likelihood of ``θ`` is the mean over draws.
Of parameters that no row reads, as the sd of effects that are drawn with it, rows have no curvature: what
steps say along them is noise alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy.special import logsumexp
from scipy.stats import truncnorm

from private_mcmc.inference.posterior.expected_score import ExpectedScore
from private_mcmc.model import RowModel
from private_mcmc.planning.conclusion import Lost
from private_mcmc.planning.estimates import ALLOWED, ScoreAverage, inverse_of, metric_of
from private_mcmc.planning.stages import PathStage
from private_mcmc.records import RUN_ONCE, Fields

Array: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

# Of what rows add to the curvature in a path's metric, which is 1 or less where the metric was made for as
# much information as they have: median, and sd of the logarithm, before the path.
_MEDIAN, _SD_OF_LOG = 0.1, 1.5
# Of the curvature between a path and the parameter over that near the path: sd of the logarithm.
_SECANT = 1.2
_GRID = np.geomspace(1e-4, 4.0, 200)
_DRAWS = 256
# Of the share of the curvature that a bound on influence leaves, before the path: mean, sd, least.
_SHARE, _SD_OF_SHARE, _LEAST_SHARE = 0.8, 0.25, 0.2
# Of released curvatures so many count at least, however unlikely a path makes the others.
_COUNTING, _FLATTER = 0.15, 0.8
# Public rows, and parameters, at which it is seen what rows read.
_ROWS, _PLACES = 64, 4


class Steps(NamedTuple):
    """A path step by step: ``said`` of ``G`` has noise ``N(0, M^{-1}/precisions)``.

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
    def of(cls, stage: PathStage, states: Array, prior_scores: Array) -> Steps:
        """``states`` are ``(steps + 1, p)``, the start first; ``prior_scores`` ``∇K`` at all but the last."""
        schedule = stage.schedule
        metric, sizes = metric_of(schedule), np.asarray(schedule.step_sizes)
        sizes = np.broadcast_to(sizes, len(states) - 1)
        moved = -np.diff(states, axis=0) / sizes[:, None] @ np.linalg.inv(metric)
        said = (moved - prior_scores) / schedule.temper
        return cls(states[:-1], said, sizes * schedule.temper**2 / 2, metric, schedule.temper)

    def shares(self, curvature: Array) -> Array:
        """What the path allows of the share ``s`` of this curvature that it met, ``(draws,)``."""
        weights = self.precisions / self.precisions.sum()
        expected = (self.states - weights @ self.states) @ curvature
        in_metric = expected @ self.metric
        precision = float(self.precisions @ np.sum(in_metric * expected, axis=1)) + _SD_OF_SHARE**-2
        seen = float(self.precisions @ np.sum(in_metric * (self.said - weights @ self.said), axis=1))
        mean, sd = (seen + _SHARE * _SD_OF_SHARE**-2) / precision, precision**-0.5
        even = (np.random.default_rng(1).permutation(ALLOWED) + 0.5) / ALLOWED
        return np.asarray(truncnorm.ppf(even, (_LEAST_SHARE - mean) / sd, (1 - mean) / sd, mean, sd))

    def log_weights(self, curvatures: Array) -> Array:
        """Of how likely each ``sH`` makes the path, flattened until enough of them count, ``(draws,)``."""
        weights = self.precisions / self.precisions.sum()
        at, said = self.states - weights @ self.states, self.said - weights @ self.said
        off = said - at @ curvatures
        logs = -np.einsum("t,kti,ij,ktj->k", self.precisions, off, self.metric, off) / 2
        logs = logs - logs.max()
        while np.exp(logs).sum() ** 2 < _COUNTING * len(logs) * np.exp(2 * logs).sum():
            logs = _FLATTER * logs
        return np.asarray(logs)

    def curvatures(self, read: Flags) -> Array:
        """``sH`` as the path alone allows, zero but of the ``read`` parameters: ``(draws, p, p)``.

        Along an axis of the states' scatter in the metric every eigenvalue has the posterior that a
        regression of gradients on states leaves under a log-Normal prior, times a log-Normal factor: between
        the path and ``θ`` outcomes level off and rows are clipped otherwise than near the path.
        """
        root = np.linalg.cholesky(self.metric[np.ix_(read, read)])
        said = seen_alone(self.said, self.metric, read) @ root
        at = np.linalg.solve(root, self.states[:, read].T).T
        weights = self.precisions / self.precisions.sum()
        at, said = at - weights @ at, said - weights @ said
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


class Said(NamedTuple):
    """A run's mean score, its draws of ``s``, and ``b``, the clip's error in posterior sds.

    With what the clip takes, where that is known, the score is that of all rows: ``s`` and ``b`` are 1 and 0.
    """

    average: ScoreAverage
    shares: Array
    bias: float

    @classmethod
    def whole(cls, average: ScoreAverage, lost: Lost, draws: int) -> Said:
        """With what the clip takes added to the score, and its covariance to the noise."""
        noise = np.linalg.inv(average.precision) + lost.covariance
        added = replace(average, score=average.score + lost.mean, precision=inverse_of(noise))
        return cls(added, np.ones(draws), 0.0)


class Likelihoods(NamedTuple):
    """For every draw of ``H`` the law ``N(−Hθ, (1 + b²)H + N)`` of what runs say of the ``k`` parameters.

    Attributes:
        said: the runs' mean ``Σ_b W_b (y_b − Hθ_b)``, weighted by precision, ``(draws, k)``.
        hessian: the rows of ``H`` that are read, ``(draws, k, p)``.
        whitening: the inverse of a root of the covariance, ``(draws, k, k)``.
        log_sizes: the logarithm of the root's determinant, ``(draws,)``.
    """

    said: jax.Array
    hessian: jax.Array
    whitening: jax.Array
    log_sizes: jax.Array


def log_density(
    reading: RowModel, given: Likelihoods, expected: ExpectedScore | None, theta: jax.Array
) -> jax.Array:
    """``log p(releases, θ)`` up to a constant."""
    off = given.said + given.hessian @ (theta if expected is None else expected.linear(reading, theta))
    white = jnp.einsum("kij,kj->ki", given.whitening, off)
    value = logsumexp(-jnp.sum(white**2, axis=1) / 2 - given.log_sizes) - reading.neg_log_prior(theta)
    return jnp.where(jnp.isfinite(value), value, -jnp.inf)


def likelihoods(
    runs: Sequence[Said], curvatures: Array, read: Flags, log_weights: Array | None
) -> Likelihoods:
    """The likelihood of ``θ`` given all runs; ``curvatures`` are draws of ``H``, ``(draws, p, p)``.

    Weighted draws are as likely as their weights say whatever ``θ`` is: flat ones are no better for
    explaining more. Of a path alone, without weights, they are.
    """
    hessian = curvatures[:, read]
    told, weighted = np.zeros((len(curvatures), read.sum(), read.sum())), np.zeros(hessian.shape[:2])
    for run in runs:
        precision = run.shares[:, None, None] ** 2 * run.average.precision[np.ix_(read, read)]
        seen = seen_alone(run.average.score, run.average.precision, read)
        off = seen / run.shares[:, None] - hessian @ run.average.centre
        told, weighted = told + precision, weighted + np.einsum("kij,kj->ki", precision, off)
    noise = np.linalg.inv(told)
    spread = 1 + max(run.bias for run in runs) ** 2
    factor = np.linalg.cholesky(spread * hessian[:, :, read] + noise)
    sizes = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    if log_weights is not None:
        sizes = sizes - np.linalg.slogdet(hessian[:, :, read])[1] - log_weights
    parts = np.einsum("kij,kj->ki", noise, weighted), hessian, np.linalg.inv(factor), sizes
    return Likelihoods(*(jnp.asarray(part) for part in parts))


def in_rows(reading: RowModel, at: Array) -> Flags:
    """Which parameters rows read, ``(p,)``: all of a site of which public rows read some near ``at``."""
    any_row, read = _have_slopes(reading, at), np.zeros(len(at), dtype=bool)
    for site in reading.sites:
        read[site.slice] = np.any(any_row[site.slice])
    return read


def _have_slopes(reading: RowModel, at: Array) -> Flags:
    """Along which parameters some public row's loss changes near ``at``."""
    rows = dict(reading.rows.project(reading.rows.synthetic(7, _ROWS)))
    places = at + np.random.default_rng(0).standard_normal((_PLACES, len(at)))
    with jax.enable_x64(True):
        found = np.asarray(_slopes(reading, jnp.asarray(places), rows))
    return np.asarray(np.any(found != 0, axis=(0, 1)))


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _slopes(reading: RowModel, thetas: jax.Array, rows: Fields) -> jax.Array:
    of_rows = jax.vmap(jax.grad(reading.row_loss), in_axes=(None, 0))
    return jnp.asarray(jax.vmap(of_rows, in_axes=(0, None))(thetas, rows))


def seen_alone(said: Array, precision: Array, read: Flags) -> Array:
    """What was said of parameters that are read, less the noise that the others show: ``(…, k)``.

    Where ``read`` noise has precision ``P`` it is ``P_rr`` then, and ``P_rr^{-1} P_ru`` times the others'
    is taken off.
    """
    inner, outer = precision[np.ix_(read, read)], precision[np.ix_(read, ~read)]
    found: Array = said[..., read] + said[..., ~read] @ np.linalg.solve(inner, outer).T
    return found
