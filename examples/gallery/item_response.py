# %% [markdown]
# # Item response
# Which person answered which item correctly: abilities and difficulties on one scale. Here one *answer* is
# protected. To protect a person with all answers, declare `pmc.Person` and integrate abilities out, as the
# page on persons shows.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import item_response as model
from private_mcmc.models import item_response_rows

n, people, items, rng = 3_000, 20, 5, np.random.default_rng(0)
person, item = rng.integers(0, people, n), rng.integers(0, items, n)
ability, difficulty = rng.normal(size=people), rng.normal(size=items)
y = rng.binomial(1, 1 / (1 + np.exp(difficulty[item] - ability[person])))

rows = item_response_rows(people, items)

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"person": person, "item": item, "y": y})

# %% Picture
study.forest("difficulty")
