"""Procedures of several steps: epsilons and deltas add up, exactly where they can."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc.accounting import Statement, stepwise
from private_mcmc.errors import DeclarationError

levels = st.floats(0, 10)
misses = st.floats(0, 0.1)


@given(st.lists(st.tuples(levels, misses), min_size=1, max_size=5))
def test_sums_are_never_rounded_down_and_single_steps_not_at_all(pairs):
    statement = stepwise(
        {f"step {i}": pair for i, pair in enumerate(pairs)}, adjacency="replace_one", theorem="t"
    )
    total, miss = math.fsum(p[0] for p in pairs), math.fsum(p[1] for p in pairs)
    (curve,) = statement.curves
    found = curve.points[0] if miss > 0 else (curve.level, 0.0)
    assert total <= found[0] <= total * (1 + 1e-15)
    assert miss <= found[1] <= miss * (1 + 1e-15)
    if len(pairs) == 1:
        assert found == pairs[0]
    assert statement.verify()
    assert Statement.from_dict(json.loads(json.dumps(statement.to_dict()))) == statement


def test_a_smaller_claim_than_the_sum_is_not_verified():
    honest = stepwise({"a": (1.0, 1e-6), "b": (0.5, 0.0)}, adjacency="replace_one", theorem="t").to_dict()
    for points in ([[1.4, 1e-6]], [[1.5, 1e-7]]):
        forged = honest | {"curves": [{"kind": "points", "points": points}]}
        assert not Statement.from_dict(forged).verify()


@pytest.mark.parametrize("steps", [{}, {"a": (-1.0, 0.0)}, {"a": (1.0, 2.0)}, {"a": (math.nan, 0.0)}])
def test_steps_that_make_no_sense_are_refused(steps):
    with pytest.raises(DeclarationError):
        stepwise(steps, adjacency="replace_one", theorem="t")
