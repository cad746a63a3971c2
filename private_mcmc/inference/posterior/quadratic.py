"""The posterior where no released matrix tells of the covariates: the path alone tells of the curvature.

Near a path the rows' gradient is ``G(θ') = H(θ' − θ) + s``, with ``s ~ N(0, H)`` the sample's deviation at
the parameter ``θ``; blocks of paths are noisy means of it (``observations``). ``H`` is unknown: in the metric
of the last path, on the axes of its states' scatter, every eigenvalue has the posterior that a regression of
gradients on states leaves under a log-Normal prior, times a log-Normal factor: between the path and ``θ``
outcomes level off and rows are clipped otherwise than near the path. The likelihood of ``θ`` is the mean over
draws of ``H``.
Of parameters that no row reads, as the sd of effects that are drawn with it, rows have no curvature: what
steps say along them is noise alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy.special import logsumexp
from scipy.special import softmax

from private_mcmc.inference.posterior.independent import Mixture, StudentT
from private_mcmc.inference.posterior.observations import Block, Path, gradients_said
from private_mcmc.model import RowModel
from private_mcmc.records import RUN_ONCE, Fields

Array: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

# Of what rows add to the curvature in a path's metric, which is 1 or less where the metric was made for as
# much information as they have: median, and sd of the logarithm, before the path.
_MEDIAN, _SD_OF_LOG = 0.1, 1.5
# Of the curvature between a path and the parameter over that near the path: sd of the logarithm.
_SECANT = 1.2
_GRID = np.geomspace(1e-4, 4.0, 200)
_DRAWS = 128
# Public rows, and parameters, at which it is seen what rows read.
_ROWS, _PLACES = 64, 4


class Likelihoods(NamedTuple):
    """For every draw of ``H`` the law ``N(−Hθ, H + N)`` of what blocks say of the ``k`` parameters in rows.

    Attributes:
        said: the blocks' mean ``Σ_b W_b (y_b − Hθ_b)``, weighted by precision, ``(draws, k)``.
        hessian: ``H``, zero for other parameters, ``(draws, k, p)``.
        whitening: the inverse of a root of the covariance, ``(draws, k, k)``.
        log_sizes: the logarithm of the root's determinant, ``(draws,)``.
    """

    said: jax.Array
    hessian: jax.Array
    whitening: jax.Array
    log_sizes: jax.Array


def log_density(reading: RowModel, given: Likelihoods, theta: jax.Array) -> jax.Array:
    """``log p(releases, θ)`` up to a constant."""
    off = given.said + given.hessian @ theta
    white = jnp.einsum("kij,kj->ki", given.whitening, off)
    value = logsumexp(-jnp.sum(white**2, axis=1) / 2 - given.log_sizes) - reading.neg_log_prior(theta)
    return jnp.where(jnp.isfinite(value), value, -jnp.inf)


def in_rows(reading: RowModel, at: Array) -> Flags:
    """Which parameters rows read, ``(p,)``: all of a site of which public rows read some near ``at``."""
    any_row, read = _have_slopes(reading, at), np.zeros(len(at), dtype=bool)
    for site in reading.sites:
        read[site.slice] = np.any(any_row[site.slice])
    return read


def scales_effects(reading: RowModel, at: Array, scale: int) -> bool:
    """Whether a parameter is the sd of effects: rows do not read it, or not where some site's elements are 0.

    So it is in a hierarchy, centred or not; the sd of an outcome is read wherever effects are.
    """
    several = [site.slice for site in reading.sites if site.slice.stop - site.slice.start > 1]
    return any(not _have_slopes(reading, at, elements)[scale] for elements in several)


def _have_slopes(reading: RowModel, at: Array, zero: slice = slice(0)) -> Flags:
    """Along which parameters some public row's loss changes near ``at``, where those of ``zero`` are 0."""
    rows = dict(reading.rows.project(reading.rows.synthetic(7, _ROWS)))
    places = at + np.random.default_rng(0).standard_normal((_PLACES, len(at)))
    places[:, zero] = 0.0
    with jax.enable_x64(True):
        found = np.asarray(_slopes(reading, jnp.asarray(places), rows))
    return np.asarray(np.any(found != 0, axis=(0, 1)))


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _slopes(reading: RowModel, thetas: jax.Array, rows: Fields) -> jax.Array:
    of_rows = jax.vmap(jax.grad(reading.row_loss), in_axes=(None, 0))
    return jnp.asarray(jax.vmap(of_rows, in_axes=(0, None))(thetas, rows))


def _seen_alone(said: Array, precision: Array, read: Flags) -> Array:
    """What was said of parameters that are read, less the noise that the others show: ``(…, k)``.

    Where ``read`` noise has precision ``P`` it is ``P_rr`` then, and ``P_rr^{-1} P_ru`` times the others'
    is taken off.
    """
    inner, outer = precision[np.ix_(read, read)], precision[np.ix_(read, ~read)]
    found: Array = said[..., read] + said[..., ~read] @ np.linalg.solve(inner, outer).T
    return found


