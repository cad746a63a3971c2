"""The accountant against a second derivation that shares nothing with it, over thousands of records."""

import ast
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from private_mcmc import accounting as acc
from private_mcmc.accounting import bounds, steps
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average, Schedule
from tests.accounting import oracle
from tests.accounting.every_statement import statements
from tests.accounting.oracle.verify import agrees

ALL = statements()


@pytest.mark.parametrize("name", ALL)
def test_both_derivations_give_the_curves_of_every_kind_of_statement(name: str) -> None:
    record = json.loads(json.dumps(ALL[name].to_dict()))
    assert acc.verify(record) and agrees(record)


def drawn(seed: int) -> Iterator[dict[str, Any]]:
    """Records of a run drawn at random: of its states, and of an average of them where that is certified."""
    rng = np.random.default_rng(seed)

    def one(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    rows, steps = int(rng.integers(1, 10**6)), int(one(1, 2, 7, 40, 150))
    scale = float(np.exp(rng.uniform(-8, 1)))
    sizes = tuple((scale * rng.uniform(0.3, 1.0, steps)).tolist())
    dim = int(one(1, 2, 5))
    mu = float(one(0.0, 0.1, 1.0))
    known = acc.Curvature(mu, mu + float(one(*np.exp(rng.uniform(-3, 3, 2)), math.inf)))
    fields = {
        "adjacency": one("replace_one", "add_remove", "zero_out"),
        "num_rows": rows,
        "dim": dim,
        "step_size": one(scale, scale, sizes),
        "num_steps": steps,
        "num_chains": int(one(1, 3)),
        "clip": float(np.exp(rng.uniform(-4, 2))),
        "temper": float(one(1.0, 0.1)),
        "preconditioner": one(None, tuple(np.exp(rng.uniform(-2, 2, dim)).tolist())),
        "rate": one(None, None, 1e-4, 0.01, 0.3, 1.0),
    }
    release = one("path", "last", "last", tuple(sorted({int(k) for k in rng.integers(1, steps + 1, 3)})))
    try:
        yield acc.langevin_statement(Schedule(**fields, release=release), known).to_dict()
        averaged = Schedule(**fields, release=Average(int(rng.integers(1, steps + 1))))
        distance = acc.average_sensitivity(averaged, known)
        if not 0 < distance < math.inf:
            return
        value = 1.0, math.inf, distance
        known_n = {"adjacency": averaged.adjacency, "num_rows": averaged.num_rows}
        noise = acc.laplace(0.5, sensitivity=1.0, scale=2.0, **known_n)
        facts: dict[str, Any] = {"values": (value,), "joint": 1.0}
        yield acc.noised_average(noise, averaged, known, distance=distance, **facts).to_dict()
    except DeclarationError:
        return


def check(seeds: range) -> int:
    """How many records were compared; each of them is right by both derivations."""
    count = 0
    for seed in seeds:
        for record in drawn(seed):
            assert acc.verify(record), (seed, acc.verify(record).reason)
            assert agrees(record), (seed, record["curves"])
            count += 1
    return count


def test_both_derivations_agree_on_runs_drawn_at_random() -> None:
    assert check(range(120)) > 120


@pytest.mark.long
@pytest.mark.parametrize("start", range(1_000, 4_000, 500))
def test_both_derivations_agree_on_thousands_of_runs(start: int) -> None:
    assert check(range(start, start + 500)) > 500


FAULTS = {
    "half the sensitivity": (bounds, "sensitivity", lambda true: lambda run: true(run) / 2),
    "twice the contraction": (steps.Curvature, "gap", lambda true: lambda *a: min(1.0, 2 * true(*a))),
    "noise too large": (bounds, "noise_ratio", lambda true: lambda run: (true(run)[0] * 1.01, True)),
    "time that a row's push fades in": (bounds, "time_that_counts", lambda true: lambda *a: true(*a) * 0.99),
    "a row's ratio without its rounding": (
        bounds,
        "row_ratio",
        lambda true: lambda *a: true(*a) * (1 - 1e-6),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_accountant_is_seen_by_the_oracle_alone(name: str, monkeypatch) -> None:
    """Maker and checker are one function: what it gets wrong only the second derivation tells."""
    owner, attribute, fault = FAULTS[name]
    monkeypatch.setattr(owner, attribute, fault(getattr(owner, attribute)))
    known = acc.Curvature(strong_convexity=1.0, smoothness=50.0)
    fields: dict[str, Any] = {"adjacency": "replace_one", "dim": 2, "step_size": 0.01, "clip": 1.0}
    runs = [
        Schedule(**fields, num_rows=10**6, num_steps=60, release="last"),
        Schedule(**fields, num_rows=10**6, num_steps=300, release="last", rate=0.1),
    ]
    records = [acc.langevin_statement(run, known).to_dict() for run in runs]
    assert all(map(acc.verify, records))
    assert not all(map(agrees, records))


def test_the_second_derivation_uses_nothing_of_the_accountant() -> None:
    files = list(Path(str(oracle.__file__)).parent.glob("*.py"))
    assert len(files) == 5
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.Import) or not any("private_mcmc" in n.name for n in node.names)
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("private_mcmc"):
                assert node.module == "private_mcmc.records"
