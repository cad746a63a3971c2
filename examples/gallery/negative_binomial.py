# %% [markdown]
# # Negative binomial regression
# Counts that vary more than Poisson counts, with a known concentration.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import counts_rows
from private_mcmc.models import negative_binomial as model

n, rng = 5_000, np.random.default_rng(0)
X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))]) / 3**0.5
rate = np.exp(X @ [1.0, 1.0, -1.0]) * rng.gamma(2.0, 0.5, n)
y = rng.poisson(rate)

rows = counts_rows(3, largest=30)

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"X": X, "y": y})

# %% Picture
study.forest("w")
