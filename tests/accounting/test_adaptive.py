"""A budget fixed beforehand is the claim, never the realised sum; overspending is refused."""

import json
import math

import pytest

from private_mcmc.accounting import Statement, adaptive, gaussian, laplace
from private_mcmc.errors import DeclarationError, NotPrivate


def stage(m, adjacency="replace_one"):
    return gaussian(adjacency=adjacency, sensitivity=m, scale=1.0)


def test_the_claim_is_the_budget_even_when_less_was_spent():
    assert adaptive(1.0, "replace_one", (stage(0.3), stage(0.4))).gdp == 1.0


def test_overspending_is_refused():
    with pytest.raises(NotPrivate, match="more than the budget"):
        adaptive(1.0, "replace_one", (stage(0.8), stage(0.7)))


def test_stages_that_are_not_gaussian_or_of_another_adjacency_are_refused():
    pure = laplace(0.1, adjacency="replace_one", sensitivity=1.0, scale=10.0)
    with pytest.raises(NotPrivate, match="no finite Gaussian"):
        adaptive(1.0, "replace_one", (pure,))
    with pytest.raises(DeclarationError, match="do not compose"):
        adaptive(1.0, "replace_one", (stage(0.1, "add_remove"),))


@pytest.mark.parametrize("budget", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_that_is_not_a_positive_number_is_refused(budget):
    with pytest.raises(DeclarationError, match="budget"):
        adaptive(budget, "replace_one", (stage(0.1),))


def test_verification_survives_json_and_finds_tampering():
    record = json.loads(json.dumps(adaptive(1.0, "replace_one", (stage(0.3), stage(0.4))).to_dict()))
    assert Statement.from_dict(record).verify()
    record["argument"]["constants"]["budget"] = 0.4
    record["curves"][0]["m"] = 0.4
    assert not Statement.from_dict(record).verify()
