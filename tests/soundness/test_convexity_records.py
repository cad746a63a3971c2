"""A record says whether the prior is convex; what rests on more than it says does not verify."""

from __future__ import annotations

import copy
import json
import math

import pytest

from private_mcmc import accounting as acc
from private_mcmc.accounting import Curvature
from private_mcmc.accounting.langevin.moduli import Affine, langevin
from private_mcmc.schedule import Schedule

STEP, SMOOTH = 0.05, 8.0


def schedule(**changes) -> Schedule:
    options = {
        "adjacency": "replace_one",
        "num_rows": 2,
        "dim": 1,
        "step_size": STEP,
        "num_steps": 4000,
        "clip": 1.0,
        "release": "last",
        "diameter": 0.4,
    }
    return Schedule(**(options | changes))


def record(curvature: acc.Curvature, **changes) -> dict:
    return json.loads(json.dumps(acc.langevin_statement(schedule(**changes), curvature).to_dict()))


CONVEX_PRIOR = acc.Curvature(prior_smoothness=SMOOTH, prior_convex=True)
PATTERNS = {
    "every step": {},
    "varying steps": {"step_size": tuple(STEP / (1 + k / 200) for k in range(400)), "num_steps": 400},
    "declared states": {"release": (1500, 4000)},
}


@pytest.mark.some(2)
@pytest.mark.parametrize("name", PATTERNS)
def test_a_bound_that_rests_on_a_convex_prior_needs_a_record_that_says_so(name: str) -> None:
    found = record(CONVEX_PRIOR, **PATTERNS[name])
    path = acc.langevin_statement(schedule(**PATTERNS[name])).gdp
    assert found["curves"][-1]["m"] < path * 0.9
    assert acc.verify(found)
    assert found["argument"]["constants"]["prior_convex"] is True
    for value in (False, None, 0, 1, "yes", "absent"):
        other = copy.deepcopy(found)
        other["argument"]["constants"]["prior_convex"] = value
        if value == "absent":  # as in records written before there was the field
            del other["argument"]["constants"]["prior_convex"]
        assert not acc.verify(other)


def test_without_convexity_the_step_expands_by_the_whole_of_the_smoothness() -> None:
    convex = langevin(STEP, 1.0, Curvature(prior_smoothness=SMOOTH, prior_convex=True, gradient_bound=3.0))
    bent = langevin(STEP, 1.0, Curvature(prior_smoothness=SMOOTH, gradient_bound=3.0))
    assert [1 - float(part.gap) for part in convex.parts if isinstance(part, Affine)] == pytest.approx([1.0])
    assert [1 - float(part.gap) for part in bent.parts if isinstance(part, Affine)] == pytest.approx([1.4])


def test_contradictory_constants_do_not_verify() -> None:
    found = record(acc.Curvature(1.0, 10.0))
    for key, value in (("strong_convexity", 20.0), ("smoothness", 0.5), ("strong_convexity", math.nan)):
        other = copy.deepcopy(found)
        other["argument"]["constants"][key] = value
        assert not acc.verify(other)
