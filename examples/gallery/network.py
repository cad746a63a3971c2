# %% [markdown]
# # A small network
# Three hidden units. The posterior has one copy for every order and sign of the units, so the weights
# themselves cannot be compared. The predictions of the private draws are compared with those of the exact
# ones: where outcomes at draws are unlike those near the path, of which alone something is released,
# intervals are as wide as the prior's.

# %% Rows
import numpy as np
from study import Study

from private_mcmc.models import network as model
from private_mcmc.models import network_rows

n, rng = 3_000, np.random.default_rng(0)
X = np.column_stack([np.ones(n), rng.uniform(-1, 1, (n, 2))]) / 3**0.5
y = rng.binomial(1, 1 / (1 + np.exp(-3 * np.sin(3 * X[:, 1]) * X[:, 2])))

rows = network_rows(3)

# %% Verdict, plan, run, and NUTS beside it
study = Study(model, rows, {"X": X, "y": y})

# %% Picture
grid = np.array([[1, a, b] for a in (-0.8, 0, 0.8) for b in (-0.8, 0, 0.8)]) / 3**0.5


def logits(draws):
    hidden = np.tanh(np.einsum("xd,sdh->sxh", grid, draws["first"]))
    return {"logit": np.einsum("sxh,sh->sx", hidden, draws["last"])}


study.both = [logits(study.mcmc.get_samples()), logits(study.exact.get_samples())]
study.forest()
