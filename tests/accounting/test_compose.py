"""Composition: candidate by candidate, one adjacency, one statement for each run; budgets are the claim."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc import accounting as acc
from private_mcmc.accounting.curves import Gaussian, Pure
from private_mcmc.errors import DeclarationError, NotPrivate
from tests.accounting.every_statement import CONVEX, schedule


def concave(m: float) -> acc.Statement:
    return acc.posterior_strongly_log_concave(m, 1.0, "replace_one")


def bounded_range(level):
    """A statement of two curves, pure and Gaussian."""
    curves = Pure(level), Gaussian(level / 2)
    return acc.Statement("replace_one", curves, concave(1.0).argument)


@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=6))
def test_gaussian_levels_add_in_squares(levels):
    total = acc.compose(*(concave(m) for m in levels))
    exact = math.sqrt(math.fsum(m**2 for m in levels))
    assert exact <= total.gdp <= exact * (1 + 1e-13)


@pytest.mark.slow
def test_every_choice_of_curves_is_a_candidate_and_the_minimum_is_last():
    bounded = [bounded_range(0.2)] * 3
    total = acc.compose(*bounded)
    kinds = {type(curve).__name__ for curve in total.curves}
    assert kinds == {"Product", "Gaussian"}
    all_pure = acc.Statement("replace_one", (Pure(0.2),), bounded[0].argument)
    all_gaussian = acc.Statement("replace_one", (Gaussian(0.1),), bounded[0].argument)
    for delta in (0.0, 1e-9, 1e-3):
        pure = acc.compose(*(all_pure,) * 3).epsilon(delta)
        gaussian = acc.compose(*(all_gaussian,) * 3).epsilon(delta)
        assert total.epsilon(delta) <= min(pure, gaussian) * (1 + 1e-9)


def test_minimum_of_totals_is_not_total_of_minima():
    """Mixing the best curve of each part at its own ε would be no bound; candidates keep to one choice."""
    left = acc.Statement("replace_one", (Pure(1.0), Gaussian(0.3)), concave(1.0).argument)
    total = acc.compose(left, left)
    singles = [
        acc.compose(
            acc.Statement("replace_one", (a,), left.argument),
            acc.Statement("replace_one", (b,), left.argument),
        )
        for a, b in itertools.product(left.curves, repeat=2)
    ]
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        assert total.delta(epsilon) == pytest.approx(min(item.delta(epsilon) for item in singles), rel=1e-9)


def test_one_run_is_one_mechanism():
    last = acc.langevin_statement(schedule(release="last"), CONVEX).of("run 7")
    average = acc.laplace(0.5, adjacency="replace_one", sensitivity=1.0, scale=2.0).of("run 7")
    with pytest.raises(DeclarationError, match="one chain is one mechanism"):
        acc.compose(last, average)
    with pytest.raises(DeclarationError, match="run 7"):
        acc.compose(acc.compose(last, concave(1.0)), average)
    independent = acc.compose(last, average.of("run 8"))
    assert independent.mechanisms == ("run 7", "run 8")


def test_unnamed_repetitions_are_independent_runs():
    run = acc.langevin_statement(schedule(release="last"), CONVEX)
    assert acc.compose(run, run).gdp == pytest.approx(run.gdp * math.sqrt(2), rel=1e-13)


def test_a_single_statement_is_itself_and_none_is_refused():
    one = concave(1.0)
    assert acc.compose(one) is one
    with pytest.raises(DeclarationError):
        acc.compose()


def test_many_statements_with_several_curves_stay_few_candidates():
    parts = [bounded_range(0.05 * (k + 1)) for k in range(12)]
    total = acc.compose(*parts)
    assert 2 <= len(total.curves) <= 68
    assert total.epsilon(0.0) == pytest.approx(sum(0.05 * (k + 1) for k in range(12)), rel=1e-9)


def stage(m, adjacency="replace_one"):
    return acc.gaussian(adjacency=adjacency, sensitivity=m, scale=1.0)


def test_the_claim_is_the_budget_even_when_less_was_spent_and_overspending_is_refused():
    assert acc.adaptive(1.0, "replace_one", (stage(0.3), stage(0.4))).gdp == 1.0
    with pytest.raises(NotPrivate, match="more than the budget"):
        acc.adaptive(1.0, "replace_one", (stage(0.8), stage(0.7)))


def test_stages_that_are_not_gaussian_and_parts_of_another_adjacency_are_refused():
    pure = acc.laplace(0.1, adjacency="replace_one", sensitivity=1.0, scale=10.0)
    with pytest.raises(NotPrivate, match="no finite Gaussian"):
        acc.adaptive(1.0, "replace_one", (pure,))
    with pytest.raises(DeclarationError, match="do not compose"):
        acc.adaptive(1.0, "replace_one", (stage(0.1, "zero_out"),))
    with pytest.raises(DeclarationError, match="zero_out"):
        acc.compose(pure, acc.laplace(0.1, adjacency="zero_out", sensitivity=0.1, scale=1.0))


@pytest.mark.parametrize("budget", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_that_is_not_a_positive_number_is_refused(budget):
    with pytest.raises(DeclarationError, match="budget"):
        acc.adaptive(budget, "replace_one", (stage(0.1),))
