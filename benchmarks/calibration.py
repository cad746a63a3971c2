"""Are the intervals of a plan's run as wide as they should be?

    python benchmarks/calibration.py [--problems adult affairs counts line …] [--real adult affairs …]
        [--epsilons 0.1 0.3 1 3 10] [--replicates 20] [--json FILE] [--minutes 10]

Two questions, for the posterior given what was released. *Simulated*: parameters are drawn from the prior,
outcomes from the model at real or synthetic covariates, stages with their noise by the code that plans
simulate with; how often do 50 % and 90 % intervals hold the parameter, and are its ranks uniform? *Real*: how
often do they hold the mean of the non-private posterior of a real data set? Cells go in turn, so that an
interrupted run is even; a file that exists is added to.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from scipy.stats import kstest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.datasets import LOADERS
from benchmarks.datasets.models import Regression
from benchmarks.utility_reference import reference
from private_mcmc import Ball, Box, Counts, Rows
from private_mcmc.accounting.curves import gdp
from private_mcmc.inference.posterior.given_releases import posterior_draws
from private_mcmc.inference.posterior.sample import Chains
from private_mcmc.kernels.synthetic import SyntheticChain
from private_mcmc.model import RowModel, read
from private_mcmc.planning.affine import AffinePolicy, affine_policy
from private_mcmc.planning.simulate import simulate

Array = npt.NDArray[np.float64]
DELTA = 1e-6
LEVELS = (0.5, 0.9)
# Fewer draws than users get: a replicate needs quantiles only.
_CHAINS = Chains(chains=2, warm_up=75, draws=150)
# Individual outcomes are drawn for so many rows of a data set.
_MOST_ROWS = 10_000
_PRIOR_SD = {"logistic": 4.0, "poisson": 1.5, "linear": 4.0}


@dataclass(frozen=True, eq=False)
class Problem:
    """A regression on known covariates, ``(n, p)``, and the real outcomes where there are any."""

    name: str
    regression: Regression
    X: Array
    y: Array | None = None

    @cached_property
    def reading(self) -> RowModel:
        """The model as the library reads it."""
        rows = Rows(X=Ball(1.0, dim=self.X.shape[1]), y=self.regression.outcome)
        return read(self.regression.model, rows, n=len(self.X))

    @cached_property
    def base(self) -> AffinePolicy:
        """The policy at one budget: others share what it compiled."""
        return affine_policy(self.reading, len(self.X), "replace_one", 1.0)

    @cached_property
    def chain(self) -> SyntheticChain:
        """Compiled paths of the model's own gradients."""
        return SyntheticChain(lambda root, clip: self.reading)

    @cached_property
    def weighted_chain(self) -> SyntheticChain:
        """Compiled paths of weighted gradients."""
        return SyntheticChain(lambda root, clip: self.base.influence.weighted)

    def draws(self, y: Array, epsilon: float, seed: int) -> Array:
        """Draws given what a run on these outcomes releases, ``(draws, p)``."""
        policy = replace(self.base, budget=gdp.budget(epsilon, DELTA))
        table, counts = np.unique(np.column_stack([self.X, y]), axis=0, return_counts=True)
        dtype = self.reading.rows.columns["y"].dtype
        columns = self.reading.rows.project({"X": table[:, :-1], "y": table[:, -1].astype(dtype)})
        history = simulate(
            policy,
            lambda stage: self.chain if stage.reading is None else self.weighted_chain,
            columns,
            counts.astype(np.float64),
            seed,
        )
        found = posterior_draws(self.reading, [history], len(self.X), jax.random.key(seed), _CHAINS)
        return found.reshape(-1, self.X.shape[1])


def simulated(name: str) -> Problem:
    """Real covariates by the name of their data set, or ``counts`` and ``line``, on synthetic ones."""
    random = np.random.default_rng(0)
    if name in LOADERS:
        data = LOADERS[name]()
        X = data.X[random.permutation(len(data.X))[:_MOST_ROWS]]
        family, outcome = data.regression.family, data.regression.outcome
    else:
        n, p = _MOST_ROWS, 6
        values = [np.ones(n), *random.beta(2, 4, (2, n)), *(random.random((p - 3, n)) < 0.2)]
        X = np.stack(values, axis=1) / np.sqrt(p)
        family, outcome = ("poisson", Counts(60)) if name == "counts" else ("linear", Box(-9.0, 9.0))
    return Problem(
        name, Regression(family, outcome, prior_sd=_PRIOR_SD[family]), np.asarray(X, dtype=np.float64)
    )


