"""Every model of the zoo gets its verdict, and numbers that know nothing of preflight agree with it."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from private_mcmc.preflight import PreflightReport, preflight
from tests.zoo import ZOO, Entry, Pair

BY_NAME = {entry.name: entry for entry in ZOO}
PAIRED = [entry for entry in ZOO if isinstance(entry.witness, Pair)]
DECIDED = [entry for entry in PAIRED if entry.verdict != "unknown"]


@functools.cache
def answer(name: str) -> PreflightReport:
    entry = BY_NAME[name]
    return preflight(
        entry.model,
        entry.rows,
        entry.target,
        n=entry.n,
        clip=entry.clip,
        temper=entry.temper,
        model_args=entry.model_args,
    )


@functools.cache
def laws_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The witness's two laws on a fine grid of its own range."""
    pair = BY_NAME[name].witness
    t = np.linspace(pair.low, pair.high, 100_001)
    laws = []
    for log_density in (pair.first, pair.second):
        values = np.exp(log_density(t) - np.max(log_density(t)))
        # The ranges in the zoo hold all but a negligible part.
        assert max(values[0], values[-1]) < 1e-9 * values.max()
        laws.append(values / np.sum(values))
    return laws[0], laws[1]


def divergence(name: str, epsilon: float) -> float:
    """``max(δ(P‖Q), δ(Q‖P))`` of a witness at ε, by the trapezoid rule."""
    one, other = laws_of(name)
    scale = math.exp(epsilon)
    return max(
        float(np.maximum(one - scale * other, 0).sum()), float(np.maximum(other - scale * one, 0).sum())
    )


@pytest.mark.some(12)
@pytest.mark.parametrize("entry", ZOO, ids=lambda entry: entry.name)
def test_verdict_is_the_expected_one(entry: Entry) -> None:
    found = answer(entry.name)
    assert found.verdict == entry.verdict
    if isinstance(entry.witness, str):
        assert entry.witness in " ".join(found.reasons)


@pytest.mark.some(2)
@pytest.mark.parametrize("entry", DECIDED, ids=lambda entry: entry.name)
def test_the_witness_agrees_with_the_verdict(entry: Entry) -> None:
    exact = divergence(entry.name, entry.target.epsilon)
    if entry.verdict == "not private":
        assert exact > entry.target.delta
    else:
        # The rounding of long sums is all that a pure statement leaves room for.
        assert exact <= entry.target.delta + 1e-12


@pytest.mark.some(2)
@pytest.mark.parametrize("entry", PAIRED, ids=lambda entry: entry.name)
def test_no_certificate_is_below_the_witness(entry: Entry) -> None:
    found = answer(entry.name)
    for epsilon in (0.0, 0.3 * entry.target.epsilon, entry.target.epsilon):
        for statement in found.certificates:
            assert divergence(entry.name, epsilon) <= statement.delta(epsilon) * (1 + 1e-6) + 1e-12


@pytest.mark.some(1)
@pytest.mark.parametrize("entry", [e for e in ZOO if e.verdict == "private"], ids=lambda entry: entry.name)
def test_statements_of_private_models_are_verified(entry: Entry) -> None:
    found = answer(entry.name)
    assert found.certificates[0].verify()
    assert found.refutation is None


def test_names_are_unique_and_there_are_many() -> None:
    assert len(BY_NAME) == len(ZOO) >= 40


def test_most_models_with_a_true_certificate_are_found_private() -> None:
    private = [entry for entry in ZOO if entry.verdict == "private"]
    missed = [entry for entry in ZOO if entry.provable]
    assert len(private) / (len(private) + len(missed)) >= 0.9