def likelihoods(last: Path, prior_scores: Array, blocks: Sequence[Block], read: Flags) -> Likelihoods:
    """The likelihood of ``θ``.

    Args:
        last: the path that tells of the curvature.
        prior_scores: ``∇K`` of the states at which its steps were taken, ``(steps, p)``.
        blocks: of all paths.
        read: which parameters rows read, ``(p,)``.
    """
    metric = last.root @ last.root.T
    # Noise of steps has the precision of the metric.
    root = np.asarray(np.linalg.cholesky(metric[np.ix_(read, read)]), dtype=np.float64)
    said, steps = gradients_said(last, prior_scores)
    seen = _seen_alone(said, metric, read)
    inverse = np.linalg.inv(root)
    drawn = inverse.T @ curvatures(root, last.from_start[:-1, read], seen, steps) @ inverse
    drawn = drawn / last.stage.schedule.temper
    full = [np.asarray(np.linalg.inv(block.noise), dtype=np.float64) for block in blocks]
    precisions = [one[np.ix_(read, read)] for one in full]
    noise = np.linalg.inv(np.sum(precisions, axis=0))
    each = [
        (_seen_alone(block.score, whole, read) - drawn @ block.centre[read]) @ (precision @ noise)
        for block, whole, precision in zip(blocks, full, precisions, strict=True)
    ]
    factor = np.linalg.cholesky(drawn + noise)
    sizes = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    parts = np.sum(each, axis=0), drawn @ np.eye(len(read))[read], np.linalg.inv(factor), sizes
    return Likelihoods(*(jnp.asarray(part) for part in parts))


def curvatures(root: Array, states: Array, said: Array, steps: Array) -> Array:
    """``wAᵀHA`` as the path allows, drawn with a public key: ``(draws, k, k)``.

    Along an axis ``u`` of the states' scatter a step of size ``γ`` says ``c u + constant + N(0, 2/γ)``.

    Args:
        root: ``A``, of the metric.
        states: where steps were taken, ``(steps, k)``.
        said: of ``wG``, ``(steps, k)``.
        steps: their sizes.
    """
    said = said @ root
    at = np.linalg.solve(root, states.T).T
    shares = steps / steps.sum()
    at, said = at - shares @ at, said - shares @ said
    scatter, axes = np.linalg.eigh((at * steps[:, None]).T @ at)
    slope = np.einsum("k,ki,ki->i", steps, at @ axes, said @ axes) / np.maximum(scatter, 1e-300)
    prior = np.square(np.log(_GRID / _MEDIAN) / _SD_OF_LOG)[:, None]
    logs = -(scatter * np.square(_GRID[:, None] - slope) / 2 + prior) / 2
    below = np.cumsum(np.exp(logs - logs.max(axis=0)), axis=0)
    even, random = (np.arange(_DRAWS) + 0.5) / _DRAWS, np.random.default_rng(0)
    drawn = [
        _GRID[np.searchsorted(one, one[-1] * random.permutation(even)).clip(max=len(_GRID) - 1)]
        for one in below.T
    ]
    factors = np.exp(_SECANT * random.standard_normal((len(axes), _DRAWS)))
    return np.asarray(np.einsum("ij,jk,lj->kil", axes, np.stack(drawn) * factors, axes))


def proposal(given: Likelihoods, prior_root: Array, prior_mean: Array) -> Mixture:
    """The posterior, were the prior Normal with this mean and root of its covariance."""
    said, hessian, whitening = (np.asarray(each) for each in given[:3])
    seen = whitening @ hessian
    precision = np.linalg.inv(prior_root @ prior_root.T)
    covariances = np.linalg.inv(precision + np.swapaxes(seen, 1, 2) @ seen)
    off = np.einsum("kij,kj->ki", whitening, said + hessian @ prior_mean)
    means = prior_mean - np.einsum("kij,klj,kl->ki", covariances, seen, off)
    # The evidence of each: what is said has covariance ``H + N + H P^{-1} H``.
    inner = np.eye(seen.shape[1]) + seen @ prior_root @ prior_root.T @ np.swapaxes(seen, 1, 2)
    sizes = np.asarray(given.log_sizes) + np.linalg.slogdet(inner)[1] / 2
    logs = -np.einsum("ki,kij,kj->k", off, np.linalg.inv(inner), off) / 2 - sizes
    parts = [StudentT(*each) for each in zip(means, np.linalg.cholesky(covariances), strict=True)]
    return Mixture(tuple(parts), softmax(logs))


def sds(given: Likelihoods, prior_root: Array, read: Flags) -> Array:
    """Those that the posterior without privacy has, a geometric mean over the draws of ``H``, ``(p,)``."""
    hessian = np.eye(len(read))[:, read] @ np.asarray(given.hessian)
    covariances = np.linalg.inv(hessian + np.linalg.inv(prior_root @ prior_root.T))
    return np.asarray(np.exp(np.log(np.diagonal(covariances, axis1=1, axis2=2)).mean(axis=0) / 2))
