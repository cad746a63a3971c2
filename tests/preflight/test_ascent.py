"""Gradient ascent finds rows that the extremes of a domain do not have, and every proposal is certified."""

from __future__ import annotations

import math

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from private_mcmc.domains import Box, Rows
from private_mcmc.model import read
from private_mcmc.preflight.refute.reduce_1d import lines
from private_mcmc.preflight.refute.refutation import refute
from private_mcmc.preflight.refute.search import search
from private_mcmc.target import Target

N = 8
TARGET = Target(1.0, 1e-3)


def narrow(y=None):
    t = numpyro.sample("t", dist.Normal(0.0, 0.1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.StudentT(4.0, t, 0.06), obs=y)


def grid_posterior(data_set, theta: np.ndarray, temper: float) -> np.ndarray:
    log = stats.norm.logpdf(theta, 0, 0.1)
    for row, times in data_set.rows:
        log = log + temper * times * stats.t.logpdf(float(row["y"]), 4.0, theta, 0.06)
    mass = np.exp(log - log.max())
    return mass / mass.sum()


@pytest.mark.long
def test_rows_inside_the_domain_refute_where_its_extremes_do_not() -> None:
    """The score of a Student-t row is largest at ``√ν`` scales from the center, far from any end."""
    model = read(narrow, Rows(y=Box(-1, 1)), n=N)
    temper = 0.1135
    settings = {"n": N, "temper": temper, "target": TARGET}
    (line,) = lines(model, None, None)
    found, candidates = search(line, **settings)
    assert found is None
    sharper = refute(model, **settings)
    assert sharper is not None
    theta = np.linspace(-1.2, 1.2, 400_001)
    p, q = (grid_posterior(data, theta, temper) for data in (sharper.first, sharper.second))
    exact = float(np.maximum(p - math.e * q, 0).sum())
    assert exact > TARGET.delta
    assert candidates[0].divergence < exact
    for data in (sharper.first, sharper.second):
        assert data.size == N
        assert all(-1 <= float(row["y"]) <= 1 for row, _ in data.rows)
