"""Posteriors that know their own noise, on the peers' own problems: NA-DPVI and NAPSU-MQ beside ours.

    python -m benchmarks.noise_aware na_dpvi --checkout CLONE [--epsilons 0.1 0.25 1] [--tasks 4]
    python -m benchmarks.noise_aware napsu_mq [--epsilons 0.1 0.25 1] [--tasks 4]
    python -m benchmarks.noise_aware page

A task is the peer's: its data, its settings, its δ, run by its code in an environment of its own
(``make peers``; ``CLONE`` is a clone of DPBayes/noise-aware-dpvi, which is no package). The same rows go
through ``PrivateMCMC`` at the same ε and δ, and through NUTS without privacy. NA-DPVI's account is for rows
added or removed, NAPSU-MQ's for rows replaced; ours takes the same. Printed are root mean squares over
coefficients and tasks of the error of the mean in sds without privacy, how many 90 % intervals hold the
parameter that outcomes were drawn from, and how wide they are over those without privacy.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import numpyro
import numpyro.distributions as dist
from rich.console import Console
from rich.table import Table
from scipy.stats import norm

import private_mcmc as pmc
from benchmarks.nuts import nuts_reference
from benchmarks.written import ROOT, keep, kept, put

Array = npt.NDArray[np.float64]

KEPT = "noise_aware.json"
COMMAND = "python -m benchmarks.noise_aware page"
_LEVEL = 0.9
_LIMIT = 3600


@dataclass(frozen=True)
class Problem:
    """A peer's problem: the prior's sd, the least value of a covariate (1 is the largest), its adjacency."""

    peer: str
    prior: float
    low: float
    adjacency: str

    def model(self, X: Any, y: Any = None) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, self.prior).expand([X.shape[1]]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=jnp.dot(X, w)), obs=y)


# NAPSU-MQ's fits are of maximum likelihood: a wide prior.
PROBLEMS = {
    "na_dpvi": Problem("NA-DPVI", 1.0, -1.0, "add_remove"),
    "napsu_mq": Problem("NAPSU-MQ", 3.0, 0.0, "replace_one"),
}


def run_peer(name: str, checkout: Path | None, epsilon: float, task: int) -> dict[str, Array]:
    """The peer's data and its posterior, from its own process."""
    python = ROOT / "build/peers" / name / "bin/python"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.npz"
        words = [*([str(checkout)] if checkout else []), str(epsilon), str(task), str(out)]
        worker = [str(python), str(ROOT / f"benchmarks/peer_{name}.py"), *words]
        done = subprocess.run(worker, timeout=_LIMIT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{PROBLEMS[name].peer} failed: {done.stderr.strip().splitlines()[-1:]}")
        with np.load(out) as found:
            return dict(found)


def ours(problem: Problem, X: Array, y: Array, epsilon: float, delta: float) -> Array:
    """Draws ``(k, p)`` of one run of a plan."""
    rows = pmc.Rows(X=pmc.Box((problem.low,) * X.shape[1], (1.0,) * X.shape[1]), y=pmc.Binary())
    target = pmc.Target(epsilon, delta, problem.adjacency)
    mcmc = pmc.PrivateMCMC.from_plan(pmc.plan(problem.model, rows, target, n=len(y), guarantee="run"))
    mcmc.run(X=X, y=y)
    return np.asarray(mcmc.get_samples()["w"], dtype=np.float64)


def compare(name: str, checkout: Path | None, epsilon: float, task: int) -> dict[str, Any]:
    """One task: means and ends of 90 % intervals of the peer, ours and NUTS, beside the truth."""
    problem, found = PROBLEMS[name], run_peer(name, checkout, epsilon, task)
    X, y, delta = found["X"], found["y"].astype(int), float(found["delta"])
    half = norm.ppf(0.5 + _LEVEL / 2)
    ends = found.get("ends")
    if ends is None:
        ends = np.stack([found["mean"] - half * found["sd"], found["mean"] + half * found["sd"]], axis=1)
    exact = nuts_reference(problem.model, X=X, y=y)["w"]
    kept = {"truth": found["truth"], "sd": exact.std(axis=0)}
    kept |= {"exact mean": exact.mean(axis=0), "exact ends": _ends(exact)}
    kept |= {f"{problem.peer} mean": found["mean"], f"{problem.peer} ends": ends}
    draws = ours(problem, X, y, epsilon, delta)
    kept |= {"ours mean": draws.mean(axis=0), "ours ends": _ends(draws)}
    return {"task": task, **{word: np.asarray(value).tolist() for word, value in kept.items()}}


def _ends(draws: Array) -> Array:
    return np.quantile(draws, [0.5 - _LEVEL / 2, 0.5 + _LEVEL / 2], axis=0).T


def scores(runs: list[dict[str, Any]], method: str) -> tuple[float, int, int, float]:
    """Error in sds without privacy, intervals that hold, their number and their median relative width."""

    def of(word: str) -> Array:
        return np.array([run[word] for run in runs])

    error = (of(f"{method} mean") - of("exact mean")) / of("sd")
    ends, exact = of(f"{method} ends"), of("exact ends")
    # Rubin's rules may have no interval: it holds nothing.
    held = (ends[..., 0] <= of("truth")) & (of("truth") <= ends[..., 1])
    widths = (ends[..., 1] - ends[..., 0]) / (exact[..., 1] - exact[..., 0])
    return float(np.sqrt(np.mean(error**2))), int(held.sum()), held.size, float(np.nanmedian(widths))


def lines(results: Mapping[str, list[dict[str, Any]]]) -> list[tuple[str, ...]]:
    """A line for a problem, ε and method."""
    shown = []
    for key, runs in sorted(results.items()):
        name, epsilon = key.split("|")
        problem = PROBLEMS[name]
        for method in (problem.peer, "ours"):
            error, held, of, width = scores(runs, method)
            told = f"{error:.2g}", f"{held} of {of}", f"{width:.2g}"
            shown.append((f"{problem.peer}'s, {problem.adjacency}", epsilon, str(len(runs)), method, *told))
    return shown


_COLUMNS = ("problem", "ε", "runs", "method", "error", "90 % intervals that hold", "width")


def page(results: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """The table of the documentation, line by line."""
    return [f"| {' | '.join(row)} |" for row in (_COLUMNS, ("---",) * len(_COLUMNS), *lines(results))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=(*PROBLEMS, "page"))
    parser.add_argument("--checkout", type=Path)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.25, 1.0])
    parser.add_argument("--tasks", type=int, default=4)
    options = parser.parse_args()
    if options.what == "na_dpvi" and options.checkout is None:
        parser.error("na_dpvi: --checkout, a clone of DPBayes/noise-aware-dpvi")
    results: dict[str, list[dict[str, Any]]] = kept(KEPT)
    if options.what == "page":
        put("utility.md", COMMAND, page(results))
        return
    for task in range(1, options.tasks + 1):
        for epsilon in options.epsilons:
            runs = results.setdefault(f"{options.what}|{epsilon:g}", [])
            if all(run["task"] != task for run in runs):
                runs.append(compare(options.what, options.checkout, epsilon, task))
                keep(KEPT, results)
    table = Table(*_COLUMNS)
    for line in lines(results):
        table.add_row(*line)
    Console().print(table)


if __name__ == "__main__":
    main()
