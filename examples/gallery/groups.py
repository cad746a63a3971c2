# %% [markdown]
# # A hierarchy of groups
# An effect for each of eight public groups, pooled around a common mean. Each row is one person. The group
# of a person is as private as the rest of the row.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import groups as model
from private_mcmc.models import groups_rows

n, rng = 3_000, np.random.default_rng(0)
X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))]) / 3**0.5
group = rng.integers(0, 8, n)
effect = rng.normal(-0.5, 0.5, 8)
y = rng.binomial(1, 1 / (1 + np.exp(-X @ [0.0, 2.0, -1.0] - effect[group])))

rows = groups_rows(3, number=8)

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"X": X, "group": group, "y": y})

# %% Picture
study.forest("w", "mean", "effect")
