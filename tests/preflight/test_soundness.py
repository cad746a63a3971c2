"""No model gets a certificate that a pair of data sets contradicts, and no refutation that is not one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from private_mcmc.errors import UnsupportedModel
from private_mcmc.preflight import PreflightReport, preflight
from private_mcmc.schedule import Schedule
from private_mcmc.target import Target
from tests.preflight.grammar import Example, examples, richer


def gap(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def check(example: Example, target: Target, data: Any) -> PreflightReport | None:
    schedule = None if example.clip is None else one_step(example, target)
    # A metric can only be said in a schedule; otherwise both ways of declaring a clip are taken.
    alone = example.metric is None and data.draw(st.booleans())
    said = {"clip": example.clip, "temper": example.temper} if alone or schedule is None else {}
    run = {} if said else {"schedule": schedule}
    try:
        report = preflight(example.model, example.rows, target, n=example.n, **said, **run)
    except UnsupportedModel:
        return None
    ends = example.ends()
    for _ in range(6 if example.dim == 1 else 2):
        pair = adjacent(example, target, data, ends)
        if pair is None:
            break
        one, other = (example.posterior(rows) for rows in pair)
        for epsilon in (0.0, 0.5 * target.epsilon, target.epsilon):
            exact = max(gap(one, other, epsilon), gap(other, one, epsilon))
            for statement in report.certificates:
                assert statement.adjacency == target.adjacency
                # The grid's own error is far below this.
                assert exact <= statement.delta(epsilon) * 1.001 + 2e-6, statement.argument.theorem
        if report.verdict == "private":
            exact = max(gap(one, other, target.epsilon), gap(other, one, target.epsilon))
            assert exact <= target.delta * 1.001 + 2e-6
    if report.refutation is not None and report.refutation.kind == "event":
        confirm(example, report)
    if report.run is not None:
        moved = farthest(example, target, data, ends)
        assert report.run.statement.gdp >= moved * (1 - 1e-9)
    return report


def one_step(example: Example, target: Target) -> Schedule:
    metric = None if example.metric is None else (example.metric,) * example.dim
    return Schedule(
        adjacency=target.adjacency, num_rows=example.n, dim=example.dim, step_size=0.5, num_steps=1,
        clip=example.clip, temper=example.temper, preconditioner=metric, release="path",
    )  # fmt: skip


def farthest(example: Example, target: Target, data: Any, ends: Any) -> float:
    """``w√(γ/2)·‖g − g'‖``: the exact GDP of one step at a state, the largest over some states and rows."""
    first, second = (data.draw(st.sampled_from(ends)) for _ in range(2))
    best = 0.0
    for place in (-30.0, -1.0, 0.0, 1.0, 30.0):
        one, other = (example.clipped_gradient(place, row) for row in (first, second))
        away = other if target.adjacency == "replace_one" else np.zeros(example.dim)
        best = max(best, float(np.linalg.norm(one - away)))
    return example.temper * math.sqrt(0.5 / 2) * best


def adjacent(example: Example, target: Target, data: Any, ends: Any) -> tuple[Any, Any] | None:
    """Two adjacent data sets: a group of equal rows of equal rows, and one row changed or absent."""
    common_rows, first, second = (data.draw(st.sampled_from(ends)) for _ in range(3))
    if target.adjacency == "replace_one":
        return [(common_rows, example.n - 1), (first, 1)], [(common_rows, example.n - 1), (second, 1)]
    least = 1 if target.adjacency == "add_remove" else 0
    if example.n - 1 < least:
        return None
    others = data.draw(st.sampled_from(sorted({least, (example.n - 1 + least) // 2, example.n - 1})))
    return [(common_rows, others), (first, 1)], [(common_rows, others)]


def confirm(example: Example, report: PreflightReport) -> None:
    """The refuting event has about the stated probabilities under posteriors computed here."""
    found = report.refutation
    for data_set, value in zip((found.first, found.second), (found.p, found.q), strict=True):
        mass = example.posterior(
            [({name: float(v) for name, v in row.items()}, times) for row, times in data_set.rows]
        )
        inside = np.zeros(mass.shape, dtype=bool)
        at = place(example, found.coordinate)
        for low, high in found.intervals:
            inside |= (at > low) & (at < high)
        # Cells that an end cuts count whole or not at all.
        rough = 5e-3 if example.dim == 1 else 3e-2
        assert float(mass[inside].sum()) == pytest.approx(value, abs=rough + 4 * rough * value)
    assert found.p > math.exp(report.target.epsilon) * found.q + report.target.delta


def place(example: Example, coordinate: str) -> np.ndarray:
    """A coordinate in words, ``theta + 0.5·a``, on the example's grid."""
    theta, a = example.axes()
    total = np.zeros(())
    for term in coordinate.split(" + "):
        factor, _, name = term.rpartition("·")
        total = total + float(factor or 1.0) * {"theta": theta, "a": a}[name]
    return total


TARGETS = st.builds(
    lambda pair, adjacency: Target(*pair, adjacency),
    st.sampled_from([(0.5, 1e-2), (1.0, 1e-3), (3.0, 1e-3), (2.0, 0.0)]),
    st.sampled_from(["replace_one", "add_remove", "zero_out"]),
)


@pytest.mark.slow
@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(example=examples() | richer(), target=TARGETS, data=st.data())
def test_certificates_and_refutations_hold_for_random_models(example, target, data) -> None:
    check(example, target, data)


@pytest.mark.long
@settings(max_examples=90, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(example=examples() | richer(), target=TARGETS, data=st.data())
def test_certificates_and_refutations_hold_for_many_random_models(example, target, data) -> None:
    check(example, target, data)
