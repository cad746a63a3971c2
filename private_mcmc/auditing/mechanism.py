"""What an audit attacks: a mechanism that can be run many times on either of two adjacent data sets.

Of a private kernel: chains through the front door, ``PrivateMCMC.run``, run after run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import Statement
from private_mcmc.arguments import arguments_checked
from private_mcmc.domains.columns import PRESENT, holds_person
from private_mcmc.domains.persons import OWN_ROWS, Columns
from private_mcmc.errors import DeclarationError
from private_mcmc.inference import Execution, PrivateMCMC
from private_mcmc.inference.decision import Decision
from private_mcmc.kernels import LangevinKernel
from private_mcmc.kernels.keys import CHACHA20
from private_mcmc.release import Expectations, ReleasedStates
from private_mcmc.schedule import Average, Release
from private_mcmc.target import Adjacency, Target

FloatArray = npt.NDArray[np.float64]
DataSet = Mapping[str, npt.NDArray[np.generic]]
Score = Callable[[FloatArray], FloatArray]

_WANTED = {
    "replace_one": "as many rows in both, all present, of which one differs",
    "zero_out": "equal slots but for one that is empty in one of them (a column 'present', False there)",
    "add_remove": "one of them is the other without one row, the order kept",
}


class Pair(NamedTuple):
    """Two synthetic data sets, columns by name; a column ``present`` marks slots without a row by False."""

    first: DataSet
    second: DataSet
    name: str = "given"

    def differing(self, adjacency: Adjacency) -> _Places:
        """The slot of the differing row in the first and in the second data set, ``None`` where absent.

        What the columns hold in an empty slot does not matter.

        Raises:
            DeclarationError: unless the data sets are adjacent.
        """
        names = sorted(self.first.keys() - {PRESENT})
        if not names or self.second.keys() - {PRESENT} != set(names):
            raise DeclarationError(f"pair {self.name!r}: both data sets need the same columns, at least one.")
        if any(len({len(column) for column in data.values()}) > 1 for data in self[:2]):
            raise DeclarationError(f"pair {self.name!r}: the columns of a data set differ in length.")
        one, two = (_rows(data, names) for data in self[:2])
        places = _removed(one, two) if adjacency == "add_remove" else _changed(one, two, adjacency)
        if places is None:
            raise DeclarationError(
                f"pair {self.name!r}: {len(one)} and {len(two)} rows are not adjacent, "
                f"{adjacency!r} asks for this: {_WANTED[adjacency]}."
            )
        return places


# The numbers of a row, or no row.
_Slots = list[tuple[object, ...] | None]
_Places = tuple[int | None, int | None]


def _rows(data: DataSet, names: list[str]) -> _Slots:
    columns = [np.asarray(data[name]) for name in names]
    flat = [column.reshape(len(column), -1).tolist() for column in columns]
    present = present_slots(data, length(data))
    return [sum(map(tuple, row), ()) if here else None for here, *row in zip(present, *flat, strict=True)]


def _changed(one: _Slots, two: _Slots, adjacency: Adjacency) -> _Places | None:
    slots = list(zip_longest(one, two))
    unequal = [place for place, (here, there) in enumerate(slots) if here != there]
    if adjacency == "zero_out":
        if len(unequal) != 1 or None not in slots[unequal[0]]:
            return None
        place = unequal[0]
        return (None, place) if slots[place][0] is None else (place, None)
    if not slots or len(unequal) > 1 or any(None in pair for pair in slots):
        return None
    place = unequal[0] if unequal else len(slots) - 1
    return place, place


def _removed(one: _Slots, two: _Slots) -> _Places | None:
    here, there = ([place for place, row in enumerate(side) if row is not None] for side in (one, two))
    if len(here) < len(there):
        places = _removed(two, one)
        return places and places[::-1]
    longer, shorter = [one[place] for place in here], [two[place] for place in there]
    at = next((i for i, (a, b) in enumerate(zip(longer, shorter, strict=False)) if a != b), len(shorter))
    if not shorter or longer[:at] + longer[at + 1 :] != shorter:
        return None
    return here[at], None


def length(data: DataSet) -> int:
    """The number of slots that a data set gives."""
    return len(next(iter(data.values())))


def present_slots(data: DataSet, slots: int) -> npt.NDArray[np.bool_]:
    """Which of ``slots`` slots hold a row."""
    present = np.zeros(slots, dtype=bool)
    present[: length(data)] = holds_person(np.asarray(data.get(PRESENT, True)))
    return present


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A mechanism under attack.

    Attributes:
        name: in words.
        statement: what is claimed of one run.
        draw: ``(data set, number of runs, seed) ↦`` outputs of shape ``(runs, d)``, independent of one
            another and of every other seed's.
        scores: ready-made attacks on a pair of data sets, a tuple ``(first, second, name)``: name to a score
            of outputs, larger where ``second`` is likelier. Whatever they compute, the bounds stay valid.

    Example:
        >>> def draw(data, runs, seed):
        ...     return data["x"].sum() + 2.0 * np.random.default_rng(seed).normal(size=(runs, 1))
        >>> claim = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=2.0)
        >>> noised_sum = pmc.Mechanism("noised sum", claim, draw)
        >>> noised_sum.draw({"x": np.array([1.0])}, 5, np.random.SeedSequence(0)).shape
        (5, 1)
    """

    name: str
    statement: Statement
    draw: Callable[[DataSet, int, np.random.SeedSequence], FloatArray]
    scores: Callable[[Pair], Mapping[str, Score]] = lambda pair: {}


