"""Peers that need other versions of our dependencies: a worker script in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import Dataset
from benchmarks.peers.method import Budget, Runs, Unavailable, only_logistic, seeds

_HERE = Path(__file__).parent
_SECONDS = 3600


@dataclass(frozen=True)
class D3P:
    """d3p's differentially private variational inference (Prediger et al. 2022) with a diagonal guide.

    d3p's own examples clip at 2 to 20 and use Adam at 1e-3 for rows that are not scaled; the settings here
    were the best of a small grid on the synthetic data set.
    """

    environments: Path
    learning_rate: float = 0.05
    clip: float = 1.0
    steps: int = 2_000
    batch_size: int = 1_000

    name = "d3p"
    adjacency = "replace_one"
    about = "DP variational inference, AutoDiagonalNormal, Adam, d3p's own accountant (substitute); (ε, δ)"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """All runs in one process, so that it compiles once."""
        regression = dataset.regression
        settings = {
            "family": regression.family,
            "prior_sd": regression.prior_sd,
            "noise_sd": regression.noise_sd,
            "learning_rate": self.learning_rate,
            "clip": self.clip,
            "steps": self.steps,
            "batch_size": min(self.batch_size, dataset.n // 4),
            "seed": seeds(self, dataset, budget, 1)[0],
        }
        return work(self.environments, "d3p", dataset, budget, runs, settings)


@dataclass(frozen=True)
class DiffPrivLib:
    """diffprivlib's logistic regression: objective perturbation of Chaudhuri, Monteleoni, Sarwate (2011)."""

    environments: Path

    name = "diffprivlib"
    adjacency = "replace_one"
    about = "objective perturbation with the prior as penalty, data_norm=1; pure ε"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """Point estimates."""
        only_logistic(dataset, "logistic regression only.")
        settings = {"inverse_penalty": dataset.regression.prior_sd**2}
        return work(self.environments, "diffprivlib", dataset, budget, runs, settings)


def work(
    environments: Path, peer: str, dataset: Dataset, budget: Budget, runs: int, settings: Mapping[str, Any]
) -> Runs:
    """Hand rows and settings to ``<peer>_worker.py`` in ``environments/<peer>``; read its draws.

    The worker gets three paths: ``rows.npz`` (``X``, ``y``), ``task.json`` and the file to write, with
    ``draws`` of shape ``(runs, k, p)`` and, optionally, scalars that become facts.

    Raises:
        Unavailable: if the environment or its interpreter is missing, or the worker fails.
    """
    python = environments / peer / "bin" / "python"
    if not python.exists():
        raise Unavailable(f"no environment {environments / peer}; `make peers` creates it.")
    task = {**asdict(budget), "runs": runs, **settings}
    with tempfile.TemporaryDirectory() as folder:
        rows, told, answer = (Path(folder) / name for name in ("rows.npz", "task.json", "answer.npz"))
        np.savez(rows, X=dataset.X, y=dataset.y)
        told.write_text(json.dumps(task))
        command = [python, _HERE / f"{peer}_worker.py", rows, told, answer]
        # d3p's old JAX spins its threads while they wait.
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "PYTHONPATH": ""}
        try:
            done = subprocess.run(
                [str(part) for part in command],
                env=environment,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{peer} took longer than {_SECONDS} s.") from error
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise Unavailable(f"{peer}'s worker failed: {last[0]}")
        with np.load(answer) as stored:
            facts = {name: float(stored[name]) for name in stored.files if name != "draws"}
            return Runs(tuple(np.asarray(stored["draws"], dtype=np.float64)), facts)
