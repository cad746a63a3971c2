"""One draw of a posterior made private by its temper (Wang, Fienberg, Smola 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.datasets import Dataset
from benchmarks.peers.method import Budget, DoesNotApply, Runs, generators
from benchmarks.utility_reference import reference
from private_mcmc import PreflightReport, Target, preflight


@dataclass(frozen=True)
class OneSample:
    """A single exact draw of the tempered posterior that preflight certifies at the budget.

    Wang et al. temper by a bound on the log likelihood, which a regression on an unbounded parameter
    space lacks; strong log-concavity certifies a larger temper (Gopi, Lee, Liu 2022).
    """

    cache: Path
    name = "one posterior sample"
    adjacency = "replace_one"
    about = "one draw of the posterior tempered to the largest temper preflight certifies; (ε, δ)"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """Independent draws, each the only release of its run."""
        target = Target(budget.epsilon, budget.delta, self.adjacency)
        temper = _temper(preflight(dataset.regression.model, dataset.rows, target, n=dataset.n))
        pool = reference(dataset, temper, self.cache).draws
        chosen = [one.integers(len(pool)) for one in generators(self, dataset, budget, runs)]
        return Runs(tuple(pool[index][None] for index in chosen), {"temper": temper})


def _temper(report: PreflightReport) -> float:
    if report.verdict == "private":
        return 1.0
    advised = [item.value for item in report.advice if item.change == "temper" and item.value is not None]
    if not advised:
        raise DoesNotApply("preflight certifies no temper: no bound on a row's gradient is proved.")
    return advised[0]
