"""Outcomes with long tails under a Normal law with an unknown sd: what the clip takes is given back."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.accounting import gdp
from private_mcmc.inference.posterior import Chains, posterior_of
from private_mcmc.model import read
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.general import RUN, Policy
from private_mcmc.planning.influence import MIDDLES, REACH, reach_of
from private_mcmc.planning.simulate import simulate
from private_mcmc.planning.stages import named

N = 6000


def incomes(X, y):
    w = numpyro.sample("w", dist.Normal(0, 0.3).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, sigma), obs=y)


@functools.cache
def policy_of_incomes():
    """Of one reading, so that both tables share its programs."""
    reading = read(incomes, pmc.Rows(X=pmc.Ball(2**0.5, dim=2), y=pmc.Box(-1.0, 1.0)), n=N)
    return Policy(facts_of(reading, N, "replace_one", gdp.budget(3.0, 1e-6)))


@functools.cache
def released(tailed):
    """The mode without privacy, ``(w, log sigma)``, and what a simulated plan releases at ε = 3."""
    random = np.random.default_rng(0)
    X = np.column_stack([np.ones(N), random.uniform(-1, 1, N)])
    noise = random.standard_t(3, N) if tailed else random.standard_normal(N)
    y = np.clip(X @ np.array([0.1, 0.05]) + 0.03 * noise, -1, 1)
    policy, columns = policy_of_incomes(), {"X": jnp.asarray(X), "y": jnp.asarray(y)}
    history = simulate(policy, columns, np.ones(N), 1)
    w = np.linalg.lstsq(X, y, rcond=None)[0]
    return policy, history, np.append(w, np.log(np.std(y - X @ w)))


@pytest.mark.long
@pytest.mark.parametrize("tailed", [True, False])
def test_intervals_hold_the_sd_of_outcomes_whatever_their_tails(tailed):
    """With the clip that outcomes of the model want, and nothing given back, it was 20 sds off."""
    policy, history, mode = released(tailed)
    found = posterior_of(policy.facts.reading, history, policy.conclude(history), None, Chains(2, 200, 300))
    draws = found.draws.reshape(-1, 3)
    assert np.all(np.abs(draws.mean(axis=0) - mode) < 3 * draws.std(axis=0))
    assert np.all(draws.std(axis=0)[:2] > 0.95 * np.exp(mode[2]) / np.sqrt(N) * np.array([1.0, 1.7]))
    assert draws[:, 2].std() > 0.95 / np.sqrt(2 * N)


@pytest.mark.long
def test_the_clip_follows_the_tail_that_was_counted():
    clips, shares = [], []
    for tailed in (False, True):
        policy, history, _ = released(tailed)
        (run,) = named(history, RUN)
        reach = reach_of(policy.facts, named(history, REACH)[0])
        clips.append(policy._clip(history, run.path))
        shares.append(float(reach.tail @ np.maximum(MIDDLES - 3.2, 0)))
    assert clips[1] > 1.3 * clips[0] and shares[1] > 2 * shares[0]
