"""Exact posterior draws for the soundness sweep: preflight's certificates under attack."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from private_mcmc.auditing.mechanism import DataSet, FloatArray
from private_mcmc.domains import Binary, Box, Categories, Counts, Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.model.synthetic import PublicRow
from private_mcmc.preflight.verdict import preflight
from private_mcmc.target import Adjacency, Target
from tests.soundness.attacks import PairedMechanism
from tests.soundness.sweep.noised import Ends, edge_pair
from tests.soundness.sweep.zoo import mean
from tests.zoo.models import one_number

_TARGET_EPSILON, _TARGET_DELTA = 1.5, 1e-3
_NUM_ROWS = 2
_TEMPER = 0.8

# Rows, temper, generator and number of runs to exact draws of the tempered posterior, shape (runs, d).
Sampler = Callable[[FloatArray, float, np.random.Generator, int], FloatArray]


@dataclass(frozen=True)
class ConjugateModel:
    """A model whose tempered posterior can be drawn from exactly, and the ends of its row domain."""

    model: Callable[..., Any]
    rows: Rows
    draws: Sampler
    ends: Ends
    others: PublicRow


def _ends(first: float, second: float) -> Ends:
    return {"y": np.asarray(first)}, {"y": np.asarray(second)}


MODELS = {
    "Normal mean": ConjugateModel(
        mean,
        Rows(y=Box(-1.0, 1.0)),
        lambda y, w, rng, runs: rng.normal(
            w * y.sum() / (1 + w * len(y)), (1 + w * len(y)) ** -0.5, (runs, 1)
        ),
        _ends(1.0, -1.0),
        {"y": np.asarray(0.0)},
    ),
    "coin": ConjugateModel(
        one_number(dist.Bernoulli, dist.Beta(3.0, 3.0)),
        Rows(y=Binary()),
        lambda y, w, rng, runs: rng.beta(3 + w * y.sum(), 3 + w * (len(y) - y.sum()), (runs, 1)),
        _ends(1, 0),
        {"y": np.asarray(1)},
    ),
    "categories": ConjugateModel(
        one_number(dist.Categorical, dist.Dirichlet(jnp.full(3, 3.0))),
        Rows(y=Categories(3)),
        lambda y, w, rng, runs: rng.dirichlet(3 + w * np.bincount(y.astype(int), minlength=3), runs),
        _ends(0, 1),
        {"y": np.asarray(1)},
    ),
    "counts": ConjugateModel(
        one_number(dist.Poisson, dist.Gamma(3.0, 1.0)),
        Rows(y=Counts(2)),
        lambda y, w, rng, runs: rng.gamma(3 + w * y.sum(), 1 / (1 + w * len(y)), (runs, 1)),
        _ends(2, 0),
        {"y": np.asarray(0)},
    ),
}


def posterior_mechanism(name: str, adjacency: Adjacency) -> PairedMechanism:
    """One exact draw of the tempered posterior of ``MODELS[name]``, with preflight's best certificate.

    Raises:
        DeclarationError: where preflight certifies nothing.
    """
    found = MODELS[name]
    target = Target(_TARGET_EPSILON, _TARGET_DELTA, adjacency)
    proved = preflight(found.model, found.rows, target, n=_NUM_ROWS, temper=_TEMPER).certificates
    if not proved:
        raise DeclarationError(f"preflight certifies nothing of the posterior of {name!r} under {adjacency}.")

    def runs(data: DataSet, number: int, seed: np.random.SeedSequence) -> FloatArray:
        return found.draws(np.asarray(data["y"]), _TEMPER, np.random.default_rng(seed), number)

    pair = edge_pair(found.ends, found.others, _NUM_ROWS - 1, adjacency)
    return PairedMechanism(f"posterior of {name}", proved[0], runs, pairs=lambda: (pair,))
