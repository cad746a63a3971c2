# %% [markdown]
# # Logistic regression
# A binary outcome and covariates. One row's gradient is at most the radius of its covariates, and the prior
# makes the potential strongly convex. The posterior therefore has a certificate, whatever the number of
# rows.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import logistic as model
from private_mcmc.models import logistic_rows

n, rng = 5_000, np.random.default_rng(0)
X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))]) / 3**0.5
y = rng.binomial(1, 1 / (1 + np.exp(-X @ [-1.0, 2.0, -1.0])))

rows = logistic_rows(3)  # covariates in the unit ball, a binary outcome: public facts about one row

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"X": X, "y": y})

# %% Picture
study.forest("w")
