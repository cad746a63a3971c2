"""What is possible at a budget: the best influence, one release at the true mode, sufficient statistics.

None but AdaSSP is a private method: they look at the exact posterior to choose their settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.special import expit

from benchmarks.datasets import Dataset
from benchmarks.datasets.models import Regression
from benchmarks.peers.method import Array, Budget, DoesNotApply, Runs, generators
from benchmarks.utility_reference import Reference, reference
from private_mcmc.accounting import gdp

_CLIPS = np.geomspace(0.3, 60.0, 45)
_NEWTON_STEPS, _FIXED_POINTS = 15, 400
_MOST_SCORES = 60_000
_SPLITS = (0.1, 0.2, 0.4, 0.6, 0.8)


def slopes(regression: Regression, eta: Array, y: Array) -> tuple[Array, Array, Array]:
    """``ψ'``, ``ψ''`` and the largest ``|ψ'|`` over the declared outcomes."""
    if regression.family == "logistic":
        mean, low, high, scale = expit(eta), 0.0, 1.0, 1.0
        second = mean * (1 - mean)
    elif regression.family == "poisson":
        mean, scale = np.exp(np.minimum(eta, 30.0)), 1.0
        (low, high), second = map(float, regression.outcome.interval()), mean
    else:
        mean, scale = eta, regression.noise_sd**2
        (low, high), second = map(float, regression.outcome.interval()), np.full_like(eta, 1 / scale)
    worst = np.maximum(np.abs(mean - low), np.abs(mean - high)) / scale
    return (mean - y) / scale, second, worst


@dataclass(frozen=True)
class BestInfluence:
    """The least error of an estimator of bounded influence at the true mode, with Gaussian noise.

    To leading order an estimate that is consistent under the model is the mode plus a mean of ``ψ`` over the
    rows, with ``E ψ = 0``, ``E ψ sᵀ = E s sᵀ`` for the scores ``s`` in the posterior's metric. It errs by
    ``E‖ψ − s‖²`` beyond the mode, and another row in the place of one moves it by up to ``2 sup‖ψ‖``, in the
    norm of the noise. The best ``ψ`` for a bound ``b`` in the norm ``‖BA⁻¹·‖`` is
    ``A(s − a) min(1, b/‖B(s − a)‖)``; ``b`` and ``B``, a power of ``A``, err least at this budget.

    Source: Hampel, Ronchetti, Rousseeuw, Stahel 1986, chapter 4.
    """

    cache: Path
    name = "best influence"
    adjacency = "replace_one"
    about = "not a method: the best consistent estimator of bounded influence, with noise, to leading order"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """A point that is exactly so far off."""
        exact, m = reference(dataset, cache=self.cache), gdp.budget(budget.epsilon, budget.delta)
        scores, shares = _scores(dataset, exact)
        # From the posterior's metric to coordinates in their own sds.
        back = np.linalg.cholesky(exact.laplace) / np.sqrt(np.diag(exact.laplace))[:, None]
        found = [
            _influence(scores, shares, clip * np.sqrt(dataset.dim), power, back)
            for clip in _CLIPS[::3]
            for power in (0.0, 0.5, 1.0)
        ]
        least = np.sqrt(min(lost + (2 / m) ** 2 / dataset.n * noise for lost, noise in found) / dataset.dim)
        return Runs(((exact.mean + least * exact.sd)[None],) * runs, {"bound": float(least)})


def _scores(dataset: Dataset, exact: Reference) -> tuple[Array, Array]:
    """Of rows with every outcome, or a grid of them, in the posterior's metric; and their probabilities."""
    X, _, counts = dataset.distinct
    low, high = map(float, dataset.regression.outcome.interval())
    grid = np.linspace(low, high, int(high - low) + 1 if dataset.regression.family != "linear" else 41)
    if len(X) * len(grid) > _MOST_SCORES:
        chosen = np.random.default_rng(0).choice(len(X), _MOST_SCORES // len(grid), replace=False)
        X, counts = X[chosen], counts[chosen]
    eta = (X @ exact.mode)[:, None]
    likelihood = dataset.regression.likelihood(jnp.asarray(eta))
    shares = np.exp(np.asarray(likelihood.log_prob(jnp.asarray(grid)), np.float64))
    shares = (shares / shares.sum(axis=1, keepdims=True) * (counts / counts.sum())[:, None]).ravel()
    slope = slopes(dataset.regression, eta, grid)[0]
    scores = (X[:, None, :] * slope[:, :, None]).reshape(-1, X.shape[1])
    scores = np.sqrt(dataset.n) * (scores - shares @ scores) @ np.linalg.cholesky(exact.laplace)
    return scores, shares


def _influence(scores: Array, shares: Array, clip: float, power: float, back: Array) -> tuple[float, float]:
    """What the best ``ψ`` with this bound errs by, and noise as large as ``sup‖ψ‖``; ``inf`` without one."""
    information = (scores.T * shares) @ scores
    turn, centre = np.eye(len(information)), np.zeros(len(information))
    for _ in range(_FIXED_POINTS):
        values, axes = np.linalg.eigh((turn + turn.T) / 2)
        measure = (axes * np.maximum(values, 1e-9) ** power) @ axes.T
        norms = np.linalg.norm((scores - centre) @ measure, axis=1)
        held = np.minimum(1.0, clip / np.maximum(norms, 1e-300))
        influence = ((scores - centre) * held[:, None]) @ turn.T
        before, centre = turn, (shares * held) @ scores / (shares @ held)
        turn = information @ np.linalg.inv(((scores - centre).T * (shares * held)) @ scores)
        if not np.abs(turn).max() < 1e6:
            break
        if np.abs(turn - before).max() < 1e-6 * np.abs(turn).max():
            lost = shares @ np.sum(((influence - scores) @ back.T) ** 2, axis=1)
            noise = back @ turn @ np.linalg.inv(measure) * min(clip, norms.max())
            return float(lost), float(np.sum(noise**2))
    return np.inf, np.inf


@dataclass(frozen=True)
class Oracle:
    """One Gaussian release of the weighted score at the true mode, in the metric of the true Hessian.

    Rows are weighted by ``min(1, C/largest slope norm)``, with the clip ``C`` that errs least on these rows,
    the shift of the weighted mode included.
    """

    cache: Path
    name = "oracle"
    adjacency = "replace_one"
    about = "not a method: the weighted score at the true mode, in the true metric, with the best clip"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """The weighted mode, with fresh noise in every run."""
        exact = reference(dataset, cache=self.cache)
        m = gdp.budget(budget.epsilon, budget.delta)
        X, y, counts = dataset.distinct
        precision = np.eye(dataset.dim) / dataset.regression.prior_sd**2
        _, second, worst = slopes(dataset.regression, X @ exact.mode, y)
        hessian = (X.T * (counts * second)) @ X + precision
        root = np.linalg.inv(np.linalg.cholesky(hessian)).T
        norms = np.linalg.norm(X @ root, axis=1) * worst
        typical = np.sqrt(dataset.dim / dataset.n)
        found = [
            _released(dataset, exact, counts * np.minimum(1.0, clip * typical / norms), root, clip * typical)
            for clip in _CLIPS
        ]
        errors = [np.hypot(_rms(mode - exact.mean, exact), _size(noise / m, exact)) for mode, noise in found]
        mode, noise = found[int(np.argmin(errors))]
        normal = [one.standard_normal(dataset.dim) for one in generators(self, dataset, budget, runs)]
        draws = tuple((mode + noise @ each / m)[None] for each in normal)
        return Runs(draws, {"expected rms": float(min(errors)), "clip": float(_CLIPS[np.argmin(errors)])})


def _released(
    dataset: Dataset, exact: Reference, weights: Array, root: Array, clip: float
) -> tuple[Array, Array]:
    """The mode of weighted rows, and the noise's root at 1-GDP."""
    X, y, _ = dataset.distinct
    precision = np.eye(dataset.dim) / dataset.regression.prior_sd**2
    w = exact.mode.copy()
    for _ in range(_NEWTON_STEPS):
        slope, second, _ = slopes(dataset.regression, X @ w, y)
        curvature = (X.T * (weights * second)) @ X + precision
        w = w - np.linalg.solve(curvature, X.T @ (weights * slope) + precision @ w)
    return w, np.linalg.solve(curvature, np.linalg.inv(root).T) * 2 * clip


def _rms(off: Array, exact: Reference) -> float:
    return float(np.sqrt(np.mean((off / exact.sd) ** 2)))


def _size(noise: Array, exact: Reference) -> float:
    return float(np.sqrt(np.mean(np.sum(noise**2, axis=1) / exact.sd**2)))


@dataclass(frozen=True)
class SufficientStatistics:
    """``XᵀX`` and ``Xᵀy`` with Gaussian noise (Vu, Slavković 2009; Foulds et al. 2016), noise floored.

    The split of the budget is the best of a few for these rows.
    """

    cache: Path
    name = "sufficient statistics"
    adjacency = "replace_one"
    about = "XᵀX and Xᵀy with Gaussian noise, the best of five splits for these rows; (ε, δ); linear models"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """Point estimates: the posterior mean of noised statistics."""
        if dataset.regression.family != "linear":
            raise DoesNotApply("sufficient statistics are those of linear regressions.")
        exact, m = reference(dataset, cache=self.cache), gdp.budget(budget.epsilon, budget.delta)
        tried = {
            split: [_statistics(dataset, split, m, one) for one in generators(self, dataset, budget, runs)]
            for split in _SPLITS
        }
        best = min(_SPLITS, key=lambda split: sum(_rms(w - exact.mean, exact) ** 2 for w in tried[split]))
        return Runs(tuple(w[None] for w in tried[best]), {"share of the squared budget for XᵀX": best})


def _statistics(
    dataset: Dataset, split: float, m: float, random: np.random.Generator
) -> npt.NDArray[np.float64]:
    regression, p = dataset.regression, dataset.dim
    low, high = map(float, regression.outcome.interval())
    largest = max(abs(low), abs(high))
    gram_sd = np.sqrt(2.0) / (m * np.sqrt(split))
    half = np.tril(random.standard_normal((p, p)), -1) / np.sqrt(2.0)
    gram = dataset.X.T @ dataset.X + gram_sd * (half + half.T + np.diag(random.standard_normal(p)))
    cross = dataset.X.T @ dataset.y
    cross = cross + 2 * largest / (m * np.sqrt(1 - split)) * random.standard_normal(p)
    values, vectors = np.linalg.eigh(gram)
    floored = (vectors * np.maximum(values, gram_sd * np.sqrt(2.0 * p))) @ vectors.T
    ridge = np.eye(p) * regression.noise_sd**2 / regression.prior_sd**2
    return np.asarray(np.linalg.solve(floored + ridge, cross))


@dataclass(frozen=True)
class AdaSSP:
    """Sufficient statistics with a ridge that is as large as the noise needs (Wang 2018), in Gaussian DP."""

    name = "AdaSSP"
    adjacency = "replace_one"
    about = (
        "least eigenvalue, XᵀX and Xᵀy with a third of the squared budget each, adaptive ridge; linear models"
    )

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """Point estimates."""
        if dataset.regression.family != "linear":
            raise DoesNotApply("sufficient statistics are those of linear regressions.")
        third = gdp.budget(budget.epsilon, budget.delta) / np.sqrt(3.0)
        random = generators(self, dataset, budget, runs)
        return Runs(tuple(_adaptive(dataset, third, one)[None] for one in random))


def _adaptive(dataset: Dataset, m: float, random: np.random.Generator) -> Array:
    p, largest = dataset.dim, max(abs(float(bound)) for bound in dataset.regression.outcome.interval())
    gram, cross = dataset.X.T @ dataset.X, dataset.X.T @ dataset.y
    # Replacing a row moves the least eigenvalue by 1 at most, and the matrix by √2.
    least = max(float(np.linalg.eigvalsh(gram)[0]) + random.standard_normal() / m - 1.645 / m, 0.0)
    gram_sd = np.sqrt(2.0) / m
    ridge = max(
        gram_sd * np.sqrt(2.0 * p) - least, dataset.regression.noise_sd**2 / dataset.regression.prior_sd**2
    )
    half = np.tril(random.standard_normal((p, p)), -1) / np.sqrt(2.0)
    gram = gram + gram_sd * (half + half.T + np.diag(random.standard_normal(p)))
    cross = cross + 2 * largest / m * random.standard_normal(p)
    return np.asarray(np.linalg.solve(gram + ridge * np.eye(p), cross))
