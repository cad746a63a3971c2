"""Audits: the lower bounds of many runs on two adjacent data sets stay below the claim."""

from typing import Any

import numpy as np
import numpyro.distributions as dist

import private_mcmc as pmc
from private_mcmc.auditing import Mechanism, Pair
from private_mcmc.auditing.mechanism import keys
from private_mcmc.kernels import AnisotropicLangevin, LangevinKernel, PrivateULA
from private_mcmc.kernels.langevin import PrivateSGLD
from tests.examples_of_models import linear
from tests.soundness.attacks import ChainAttacks, chain_mechanism
from tests.soundness.front_door.resumed import Resumed
from tests.soundness.front_door.setup import FAR, Attempt, audited, driver, far_apart
from tests.soundness.sweep.zoo import mean
from tests.zoo.models import one_number


def declared(kernel: LangevinKernel, **others: Any) -> Mechanism:
    """A path of far-apart rows, unless something else is said."""
    usual: dict[str, Any] = {"rows": FAR, "target": pmc.Target(1.0, 1e-5), "release": "path"}
    return chain_mechanism(kernel, **(usual | others))


wide_mean = one_number(lambda t: dist.Normal(t, 1.0), dist.Normal(0, 2.5))


def last_state() -> Attempt:
    """One clipped row under a wide prior: the claimed m is exact, whatever makes it smaller is refuted."""
    mechanism = declared(PrivateULA(wide_mean, step_size=0.2, clip=0.7), release="last", num_steps=60, n=1)
    return audited(mechanism, far_apart(0), num_runs=20_000)


def path_of_the_first_row() -> Attempt:
    mechanism = declared(PrivateULA(mean, step_size=0.1, clip=1.5), num_steps=6, n=3)
    return audited(mechanism, far_apart(0, 3), num_runs=2_000)


def path_of_rows_below_the_clip() -> Attempt:
    mechanism = declared(PrivateULA(mean, step_size=0.1, clip=1.5), num_steps=6, n=1)
    return audited(mechanism, Pair({"y": np.array([50.0])}, {"y": np.array([0.1])}), num_runs=2_000)


def path_of_batches() -> Attempt:
    """Batches that are as small as is worth most to the claim, pushes of a little more than the noise."""
    kernel, target = (
        PrivateSGLD(mean, step_size=0.1, clip=0.7, rate=0.13),
        pmc.Target(1.0, 1e-5, "add_remove"),
    )
    mechanism = declared(kernel, target=target, num_steps=16, n=2)
    pair = Pair({"y": np.array([0.0, 50.0])}, {"y": np.array([0.0])})
    return audited(mechanism, pair, num_runs=30_000, at=(2.0, 0.01))


def path_of_clipped_coordinates() -> Attempt:
    """One row that pulls at the quieter of two coordinates alone, as hard as it may."""
    clips, X = (4.0, 0.4), np.array([[0.0, 1.0]])
    kernel = AnisotropicLangevin(linear, step_size=0.05, clips=clips, noise=clips)
    rows = pmc.Rows(X=pmc.Box([-1.0, -1.0], [1.0, 1.0]), y=pmc.Box(-50.0, 50.0))
    mechanism = declared(kernel, rows=rows, num_steps=4, n=1)
    pair = Pair({"X": X, "y": np.array([50.0])}, {"X": X, "y": np.array([-50.0])})
    return audited(mechanism, pair, num_runs=4_000)


def path_of_a_resumed_run() -> Attempt:
    kernel = PrivateULA(mean, step_size=0.1, clip=1.5)
    one = driver(kernel, FAR, 1, num_steps=16).decide(1)
    width = 500
    attacks = ChainAttacks(one.reading, one.schedule, np.zeros(1))

    def make(books: pmc.Bookkeeping) -> pmc.PrivateMCMC:
        return driver(kernel, FAR, 1, num_steps=16, num_chains=width, bookkeeping=books)

    runs = Resumed(make)

    def draw(data: Any, count: int, seed: np.random.SeedSequence) -> np.ndarray:
        released = [runs.run(data, key, 8).released for key in keys(seed, -(-count // width))]
        found = [np.asarray(each.samples["mu"]).reshape(width, -1) for each in released]
        return np.concatenate(found)[:count]

    pair = Pair({"y": np.array([50.0])}, {"y": np.array([0.1])})
    return audited(Mechanism("resumed path", one.statement, draw, attacks), pair, num_runs=1_000)
