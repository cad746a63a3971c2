"""How fast and how sharp the audit is: writes benchmarks/measured/audit.md.

    python -m benchmarks.audit

Sharpness: lower/upper where the law of the last state is exactly Gaussian, at failure probability 1e-6.
Throughput: 10,000 chains of 1,000 steps on 1,000 rows × 10, in seconds of processor time, for a linear and a
logistic regression.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.written import keep, put
from private_mcmc import Ball, Binary, Box, PrivateULA, Rows, Target
from private_mcmc.auditing import Pair, audit, chain_mechanism
from tests.examples_of_models import linear as line
from tests.soundness.sweep.zoo import logistic, mean

CHAINS, STEPS, ROWS, DIM = 10_000, 1_000, 1_000, 10


def sharpness(m: float, num_runs: int) -> dict[str, float]:
    """An audit of a last state that is exactly ``m``-GDP."""

    def mechanism(clip: float):
        return chain_mechanism(
            PrivateULA(mean, step_size=0.05, clip=clip),
            rows=Rows(y=Box(-50.0, 50.0)),
            target=Target(1.0, 1e-5),
            release="last",
            num_steps=12,
            n=1,
        )

    clip = m / mechanism(1.0).statement.gdp
    found = audit(mechanism(clip), Pair({"y": np.array([50.0])}, {"y": np.array([-50.0])}), num_runs=num_runs)
    claimed = found.statement.gdp
    return {
        "m": claimed,
        "chains in all": 2 * num_runs,
        "lower/upper": max(bounds[-1] for bounds in found.attacks.values()) / claimed,
    }


def throughput(model, response) -> float:
    """Processor seconds for the chains on one data set, compilation included."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, DIM))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    real = response == "real"
    domain, y = (Box(-2.0, 2.0), rng.uniform(-2.0, 2.0, ROWS)) if real else (Binary(), np.arange(ROWS) % 2)
    mechanism = chain_mechanism(
        PrivateULA(model, step_size=1e-3, clip=0.5),
        rows=Rows(X=Ball(1.0, dim=DIM), y=domain),
        target=Target(1.0, 1e-5),
        release="last",
        num_steps=STEPS,
        n=ROWS,
    )
    started = time.process_time()
    mechanism.draw({"X": X, "y": y}, CHAINS, np.random.SeedSequence(0))
    return time.process_time() - started


def written(found: dict[str, Any]) -> list[str]:
    """The page's lines."""
    lines = ["| m | chains in all | lower / upper |", "| --- | --- | --- |"]
    for row in found["sharpness"]:
        lines.append(f"| {row['m']:.3g} | {row['chains in all']:,} | {row['lower/upper']:.2f} |")
    each = " and ".join(f"{value:.0f} s ({name})" for name, value in found["seconds"].items())
    return [*lines, "", f"The 10,000 chains took {each} of processor time, compilation included."]


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    found = {
        "sharpness": [sharpness(m, runs) for m in (0.5, 1.0, 2.0, 4.0) for runs in (10_000, 20_000)],
        "seconds": {"linear": throughput(line, "real"), "logistic": throughput(logistic, "binary")},
    }
    keep("audit.json", found)
    put("audit.md", "python -m benchmarks.audit", written(found))


if __name__ == "__main__":
    main()
