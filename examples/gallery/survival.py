# %% [markdown]
# # Survival with censoring
# Exponential times to an event, some of them censored: `event ~ Poisson(time · hazard)` has the same
# likelihood.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import survival as model
from private_mcmc.models import survival_rows

n, rng = 3_000, np.random.default_rng(0)
X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))]) / 3**0.5
until = rng.exponential(1 / np.exp(X @ [-1.0, 1.0, 0.5]))
time, event = np.clip(np.minimum(until, 5.0), 0.01, 5.0), (until < 5.0).astype(int)

rows = survival_rows(3, longest=5.0)  # the study's length is public

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"X": X, "time": time, "event": event})

# %% Picture
study.forest("w")
