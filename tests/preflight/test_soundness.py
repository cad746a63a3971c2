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
from private_mcmc.target import Target
from tests.preflight.grammar import Example, examples


def gap(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def check(example: Example, target: Target, data: Any) -> PreflightReport | None:
    try:
        report = preflight(
            example.model, example.rows, target, n=example.n, temper=example.temper, clip=example.clip
        )
    except UnsupportedModel:
        return None
    theta = example.grid()
    ends = [(x, y) for x in (example.radius, -example.radius, 0.0) for y in example.family.outcomes]
    for _ in range(6):
        pair = adjacent(example, target, data, ends)
        if pair is None:
            break
        one, other = (example.posterior(theta, rows) for rows in pair)
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
        confirm(example, report, theta)
    return report


def adjacent(example: Example, target: Target, data: Any, ends: Any) -> tuple[Any, Any] | None:
    """Two adjacent data sets: a crowd of equal rows, and one row changed or absent."""
    crowd, first, second = (data.draw(st.sampled_from(ends)) for _ in range(3))
    if target.adjacency == "replace_one":
        return [(crowd, example.n - 1), (first, 1)], [(crowd, example.n - 1), (second, 1)]
    least = 1 if target.adjacency == "add_remove" else 0
    if example.n - 1 < least:
        return None
    others = data.draw(st.sampled_from(sorted({least, (example.n - 1 + least) // 2, example.n - 1})))
    return [(crowd, others), (first, 1)], [(crowd, others)]


def confirm(example: Example, report: PreflightReport, theta: np.ndarray) -> None:
    """The refuting event has about the stated probabilities under posteriors computed here."""
    found = report.refutation
    stated = (found.p, found.q)
    for data_set, value in zip((found.first, found.second), stated, strict=True):
        rows = [((float(row["x"]), float(row["y"])), times) for row, times in data_set.rows]
        mass = example.posterior(theta, rows)
        inside = np.zeros(theta.shape, dtype=bool)
        for low, high in found.intervals:
            inside |= (theta > low) & (theta < high)
        assert float(mass[inside].sum()) == pytest.approx(value, abs=5e-3 + 2e-2 * value)
    assert found.p > math.exp(report.target.epsilon) * found.q + report.target.delta


TARGETS = st.builds(
    lambda pair, adjacency: Target(*pair, adjacency),
    st.sampled_from([(0.5, 1e-2), (1.0, 1e-3), (3.0, 1e-3), (2.0, 0.0)]),
    st.sampled_from(["replace_one", "add_remove", "zero_out"]),
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(example=examples(), target=TARGETS, data=st.data())
def test_certificates_and_refutations_hold_for_random_models(example, target, data) -> None:
    check(example, target, data)


@pytest.mark.long
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(example=examples(), target=TARGETS, data=st.data())
def test_certificates_and_refutations_hold_for_many_random_models(example, target, data) -> None:
    check(example, target, data)
