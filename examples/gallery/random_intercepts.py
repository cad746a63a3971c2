# %% [markdown]
# # A random intercept for each person
# Several rows about one person: the *person*, with all rows, is what is protected. Their intercepts are
# integrated out of the model, and what persons share is released.

# %% Rows
import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import private_mcmc as pmc


def model(X, patient, patients, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("patients", patients):
        u = numpyro.sample("u", dist.Normal(0, spread))
    with numpyro.plate("rows", jnp.shape(X)[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + u[patient]), obs=y)


n, visits, rng = 1_000, 3, np.random.default_rng(0)
patient = np.repeat(np.arange(n), visits)
X = np.column_stack([np.ones(n * visits), rng.uniform(-1, 1, n * visits)]) / 2**0.5
u = rng.normal(0, 1.0, n)
y = rng.binomial(1, 1 / (1 + np.exp(-X @ [0.5, 1.5] - u[patient])))

rows = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary(), patient=pmc.Person(at_most=visits))
target = pmc.Target(epsilon=3.0, delta=1e-5)

# %% Preflight
public = {"patients": n}
report = pmc.preflight(model, rows, target, n=n, model_args=public)
print(report.verdict, *report.reasons, sep="\n")

# %% Plan
plan = pmc.plan(model, rows, target, n=n, guarantee="run", model_args=public)
print(f"expected error of the means: {plan.prediction.rms:.2f} {plan.prediction.unit}")

# %% Run
mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
mcmc.run(X=X, y=y, patient=patient)
print(f"ε = {mcmc.statement.epsilon(target.delta):.3g} at δ = {target.delta:g}")

# %% Beside the posterior without privacy
exact = MCMC(NUTS(model), num_warmup=200, num_samples=200, progress_bar=False)
exact.run(jax.random.key(0), X, patient, n, y=y)
both = [mcmc.to_arviz(), az.from_dict(exact.get_samples(group_by_chain=True))]
az.plot_forest(both, model_names=["private", "not private"], combined=True, var_names=["w", "spread"])
