# %% [markdown]
# # A smooth curve: Gaussian processes
# A full Gaussian process couples all rows through one covariance. One row's gradient cannot be separated
# from the others', and preflight refuses the model without any data. Its Hilbert-space approximation
# (Solin, Särkkä 2020) is affine in a few weights and can be run.

# %% The full process is refused
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from study import Study

import private_mcmc as pmc
from private_mcmc.models import spline as model
from private_mcmc.models import spline_rows


def full(x, y=None):
    covariance = jnp.exp(-2 * (x[:, None] - x) ** 2) + 0.01 * jnp.eye(len(x))
    f = numpyro.sample("f", dist.MultivariateNormal(0.0, covariance))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=f), obs=y)


rows = spline_rows()  # a covariate in [-1, 1] and a binary outcome
try:
    pmc.preflight(full, rows, pmc.Target(epsilon=3.0, delta=1e-5), n=20_000)
except pmc.UnsupportedModel as refused:
    print(refused)

# %% Rows
n, rng = 3_000, np.random.default_rng(0)
x = rng.uniform(-1, 1, n)
y = rng.binomial(1, 1 / (1 + np.exp(-np.sin(3 * x))))

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"x": x, "y": y})

# %% Picture
study.forest()
