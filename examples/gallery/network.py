# %% [markdown]
# # A small network
# Three hidden units. Its posterior has as many copies as the units have orders and signs, so that weights
# say nothing: what the private draws predict is compared with what the exact ones do.

# %% Rows
import arviz as az
import jax
import numpy as np
from numpyro.infer import MCMC, NUTS

import private_mcmc as pmc
from private_mcmc.models import network as model
from private_mcmc.models import network_rows

n, rng = 3_000, np.random.default_rng(0)
X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))]) / 3**0.5
y = rng.binomial(1, 1 / (1 + np.exp(-3 * np.sin(3 * X[:, 1]) * X[:, 2])))

rows = network_rows(3)
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
grid = np.array([[1, a, b] for a in (-0.8, 0, 0.8) for b in (-0.8, 0, 0.8)]) / 3**0.5


def logits(draws):
    hidden = np.tanh(np.einsum("xd,sdh->sxh", grid, draws["first"]))
    return az.from_dict(posterior={"logit": np.einsum("sxh,sh->sx", hidden, draws["last"])[None]})


both = [logits(mcmc.get_samples()), logits(exact.get_samples())]
az.plot_forest(both, model_names=["private", "not private"], combined=True)
