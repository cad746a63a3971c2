# %% [markdown]
# # An A/B test
# Two variants of a page, and who bought: a base rate and a lift on the log odds.

# %% Rows
import arviz as az
import jax
import numpy as np
from numpyro.infer import MCMC, NUTS

import private_mcmc as pmc
from private_mcmc.models import ab_test as model
from private_mcmc.models import ab_test_rows

n, rng = 10_000, np.random.default_rng(0)
variant = rng.integers(0, 2, n)
y = rng.binomial(1, 1 / (1 + np.exp(1.5 - 0.3 * variant)))

rows = ab_test_rows()
target = pmc.Target(epsilon=3.0, delta=1e-5)

# %% Preflight
report = pmc.preflight(model, rows, target, n=n)
print(report.verdict, *report.reasons, sep="\n")

# %% Plan
plan = pmc.plan(model, rows, target, n=n, guarantee="run")
print(f"expected error of the means: {plan.prediction.rms:.2f} {plan.prediction.unit}")

# %% Run
data = {"variant": variant, "y": y}
mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
mcmc.run(**data)
print(f"ε = {mcmc.statement.epsilon(target.delta):.3g} at δ = {target.delta:g}")

# %% Beside the posterior without privacy
exact = MCMC(NUTS(model), num_warmup=200, num_samples=200, progress_bar=False)
exact.run(jax.random.key(0), **data)
both = [mcmc.to_arviz(), az.from_dict(exact.get_samples(group_by_chain=True))]
az.plot_forest(both, model_names=["private", "not private"], combined=True, var_names=["base", "lift"])
