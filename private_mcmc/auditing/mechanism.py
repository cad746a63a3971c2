"""What an audit attacks: a mechanism that can be run many times on either of two adjacent data sets.

Of a private kernel: chains through the front door, ``PrivateMCMC.run``, run after run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.distributions import biject_to

from private_mcmc.accounting import Statement
from private_mcmc.domains import Rows
from private_mcmc.domains.columns import PRESENT, holds_person
from private_mcmc.domains.persons import ungrouped
from private_mcmc.errors import DeclarationError
from private_mcmc.inference import Execution, PrivateMCMC
from private_mcmc.inference.decision import Decision
from private_mcmc.kernels import LangevinKernel
from private_mcmc.kernels.keys import CHACHA20
from private_mcmc.model import RowModel
from private_mcmc.release import Expectations, ReleasedStates
from private_mcmc.schedule import Release, Schedule
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

    def differing(self, adjacency: Adjacency) -> tuple[int | None, int | None]:
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


# Rows × chains of one run: its predictors stay in a core's cache.
_RUN_PREDICTORS = 2**17
_RUN_STATES = 2**22
# A target that every run meets: an audit asks what is claimed, not whether it is little.
_ANY_EPSILON, _ANY_DELTA = 1e6, 1.0 - 1e-6


def chain_mechanism(
    kernel: LangevinKernel,
    *,
    rows: Rows,
    target: Target,
    release: Release | Expectations,
    num_steps: int,
    n: int,
    num_chains: int = 1,
    init_params: npt.ArrayLike | None = None,
) -> Mechanism:
    """A declared run, ready to be repeated by its own driver; arguments as for ``PrivateMCMC``.

    Of ``target`` the adjacency counts, and for ``Expectations`` the price.

    Many outputs come from one call of ``run`` with many chains, cut apart and held against the claim of
    ``num_chains`` chains: the library claims that chains are independent, so a refutation is a fault of it
    in any case. Every output of ``Expectations`` is a run of its own.
    """
    priced = isinstance(release, Expectations)

    def driver(chains: int) -> PrivateMCMC:
        return PrivateMCMC(
            kernel,
            rows=rows,
            target=target if priced else Target(_ANY_EPSILON, _ANY_DELTA, target.adjacency),
            release=release,
            num_steps=num_steps,
            num_chains=chains,
            guarantee="run",
            n=n,
            execution=Execution(
                init_params=init_params,
                progress_bar=False,
                unsafe_seed=True,
            ),
        )

    decision = driver(num_chains).decide(n)
    what = release if isinstance(release, str) else f"steps {release}"
    if isinstance(release, Expectations):
        what = f"expectations of {', '.join(name for name, _ in release.items)}"
    return Mechanism(
        f"{type(kernel).__name__}({getattr(kernel.model, '__name__', 'model')}), {what}",
        decision.statement,
        _runs(driver, decision, priced),
    )


def _runs(
    driver: Callable[[int], PrivateMCMC], decision: Decision, priced: bool
) -> Callable[[DataSet, int, np.random.SeedSequence], FloatArray]:
    """Outputs of a driver's runs: what it releases, and nothing that stays on the curator's side."""
    chains, unit = decision.schedule.num_chains, decision.reading.unit
    made: dict[int, PrivateMCMC] = {}

    def draw(data: DataSet, count: int, seed: np.random.SeedSequence) -> FloatArray:
        """What ``count`` runs release: states, ``(count, chains · kept · p)``, or noised averages."""
        width = 1 if priced else _width(decision.schedule, count)
        if width not in made:
            made[width] = driver(width * chains)
        mcmc, outputs = made[width], []
        slots = data if unit is None else ungrouped(data, unit.name)
        for key in keys(seed, -(-count // width)):
            mcmc.run(rng_key=key, **slots)
            released = mcmc.released
            if isinstance(released, ReleasedStates):
                states = unconstrained(decision.reading, released.samples)
                outputs.append(states.reshape(width, -1))
            else:
                outputs.append(np.concatenate([np.ravel(value.value) for value in released.values])[None])
        return np.concatenate(outputs)[:count]

    return draw


def unconstrained(reading: RowModel, samples: Mapping[str, npt.NDArray[np.generic]]) -> FloatArray:
    """Released states ``(chains, kept, p)`` on the unconstrained space, whose image every site is.

    A site whose support is not known beforehand stays as it was released.
    """
    parts = []
    with jax.enable_x64(True):
        for site in reading.sites:
            value = jnp.asarray(samples[site.name])
            if site.constraint is not None:
                value = biject_to(site.constraint).inv(value)
            parts.append(np.asarray(value, dtype=np.float64).reshape(*value.shape[:2], -1))
    return np.concatenate(parts, axis=-1)


def keys(seed: np.random.SeedSequence, count: int) -> list[jax.Array]:
    """``count`` keys with all their bits, so that an audit is reproducible."""
    drawn = seed.generate_state(count * 8, np.uint32).reshape(count, 8)
    return [jax.random.wrap_key_data(jnp.asarray(one), impl=CHACHA20) for one in drawn]


def _width(schedule: Schedule, count: int) -> int:
    """Outputs of one run: as many as there is room for, whole on every device."""
    devices = len(jax.devices())
    steps = 1 if schedule.release == "last" else schedule.num_steps
    most = min(_RUN_PREDICTORS // schedule.num_rows, _RUN_STATES // (steps * schedule.dim))
    width = min(count, max(devices * most // schedule.num_chains, 64))
    return -(-width // devices) * devices
