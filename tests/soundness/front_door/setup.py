"""What every check is made of: a driver that runs as a user's would, its seeds and its released states."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import private_mcmc as pmc
from private_mcmc.auditing import Mechanism, Pair, audit
from private_mcmc.auditing.mechanism import keys
from tests.soundness.attacks import deltas

# Probability that a check speaks against a library without faults.
FAILURE = 1e-6

Attempt = Callable[[int], list[str]]
FAR = pmc.Rows(y=pmc.Box(-50.0, 50.0))
ANY = pmc.Target(1e6, 1 - 1e-6)
SEEDED = pmc.Execution(unsafe_seed=True)


@dataclass(frozen=True)
class Check:
    """``make()`` builds drivers and programs with the library as it is then; what it gives is tried."""

    name: str
    make: Callable[[], Attempt]


def driver(kernel: Any, rows: pmc.Rows, n: int, **declared: Any) -> pmc.PrivateMCMC:
    fields = {"target": ANY, "release": "path", "guarantee": "run", "execution": SEEDED, **declared}
    return pmc.PrivateMCMC(kernel, rows=rows, n=n, progress_bar=False, **fields)


def seeded(seed: int) -> jax.Array:
    return keys(np.random.SeedSequence(seed), 1)[0]


def states(mcmc: pmc.PrivateMCMC, site: str) -> np.ndarray:
    """Released states ``(chains, steps, p)``."""
    value = np.asarray(mcmc.released.samples[site])
    return value.reshape(*value.shape[:2], -1)


def audited(
    mechanism: Mechanism, pair: Pair, num_runs: int, at: tuple[float, float] = (1.0, 0.01)
) -> Attempt:
    def attempt(seed: int) -> list[str]:
        where = deltas(mechanism, [at])
        found = audit(mechanism, pair, num_runs=num_runs, delta=where, seed=seed, failure_probability=FAILURE)
        return [f"{c.quantity} at least {c.lower:.3g}, claimed {c.upper:.3g}" for c in found.violations]

    return attempt


def far_apart(place: int, n: int = 1) -> Pair:
    sides = np.zeros((2, n))
    sides[:, place] = 50.0, -50.0
    return Pair({"y": sides[0]}, {"y": sides[1]})
