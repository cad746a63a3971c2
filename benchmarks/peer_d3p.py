"""Worker: one update of d3p's private variational inference on a batch; prints the median seconds.

d3p has no clipped gradient apart from its update, which adds an Adam step and noise to it.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from d3p.svi import DPSVI
from numpyro.infer import Trace_ELBO
from numpyro.infer.autoguide import AutoDelta
from numpyro.optim import Adam

CLIP = 0.4


def logistic(X, y, N):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([X.shape[-1]]).to_event(1))
    with numpyro.plate("rows", N, X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def network(X, y, N):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([X.shape[-1], 8]).to_event(2))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([8]).to_event(1))
    with numpyro.plate("rows", N, X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.tanh(X @ a) @ b), obs=y)


def main() -> None:
    kind, rows, dim, repeats = sys.argv[1], *map(int, sys.argv[2:])
    jax.config.update("jax_enable_x64", True)
    model = {"logistic": logistic, "network": network}[kind]
    rng = np.random.default_rng(0)
    X, y = jnp.asarray(rng.normal(size=(rows, dim)) / dim**0.5), jnp.asarray(rng.integers(0, 2, rows))
    svi = DPSVI(
        model, AutoDelta(model), Adam(1e-9), Trace_ELBO(), clipping_threshold=CLIP, dp_scale=1e-9, N=rows
    )
    import d3p.random

    state = svi.init(d3p.random.PRNGKey(0), X, y)
    update = jax.jit(svi.update)
    times = []
    for _ in range(5 * repeats):
        begin = time.perf_counter()
        state, loss = update(state, X, y)
        jax.block_until_ready(loss)
        times.append(time.perf_counter() - begin)
    print(json.dumps(sorted(times)[len(times) // 2]))


if __name__ == "__main__":
    main()
