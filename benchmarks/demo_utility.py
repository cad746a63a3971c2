"""How close is the private posterior to the non-private one? A logistic regression at several ε.

    python -m benchmarks.demo_utility [--repeats 3] [--json FILE]

For every ε: the root mean square over parameters of (private mean − NUTS mean)/NUTS sd, and the ratio of
standard deviations; per parameter and overall, averaged over independent private runs; beside the
error that the plan predicted before it touched the data.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.nuts import nuts_reference
from private_mcmc import PrivateMCMC, Target, plan
from private_mcmc.data import ADULT_COLUMNS, load_adult
from private_mcmc.models import logistic, logistic_rows

EPSILONS = (0.5, 1.0, 3.0)
DELTA = 1e-6


def private_runs(
    epsilon: float, X: np.ndarray, y: np.ndarray, repeats: int
) -> tuple[list[np.ndarray], float]:
    """Released draws of independent runs, and the error the plan predicted."""
    policy = plan(logistic, logistic_rows(9), Target(epsilon, DELTA), n=len(y), guarantee="run")
    draws = []
    for _ in range(repeats):
        driver = PrivateMCMC.from_plan(policy, progress_bar=False)
        driver.run(X=X, y=y)
        draws.append(driver.get_samples()["w"])
    return draws, policy.prediction.rms


def compare(draws: list[np.ndarray], mean: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per parameter: root mean square error in NUTS sds, root mean square ratio of sds, over runs."""
    errors = np.array([(run.mean(0) - mean) / sd for run in draws])
    ratios = np.array([run.std(0) / sd for run in draws])
    return np.sqrt(np.mean(errors**2, axis=0)), np.sqrt(np.mean(ratios**2, axis=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="independent private runs for each ε")
    parser.add_argument("--json", type=Path, default=None, help="also save the numbers here")
    options = parser.parse_args()
    console = Console()
    X, y = load_adult("train")
    with console.status("non-private NUTS"):
        reference = nuts_reference(logistic, X=X, y=y)["w"]
    mean, sd = reference.mean(0), reference.std(0)
    columns, record = {}, {}
    for epsilon in EPSILONS:
        with console.status(f"ε = {epsilon}"):
            draws, predicted = private_runs(epsilon, X, y, options.repeats)
        error, ratio = compare(draws, mean, sd)
        overall = float(np.sqrt(np.mean(error**2))), float(np.sqrt(np.mean(ratio**2)))
        columns[epsilon] = error, ratio, overall, predicted
        record[str(epsilon)] = {
            "rms_error": overall[0],
            "sd_ratio": overall[1],
            "predicted_rms_error": predicted,
            "error_per_parameter": dict(zip(ADULT_COLUMNS, error.tolist(), strict=True)),
            "sd_ratio_per_parameter": dict(zip(ADULT_COLUMNS, ratio.tolist(), strict=True)),
        }
    table = Table(title=f"Adult, n = {len(y):,}, δ = {DELTA:g}: error of means in NUTS sds | ratio of sds")
    table.add_column("parameter")
    for epsilon in EPSILONS:
        table.add_column(f"ε = {epsilon:g}", justify="right")
    for index, name in enumerate(ADULT_COLUMNS):
        table.add_row(name, *(f"{columns[e][0][index]:.2f} | {columns[e][1][index]:.2f}" for e in EPSILONS))
    table.add_section()
    table.add_row("overall (rms)", *(f"{columns[e][2][0]:.2f} | {columns[e][2][1]:.2f}" for e in EPSILONS))
    table.add_row("predicted error", *(f"{columns[e][3]:.2f}" for e in EPSILONS))
    console.print(table)
    if options.json is not None:
        machine = {"platform": platform.platform(), "python": platform.python_version()}
        options.json.write_text(
            json.dumps({"repeats": options.repeats, "machine": machine, "epsilon": record}, indent=2)
        )


if __name__ == "__main__":
    main()
