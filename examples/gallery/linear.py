# %% [markdown]
# # Linear regression
# A numeric outcome with errors of known scale. The gradient of a row grows with its error, so it is
# clipped. The plan chooses the clip with the smallest cost.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import linear as model
from private_mcmc.models import linear_rows

n, rng = 5_000, np.random.default_rng(0)
X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))]) / 3**0.5
y = X @ [0.5, 1.0, -1.0] + rng.normal(size=n)

rows = linear_rows(3, largest=3.0)  # an outcome that was scaled to lie within ±3

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"X": X, "y": y})

# %% Picture
study.forest("w")
