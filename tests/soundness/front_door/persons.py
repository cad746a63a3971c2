"""Persons with several rows: replays of their paths, and audits on pairs of persons all of whose rows differ.

Data sets are given to the driver as a file has them: rows of all persons mixed, identifiers unsorted.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import private_mcmc as pmc
from private_mcmc.auditing import Mechanism, Pair
from private_mcmc.auditing.mechanism import keys
from private_mcmc.domains.columns import PRESENT
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.kernels import PrivateULA
from private_mcmc.kernels.langevin import PrivateSGLD
from tests.examples_of_models import linear as line
from tests.soundness.attacks import ChainAttacks
from tests.soundness.front_door.setup import FAILURE, SEEDED, Attempt, audited, driver, seeded, states
from tests.soundness.replay import implied_noise, not_drawn_anew, not_standard, row_gradients
from tests.soundness.sweep.zoo import mean

_PEOPLE = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Box(-50.0, 50.0), who=pmc.Person(at_most=3))
# Of five rows of "d", all alike, any three are kept; "c" has one row, and one row has no identifier.
_WHO = np.array(["d", "a", "", "d", "b", "d", "a", "c", "d", "b", "d", "a"], dtype=object)
_X = np.array([[0.3, 0.9]] * 12)
_X[[1, 2, 4, 6]] = [[0.9, 0.3], [1.0, 0.0], [0.0, -1.0], [0.1, 0.05]]
_X[[7, 9, 11]] = [[0.6, -0.6], [-0.8, 0.1], [-0.2, 0.7]]
_Y = np.array([9.0, 30.0, 50.0, 9.0, -3.0, 9.0, 0.05, 8.0, 9.0, 4.0, 9.0, -20.0])


def path_of_persons() -> Attempt:
    """What each person adds is the sum of its rows' own gradients, by NumPyro's density, clipped as one."""
    step, clip, start = 0.3, 2.0, np.array([0.1, 0.2])
    mcmc = driver(
        PrivateULA(line, step_size=step, clip=clip),
        _PEOPLE,
        7,
        num_steps=16,
        num_chains=128,
        execution=replace(SEEDED, init_params=start),
    )

    def attempt(seed: int) -> list[str]:
        mcmc.run(rng_key=seeded(seed), X=_X, y=_Y, who=_WHO)
        paths = states(mcmc, "w")
        before = np.concatenate([np.broadcast_to(start, (128, 1, 2)), paths[:, :-1]], axis=1)
        prior, rows = row_gradients(line, "w", {"X": _X, "y": _Y}, before.reshape(-1, 2))
        total = np.zeros_like(prior)
        for name, rows_kept in {"a": 3, "b": 2, "c": 1, "d": 3}.items():
            own = name == _WHO
            person = rows[:, own].sum(axis=1) * (rows_kept / own.sum())
            total += person * np.minimum(1.0, clip / np.linalg.norm(person, axis=1, keepdims=True))
        drift = (prior + total).reshape(paths.shape)
        return not_standard((paths - before + step * drift) / np.sqrt(2 * step), FAILURE)

    return attempt


def batches_are_of_persons() -> Attempt:
    """One person of eight rows that pushes 18 noise sds with any of them: all are in a batch, or none."""
    rate, step, clip = 0.3, 0.1, 25.0
    rows = pmc.Rows(y=pmc.Box(-50.0, 50.0), who=pmc.Person(at_most=8))
    mcmc = driver(
        PrivateSGLD(mean, step_size=step, clip=clip, rate=rate), rows, 1, num_steps=64, num_chains=16
    )
    y, who = np.full(8, 50.0), np.full(8, "a", dtype=object)

    def attempt(seed: int) -> list[str]:
        mcmc.run(rng_key=seeded(seed), y=y, who=who)
        nobody = np.zeros((64, 8))
        residual = implied_noise(
            mean, "mu", {"y": y}, states(mcmc, "mu"), step_size=step, clip=clip, weights=nobody
        )
        return not_drawn_anew(residual[..., 0] > 9, rate, FAILURE)

    return attempt


def _file(data: Mapping[str, Any], extra: int, first: str) -> dict[str, np.ndarray]:
    """Persons ``(n, k)`` as a file in the order of its identifiers, text; ``first`` is the differing one's.

    Persons with all ``k`` rows have ``extra`` more of each of them, at the end of their own.
    """
    here = np.asarray(data.get(PRESENT, np.ones(len(data["y"]), bool)))
    own = (np.asarray(data[OWN_ROWS]) > 0) & here[:, None]
    names = [first, *(f"m{i}" for i in range(1, len(own)))]
    rows = [
        (names[i], value)
        for i in range(len(own))
        for value in [*data["y"][i][own[i]], *(list(data["y"][i]) * extra if own[i].all() else [])]
    ]
    who, y = zip(*sorted(rows, key=lambda row: row[0]), strict=True)
    return {"y": np.array(y), "who": np.array(who, dtype=object)}


def _mechanism(
    kernel: Any, n: int, at_most: int, adjacency: Any, num_steps: int, *, extra: int = 0, other: str = "a"
) -> Mechanism:
    """Many chains of one run on a file of persons; the second data set's first person is called ``other``."""
    rows = pmc.Rows(y=pmc.Box(-50.0, 50.0), who=pmc.Person(at_most=at_most))
    target = pmc.Target(1e6, 1 - 1e-6, adjacency)

    def of(chains: int) -> pmc.PrivateMCMC:
        return driver(kernel, rows, n, num_steps=num_steps, num_chains=chains, target=target)

    decision = of(1).decide(n)
    width = 500
    many = of(width)

    def draw(data: Mapping[str, Any], count: int, seed: np.random.SeedSequence) -> np.ndarray:
        first = "a" if np.min(np.asarray(data["y"])[0]) > 0 else other
        found = []
        for key in keys(seed, -(-count // width)):
            many.run(rng_key=key, **_file(data, extra, first))
            found.append(np.asarray(many.released.samples["mu"]).reshape(width, -1))
        return np.concatenate(found)[:count]

    attacks = ChainAttacks(decision.reading, decision.schedule, np.zeros(1))
    return Mechanism("persons", decision.statement, draw, attacks)


def _pair(n: int, at_most: int, present: bool = True) -> Pair:
    """The first person has all rows at one end, or one at the other, or none; the others' rows are alike."""
    y = np.full((n, at_most), -5.0)
    y[0], own = 50.0, np.ones((n, at_most), np.int64)
    other, fewer = y.copy(), own.copy()
    other[0], fewer[0, 1:] = -50.0, 0
    second = {"y": other, OWN_ROWS: fewer}
    if not present:
        second = {"y": y, OWN_ROWS: own, PRESENT: np.arange(n) > 0}
    return Pair({"y": y, OWN_ROWS: own}, second)


def path_of_a_person() -> Attempt:
    """All rows differ and there are more than are kept, in a file that begins with them."""
    mechanism = _mechanism(PrivateULA(mean, step_size=0.1, clip=1.5), 3, 4, "replace_one", 6, extra=2)
    return audited(mechanism, _pair(3, 4), num_runs=2_000)


def path_of_batches_of_persons() -> Attempt:
    """Rows that saturate the clip one by one: any one of them in a batch would do."""
    kernel = PrivateSGLD(mean, step_size=0.1, clip=0.7, rate=0.13)
    mechanism = _mechanism(kernel, 2, 8, "zero_out", 8)
    return audited(mechanism, _pair(2, 8, present=False), num_runs=3_000, at=(1.0, 0.01))
