# %% [markdown]
# # Linear regression
# A number for everybody, with errors of known scale. The gradient of a row grows with its error, so that it
# is clipped; which clip costs least is for the plan to say.

# %% Rows
import arviz as az
import jax
import numpy as np
from numpyro.infer import MCMC, NUTS

import private_mcmc as pmc
from private_mcmc.models import linear as model
from private_mcmc.models import linear_rows

n, rng = 5_000, np.random.default_rng(0)
X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))]) / 3**0.5
y = X @ [0.5, 1.0, -1.0] + rng.normal(size=n)

rows = linear_rows(3, largest=3.0)  # an outcome that was scaled to lie within ±3
target = pmc.Target(epsilon=3.0, delta=1e-5)

# %% Preflight
report = pmc.preflight(model, rows, target, n=n)
print(report.verdict, *report.reasons, sep="\n")

# %% Plan
plan = pmc.plan(model, rows, target, n=n, guarantee="run")
print(f"expected error of the means: {plan.prediction.rms:.2f} {plan.prediction.unit}")

# %% Run
data = {"X": X, "y": y}
mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
mcmc.run(**data)
print(f"ε = {mcmc.statement.epsilon(target.delta):.3g} at δ = {target.delta:g}")

# %% Beside the posterior without privacy
exact = MCMC(NUTS(model), num_warmup=200, num_samples=200, progress_bar=False)
exact.run(jax.random.key(0), **data)
both = [mcmc.to_arviz(), az.from_dict(exact.get_samples(group_by_chain=True))]
az.plot_forest(both, model_names=["private", "not private"], combined=True, var_names=["w"])