# Rows × chains, and numbers, of one run: its predictors stay in a core's cache.
_RUN_PREDICTORS, _RUN_NUMBERS = 2**17, 2**22
# A target that every run meets: an audit asks what is claimed, not whether it is little.
_ANY_EPSILON, _ANY_DELTA = 1e6, 1.0 - 1e-6


@arguments_checked
def chain_mechanism(
    kernel: LangevinKernel,
    *,
    target: Target,
    release: Release | Expectations,
    n: int,
    num_chains: int = 1,
    **declared: Any,
) -> Mechanism:
    """A declared run, ready to be repeated by its own driver; arguments as for ``PrivateMCMC``.

    Of ``target`` the adjacency counts, and for ``Expectations`` the price.

    Many outputs come from one call of ``run`` with many chains, cut apart and held against the claim of
    ``num_chains`` chains: the library claims that chains are independent, so a refutation is a fault of it
    in any case. Every output of ``Expectations`` is a run of its own.
    """
    if not isinstance(release, Expectations):
        target = Target(_ANY_EPSILON, _ANY_DELTA, target.adjacency)

    def driver(chains: int) -> PrivateMCMC:
        return PrivateMCMC(
            kernel,
            target=target,
            release=release,
            num_chains=chains,
            guarantee="run",
            n=n,
            execution=Execution(progress_bar=False, unsafe_seed=True),
            **declared,
        )

    decision = driver(num_chains).decide(n)
    name = f"{type(kernel).__name__}({getattr(kernel.model, '__name__', 'model')})"
    return Mechanism(name, decision.statement, _runs(driver, decision))


def _runs(
    driver: Callable[[int], PrivateMCMC], decision: Decision
) -> Callable[[DataSet, int, np.random.SeedSequence], FloatArray]:
    """Outputs of a driver's runs: what it releases, and nothing that stays on the curator's side."""
    schedule, reading, made = decision.schedule, decision.reading, lru_cache(driver)
    numbers = schedule.dim * (1 if schedule.release == "last" else schedule.num_steps)
    chains, devices = schedule.num_chains, len(jax.devices())
    most = devices * min(_RUN_PREDICTORS // schedule.num_rows, _RUN_NUMBERS // numbers) // chains

    def draw(data: DataSet, count: int, seed: np.random.SeedSequence) -> FloatArray:
        """What ``count`` runs release: values of sites or noised averages, ``(count, numbers)``."""
        # Whole on every device; of averages every output is a run.
        width = -(-min(count, max(most, 64)) // devices) * devices
        width = 1 if isinstance(schedule.release, Average) else width
        slots = data if reading.unit is None else ungrouped(data, reading.unit.name)
        outputs = []
        for key in keys(seed, -(-count // width)):
            mcmc = made(width * chains)
            mcmc.run(rng_key=key, **slots)
            released = mcmc.released
            if isinstance(released, ReleasedStates):
                values = [released.samples[site.name] for site in reading.sites]
                states = np.concatenate([one.reshape(*one.shape[:2], -1) for one in values], axis=2)
                outputs.append(states.reshape(width, -1))
            else:
                outputs.append(np.concatenate([np.ravel(value.value) for value in released.values])[None])
        return np.concatenate(outputs)[:count]

    return draw


def ungrouped(persons: Columns, name: str) -> dict[str, np.ndarray]:
    """Rows, and identifiers under ``name``, of which ``grouped`` makes these public ``persons``.

    Every person's first row comes first, then every second one: no person's rows stand together.
    """
    if OWN_ROWS not in persons:
        raise DeclarationError(
            f"persons: columns (persons, at_most, …), and {OWN_ROWS!r} with 1 where there is a row."
        )
    own = np.asarray(persons[OWN_ROWS]) > 0
    if PRESENT in persons:
        own = own & np.asarray(persons[PRESENT])[:, None].astype(bool)
    place, slot = np.nonzero(own.T)
    rows = {
        column: np.asarray(values)[slot, place]
        for column, values in persons.items()
        if column not in (OWN_ROWS, PRESENT)
    }
    return {**rows, name: slot}


def keys(seed: np.random.SeedSequence, count: int) -> list[jax.Array]:
    """``count`` keys with all their bits, so that an audit is reproducible."""
    drawn = seed.generate_state(count * 8, np.uint32).reshape(count, 8)
    return [jax.random.wrap_key_data(jnp.asarray(one), impl=CHACHA20) for one in drawn]
