"""Draws of a hierarchy are those of its density in whichever form it is written, without trajectories."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from scipy.stats import norm

from private_mcmc.inference.posterior import sample
from private_mcmc.inference.posterior.funnel import funnel
from private_mcmc.inference.posterior.sample import Chains, draws, mode, whitened

EFFECTS = 24
# The second half is hardly measured, the first one well: neither form suits both.
ERRORS = np.repeat([0.1, 3.0], EFFECTS // 2)
SEEN = np.hypot(0.5, ERRORS) * np.random.default_rng(4).standard_normal(EFFECTS)
CENTRED, NOT_CENTRED = 1.0, 0.0


def hierarchy(data, x):
    """``log sd ~ N(−1, 1)``, effects ``~ N(0, sd²)``, each seen with an error; effects are ``sd^(1−c) x``."""
    seen, centred = data
    log_sd, errors = x[0], jnp.asarray(ERRORS)
    effects = x[1:] * jnp.exp((1 - centred) * log_sd)
    prior = (x[1:] * jnp.exp(-centred * log_sd)) ** 2 / 2 + centred * log_sd
    return -((log_sd + 1) ** 2) / 2 - jnp.sum(prior + ((seen - effects) / errors) ** 2 / 2)


def exact():
    """Quantiles of the logarithm of the sd, and the effects' means: summed over a grid of it."""
    grid = np.linspace(-7, 3, 4001)
    variances = np.exp(2 * grid)[:, None] + ERRORS**2
    logs = norm(-1, 1).logpdf(grid) + norm(0, np.sqrt(variances)).logpdf(SEEN).sum(axis=1)
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    means = shares @ (SEEN * np.exp(2 * grid)[:, None] / variances)
    return np.interp([0.1, 0.5, 0.9], np.cumsum(shares), grid), means


def nobody(*_):
    raise AssertionError("by NUTS")


@pytest.mark.slow
@pytest.mark.parametrize("centred", [CENTRED, NOT_CENTRED])
def test_draws_of_a_hierarchy_are_those_of_its_density(centred, monkeypatch):
    """Key and density are fixed; 4 of a mean's errors are exceeded once in 16,000 keys."""
    monkeypatch.setattr(sample, "_start", nobody)
    with jax.enable_x64(True):
        data = jnp.asarray(SEEN), jnp.asarray(centred)
        at = mode(hierarchy, data, np.zeros(1 + EFFECTS), np.eye(1 + EFFECTS))
        # The centred form is densest where all effects and their sd vanish.
        at = np.zeros_like(at) if centred else at
        root = whitened(hierarchy, data, at, np.eye(len(at)))
        found = draws(hierarchy, data, at, root, jax.random.key(3), Chains(), scales=[0])
    effects = found[..., 1:] * np.exp((1 - centred) * found[..., :1])
    quantiles, means = exact()
    np.testing.assert_allclose(np.quantile(found[..., 0], [0.1, 0.5, 0.9]), quantiles, atol=0.06)
    counted = np.array([effective_sample_size(each) for each in np.moveaxis(effects, -1, 0)])
    assert counted.min() > 400
    assert max(split_gelman_rubin(each) for each in np.moveaxis(found, -1, 0)) < 1.02
    off = (effects.mean(axis=(0, 1)) - means) / (effects.std(axis=(0, 1)) / np.sqrt(counted))
    assert np.abs(off).max() < 4


def test_volumes_grow_as_the_coordinates_say():
    """By difference quotients, between the nodes and beyond them."""

    def values(points):
        return -(points[:, 0] ** 2) / 2 - np.sum(points[:, 1:] ** 2, axis=1) * np.exp(-points[:, 0]) / 2

    def slopes(points):
        shrunk = np.exp(-points[:, :1])
        first = -points[:, :1] + (points[:, 1:] ** 2).sum(axis=1, keepdims=True) * shrunk / 2
        return np.hstack([first, -points[:, 1:] * shrunk])

    found = funnel(values, slopes, np.array([0.0, 0.3, -0.2]), np.eye(3), [0])
    for at in ([0.3, 0.5, -1.0], [-1.1, 2.0, 0.1], [20.0, 0.3, 0.4]):
        sides = 1e-6 * np.eye(3)
        up, down = (found.points(np.asarray(at) + side)[0] for side in (sides, -sides))
        size = np.linalg.slogdet((up - down) / 2e-6)[1]
        assert found.points(np.asarray([at]))[1] == pytest.approx([size], abs=1e-5)


def test_a_nearly_singular_root_is_no_hindrance():
    """As that at the mode of a centred hierarchy, in the steep part of its funnel."""

    def values(points):
        return -(points[:, 0] ** 2) / 2 - np.sum((points[:, 1:] / [0.5, 2.0]) ** 2, axis=1) / 2

    def slopes(points):
        return -points / [1.0, 0.25, 4.0]

    root = np.array([[1e-3, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0 + 1e-13]])
    found = funnel(values, slopes, np.zeros(3), root, [0])
    assert np.sqrt(np.diag(found.root @ found.root.T)) == pytest.approx([0.5, 2.0], rel=0.1)


def test_roots_are_as_wide_as_values_say_where_slopes_jump():
    """Slopes of an integral by Laplace's method lack how its mode moves: here they jump by 2,000 at 0."""

    def jumping(data, x):
        jump = data * jnp.abs(x[0])
        return -jnp.sum(x**2) / 2 - (jump - jax.lax.stop_gradient(jump))

    with jax.enable_x64(True):
        root = whitened(jumping, jnp.asarray(1e3), np.zeros(2), 3 * np.eye(2))
    assert np.all(np.sqrt(np.diag(root @ root.T)) > 0.3)
