# %% [markdown]
# # A random intercept for each person
# Several rows belong to one person, and the *person*, with all rows, is protected. The intercepts of the
# persons are integrated out of the model. The parameters that all persons share are released.

# %% Rows
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from study import Study

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

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"X": X, "patient": patient, "y": y}, n=n, public={"patients": n})

# %% Picture
study.forest("w", "spread")
