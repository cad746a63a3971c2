"""What it costs to protect persons: a path of logistic regression on tables with many rows a person.

    python -m benchmarks.persons [--panel RandHIE InstEval VerbAgg] [--epsilon 1 3] [--json FILE]
    python -m benchmarks.persons --latents [intercept poisson items frailty] [--epsilon 1 3] [--json FILE]
    python -m benchmarks.persons --page      # measured/latents.md, from what was measured of latents

The tables are described in ``persons_data.py``. Three promises at the same (ε, δ): one year is protected
("rows"), a whole person by the group bound on rows ("group"), or a whole person whose sum is clipped as one
("persons"). Each has the clip that serves it best, tried on the same data: the table is about what promises
cost, not about how a clip is found. Errors are root mean squares, over coefficients and runs, of path means
against the exact posterior's, in posterior sds; the metric is the posterior's own, paths start five sds off,
and the first fifth of them is left out. Then the processor time of a step on persons over that on rows:
``n·k`` slots are computed, of which RandHIE fills two thirds. ``--latents``: see ``persons_latents.py``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import private_mcmc as pmc
from benchmarks.persons_data import PANELS, Panel
from private_mcmc import accounting
from private_mcmc.models import logistic

DELTA = 1e-6
PAGE = Path(__file__).parent / "measured/latents.md"
LATENTS = PAGE.parent / "persons/latents.json"
CLIPS = (1.0, 2.0, 3.0, 5.0, 8.0)
STEP = 0.2
# Starts are so many posterior sds off, as those of a run that knows little are.
FAR = 5.0


def path_error(data: Panel, rows: pmc.Rows, n: int, clip: float, gdp: float, repeats: int) -> float:
    """Of path means, from starts that are drawn from the posterior; ``gdp`` pays for one chain."""
    dim = data.X.shape[1]
    total = 2 * (gdp / (2 * clip)) ** 2
    steps = max(50, int(np.ceil(total / STEP)))
    metric = tuple(map(tuple, ((data.covariance + data.covariance.T) / 2).tolist()))
    kernel = pmc.PrivateULA(logistic, step_size=total / steps, clip=clip, preconditioner=metric)
    random, found = np.random.default_rng(0), []
    ids = {} if rows.unit is None else {rows.unit.name: data.who}
    for _ in range(repeats):
        start = random.multivariate_normal(data.mean, FAR**2 * data.covariance)
        mcmc = pmc.PrivateMCMC(
            kernel, rows=rows, target=pmc.Target(1e6, 1 - 1e-6), release="path", num_steps=steps, n=n,
            guarantee="run", execution=pmc.Execution(init_params=start, progress_bar=False),
        )  # fmt: skip
        mcmc.run(**data.columns, **ids)
        one = mcmc.statement.gdp
        assert one is not None and one <= gdp * 1.001
        draws = mcmc.get_samples()["w"].reshape(-1, dim)
        draws = draws[steps // 5 :]
        found.append((draws.mean(axis=0) - data.mean) / np.sqrt(np.diag(data.covariance)))
    return float(np.sqrt(np.mean(np.square(found))))


def errors(data: Panel, epsilon: float, repeats: int) -> dict[str, float]:
    """The least error of every promise over the tried clips."""
    dim, count, persons = data.X.shape[1], len(data.y), len(np.unique(data.who))
    domains = {"X": pmc.Ball(float(np.sqrt(dim)), dim=dim), "y": pmc.Binary()}
    single, whole = pmc.Rows(**domains), pmc.Rows(**domains, person=pmc.Person(data.at_most))
    budget = accounting.gdp.budget(epsilon, DELTA)

    def least(rows: pmc.Rows, n: int, gdp: float) -> float:
        typical = np.sqrt(dim / n)
        return min(path_error(data, rows, n, clip * typical, gdp, repeats) for clip in CLIPS)

    return {
        "rows": least(single, count, budget),
        "group": least(single, count, budget / data.at_most),
        "persons": least(whole, persons, budget),
    }


def step_ratio(data: Panel, repeats: int = 15) -> dict[str, float]:
    """Microseconds of a step, of all rows and of a tenth of them, and how much longer persons take."""
    dim, persons = data.X.shape[1], len(np.unique(data.who))
    domains = {"X": pmc.Ball(float(np.sqrt(dim)), dim=dim), "y": pmc.Binary()}
    found: dict[str, float] = {}
    for name, rate in (("all", None), ("a tenth", 0.1)):
        runs: dict[str, Callable[[], None]] = {}
        for unit, rows, n in (
            ("rows", pmc.Rows(**domains), len(data.y)),
            ("persons", pmc.Rows(**domains, person=pmc.Person(data.at_most)), persons),
        ):
            kernel = pmc.PrivateULA(logistic, 1e-6, 1.0)
            if rate is not None:
                kernel = pmc.PrivateSGLD(logistic, 1e-6, 1.0, rate=rate)
            runs[unit] = _steps(kernel, rows, n, data)
        times: dict[str, list[float]] = {unit: [] for unit in runs}
        for _ in range(repeats):
            for unit, run in runs.items():
                begin = time.process_time()
                run()
                times[unit].append(time.process_time() - begin)
        ratios = [b / a for a, b in zip(times["rows"], times["persons"], strict=True)]
        found |= {f"{name}, {unit}, µs": 1e6 * min(each) / _COUNT for unit, each in times.items()}
        found[f"{name}, persons / rows"] = statistics.median(ratios)
        slots = persons * data.at_most / len(data.y)
        found[f"{name}, persons / rows, of as many slots"] = found[f"{name}, persons / rows"] / slots
    return found


_COUNT = 400


def _steps(kernel: pmc.PrivateULA, rows: pmc.Rows, n: int, data: Panel) -> Callable[[], None]:
    from private_mcmc.inference.columns import partitions_of
    from private_mcmc.inference.declared import Execution
    from private_mcmc.inference.execute import runner_of
    from private_mcmc.kernels import run_keys

    mcmc = pmc.PrivateMCMC(
        kernel, rows=rows, target=pmc.Target(1e6, 1 - 1e-6), release="last", num_steps=_COUNT, n=n,
        guarantee="run", progress_bar=False,
    )  # fmt: skip
    decision = mcmc.decide(n)
    columns = data.columns
    if rows.unit is not None:
        columns = rows.grouped({**columns, rows.unit.name: data.who}, n)
    reading, (streams, _) = decision.reading, run_keys()
    partitions = partitions_of(columns, n, Execution())
    runner = runner_of(reading.rows, reading, decision.schedule, partitions)
    with jax.enable_x64(True):
        prepared = runner.prepare(partitions)

    def run() -> None:
        runner.run(np.zeros(reading.dim), prepared, streams, lambda done: None)

    run()
    return run


def compared(data: Panel, epsilons: list[float], repeats: int) -> dict[str, dict[str, float]]:
    """Errors of the three promises, and the time of a step."""
    found: dict[str, dict[str, float]] = {"step": step_ratio(data)}
    print(found["step"], flush=True)
    for epsilon in epsilons:
        one = errors(data, epsilon, repeats)
        one["group / persons"] = one["group"] / one["persons"]
        one["persons / rows"] = one["persons"] / one["rows"]
        found[f"epsilon {epsilon:g}"] = one
        print(f"ε = {epsilon:g}:", {name: round(value, 3) for name, value in one.items()}, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[1.0, 3.0])
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--panel", nargs="*", choices=list(PANELS), default=["RandHIE"])
    parser.add_argument("--latents", nargs="*")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.latents is not None or given.page:
        from benchmarks.persons_latents import measured, write_page

        store = given.json or LATENTS
        if given.latents is not None:
            measured(given.latents, given.epsilon, given.repeats, store)
        if given.page:
            write_page(store, PAGE)
        return
    found: dict[str, object] = {}
    for name in given.panel:
        print(name, flush=True)
        found[name] = compared(PANELS[name](), given.epsilon, given.repeats)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
