"""Audits of plans run every stage through the driver."""

import numpy as np
import pytest

from private_mcmc.auditing import Pair, audit, plan_mechanism
from tests.soundness.front_door.plans import stages_of


@pytest.mark.long
def test_a_plan_is_attacked_by_what_all_its_stages_release():
    plan = stages_of((1.0, 2.0), budget=8.0)
    pair = Pair({"y": np.array([50.0, 0.0])}, {"y": np.array([-50.0, 0.0])})
    outputs = plan_mechanism(plan).draw(pair.first, 3, np.random.SeedSequence(0))
    # Of each stage its length and its two states.
    assert np.count_nonzero(outputs[0]) == 6
    assert len(np.unique(outputs[:, 1])) == 3
    found = audit(plan, pair, num_runs=40)
    assert found.sound and found.statement is plan.statement
