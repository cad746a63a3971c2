"""Chains of independent proposals: the law that they have, and where they are refused."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from scipy.stats import norm

from private_mcmc.inference.posterior import sample
from private_mcmc.inference.posterior.given_releases import moving
from private_mcmc.inference.posterior.independent import (
    Mixture,
    StudentT,
    fitted_proposal,
    independent_draws,
    places,
)
from private_mcmc.inference.posterior.sample import Chains, draws

SHAPE = 4, 100, 300


def funnel(points):
    """``s ~ N(0, 1)``, and two numbers that are ``N(0, e^{2s})`` given it."""
    scale = np.exp(points[:, 0])
    return norm.logpdf(points[:, 0]) + norm.logpdf(points[:, 1:], scale=scale[:, None]).sum(axis=1)


def shifted(points):
    """A correlated Normal law whose mode's curvature was misjudged by far."""
    white = np.linalg.solve(np.array([[2.0, 0.0], [3.9, 0.5]]), (points - [4.0, -3.0]).T)
    return norm.logpdf(white).sum(axis=0)


def test_a_proposal_finds_a_law_far_from_where_it_began():
    """Tolerances are five standard errors at the effective sizes asked for."""
    random = np.random.default_rng(0)
    proposal = fitted_proposal(shifted, np.zeros(2), 0.3 * np.eye(2), random)
    draws = independent_draws(shifted, proposal, SHAPE, random)
    assert draws.shape == (4, 300, 2)
    assert np.all(gelman_rubin(draws) < 1.02)
    assert np.all(effective_sample_size(draws) > 300)
    flat = draws.reshape(-1, 2)
    np.testing.assert_allclose(flat.mean(axis=0), [4.0, -3.0], atol=5 * 4 / np.sqrt(300))
    np.testing.assert_allclose(flat.std(axis=0), [2.0, np.hypot(3.9, 0.5)], rtol=5 / np.sqrt(600))


def test_tails_of_a_law_that_no_proposal_fits_are_right():
    """Quantiles of the scale: chains that kept to the narrow end, where the mode is, would fail."""
    random = np.random.default_rng(1)
    proposal = fitted_proposal(funnel, np.array([-2.0, 0.0, 0.0]), np.diag([0.5, 0.2, 0.2]), random)
    draws = independent_draws(funnel, proposal, SHAPE, random)
    found = np.quantile(draws[..., 0], [0.1, 0.5, 0.9])
    np.testing.assert_allclose(found, norm.ppf([0.1, 0.5, 0.9]), atol=0.3)


def test_a_law_of_many_dimensions_that_is_not_elliptical_is_left_to_others():
    def ring(points):
        return -((np.linalg.norm(points, axis=1) - 20.0) ** 2) * 50

    start = np.zeros(30)
    start[0] = 20.0
    assert fitted_proposal(ring, start, 0.1 * np.eye(30), np.random.default_rng(2)) is None


@pytest.mark.parametrize("thin", [0.05, 1.0])
def test_where_there_is_no_density_there_are_no_draws(thin):
    def half(points):
        return np.where(points[:, 0] > 0, norm.logpdf(points).sum(axis=1), -np.inf)

    random = np.random.default_rng(3)
    proposal = fitted_proposal(half, np.array([0.1, 0.0]), thin * np.eye(2), random)
    draws = independent_draws(half, proposal, SHAPE, random)
    assert draws[..., 0].min() > 0
    assert draws[..., 0].mean() == pytest.approx(np.sqrt(2 / np.pi), abs=0.15)


@pytest.mark.long
def test_where_independent_chains_stand_still_others_take_their_place():
    """A hierarchy: chains at 83 of 1,000 places had a scale reduction of 1.21, and held .68 of truths."""

    def law(data, x):
        scale = jnp.exp(data * x[0])
        return -(x[0] ** 2) / 2 - jnp.sum((x[1:] / scale) ** 2) / 2 - (len(x) - 1) * data * x[0]

    narrow = Mixture(tuple(StudentT(np.zeros(6), 0.15 * np.eye(6)) for _ in range(3)))
    with jax.enable_x64(True):
        given = law, jnp.asarray(0.6), np.zeros(6), 0.5 * np.eye(6)
        found = draws(*given, jax.random.key(0), Chains(chains=2, draws=300), narrow)
        evaluate = jax.vmap(partial(law, 0.6))
        alone = independent_draws(evaluate, narrow, (2, 100, 300), np.random.default_rng(0))
    assert places(alone) < 60 < 200 < places(found)
    assert gelman_rubin(found)[0] < 1.05 < gelman_rubin(alone)[0]
    spread = np.quantile(found[..., 0], [0.1, 0.5, 0.9])
    np.testing.assert_allclose(spread, norm.ppf([0.1, 0.5, 0.9]), atol=0.35)


def test_a_chain_that_stands_still_tells_no_width():
    draws = np.random.default_rng(0).standard_normal((4, 100, 3))
    assert moving(draws)
    draws[2] = draws[2, :1]
    assert not moving(draws)


def test_chains_at_different_places_are_told_from_chains_of_one_law():
    draws = np.random.default_rng(0).standard_normal((4, 200, 2))
    assert moving(draws)
    assert not moving(draws + 3 * np.arange(4)[:, None, None])


def _pinched(data, x):
    """A funnel of two dimensions."""
    return -(x[0] ** 2) / 2 - x[1] ** 2 * jnp.exp(-2 * x[0]) / 2 - x[0]


def _by_nuts(monkeypatch):
    monkeypatch.setattr(sample, "fitted_proposal", lambda *given: None)
    with jax.enable_x64(True):
        given = jnp.zeros(1), np.zeros(2), np.eye(2), jax.random.key(0), Chains(2, 30, 41)
        # Another function each time: what is compiled knows how often chains look.
        return sample.draws(lambda data, x: _pinched(data, x), *given)


@pytest.mark.long
def test_chains_are_the_same_however_often_they_look_whether_they_are_wanted(monkeypatch):
    often, seldom = [], []
    for steps, found in ((7, often), (1000, seldom)):
        monkeypatch.setattr(sample, "_STEPS", steps)
        found.append(_by_nuts(monkeypatch))
    assert often[0].shape == (2, 41, 2)
    np.testing.assert_allclose(often[0], seldom[0])


@pytest.mark.slow
def test_nobody_who_interrupts_waits_for_chains(monkeypatch):
    """The draws then are the path's, of a release that was paid for: whoever kills the process loses it."""
    asked = []

    class Stopped(ThreadPoolExecutor):
        def map(self, *task):
            asked.append(task)
            raise KeyboardInterrupt

        def shutdown(self, wait=True, **options):
            asked.append(wait)
            super().shutdown(wait, **options)

    monkeypatch.setattr(sample, "ThreadPoolExecutor", Stopped)
    with pytest.raises(KeyboardInterrupt):
        _by_nuts(monkeypatch)
    (chain, starts), waits = asked
    assert waits is False
    with pytest.raises(ValueError, match="concatenate"):  # of no steps
        chain(starts[0])
