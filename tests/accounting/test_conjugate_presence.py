"""Conjugate posteriors with and without a row: no data set is further apart than the certified one."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from private_mcmc.accounting import Statement, conjugate
from private_mcmc.accounting.conjugate import posterior_conjugate
from private_mcmc.errors import DeclarationError

EPSILONS = st.floats(0.01, 2.0)


def on_grid(one, other, grid: np.ndarray, epsilon: float) -> float:
    """The larger hockey-stick divergence of two laws, from below, by the probabilities of cells."""
    p, q = np.diff(one.cdf(grid)), np.diff(other.cdf(grid))
    scale = math.exp(epsilon)
    return max(float(np.maximum(p - scale * q, 0).sum()), float(np.maximum(q - scale * p, 0).sum()))


UNIT = np.concatenate([[0], np.geomspace(1e-9, 0.5, 800), 1 - np.geomspace(0.5, 1e-9, 800)[1:], [1]])


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    a=st.floats(0.3, 20), b=st.floats(0.3, 20), n=st.integers(1, 6),
    temper=st.floats(0.1, 1.0), epsilon=EPSILONS,
)  # fmt: skip
def test_beta_bernoulli_covers_every_data_set(a, b, n, temper, epsilon) -> None:
    worst = conjugate.beta_bernoulli_presence(a, b, n=n, temper=temper, epsilon=epsilon)
    for rows in range(n):
        for won, own in product(range(rows + 1), range(2)):
            less = a + temper * won, b + temper * (rows - won)
            more = less[0] + temper * own, less[1] + temper * (1 - own)
            assert on_grid(stats.beta(*more), stats.beta(*less), UNIT, epsilon) <= worst + 1e-12


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    alphas=st.lists(st.floats(0.3, 10), min_size=2, max_size=3), n=st.integers(1, 5),
    temper=st.floats(0.1, 1.0), epsilon=EPSILONS,
)  # fmt: skip
def test_dirichlet_covers_every_count_of_the_rows_own_category(alphas, n, temper, epsilon) -> None:
    worst = conjugate.dirichlet_categorical_presence(tuple(alphas), n=n, temper=temper, epsilon=epsilon)
    for index, rows in product(range(len(alphas)), range(n)):
        for same in range(rows + 1):
            own, rest = alphas[index] + temper * same, sum(alphas) - alphas[index] + temper * (rows - same)
            pair = stats.beta(own + temper, rest), stats.beta(own, rest)
            assert on_grid(*pair, UNIT, epsilon) <= worst + 1e-12


@pytest.mark.some(4)
@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
@pytest.mark.parametrize(
    "make",
    [
        lambda **k: posterior_conjugate("beta_binomial", a=2.0, b=3.0, n=200, trials=1, temper=0.5, **k),
        lambda **k: posterior_conjugate(
            "dirichlet_categorical", concentration=(1.0, 2.0, 5.0), n=40, temper=1.0, **k
        ),
    ],
    ids=["beta", "dirichlet"],
)  # fmt: skip
def test_statements_are_verified_from_their_constants_alone(make, adjacency: str) -> None:
    statement = make(epsilons=(0.1, 0.5), adjacency=adjacency)
    assert statement.adjacency == adjacency
    record = json.loads(json.dumps(statement.to_dict()))
    assert Statement.from_dict(record) == statement
    assert statement.verify()
    record["curves"][0]["points"][0][1] *= 0.999
    assert not Statement.from_dict(record).verify()
    # The same numbers under replacement claim something else.
    record = json.loads(json.dumps(statement.to_dict())) | {"adjacency": "replace_one"}
    assert not Statement.from_dict(record).verify()


def test_where_a_row_moves_two_parameters_nothing_is_stated() -> None:
    asked = {"n": 5, "temper": 1.0, "epsilons": (1.0,), "adjacency": "zero_out"}
    with pytest.raises(DeclarationError, match="no divergence is known"):
        posterior_conjugate("beta_binomial", a=1.0, b=1.0, trials=2, **asked)
    with pytest.raises(DeclarationError, match="no divergence is known"):
        posterior_conjugate("gamma_poisson", shape=1.0, largest=2, **asked)
