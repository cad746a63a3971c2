"""Runs in d3p's environment: ``d3p_worker.py ROWS.npz TASK.json ANSWER.npz``."""

import json
import sys

import d3p.random
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from d3p.dputil import approximate_sigma
from d3p.minibatch import subsample_batchify_data
from d3p.svi import DPSVI
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoDiagonalNormal

_DRAWS = 1_000


def make_model(task, n):
    def model(X, y=None):
        prior = dist.Normal(0.0, task["prior_sd"]).expand([X.shape[1]]).to_event(1)
        w = numpyro.sample("w", prior)
        predictor = X @ w
        likelihood = {
            "logistic": lambda: dist.Bernoulli(logits=predictor),
            "poisson": lambda: dist.Poisson(jnp.exp(predictor)),
            "linear": lambda: dist.Normal(predictor, task["noise_sd"]),
        }[task["family"]]()
        with numpyro.plate("rows", n, len(X)):
            numpyro.sample("y", likelihood, obs=y)

    return model


def main(rows_path, task_path, answer_path):
    stored = np.load(rows_path)
    rows = jnp.asarray(stored["X"]), jnp.asarray(stored["y"])
    with open(task_path) as file:
        task = json.load(file)
    n, steps = len(rows[1]), task["steps"]
    sigma, _, _ = approximate_sigma(
        task["epsilon"],
        task["delta"],
        task["batch_size"] / n,
        steps,
        tol=1e-2 * task["epsilon"],
        force_smaller=True,
    )
    model = make_model(task, n)
    guide = AutoDiagonalNormal(model)
    svi = DPSVI(
        model,
        guide,
        numpyro.optim.Adam(task["learning_rate"]),
        Trace_ELBO(),
        clipping_threshold=task["clip"],
        dp_scale=float(sigma),
    )
    init_batches, get_batch = subsample_batchify_data(rows, task["batch_size"])

    @jax.jit
    def train(state, batches):
        return jax.lax.fori_loop(
            0, steps, lambda i, state: svi.update(state, *get_batch(i, batches))[0], state
        )

    draws = []
    for run in range(task["runs"]):
        batch_key, init_key = d3p.random.split(d3p.random.PRNGKey(task["seed"] + run), 2)
        _, batches = init_batches(batch_key)
        state = train(svi.init(init_key, *get_batch(0, batches)), batches)
        params = svi.get_params(state)
        posterior = guide.sample_posterior(jax.random.PRNGKey(run), params, sample_shape=(_DRAWS,))
        draws.append(np.asarray(posterior["w"]))
    np.savez(answer_path, draws=np.array(draws), sigma=float(sigma))


if __name__ == "__main__":
    main(*sys.argv[1:])
