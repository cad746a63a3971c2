"""Replays: a path leaves, once the gradient of NumPyro's own density is taken off, the declared noise."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import private_mcmc as pmc
from private_mcmc.kernels import PrivateULA
from private_mcmc.kernels.langevin import PrivateSGLD
from tests.examples_of_models import linear as line
from tests.soundness.front_door.resumed import Resumed
from tests.soundness.front_door.setup import FAILURE, FAR, SEEDED, Attempt, driver, seeded, states
from tests.soundness.replay import implied_noise, not_drawn_anew, not_standard, repeated
from tests.soundness.sweep.zoo import ZOO, mean

_LOGISTIC = ZOO["logistic"]
_PEOPLE = {"X": np.array([[0.9, 0.3], [0.0, -1.0], [0.1, 0.05], [0.6, -0.6]]), "y": np.array([1, 0, 0, 1])}
_LINE = {"X": _PEOPLE["X"], "y": np.array([30.0, -3.0, 0.05, 8.0])}
_LINEAR_ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Box(-50.0, 50.0))


def path_replayed(
    model: Any, rows: pmc.Rows, data: Any, clip: float, step: float = 0.3
) -> Callable[[], Attempt]:
    """Two coefficients, 128 chains of 16 steps; not from 0, where NumPyro's Bernoulli density has a kink."""
    start = np.array([0.1, 0.2])

    def make() -> Attempt:
        mcmc = driver(
            PrivateULA(model, step_size=step, clip=clip),
            rows,
            4,
            num_steps=16,
            num_chains=128,
            execution=replace(SEEDED, init_params=start),
        )

        def attempt(seed: int) -> list[str]:
            mcmc.run(rng_key=seeded(seed), **data)
            noise = implied_noise(model, "w", data, states(mcmc, "w"), step_size=step, clip=clip, start=start)
            return not_standard(noise, FAILURE) + repeated(noise.reshape(-1, 2))

        return attempt

    return make


def states_on_the_grid() -> Attempt:
    mcmc = driver(PrivateULA(mean, step_size=0.1, clip=1.0), FAR, 1, num_steps=8)

    def attempt(seed: int) -> list[str]:
        mcmc.run(rng_key=seeded(seed), y=np.array([3.0]))
        multiples = states(mcmc, "mu") / mcmc.released.grid
        off = int(np.sum(multiples != np.rint(multiples)))
        return [f"{off} states off the grid"] if off else []

    return attempt


def batches_drawn_anew() -> Attempt:
    """One row that pushes 18 noise sds at every step it is in: who was drawn can be read off the path."""
    rate, step, clip = 0.3, 0.1, 25.0
    mcmc = driver(
        PrivateSGLD(mean, step_size=step, clip=clip, rate=rate), FAR, 1, num_steps=64, num_chains=16
    )

    def attempt(seed: int) -> list[str]:
        mcmc.run(rng_key=seeded(seed), y=np.array([50.0]))
        nobody = np.zeros((64, 1))
        residual = implied_noise(
            mean, "mu", {"y": np.array([50.0])}, states(mcmc, "mu"), step_size=step, clip=clip, weights=nobody
        )
        return not_drawn_anew(residual[..., 0] > 9, rate, FAILURE)

    return attempt


def resumed_is_the_same_run() -> Attempt:
    step, clip = 0.3, 0.2

    def make(books: pmc.Bookkeeping) -> pmc.PrivateMCMC:
        kernel = PrivateULA(_LOGISTIC.model, step_size=step, clip=clip)
        return driver(kernel, _LOGISTIC.rows, 4, num_steps=16, num_chains=64, bookkeeping=books)

    runs = Resumed(make)

    def attempt(seed: int) -> list[str]:
        paths = states(runs.run(_PEOPLE, seeded(seed), 8), "w")
        noise = implied_noise(_LOGISTIC.model, "w", _PEOPLE, paths, step_size=step, clip=clip)
        return not_standard(noise, FAILURE) + repeated(noise.reshape(-1, 2))

    return attempt


linear_path = path_replayed(line, _LINEAR_ROWS, _LINE, 1.0)
logistic_path = path_replayed(_LOGISTIC.model, _LOGISTIC.rows, _PEOPLE, 0.6, 1.0)
