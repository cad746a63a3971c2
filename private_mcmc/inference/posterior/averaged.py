"""Two estimates of one parameter from one run's releases, and their average.

The policy's own is linear: the path's mean score and the released curvature imply the mode. It needs no law
of the covariates, but errs far from there (rare levels, separation). The likelihood of synthetic people holds
there too, but leans on what these people are like, most where noise hides it.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from private_mcmc.inference.posterior.given_releases import GivenReleases
from private_mcmc.planning import Conclusion

Array: TypeAlias = npt.NDArray[np.float64]

# Mean squared distance of the two means, in sds: what is further apart is not a matter of noise.
_FAR = 1.0
# Claimed errors of small budgets were exceeded by up to a half (counts that vary more than the model says).
_CAUTION = 1.25


def averaged(conclusion: Conclusion | None, given: GivenReleases) -> GivenReleases:
    """An equal mixture of draws around each of the two means, as wide as the wider of the two estimates.

    With ``Σ = LLᵀ`` and ``S`` the covariances of ``given`` and of the conclusion and
    ``L^{-1} S L^{-T} = U diag(λ) Uᵀ``, draws are mapped by ``L U diag(max(λ, 1))^{1/2} Uᵀ L^{-1}``, which
    keeps their chains and their shape, and moved by a coin with a public key. Of ``S`` the shape counts, and
    as much of its size as a quarter more than the conclusion's claimed error tells: its draws also allow for
    curvatures that hardly any people have. Where the means are far apart ``given`` is returned as it is.
    """
    if conclusion is None or not conclusion.located:
        return given
    draws = given.draws.reshape(-1, given.draws.shape[-1])
    mean, located = draws.mean(axis=0), conclusion.draws.mean(axis=0)
    try:
        root = np.linalg.cholesky(_covariance(draws))
    except np.linalg.LinAlgError:
        return given
    inverse, covariance, claims = (
        np.linalg.inv(root),
        _covariance(conclusion.draws),
        conclusion.prediction.rms,
    )
    share = min(1.0, (1 + (_CAUTION * claims) ** 2) / float(np.mean(np.diag(covariance) / given.sds**2)))
    wider, axes = np.linalg.eigh(share * inverse @ covariance @ inverse.T)
    scales = np.sqrt(np.maximum(wider, 1.0))
    if not np.mean((axes.T @ inverse @ (located - mean) / scales) ** 2) <= _FAR:
        return given
    stretched = root @ (axes * scales) @ axes.T @ inverse
    chains, length, _ = given.draws.shape
    coins = np.random.default_rng(0).permuted(np.tile(np.arange(length) % 2, (chains, 1)), axis=1)
    moved = mean + (given.draws - mean) @ stretched.T + coins[..., None] * (located - mean)
    told = math.sqrt((claims**2 + max(claims, given.error) ** 2) / 2)
    return given._replace(draws=moved, told=told)


def _covariance(draws: Array) -> Array:
    """Of ``(draws, p)``, also of one parameter ``(p, p)``."""
    return np.atleast_2d(np.cov(draws.T))
