"""Two estimates of one parameter from one run's releases, where they agree.

The policy's own is linear: the path's mean score and the released curvature imply the mode. It needs no law
of the covariates and is the more exact of the two where the curvature hardly changes. The likelihood of
synthetic people also holds far from there (rare levels, separation), but leans on what these people are like.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from private_mcmc.inference.posterior.given_releases import GivenReleases
from private_mcmc.planning import Conclusion

Array: TypeAlias = npt.NDArray[np.float64]

# Mean squared distance of the two means, in sds of the path's estimate. Where it was .3 and more the linear
# one was the worse (deaths in crashes, ε ≤ 3, and outcomes that are nearly separated).
_AGREE = 0.15


def agreed(conclusion: Conclusion | None, given: GivenReleases) -> GivenReleases:
    """Draws around the path's mean, as wide as the wider of the two in every direction, where both agree.

    Of the conclusion's covariance the shape counts, and as much of its size as its claimed error tells: its
    draws also allow for curvatures that hardly any people have. With ``Σ = LLᵀ`` and ``S`` the covariances of
    ``given`` and of the conclusion, so reduced, and ``L^{-1} S L^{-T} = U diag(λ) Uᵀ``, draws are mapped by
    ``L U diag(max(λ, 1))^{1/2} Uᵀ L^{-1}``, which keeps their chains and their shape. Elsewhere ``given`` is
    returned as it is.
    """
    if conclusion is None or not conclusion.located:
        return given
    draws = given.draws.reshape(-1, given.draws.shape[-1])
    mean, located = draws.mean(axis=0), conclusion.draws.mean(axis=0)
    try:
        root = np.linalg.cholesky(_covariance(draws))
    except np.linalg.LinAlgError:
        return given
    inverse, covariance = np.linalg.inv(root), _covariance(conclusion.draws)
    wider, axes = np.linalg.eigh(inverse @ covariance @ inverse.T)
    apart = axes.T @ inverse @ (located - mean) / np.sqrt(np.maximum(wider, 1e-300))
    if not np.mean(apart**2) <= _AGREE:
        return given
    claimed = 1 + conclusion.prediction.rms**2
    wider = wider * min(1.0, claimed / float(np.mean(np.diag(covariance) / given.sds**2)))
    stretched = root @ (axes * np.sqrt(np.maximum(wider, 1.0))) @ axes.T @ inverse
    moved = located + (given.draws - mean) @ stretched.T
    return given._replace(draws=moved, told=conclusion.prediction.rms)


def _covariance(draws: Array) -> Array:
    """Of ``(draws, p)``, also of one parameter ``(p, p)``."""
    return np.atleast_2d(np.cov(draws.T))
