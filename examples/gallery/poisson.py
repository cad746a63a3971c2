# %% [markdown]
# # Poisson regression
# Counts with a log link. The gradient of a row grows with its predicted rate. The largest count is
# declared.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import counts_rows
from private_mcmc.models import poisson as model

n, rng = 5_000, np.random.default_rng(0)
X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))]) / 3**0.5
y = rng.poisson(np.exp(X @ [1.0, 1.0, -1.0]))

rows = counts_rows(3, largest=20)  # a tighter largest count is less noise

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"X": X, "y": y})

# %% Picture
study.forest("w")
