# %% [markdown]
# # An A/B test
# A binary outcome (bought or not) under two variants of a page. The parameters are a base rate and a lift,
# both on the log odds.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import ab_test as model
from private_mcmc.models import ab_test_rows

n, rng = 10_000, np.random.default_rng(0)
variant = rng.integers(0, 2, n)
y = rng.binomial(1, 1 / (1 + np.exp(1.5 - 0.3 * variant)))

rows = ab_test_rows()

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"variant": variant, "y": y})

# %% Picture
study.forest("base", "lift")
