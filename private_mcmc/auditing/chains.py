"""A chain, or a whole plan, under attack through the front door: ``PrivateMCMC.run``, run after run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.distributions import biject_to

from private_mcmc.auditing.confidence import FloatArray
from private_mcmc.auditing.mechanism import DataSet, Mechanism, Pair, Score, in_slots, worst_pairs
from private_mcmc.auditing.scores import ChainAttacks
from private_mcmc.domains import Rows
from private_mcmc.domains.persons import OWN_ROWS, ungrouped
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.inference import Execution, PrivateMCMC
from private_mcmc.inference.decision import Decision
from private_mcmc.kernels import Generator, LangevinKernel
from private_mcmc.kernels.keys import CHACHA20
from private_mcmc.model import RowModel
from private_mcmc.planning import CompletedStage, Plan
from private_mcmc.records import PublicArguments
from private_mcmc.release import (
    Counts,
    Expectations,
    GaussianNoise,
    LaplaceNoise,
    ReleasedStates,
    SecondMoments,
)
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
    model_args: PublicArguments | None = None,
    init_params: npt.ArrayLike | None = None,
    generator: Generator = "chacha20",
    chains_per_run: int | None = None,
) -> Mechanism:
    """A declared run, ready to be repeated by its own driver; arguments as for ``PrivateMCMC``.

    Of ``target`` the adjacency counts, and for ``Expectations`` the price.

    Many outputs come from one call of ``run`` with many chains, cut apart and held against the claim of
    ``num_chains`` chains: the library claims that chains are independent, so a refutation is a fault of it
    in any case. ``chains_per_run`` is their number; ``num_chains`` makes every output a run of its own, as
    it always is for ``Expectations``.
    """
    priced = isinstance(release, Expectations)
    if model_args is not None:
        kernel = replace(kernel, model_args=model_args)

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
                chain_method="parallel" if chains % len(jax.devices()) == 0 and chains > 1 else "vectorized",
                generator=generator,
                unsafe_seed=True,
            ),
        )

    decision = driver(num_chains).decide(n)
    reading, schedule = decision.reading, decision.schedule
    start = np.zeros(reading.dim) if init_params is None else np.asarray(init_params, dtype=np.float64)
    if start.shape != (reading.dim,):
        raise DeclarationError(f"init_params: {reading.dim} numbers are needed.")
    attacks: Callable[[Pair], Mapping[str, Score]] = (
        ChainAttacks(reading, schedule, start)
        if not priced and all(site.constraint is not None for site in reading.sites)
        else lambda pair: {}
    )
    what = release if isinstance(release, str) else f"steps {release}"
    if isinstance(release, Expectations):
        what = f"expectations of {', '.join(name for name, _ in release.items)}"
    return Mechanism(
        f"{type(kernel).__name__}({getattr(kernel.model, '__name__', 'model')}), {what}",
        decision.statement,
        _runs(driver, decision, generator, num_chains if priced else chains_per_run),
        scores=attacks,
        pairs=lambda: worst_pairs(reading, schedule),
    )


def _runs(
    driver: Callable[[int], PrivateMCMC],
    decision: Decision,
    generator: Generator,
    chains_per_run: int | None,
) -> Callable[[DataSet, int, np.random.SeedSequence], FloatArray]:
    """Outputs of a driver's runs: what it releases, and nothing that stays on the curator's side."""
    chains, unit = decision.schedule.num_chains, decision.reading.unit
    made: dict[int, PrivateMCMC] = {}

    def draw(data: DataSet, count: int, seed: np.random.SeedSequence) -> FloatArray:
        """What ``count`` runs release: states, ``(count, chains · kept · p)``, or noised averages."""
        check_inside(decision.reading.rows, data)
        width = _width(decision.schedule, count)
        if chains_per_run is not None:
            width = max(1, chains_per_run // chains)
        if width not in made:
            made[width] = driver(width * chains)
        mcmc, outputs = made[width], []
        slots = in_slots(data, decision.schedule) if unit is None else ungrouped(data, unit.name)
        for key in keys(seed, -(-count // width), generator):
            mcmc.run(rng_key=key, **slots)
            released = mcmc.released
            if isinstance(released, ReleasedStates):
                states = unconstrained(decision.reading, released.samples)
                outputs.append(states.reshape(width, -1))
            else:
                outputs.append(np.concatenate([np.ravel(value.value) for value in released.values])[None])
        return np.concatenate(outputs)[:count]

    return draw


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


def keys(seed: np.random.SeedSequence, count: int, generator: Generator = "chacha20") -> list[jax.Array]:
    """``count`` keys with all their bits, so that an audit is reproducible."""
    words, kind = (8, CHACHA20) if generator == "chacha20" else (2, generator)
    drawn = seed.generate_state(count * words, np.uint32).reshape(count, words)
    return [jax.random.wrap_key_data(jnp.asarray(one), impl=kind) for one in drawn]


def _width(schedule: Schedule, count: int) -> int:
    """Outputs of one run: as many as there is room for, whole on every device."""
    devices = len(jax.devices())
    steps = 1 if schedule.release == "last" else schedule.num_steps
    most = min(_RUN_PREDICTORS // schedule.num_rows, _RUN_STATES // (steps * schedule.dim))
    width = min(count, max(devices * most // schedule.num_chains, 64))
    return -(-width // devices) * devices


def noised(noise: LaplaceNoise | GaussianNoise, values: npt.ArrayLike) -> FloatArray:
    """``noise`` on every row of ``values``, shape ``(runs, d)``, in one call.

    Every coordinate has its own draw of one scale on one grid, so a longer vector is as good as many calls.
    """
    rows = np.asarray(values, dtype=np.float64)
    return replace(noise.confirmed(), size=rows.size).drawn(rows.ravel()).reshape(rows.shape)


# Numbers that are kept of a stage, and of a run: what a stage releases may be long, and policies may differ
# in their stages from run to run.
_OF_STAGE, _OF_RUN = 64, 256


def plan_mechanism(plan: Plan, *, generator: Generator = "chacha20") -> Mechanism:
    """The whole policy of ``plan`` as ``PrivateMCMC.from_plan(plan).run`` executes it, stage after stage.

    What is attacked are the releases of all stages: noised moments and counts, and of a path every state, or
    the first, the mean and the last one of a long path. A stage that the budget refuses ends a run, which is
    an output as well. A policy that shapes its paths by what it has released compiles them anew in every run,
    about a second each: give ``audit`` a few hundred ``num_runs``.
    """
    mcmc = PrivateMCMC.from_plan(
        plan, execution=Execution(generator=generator, unsafe_seed=True, progress_bar=False)
    )
    # Extreme pairs are found by gradients of norm at most 1, whatever clips the policy will choose.
    schedule = Schedule(
        adjacency=plan.target.adjacency,
        num_rows=plan.n,
        dim=plan.reading.dim,
        step_size=1.0,
        num_steps=1,
        clip=1.0,
    )

    def once(slots: DataSet, key: jax.Array) -> FloatArray:
        numbers = np.zeros(_OF_RUN)
        with suppress(NotPrivate):
            mcmc.run(rng_key=key, **slots)
        # What the stages before a refused one released is shown as well.
        seen = np.concatenate([np.zeros(0), *(_numbers(completed) for completed in mcmc.history)])[:_OF_RUN]
        numbers[: len(seen)] = seen
        return numbers

    def draw(data: DataSet, count: int, seed: np.random.SeedSequence) -> FloatArray:
        check_inside(plan.reading.rows, data)
        unit = plan.reading.unit
        slots = in_slots(data, schedule) if unit is None else ungrouped(data, unit.name)
        return np.stack([once(slots, key) for key in keys(seed, count, generator)])

    name = f"plan for {getattr(plan.model, '__name__', 'a model')}"
    return Mechanism(name, plan.statement, draw, pairs=lambda: worst_pairs(plan.reading, schedule))


def _numbers(completed: CompletedStage) -> FloatArray:
    """What a stage released, the length of it first."""
    value = completed.value
    if isinstance(value, SecondMoments):
        released = np.asarray(value.matrix)[np.triu_indices(len(value.matrix))]
    elif isinstance(value, Counts):
        released = np.ravel(value.values)
    elif value.size > _OF_STAGE:
        released = np.concatenate([value[0], value.mean(axis=0), value[-1]])
    else:
        released = np.ravel(value)
    return np.concatenate([[np.size(value) if isinstance(value, np.ndarray) else 0.0], released[:_OF_STAGE]])
