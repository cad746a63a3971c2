# %% [markdown]
# # A mixture of two normals
# The potential is not convex and a row's gradient has no bound. The posterior has no certificate, and only
# the noise of the run provides privacy. The priors determine which component is which.

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
