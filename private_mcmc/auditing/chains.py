"""A chain under attack through the front door: ``PrivateMCMC.run``, run after run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.distributions import biject_to

from private_mcmc.auditing.confidence import FloatArray
from private_mcmc.auditing.mechanism import DataSet, Mechanism, length
from private_mcmc.domains import Rows
from private_mcmc.domains.columns import PRESENT
from private_mcmc.domains.persons import OWN_ROWS, ungrouped
from private_mcmc.errors import DeclarationError
from private_mcmc.inference import Execution, PrivateMCMC
from private_mcmc.inference.decision import Decision
from private_mcmc.kernels import LangevinKernel
from private_mcmc.kernels.keys import CHACHA20
from private_mcmc.model import RowModel
from private_mcmc.release import Expectations, ReleasedStates
from private_mcmc.schedule import Release, Schedule
from private_mcmc.target import Target

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
        check_inside(decision.reading.rows, data)
        width = 1 if priced else _width(decision.schedule, count)
        if width not in made:
            made[width] = driver(width * chains)
        mcmc, outputs = made[width], []
        slots = _in_slots(data, decision.schedule) if unit is None else ungrouped(data, unit.name)
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


def _in_slots(data: DataSet, schedule: Schedule) -> DataSet:
    """Under ``zero_out``, a data set of fewer rows than slots with the slots after them empty."""
    n, count = schedule.num_rows, length(data)
    if schedule.adjacency != "zero_out" or PRESENT in data or not 0 < count < n:
        return data
    filling = {name: np.repeat(np.asarray(column)[-1:], n - count, axis=0) for name, column in data.items()}
    slots = {name: np.concatenate([column, filling[name]]) for name, column in data.items()}
    return {**slots, PRESENT: np.arange(n) < count}


def check_inside(rows: Rows, data: DataSet) -> None:
    """Refuse synthetic data that a run would move into its domain: an attack would be on others than meant.

    The data are public, so their values may be refused, unlike those of a run.
    """
    known = {name: data[name] for name in data if name in rows.columns}
    if OWN_ROWS in rows.columns and OWN_ROWS not in data:
        raise DeclarationError(
            f"pairs of persons: columns (persons, at_most, …), and {OWN_ROWS!r} with 1 where there is one."
        )
    columns = rows.validate(known, None)
    with jax.enable_x64(True):
        inside = rows.project({name: jnp.asarray(column) for name, column in columns.items()})
    for name, domain in rows.items:
        if not np.allclose(inside[name], columns[name], rtol=1e-9, atol=1e-12):
            raise DeclarationError(
                f"column {name!r}: values outside {domain}; a run would map them inside, so the data sets "
                "would not be the ones you mean."
            )


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