def real(name: str) -> Problem:
    """A whole data set with its outcomes."""
    data = LOADERS[name]()
    return Problem(name, data.regression, data.X, np.asarray(data.y, dtype=np.float64))


def replicate(problem: Problem, epsilon: float, seed: int, cache: Path) -> dict[str, Any]:
    """One run: ranks of the truth among the draws, and its distance in posterior sds."""
    if problem.y is None:
        random = np.random.default_rng(1000 + seed)
        truth = random.normal(0.0, problem.regression.prior_sd, problem.X.shape[1])
        law = problem.regression.likelihood(problem.X @ truth)
        y = np.asarray(law.sample(jax.random.key(seed)), dtype=np.float64)
    else:
        y, truth = problem.y, reference(LOADERS[problem.name](), cache=cache).mean
    begin = time.perf_counter()
    with jax.enable_x64(True):
        found = problem.draws(y, epsilon, seed)
    ranks = (found < truth).mean(axis=0)
    z = (found.mean(axis=0) - truth) / found.std(axis=0)
    seconds = time.perf_counter() - begin
    return {"ranks": ranks.tolist(), "z": z.tolist(), "seconds": round(seconds, 1), "seed": seed}


def coverage(ranks: Array, level: float) -> float:
    """Share of ranks inside the central interval."""
    return float(np.mean(np.abs(ranks - 0.5) <= level / 2))


def table(results: dict[str, list[dict[str, Any]]]) -> Table:
    """Coverage and uniformity, cell by cell, and all cells of one ε together."""
    shown = Table("truth", "data", "ε", "runs", "50 %", "90 %", "rms of z", "p of uniform ranks")
    pooled: dict[tuple[str, float], list[Array]] = defaultdict(list)
    for key, runs in sorted(results.items()):
        kind, name, epsilon = key.split("|")
        ranks = np.concatenate([run["ranks"] for run in runs])
        pooled[kind, float(epsilon)].append(ranks)
        z = np.concatenate([run["z"] for run in runs])
        shown.add_row(kind, name, epsilon, str(len(runs)), *_columns(ranks, z))
    shown.add_section()
    for (kind, epsilon), parts in sorted(pooled.items()):
        shown.add_row(kind, "all", f"{epsilon:g}", "", *_columns(np.concatenate(parts), None))
    return shown


def _columns(ranks: Array, z: Array | None) -> list[str]:
    # Parameters of one run are not independent: small p-values are a hint, no test.
    uniform = kstest(ranks, "uniform").pvalue
    spread = "" if z is None else f"{np.sqrt(np.mean(z**2)):.2f}"
    return [*(f"{coverage(ranks, level):.2f}" for level in LEVELS), spread, f"{uniform:.2g}"]


def main() -> None:
    options = _options()
    console = Console()
    results: dict[str, list[dict[str, Any]]] = {}
    if options.json.exists():
        results = json.loads(options.json.read_text())
    problems = [("simulated", simulated(name)) for name in options.problems]
    problems += [("real", real(name)) for name in options.real]
    begin = time.perf_counter()
    for seed in range(options.replicates):
        for kind, problem in problems:
            for epsilon in options.epsilons:
                runs = results.setdefault(f"{kind}|{problem.name}|{epsilon:g}", [])
                late = time.perf_counter() - begin > 60 * options.minutes
                if late or any(run["seed"] == seed for run in runs):
                    continue
                runs.append(replicate(problem, epsilon, seed, options.cache))
                last = runs[-1]
                off = np.sqrt(np.mean(np.square(last["z"])))
                console.print(f"{kind} {problem.name} ε={epsilon:g} rms z {off:.2f} ({last['seconds']} s)")
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps({name: kept for name, kept in results.items() if kept}))
    console.print(table({name: kept for name, kept in results.items() if kept}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = tuple(name for name in LOADERS if name != "made_up")
    parser.add_argument("--problems", nargs="*", default=["adult", "affairs", "counts", "line"])
    parser.add_argument("--real", nargs="*", choices=known, default=[])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing new after so long")
    parser.add_argument("--json", type=Path, default=Path("build/calibration.json"))
    parser.add_argument("--cache", type=Path, default=Path("build/utility"), help="reference posteriors")
    return parser.parse_args()


if __name__ == "__main__":
    main()
