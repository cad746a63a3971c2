# %% [markdown]
# # A smooth curve: Gaussian processes
# A full process couples all rows through one covariance: no row's gradient can be told from the others',
# and it is refused from the model alone. Its Hilbert-space approximation (Solin, Särkkä 2020) is affine in
# a few weights.

# %% The full process is refused
import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import private_mcmc as pmc
from private_mcmc.models import spline as model
from private_mcmc.models import spline_rows


def full(x, y=None):
    covariance = jnp.exp(-2 * (x[:, None] - x) ** 2) + 0.01 * jnp.eye(len(x))
    f = numpyro.sample("f", dist.MultivariateNormal(0.0, covariance))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=f), obs=y)


rows = spline_rows()  # a covariate in [-1, 1] and a binary outcome
target = pmc.Target(epsilon=3.0, delta=1e-5)
try:
    pmc.preflight(full, rows, target, n=20_000)
except pmc.UnsupportedModel as refused:
    print(refused)

# %% Preflight
n, rng = 3_000, np.random.default_rng(0)
x = rng.uniform(-1, 1, n)
y = rng.binomial(1, 1 / (1 + np.exp(-np.sin(3 * x))))
report = pmc.preflight(model, rows, target, n=n)
print(report.verdict, *report.reasons, sep="\n")

# %% Plan
plan = pmc.plan(model, rows, target, n=n, guarantee="run")
print(f"expected error of the means: {plan.prediction.rms:.2f} {plan.prediction.unit}")

# %% Run
mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
mcmc.run(x=x, y=y)
print(f"ε = {mcmc.statement.epsilon(target.delta):.3g} at δ = {target.delta:g}")

# %% Beside the posterior without privacy
exact = MCMC(NUTS(model), num_warmup=200, num_samples=200, progress_bar=False)
exact.run(jax.random.key(0), x, y)
both = [mcmc.to_arviz(), az.from_dict(exact.get_samples(group_by_chain=True))]
az.plot_forest(both, model_names=["private", "not private"], combined=True)
