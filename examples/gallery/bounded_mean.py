# %% [markdown]
# # The mean of a bounded number
# The smallest model there is. It is conjugate, so that preflight can compare the exact posteriors of all
# adjacent data sets. Here it certifies the posterior.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import bounded_mean as model
from private_mcmc.models import bounded_mean_rows

n, rng = 5_000, np.random.default_rng(0)
y = rng.normal(0.7, 1.0, n)

rows = bounded_mean_rows(largest=5.0)

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"y": y})

# %% Picture
study.forest("mean")
