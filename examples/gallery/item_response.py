# %% [markdown]
# # Item response
# Who answered which item right: abilities and difficulties on one scale. Here an *answer* is what is
# protected; where a student is, declare `pmc.Person` and integrate abilities out, as the page on persons
# shows.

# %% Rows
import arviz as az
import jax
import numpy as np
from numpyro.infer import MCMC, NUTS

import private_mcmc as pmc
from private_mcmc.models import item_response as model
from private_mcmc.models import item_response_rows

n, people, items, rng = 3_000, 20, 5, np.random.default_rng(0)
person, item = rng.integers(0, people, n), rng.integers(0, items, n)
ability, difficulty = rng.normal(size=people), rng.normal(size=items)
y = rng.binomial(1, 1 / (1 + np.exp(difficulty[item] - ability[person])))

rows = item_response_rows(people, items)
target = pmc.Target(epsilon=3.0, delta=1e-5)

# %% Preflight
report = pmc.preflight(model, rows, target, n=n)
print(report.verdict, *report.reasons, sep="\n")

# %% Plan
plan = pmc.plan(model, rows, target, n=n, guarantee="run")
print(f"expected error of the means: {plan.prediction.rms:.2f} {plan.prediction.unit}")

# %% Run
data = {"person": person, "item": item, "y": y}
mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
mcmc.run(**data)
print(f"ε = {mcmc.statement.epsilon(target.delta):.3g} at δ = {target.delta:g}")

# %% Beside the posterior without privacy
exact = MCMC(NUTS(model), num_warmup=200, num_samples=200, progress_bar=False)
exact.run(jax.random.key(0), **data)
both = [mcmc.to_arviz(), az.from_dict(exact.get_samples(group_by_chain=True))]
az.plot_forest(both, model_names=["private", "not private"], combined=True, var_names=["difficulty"])
