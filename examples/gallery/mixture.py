# %% [markdown]
# # A mixture of two normals
# Neither convex nor bounded: no certificate, and only the run's own noise is private. Which component is
# which is settled by the priors.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import bounded_mean_rows
from private_mcmc.models import mixture as model

n, rng = 3_000, np.random.default_rng(0)
y = rng.normal(np.where(rng.random(n) < 0.5, -1.5, 1.5), 1.0)

rows = bounded_mean_rows(largest=5.0)

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"y": y})

# %% Picture
study.forest("low", "high")
