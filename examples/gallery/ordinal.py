# %% [markdown]
# # Ordinal regression
# Three ordered categories: a latent number is cut at known points.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import ordinal as model
from private_mcmc.models import ordinal_rows

n, rng = 3_000, np.random.default_rng(0)
X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))]) / 3**0.5
latent = X @ [0.5, 1.5, -1.0] + rng.logistic(size=n)
y = np.digitize(latent, [-1.0, 1.0])

rows = ordinal_rows(3)

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"X": X, "y": y})

# %% Picture
study.forest("w")
