"""This library: a plan made once, executed or simulated for every run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.datasets import Dataset
from benchmarks.peers.method import Adjacency, Budget, DoesNotApply, Runs
from private_mcmc import NotPrivate, NotYetSupported, PrivateMCMC, Target, plan
from private_mcmc.accounting.curves import gdp
from private_mcmc.model import read
from private_mcmc.planning.affine import affine_policy
from private_mcmc.planning.simulate import simulate_affine


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
        target = Target(budget.epsilon, budget.delta, self.adjacency)
        try:
            policy = plan(dataset.regression.model, dataset.rows, target, n=dataset.n, guarantee="run")
        except (NotPrivate, NotYetSupported) as refusal:
            raise DoesNotApply(str(refusal)) from refusal
        draws, predicted = [], []
        for _ in range(runs):
            driver = PrivateMCMC.from_plan(policy, progress_bar=False)
            driver.run(X=dataset.X, y=dataset.y)
            draws.append(np.asarray(driver.get_samples()["w"], dtype=np.float64))
            if driver.conclusion is not None:
                predicted.append(driver.conclusion.prediction.rms)
        facts = {
            "predicted rms": float(policy.prediction.rms),
            "predicted rms from the releases": float(np.sqrt(np.mean(np.square(predicted)))),
        }
        return Runs(tuple(draws), facts)


@dataclass(frozen=True)
class Simulated:
    """The law of such a run on weighted rows, cheap enough for hundreds: nothing is released."""

    adjacency: Adjacency
    about = "the same stages and noise simulated on distinct rows and their counts, as plans simulate"

    @property
    def name(self) -> str:
        """``ours (simulated)``, with the adjacency where it is not the default."""
        return "ours (simulated" + ("" if self.adjacency == "replace_one" else f", {self.adjacency}") + ")"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """The policy without its prediction, simulated on the rows themselves."""
        reading = read(dataset.regression.model, dataset.rows, n=dataset.n)
        total = gdp.budget(budget.epsilon, budget.delta)
        policy = affine_policy(reading, dataset.n, self.adjacency, total)
        X, y, counts = dataset.distinct
        columns = {"X": X, "y": y.astype(dataset.y.dtype)}
        seeds = np.random.default_rng().integers(2**40, size=runs).tolist()
        return Runs(tuple(simulate_affine(policy, columns, counts, seed).draws for seed in seeds))
