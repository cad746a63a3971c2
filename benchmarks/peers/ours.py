"""This library: a plan made once, executed or simulated for every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.datasets import Dataset
from benchmarks.peers.method import Adjacency, Budget, DoesNotApply, Runs, seeds
from private_mcmc import NotPrivate, NotYetSupported, Plan, PrivateMCMC, Target, plan
from private_mcmc.inference.posterior import posterior_of
from private_mcmc.planning.simulate import simulate


@dataclass(frozen=True)
class Ours:
    """``plan`` and ``PrivateMCMC.from_plan`` as the README shows them."""

    adjacency: Adjacency
    about = "private path of Langevin states by plan(…, guarantee='run'); (ε, δ)"

    @property
    def name(self) -> str:
        """``ours``, with the adjacency where it is not the default."""
        return "ours" if self.adjacency == "replace_one" else f"ours ({self.adjacency})"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """Plan once without data, then run."""
        asked = _planned(self.adjacency, dataset, budget)
        draws, errors = [], []
        for _ in range(runs):
            driver = PrivateMCMC.from_plan(asked, progress_bar=False)
            driver.run(X=dataset.X, y=dataset.y)
            draws.append(np.asarray(driver.get_samples()["w"], dtype=np.float64))
            if driver.conclusion is not None:
                errors.append(driver.conclusion.prediction.rms)
        return Runs(tuple(draws), _facts(asked, errors))


@dataclass(frozen=True)
class Simulated:
    """What such a run gives, on weighted rows and without a driver: nothing is released."""

    adjacency: Adjacency
    about = "the posterior of the same stages with their noise, simulated on distinct rows and their counts"

    @property
    def name(self) -> str:
        """``ours (simulated)``, with the adjacency where it is not the default."""
        return "ours (simulated" + ("" if self.adjacency == "replace_one" else f", {self.adjacency}") + ")"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """Plan once without data, then simulate what the stages release of the rows themselves."""
        asked = _planned(self.adjacency, dataset, budget)
        X, y, counts = dataset.distinct
        columns = {"X": X, "y": y.astype(dataset.y.dtype)}
        draws, errors = [], []
        for seed in seeds(self, dataset, budget, runs):
            history = simulate(asked.policy, columns, counts, seed)
            conclusion = asked.policy.conclude(history)
            try:
                known = posterior_of(asked.reading, history, conclusion)
            except NotYetSupported:
                draws.append(conclusion.draws)
                continue
            errors.append(known.error)
            draws.append(known.draws.reshape(-1, dataset.dim))
        return Runs(tuple(draws), _facts(asked, errors))


def _planned(adjacency: Adjacency, dataset: Dataset, budget: Budget) -> Plan:
    target = Target(budget.epsilon, budget.delta, adjacency)
    try:
        return plan(dataset.regression.model, dataset.rows, target, n=dataset.n, guarantee="run")
    except (NotPrivate, NotYetSupported) as refusal:
        raise DoesNotApply(str(refusal)) from refusal


def _facts(asked: Plan, errors: Sequence[float]) -> dict[str, float | str]:
    """What was predicted: before anything was spent, and from the releases."""
    said = {"predicted rms": float(asked.prediction.rms)}
    return said | (
        {"predicted rms from the releases": float(np.sqrt(np.mean(np.square(errors))))} if errors else {}
    )
