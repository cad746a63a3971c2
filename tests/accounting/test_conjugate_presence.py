"""Conjugate posteriors with and without a row: no data set is further apart than the certified one."""

from __future__ import annotations

import json
import math
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from private_mcmc.accounting import Statement, conjugate
from private_mcmc.accounting.conjugate import (
    posterior_beta_binomial,
    posterior_dirichlet_categorical,
    posterior_gamma_poisson,
)
from private_mcmc.accounting.normal import NormalMean, gaussian_pair, posterior_normal_mean
from private_mcmc.errors import DeclarationError

EPSILONS = st.floats(0.01, 2.0)


def on_grid(one, other, grid: np.ndarray, epsilon: float) -> float:
    """The larger hockey-stick divergence of two laws, from below, by the probabilities of cells."""
    p, q = np.diff(one.cdf(grid)), np.diff(other.cdf(grid))
    scale = math.exp(epsilon)
    return max(float(np.maximum(p - scale * q, 0).sum()), float(np.maximum(q - scale * p, 0).sum()))


UNIT = np.concatenate([[0], np.geomspace(1e-9, 0.5, 800), 1 - np.geomspace(0.5, 1e-9, 800)[1:], [1]])
HALF_LINE = np.concatenate([[0], np.geomspace(1e-6, 400, 2000), [np.inf]])


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    a=st.floats(0.3, 20), b=st.floats(0.3, 20), n=st.integers(1, 4), trials=st.integers(1, 3),
    temper=st.floats(0.1, 1.0), epsilon=EPSILONS,
)  # fmt: skip
def test_beta_binomial_covers_every_data_set(a, b, n, trials, temper, epsilon) -> None:
    worst = conjugate.beta_binomial_presence(a, b, n=n, trials=trials, temper=temper, epsilon=epsilon)
    for rows in range(n):
        for won, own in product(range(rows * trials + 1), range(trials + 1)):
            less = a + temper * won, b + temper * (rows * trials - won)
            more = less[0] + temper * own, less[1] + temper * (trials - own)
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


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    shape=st.floats(0.3, 20), rate=st.floats(0.1, 10), n=st.integers(1, 4), largest=st.integers(1, 3),
    temper=st.floats(0.1, 1.0), epsilon=EPSILONS,
)  # fmt: skip
def test_gamma_poisson_covers_every_data_set(shape, rate, n, largest, temper, epsilon) -> None:
    worst = conjugate.gamma_poisson_presence(
        shape, rate, n=n, largest=largest, temper=temper, epsilon=epsilon
    )
    for rows in range(n):
        for total, own in product(range(rows * largest + 1), range(largest + 1)):
            less = shape + temper * total, rate + temper * rows
            more = less[0] + temper * own, less[1] + temper
            laws = (stats.gamma(k, scale=1 / r) for k, r in (more, less))
            assert on_grid(*laws, HALF_LINE, epsilon) <= worst + 1e-12


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    data=st.data(), precision=st.floats(0.01, 100), step=st.floats(0.01, 5), slope=st.floats(0.2, 3),
    center=st.floats(-4, 4), n=st.integers(1, 6), epsilon=EPSILONS,
)  # fmt: skip
def test_normal_mean_covers_every_data_set(data, precision, step, slope, center, n, epsilon) -> None:
    low, high = -1.0, 2.0
    model = NormalMean(precision, step, low, high, center, slope, n)
    rows = data.draw(st.integers(0, n - 1))
    ys = np.array(data.draw(st.lists(st.floats(low, high), min_size=rows + 1, max_size=rows + 1)))

    def posterior(values: np.ndarray):
        total = precision + step * len(values)
        return stats.norm(step * np.sum(values - center) / slope / total, total**-0.5)

    more, less = posterior(ys), posterior(ys[:-1])
    grid = np.unique(np.concatenate([law.ppf(UNIT) for law in (more, less)]))
    assert on_grid(more, less, grid, epsilon) <= model.delta(epsilon) + 1e-12


@pytest.mark.long
@pytest.mark.parametrize(("shift", "extra", "epsilon"), [(0.3, 0.5, 0.1), (1.0, 1e-6, 0.4), (0.0, 3.0, 0.2)])
def test_gaussian_pair_is_the_exact_divergence(shift: float, extra: float, epsilon: float) -> None:
    with mpmath.workdps(30):
        sd = 1 / mpmath.sqrt(1 + mpmath.mpf(extra))

        def gap(x, sign):
            one, other = mpmath.npdf(x, shift, sd), mpmath.npdf(x, 0, 1)
            value = one - mpmath.exp(epsilon) * other if sign > 0 else other - mpmath.exp(epsilon) * one
            return max(value, 0)

        exact = max(mpmath.quad(lambda x, s=s: gap(x, s), mpmath.linspace(-12, 12, 241)) for s in (1, -1))
    found = float(gaussian_pair(np.array(shift), np.array(extra), epsilon))
    assert found == pytest.approx(float(exact), rel=2e-4, abs=1e-10)


def test_more_rows_than_are_tried_are_bounded() -> None:
    small, large = (NormalMean(5.0, 0.3, -1.0, 2.0, 0.3, 2.0, n).delta(0.4) for n in (20_000, 10**9))
    assert small <= large <= small * (1 + 1e-9) + 1e-12


@pytest.mark.some(4)
@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
@pytest.mark.parametrize(
    "make",
    [
        lambda **k: posterior_beta_binomial(2.0, 3.0, n=200, trials=1, temper=0.5, **k),
        lambda **k: posterior_beta_binomial(20.0, 30.0, n=20, trials=4, temper=0.5, **k),
        lambda **k: posterior_dirichlet_categorical((1.0, 2.0, 5.0), n=40, temper=1.0, **k),
        lambda **k: posterior_gamma_poisson(30.0, 2.0, n=50, largest=4, temper=0.2, **k),
        lambda **k: posterior_normal_mean(
            5.0, 0.3, low=-1.0, high=2.0, center=0.3, slope=2.0, n=30_000, **k
        ),
    ],
    ids=["beta", "binomial", "dirichlet", "gamma", "normal"],
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


def test_a_flat_prior_leaves_no_posterior_where_all_rows_may_be_absent() -> None:
    with pytest.raises(DeclarationError, match="precision=0"):
        posterior_normal_mean(
            0.0, 0.3, low=-1.0, high=2.0, center=0.3, slope=2.0, n=3, epsilons=(1.0,), adjacency="zero_out"
        )
