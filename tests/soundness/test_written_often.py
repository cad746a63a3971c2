"""Models that users often write run with a clip, and make the steps that NumPyro's own density asks for.

Every day the replays of tests/soundness/faults.py do so for a linear and a logistic regression.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.auditing.chains import unconstrained
from private_mcmc.model import read
from tests.soundness.oracle import draw_rows, terms
from tests.soundness.replay import not_standard

N, STEPS, CHAINS, STEP, CLIP = 20, 12, 4, 0.5, 0.1


def log_softmax(X, y):
    W = numpyro.sample("W", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=jax.nn.log_softmax(X @ W)), obs=y)


def latent_scale(X, y):
    t = numpyro.sample("t", dist.HalfNormal(1.0))
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=t * (X @ w)), obs=y)


def non_centred(X, y):
    mu, tau = numpyro.sample("mu", dist.Normal(0, 1)), numpyro.sample("tau", dist.HalfNormal(1.0))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ (mu + tau * z)), obs=y)


def softplus_rate(X, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Poisson(jax.nn.softplus(X @ w)), obs=y)


def student(X, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.StudentT(4.0, X @ w, 0.5 + s), obs=y)


OUTCOMES = {
    log_softmax: pmc.Categories(3),
    latent_scale: pmc.Binary(),
    non_centred: pmc.Binary(),
    softplus_rate: pmc.Counts(6),
    student: pmc.Box(-2.0, 2.0),
}


def implied(model, rows, data, paths, clip):
    """``(u_{k+1} − u_k + γ(∇K + Σ clip ∇v))/√(2γ)`` of paths ``(chains, steps, p)`` that begin at 0."""
    sites = read(model, rows, n=N).sites
    before = np.concatenate([np.zeros_like(paths[:, :1]), paths[:, :-1]], axis=1)
    with jax.enable_x64(True):
        columns = {name: jnp.asarray(column)[:, None] for name, column in data.items()}

        def drift(theta):
            prior = jax.grad(lambda at: terms(model, sites, {n: c[0] for n, c in columns.items()}, at)[0])
            row = jax.grad(lambda at, one: terms(model, sites, one, at)[1])
            each = jax.vmap(row, (None, 0))(theta, columns)
            shrink = jnp.minimum(1.0, clip / jnp.linalg.norm(each, axis=1, keepdims=True))
            return prior(theta) + (each * shrink).sum(axis=0)

        total = np.asarray(jax.jit(jax.vmap(drift))(jnp.asarray(before.reshape(-1, before.shape[-1]))))
    return (paths - before + STEP * total.reshape(paths.shape)) / np.sqrt(2 * STEP)


@pytest.mark.long
@pytest.mark.parametrize("model", OUTCOMES, ids=lambda model: model.__name__)
def test_a_clipped_run_makes_the_steps_of_numpyros_density(model, rng):
    """A correct library fails one of them with probability below 1e-5."""
    rows = pmc.Rows(X=pmc.Box((0.3, 0.3), (1.5, 1.5)), y=OUTCOMES[model])
    # Rows that pull in one direction, so that what a clip takes off shows.
    data = draw_rows(rows, N, rng)
    data["y"] = np.full_like(data["y"], OUTCOMES[model].interval()[1])
    driver = pmc.PrivateMCMC(
        pmc.PrivateULA(model, step_size=STEP, clip=CLIP),
        rows=rows,
        target=pmc.Target(epsilon=30.0, delta=1e-6),
        release="path",
        num_steps=STEPS,
        num_chains=CHAINS,
        guarantee="run",
        n=N,
        progress_bar=False,
    )
    driver.run(**data)
    assert driver.statement.verify() and driver.statement.epsilon(1e-6) <= 30.0
    paths = unconstrained(read(model, rows, n=N), driver.released.samples)
    assert paths.shape[:2] == (CHAINS, STEPS)
    assert not not_standard(implied(model, rows, data, paths, CLIP), 1e-6)
    assert not_standard(implied(model, rows, data, paths, np.inf), 1e-6)
