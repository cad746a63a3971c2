"""Every model of the zoo gets its verdict, and numbers that know nothing of preflight agree with it."""

import functools
import math

import numpy as np
import pytest

from private_mcmc.preflight import preflight
from tests.zoo import ZOO, Entry, Pair


@functools.cache
def answer(name: str):
    (entry,) = (entry for entry in ZOO if entry.name == name)
    options = {"clip": entry.clip, "temper": entry.temper, "model_args": entry.model_args}
    return preflight(entry.model, entry.rows, entry.target, n=entry.n, **options)


def divergence(laws: tuple[np.ndarray, np.ndarray], epsilon: float) -> float:
    """``max(δ(P‖Q), δ(Q‖P))`` at ε, by the trapezoid rule."""
    one, other = laws
    gaps = one - math.exp(epsilon) * other, other - math.exp(epsilon) * one
    return max(float(np.maximum(gap, 0).sum()) for gap in gaps)


@pytest.mark.some(6)
@pytest.mark.parametrize("entry", ZOO, ids=lambda entry: entry.name)
def test_verdict_is_the_expected_one(entry: Entry) -> None:
    found = answer(entry.name)
    assert found.verdict == entry.verdict
    if isinstance(entry.witness, str):
        assert entry.witness in " ".join([*found.reasons, found.structure["likelihood"]])
    if entry.verdict == "private":
        assert found.certificates[0].verify() and found.refutation is None


@pytest.mark.some(2)
@pytest.mark.parametrize("entry", [e for e in ZOO if isinstance(e.witness, Pair)], ids=lambda e: e.name)
def test_the_witness_agrees_with_the_verdict_and_no_certificate_is_below_it(entry: Entry) -> None:
    found, laws = answer(entry.name), entry.witness.laws()
    exact = divergence(laws, entry.target.epsilon)
    if entry.verdict == "not private":
        assert exact > entry.target.delta
    elif entry.verdict == "private":
        # The rounding of long sums is all that a pure statement leaves room for.
        assert exact <= entry.target.delta + 1e-12
    for epsilon in (0.0, 0.3 * entry.target.epsilon, entry.target.epsilon):
        for statement in found.certificates:
            assert divergence(laws, epsilon) <= statement.delta(epsilon) * (1 + 1e-6) + 1e-12
