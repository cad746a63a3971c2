# %% [markdown]
# # Softmax regression
# One of three categories, with a vector of weights for each. There are several predictors, so the plan is
# the general one. Rows depend on differences of weights only. The other direction has the prior's width in
# both posteriors.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import softmax as model
from private_mcmc.models import softmax_rows

n, rng = 5_000, np.random.default_rng(0)
X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))]) / 3**0.5
W = np.array([[0.5, 0, 0], [1, 0, -1], [-1, 1, 0]])
y = (X @ W + rng.gumbel(size=(n, 3))).argmax(1)

rows = softmax_rows(3, classes=3)

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"X": X, "y": y})

# %% Picture
study.forest("w")
