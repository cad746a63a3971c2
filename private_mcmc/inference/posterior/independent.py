"""Independence Metropolis–Hastings, with a proposal that adaptive importance sampling fits to the density."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp

Array: TypeAlias = npt.NDArray[np.float64]
# Logarithms of the density at points ``(n, p)``, −∞ where there is none.
Evaluate: TypeAlias = Callable[[Array], Array]

_FREEDOM = 5.0
# Of a proposal: the fitted part, the one at the mode, a wide one.
_PARTS, _WIDE = (0.8, 0.1, 0.1), 2.5
_FITS, _POINTS, _POINTS_PER_DIMENSION = 16, 256, 12
# Weights are flattened until so many points count, and for every dimension.
_COUNT, _COUNT_PER_DIMENSION, _FLATTER = 60, 6, 0.8
# Effective share of a proposal's points: from the first on it is good, below the second of no use.
_GOOD, _LEAST, _LAST = 0.4, 0.08, 4
# After so many rounds weights flattened to this power are given up.
_PATIENCE, _HOPELESS = 6, 0.2
# Chains are made longer, and thinned, until so many points count for every draw.
_ENOUGH, _MOST_THINNING = 0.8, 3


@dataclass(frozen=True, eq=False)
class StudentT:
    """A multivariate t distribution of 5 degrees of freedom, ``mean + root z``."""

    mean: Array
    root: Array

    def sample(self, random: np.random.Generator, count: int) -> Array:
        """Points ``(count, p)``."""
        normal = random.standard_normal((count, len(self.mean)))
        scale = np.sqrt(_FREEDOM / random.chisquare(_FREEDOM, count))
        return np.asarray(self.mean + (normal * scale[:, None]) @ self.root.T)

    def log_density(self, points: Array) -> Array:
        """At points ``(n, p)``."""
        dim = len(self.mean)
        squares = np.square(np.linalg.solve(self.root, (points - self.mean).T)).sum(axis=0)
        constant = (
            gammaln((_FREEDOM + dim) / 2) - gammaln(_FREEDOM / 2) - dim / 2 * math.log(_FREEDOM * math.pi)
        )
        size = np.linalg.slogdet(self.root)[1]
        return np.asarray(constant - size - (_FREEDOM + dim) / 2 * np.log1p(squares / _FREEDOM))


class Mixture(NamedTuple):
    """Of t distributions, with ``shares`` that sum to 1."""

    parts: tuple[StudentT, ...]
    shares: Sequence[float] = _PARTS

    def sample(self, random: np.random.Generator, count: int) -> Array:
        """Points ``(count, p)``."""
        which = random.choice(len(self.shares), count, p=self.shares)
        points = np.empty((count, len(self.parts[0].mean)))
        for index, part in enumerate(self.parts):
            points[which == index] = part.sample(random, int((which == index).sum()))
        return points

    def log_density(self, points: Array) -> Array:
        """At points ``(n, p)``."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.shares)
        each = [log + part.log_density(points) for log, part in zip(logs, self.parts, strict=True)]
        return np.asarray(logsumexp(each, axis=0))


def fitted_proposal(
    evaluate: Evaluate, at: Array, root: Array, random: np.random.Generator
) -> Mixture | None:
    """A proposal; none where few of its points would count.

    Mean and covariance follow from all points so far, weighted by the density over the mixture of all
    proposals (Cornuet, Marin, Mira, Robert 2012), flattened while few points would have all the weight.
    """
    dim = len(at)
    count, wanted = max(_POINTS, _POINTS_PER_DIMENSION * dim), max(_COUNT, _COUNT_PER_DIMENSION * dim)
    mode = StudentT(at, root)
    proposal, tried = Mixture((mode, mode, StudentT(at, 3 * root))), []
    points, values, shares = np.zeros((0, dim)), np.zeros(0), []
    for made in range(_FITS):
        drawn = proposal.sample(random, count)
        found = evaluate(drawn)
        if not np.any(np.isfinite(found)):
            return None
        shares.append(_effective(found - proposal.log_density(drawn)) / count)
        if shares[-1] > _GOOD:
            return proposal
        points, values = np.concatenate([points, drawn]), np.concatenate([values, found])
        tried.append(proposal)
        mixed = logsumexp([one.log_density(points) for one in tried], axis=0)
        logs, power = values - mixed, 1.0
        while _effective(power * logs) < wanted and power > 1e-3:
            power *= _FLATTER
        if made >= _PATIENCE and power < _HOPELESS:
            return None
        weights = np.exp(power * (logs - logs.max()))
        mean, covariance = _moments(points, weights / weights.sum(), root, _effective(power * logs))
        proposal = Mixture((StudentT(mean, covariance), mode, StudentT(mean, _WIDE * covariance)))
    return proposal if np.mean(shares[-_LAST:]) > _LEAST else None


def _effective(logs: Array) -> float:
    """How many of points with these logarithms of weights count."""
    weights = np.exp(logs - logs.max())
    return float(weights.sum() ** 2 / np.square(weights).sum())


def _moments(points: Array, weights: Array, root: Array, count: float) -> tuple[Array, Array]:
    """The mean, and a root of the covariance, shrunk to its diagonal in the coordinates of ``root``."""
    mean = weights @ points
    white = np.linalg.solve(root, (points - mean).T)
    covariance = (white * weights) @ white.T
    share = len(mean) / (len(mean) + count)
    covariance = (1 - share) * covariance + share * np.diag(np.diag(covariance))
    return mean, np.asarray(root @ np.linalg.cholesky(covariance))


def independent_draws(
    evaluate: Evaluate,
    proposal: Mixture,
    shape: tuple[int, int, int],
    random: np.random.Generator,
    most: int = _MOST_THINNING,
) -> Array:
    """Chains of ``shape = (chains, warm_up, draws)``, thinned the more the worse the proposal is."""
    chains, warm_up, draws = shape
    points, logs = np.zeros((chains, 0, len(proposal.parts[0].mean))), np.zeros((chains, 0))
    for thinning in range(1, most + 1):
        more = proposal.sample(random, chains * (warm_up + thinning * draws - logs.shape[1]))
        found = evaluate(more) - proposal.log_density(more)
        points = np.concatenate([points, more.reshape(chains, -1, points.shape[2])], axis=1)
        logs = np.concatenate([logs, found.reshape(chains, -1)], axis=1)
        if _effective(logs) >= _ENOUGH * chains * draws:
            break
    limits = np.log(random.random(logs.shape))
    every, at, kept = np.arange(chains), np.zeros(chains, dtype=int), np.zeros(logs.shape, dtype=int)
    for step in range(logs.shape[1]):
        at = np.where(limits[:, step] + logs[every, at] < logs[:, step], step, at)
        kept[:, step] = at
    chosen = kept[:, warm_up + thinning - 1 :: thinning]
    return np.take_along_axis(points, chosen[..., None], axis=1)


def places(draws: Array) -> int:
    """At how many places the chain has been that moves least; ``draws`` are ``(chains, draws, p)``."""
    return min(len(np.unique(chain, axis=0)) for chain in draws)
