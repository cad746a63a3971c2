"""DP-SGD (Abadi et al. 2016) with full batches: clipped gradients, Gaussian noise, momentum, averaging."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.datasets import Dataset
from benchmarks.datasets.models import Regression
from benchmarks.peers.method import Budget, Runs, Unavailable, only_logistic, seeds
from private_mcmc.accounting import gdp


@dataclass(frozen=True)
class NoisyGradients:
    """``T`` noisy gradients of the log posterior under an exact Gaussian DP account, ``σ = 2C√T/m``.

    Full batches are the most accurate for a given number of steps; the prior's gradient carries no noise.
    The step is ``rate / L`` with ``L = n/4`` the smoothness that every data set of the domain has. The
    defaults were the best on the synthetic data set, at ε = 1 and 3, of 300 to 3,000 steps, two rates and
    five clips.
    """

    steps: int = 1_000
    rate: float = 1.0
    momentum: float = 0.9
    clip: float = 0.5

    name = "DP-SGD"
    adjacency = "replace_one"
    about = "full-batch noisy clipped gradients, momentum, mean of the second half of the iterates; (ε, δ)"

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """All runs at once."""
        only_logistic(dataset, "its step size rests on a bounded curvature.")
        try:
            import optax
        except ModuleNotFoundError as missing:
            raise Unavailable("optax is missing: pip install '.[bench]'.") from missing
        noise_sd = 2 * self.clip * math.sqrt(self.steps) / gdp.budget(budget.epsilon, budget.delta)
        chosen = seeds(self, dataset, budget, runs)
        with jax.enable_x64(True):
            keys = jax.vmap(jax.random.key)(jnp.asarray(chosen))
            rows = tuple(map(jnp.asarray, dataset.distinct))
            rate = self.rate / (dataset.n / 4 + dataset.regression.prior_sd**-2)
            optimiser = optax.sgd(rate, momentum=self.momentum)
            estimate = jax.jit(partial(_descend, self, optimiser, dataset.regression))
            points = np.asarray(jax.lax.map(lambda key: estimate(key, noise_sd, rows), keys))
        return Runs(tuple(point[None] for point in points), {"noise sd": noise_sd})


def _descend(
    settings: NoisyGradients,
    optimiser: Any,
    regression: Regression,
    key: jax.Array,
    noise_sd: Any,
    rows: tuple[jax.Array, ...],
) -> jax.Array:
    X, y, counts = rows
    norms = jnp.maximum(jnp.linalg.norm(X, axis=1), 1e-300)
    slope_of = jax.grad(lambda eta: -jnp.sum(regression.likelihood(eta).log_prob(y)))

    def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        w, state = carry
        bound = settings.clip / norms
        slopes = jnp.clip(slope_of(X @ w), -bound, bound)
        noise = noise_sd * jax.random.normal(key, w.shape)
        gradient = X.T @ (counts * slopes) + noise + w / regression.prior_sd**2
        update, state = optimiser.update(gradient, state, w)
        w = w + update
        return (w, state), w

    start = jnp.zeros(X.shape[1])
    _, path = jax.lax.scan(step, (start, optimiser.init(start)), jax.random.split(key, settings.steps))
    return jnp.mean(path[settings.steps // 2 :], axis=0)
