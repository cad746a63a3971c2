"""Noisy Newton: gradient and Hessian with Gaussian noise in every step, its settings the best for the rows.

Avella-Medina, Bradshaw, Loh (2021); Ganesh, Haghifam, Steinke, Thakurta (2023). Not private as run here: the
number of steps and the split of the budget look at the exact posterior.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.datasets import Dataset
from benchmarks.peers.limits import slopes
from benchmarks.peers.method import Array, Budget, Runs, generators, only_logistic
from benchmarks.utility_reference import reference
from private_mcmc.accounting import gdp

_STEPS, _SPLITS = (3, 5, 8, 12), (0.2, 0.5, 0.8)
# Of a logistic row in the unit ball: the longest gradient, and the largest curvature.
_SLOPE, _CURVATURE = 1.0, 0.25


@dataclass(frozen=True)
class NoisyNewton:
    """Newton's method on noised gradients and Hessians, from the prior's mode."""

    cache: Path
    name = "noisy Newton"
    adjacency = "replace_one"
    about = "gradient and Hessian noised in each of a few steps, the best of twelve settings for these rows"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """Point estimates: where the last step ends."""
        only_logistic(dataset, "its bounds here are those of a logistic regression.")
        exact, m = reference(dataset, cache=self.cache), gdp.budget(budget.epsilon, budget.delta)

        def off(found: list[Array]) -> float:
            return float(np.mean([np.mean(((w - exact.mean) / exact.sd) ** 2) for w in found]))

        tried = {
            (steps, split): [
                _descend(dataset, m, steps, split, one) for one in generators(self, dataset, budget, runs)
            ]
            for steps, split in itertools.product(_STEPS, _SPLITS)
        }
        best = min(tried, key=lambda setting: off(tried[setting]))
        facts = {"steps": float(best[0]), "share of the squared budget for the Hessian": best[1]}
        return Runs(tuple(w[None] for w in tried[best]), facts)


def _descend(dataset: Dataset, m: float, steps: int, split: float, random: np.random.Generator) -> Array:
    X, y, counts = dataset.distinct
    p, precision = dataset.dim, np.eye(dataset.dim) / dataset.regression.prior_sd**2
    slope_sd = 2 * _SLOPE / (m * np.sqrt((1 - split) / steps))
    curvature_sd = np.sqrt(2.0) * _CURVATURE / (m * np.sqrt(split / steps))
    floor = curvature_sd * np.sqrt(2.0 * p)
    w = np.zeros(p)
    for _ in range(steps):
        slope, second, _worst = slopes(dataset.regression, X @ w, y)
        gradient = X.T @ (counts * slope) + slope_sd * random.standard_normal(p) + precision @ w
        half = np.tril(random.standard_normal((p, p)), -1) / np.sqrt(2.0)
        noise = half + half.T + np.diag(random.standard_normal(p))
        values, vectors = np.linalg.eigh((X.T * (counts * second)) @ X + curvature_sd * noise)
        hessian = (vectors * np.maximum(values, floor)) @ vectors.T + precision
        w = w - np.linalg.solve(hessian, gradient)
    return np.asarray(w)
