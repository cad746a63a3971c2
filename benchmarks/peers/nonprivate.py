"""What no privacy buys: NUTS and the Laplace approximation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.datasets import Dataset
from benchmarks.nuts import nuts_reference
from benchmarks.peers.method import Budget, Runs
from benchmarks.utility_reference import reference

_DRAWS = 1_000


@dataclass(frozen=True)
class Nuts:
    """NumPyro's NUTS; all its runs would be alike, so there is one."""

    name = "NUTS"
    adjacency = None
    about = "not private; 300 warm-up steps and 500 draws"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """One run, whatever the budget."""
        data = {"X": dataset.X, "y": dataset.y}
        draws = nuts_reference(dataset.regression.model, num_warmup=300, num_samples=500, **data)["w"]
        return Runs((np.asarray(draws, dtype=np.float64),))


@dataclass(frozen=True)
class Laplace:
    """A Normal at the mode with the inverse Hessian as covariance."""

    cache: Path
    name = "Laplace"
    adjacency = None
    about = "not private; 1,000 draws of the Normal at the mode"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """One set of draws, whatever the budget."""
        exact = reference(dataset, cache=self.cache)
        generator = np.random.default_rng(0)
        return Runs((generator.multivariate_normal(exact.mode, exact.laplace, size=_DRAWS),))
