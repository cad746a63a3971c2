"""The posterior mean with Gaussian noise (output perturbation)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.datasets import Dataset
from benchmarks.peers.method import Budget, DoesNotApply, Runs, generators
from benchmarks.utility_reference import reference
from private_mcmc import Target, preflight
from private_mcmc.accounting import gdp


@dataclass(frozen=True)
class OutputPerturbation:
    """``mean + N(0, s²I)``, ``s = (Δ/μ)/m`` with ``m`` the budget in Gaussian DP.

    Posteriors of adjacent data whose potentials are ``μ``-strongly convex and differ by a
    ``Δ``-Lipschitz function are within ``Δ/μ`` in Wasserstein distance, hence their means.
    """

    cache: Path
    name = "output perturbation"
    adjacency = "replace_one"
    about = (
        "posterior mean + Gaussian noise for the sensitivity Δ/μ of a strongly log-concave posterior; (ε, δ)"
    )

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """The mean is computed once; every run adds fresh noise."""
        target = Target(budget.epsilon, budget.delta, self.adjacency)
        report = preflight(dataset.regression.model, dataset.rows, target, n=dataset.n)
        certified = [item.gdp for item in report.certificates if item.gdp is not None]
        if not certified:
            raise DoesNotApply("no bound on a row's gradient is proved for this model.")
        # The certificate is Δ/√μ with μ the prior's precision.
        sensitivity = min(certified) * dataset.regression.prior_sd
        noise_sd = sensitivity / gdp.budget(budget.epsilon, budget.delta)
        mean = reference(dataset, cache=self.cache).mean
        random = generators(self, dataset, budget, runs)
        noise = np.stack([one.normal(0.0, noise_sd, size=dataset.dim) for one in random])
        return Runs(tuple(mean[None] + draw for draw in noise[:, None]), {"noise sd": noise_sd})
