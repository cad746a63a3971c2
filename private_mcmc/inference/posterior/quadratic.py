"""The posterior where no released matrix tells of the covariates: the path alone tells of the curvature.

Near a path the rows' gradient is ``G(θ') = H(θ' − θ) + s``, with ``s ~ N(0, H)`` the sample's deviation at
the parameter ``θ``; blocks of paths are noisy means of it (``observations``). ``H`` is unknown: in the metric
of the last path, on the axes of its states' scatter, every eigenvalue has the posterior that a regression of
gradients on states leaves under a log-Normal prior. The likelihood of ``θ`` is the mean over draws of ``H``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy.special import logsumexp
from scipy.special import softmax

from private_mcmc.inference.posterior.observations import Block, Path, gradients_said
from private_mcmc.inference.posterior.sample import Mixture, StudentT
from private_mcmc.model import RowModel

Array: TypeAlias = npt.NDArray[np.float64]

# Of what rows add to the curvature in a path's metric, which is 1 or less where the metric was made for as
# much information as they have: median, and sd of the logarithm, before the path.
_MEDIAN, _SD_OF_LOG = 0.1, 1.5
_GRID = np.geomspace(1e-4, 4.0, 200)
_DRAWS = 128


class Likelihoods(NamedTuple):
    """For every draw of ``H`` the law ``N(−Hθ, H + N)`` of what blocks say together.

    Attributes:
        said: the blocks' mean ``Σ_b W_b (y_b − Hθ_b)``, weighted by precision, ``(draws, p)``.
        hessian: ``H``, ``(draws, p, p)``.
        whitening: the inverse of a root of the covariance, ``(draws, p, p)``.
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


def likelihoods(last: Path, prior_scores: Array, blocks: Sequence[Block]) -> Likelihoods:
    """The likelihood of ``θ``.

    Args:
        last: the path that tells of the curvature.
        prior_scores: ``∇K`` of the states at which its steps were taken, ``(steps, p)``.
        blocks: of all paths.
    """
    inverse = np.linalg.inv(last.root)
    drawn = inverse.T @ curvatures(last, prior_scores) @ inverse / last.stage.schedule.temper
    precisions = [np.linalg.inv(block.noise) for block in blocks]
    noise = np.linalg.inv(np.sum(precisions, axis=0))
    each = [
        (block.score - drawn @ block.centre) @ (precision @ noise)
        for block, precision in zip(blocks, precisions, strict=True)
    ]
    factor = np.linalg.cholesky(drawn + noise)
    sizes = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    parts = np.sum(each, axis=0), drawn, np.linalg.inv(factor), sizes
    return Likelihoods(*(jnp.asarray(part) for part in parts))


def curvatures(path: Path, prior_scores: Array) -> Array:
    """``wAᵀHA`` as the path allows, drawn with a public key: ``(draws, p, p)``.

    Along an axis ``u`` of the states' scatter a step of size ``γ`` says ``c u + constant + N(0, 2/γ)``.
    """
    said, steps = gradients_said(path, prior_scores)
    said = said @ path.root
    at = np.linalg.solve(path.root, path.from_start[:-1].T).T
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
    return np.asarray(np.einsum("ij,jk,lj->kil", axes, np.stack(drawn), axes))


def proposal(given: Likelihoods, prior_root: Array, prior_mean: Array) -> Mixture:
    """The posterior, were the prior Normal with this mean and root of its covariance."""
    said, hessian, whitening = (np.asarray(each) for each in given[:3])
    seen = whitening @ hessian
    precision = np.linalg.inv(prior_root @ prior_root.T)
    covariances = np.linalg.inv(precision + np.swapaxes(seen, 1, 2) @ seen)
    off = np.einsum("kij,kj->ki", whitening, said + hessian @ prior_mean)
    means = prior_mean - np.einsum("kij,klj,kl->ki", covariances, seen, off)
    # The evidence of each: what is said has covariance ``H + N + H P^{-1} H``.
    inner = np.eye(len(prior_mean)) + seen @ prior_root @ prior_root.T @ np.swapaxes(seen, 1, 2)
    sizes = np.asarray(given.log_sizes) + np.linalg.slogdet(inner)[1] / 2
    logs = -np.einsum("ki,kij,kj->k", off, np.linalg.inv(inner), off) / 2 - sizes
    parts = [StudentT(*each) for each in zip(means, np.linalg.cholesky(covariances), strict=True)]
    return Mixture(tuple(parts), softmax(logs))


def sds(given: Likelihoods, prior_root: Array) -> Array:
    """Those that the posterior without privacy has, a mean over the draws of ``H``, ``(p,)``."""
    covariances = np.linalg.inv(np.asarray(given.hessian) + np.linalg.inv(prior_root @ prior_root.T))
    return np.asarray(np.sqrt(np.diagonal(covariances, axis1=1, axis2=2).mean(axis=0)))
