"""A kernel's run as a mechanism under attack: thousands of independent chains in one compiled program."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.audit.confidence import FloatArray
from private_mcmc.audit.mechanism import DataSet, Mechanism
from private_mcmc.audit.noised import noised
from private_mcmc.audit.pairs import worst_pairs
from private_mcmc.audit.scores import chain_scores
from private_mcmc.errors import DeclarationError
from private_mcmc.inference.columns import checked_columns, on_device
from private_mcmc.kernels import ChainRunner, LangevinKernel, Streams, chain_runner, langevin_program
from private_mcmc.kernels.batches import StepKeys
from private_mcmc.kernels.chain import first_state
from private_mcmc.kernels.devices import ONE_DEVICE, Layout, layout
from private_mcmc.kernels.langevin import LangevinProgram
from private_mcmc.kernels.segments import buffer_size, segments
from private_mcmc.modeling import RowModel, Rows, read
from private_mcmc.modeling.presence import PRESENT
from private_mcmc.preflight.curvature import curvature as public_curvature
from private_mcmc.release import (
    CurvatureTest,
    Expectations,
    ProposedCurvature,
    ReleasedExpectations,
    plan_curvature_test,
    plan_expectations,
)
from private_mcmc.schedule import Release, Schedule
from private_mcmc.target import Target

# Rows × chains of one block: its predictors stay in a core's cache.
_BLOCK_PREDICTORS = 2**17
_BLOCK_STATES = 2**22

Loader = Callable[..., tuple[dict[str, jax.Array], jax.Array]]


class _Noised(Protocol):
    """What a plan of noised averages does in the chain and after it."""

    @property
    def observable(self) -> Callable[[jax.Array], jax.Array]: ...

    def release(self, averages: FloatArray, provenance: Mapping[str, str]) -> ReleasedExpectations: ...


@dataclass(frozen=True)
class Machinery:
    """The functions that build and run chains: the library's own, or mutants of them."""

    program: Callable[[RowModel, Schedule], LangevinProgram] = langevin_program
    runner: Callable[..., ChainRunner] = chain_runner


def chain_mechanism(
    kernel: LangevinKernel,
    *,
    rows: Rows,
    target: Target,
    release: Release | Expectations,
    num_steps: int,
    n: int,
    num_chains: int = 1,
    model_args: Mapping[str, Any] | None = None,
    init_params: npt.ArrayLike | None = None,
    curvature: ProposedCurvature | None = None,
    machinery: Machinery | None = None,
) -> Mechanism:
    """A kernel's run as the driver would run it, ready to be repeated; arguments as for ``PrivateMCMC``.

    Of ``target`` the adjacency counts, and for ``Expectations`` the price. States are attacked before they
    are rounded to the release's grid, which can only hide.

    Raises:
        DeclarationError: for declarations that make no sense.
    """
    parts = machinery or Machinery()
    reading = read(kernel.model, rows, n=n, model_args=model_args)
    kept = release.average(num_steps) if isinstance(release, Expectations) else release
    schedule = kernel.schedule(
        adjacency=target.adjacency,
        num_rows=n,
        dim=reading.dim,
        num_steps=num_steps,
        num_chains=num_chains,
        release=kept,
        sites=reading.sites,
    )
    proved, test = public_curvature(reading, schedule), None
    if curvature is not None:
        test = plan_curvature_test(reading, schedule, gdp=curvature.gdp, failure=curvature.failure)
        proved = test.reached(curvature.at_least).strengthen(proved, schedule.temper)
    start = np.zeros(reading.dim) if init_params is None else np.asarray(init_params, dtype=np.float64)
    if start.shape != (reading.dim,):
        raise DeclarationError(f"init_params: {reading.dim} numbers are needed.")
    load = partial(_loaded, rows, target, n)
    name = f"{type(kernel).__name__}({getattr(kernel.model, '__name__', 'model')}), {_release_name(release)}"
    if isinstance(release, Expectations):
        plan = plan_expectations(release, reading, schedule, proved, target)
        noisy = _Repeated(parts, reading, schedule, load, start, plan)
        found = Mechanism(name, plan.statement, noisy.draw, pairs=lambda: worst_pairs(reading, schedule))
    else:
        many = _Repeated(parts, reading, schedule, load, start)
        found = Mechanism(
            name,
            accounting.run(schedule, proved),
            many.draw,
            scores=lambda pair: chain_scores(reading, schedule, start, pair),
            pairs=lambda: worst_pairs(reading, schedule),
        )
    if test is None or curvature is None:
        return found
    return _behind(test, curvature, found, load)


def _loaded(
    rows: Rows, target: Target, n: int, data: DataSet, where: Layout = ONE_DEVICE
) -> tuple[dict[str, jax.Array], jax.Array]:
    """A made-up data set on the device; it is public, so its values may be refused, unlike those of a run."""
    columns = checked_columns(rows, _in_slots(data, target, n), target, n)
    with jax.enable_x64(True):
        inside = rows.project({name: jnp.asarray(column) for name, column in columns.items()})
    for name, domain in rows.items:
        if not np.allclose(inside[name], columns[name], rtol=1e-9, atol=1e-12):
            raise DeclarationError(
                f"column {name!r}: values outside {domain}; a run would map them inside, so the data sets "
                "would not be the ones you mean."
            )
    return on_device(rows, columns, n, where)


def _in_slots(data: DataSet, target: Target, n: int) -> DataSet:
    """Under ``zero_out``, a data set of fewer than ``n`` rows with the slots after them empty."""
    count = len(next(iter(data.values()))) if data else n
    if target.adjacency != "zero_out" or PRESENT in data or not 0 < count < n:
        return data
    filling = {name: np.repeat(np.asarray(column)[-1:], n - count, axis=0) for name, column in data.items()}
    slots = {name: np.concatenate([column, filling[name]]) for name, column in data.items()}
    return {**slots, PRESENT: np.arange(n) < count}


def _behind(
    test: CurvatureTest, proposed: ProposedCurvature, mechanism: Mechanism, load: Loader
) -> Mechanism:
    """``mechanism`` where ``test`` finds what was proposed; what the test found is an output as well."""
    both = accounting.compose(test.statement, mechanism.statement)

    def draw(data: DataSet, count: int, seed: np.random.SeedSequence) -> FloatArray:
        columns, present = load(data)
        least = test.smallest_eigenvalue(columns, present)
        found = noised(test.noise, np.full((count, 1), least))
        passed = [[test.floor_of(float(value)).lower >= proposed.at_least] for value in found[:, 0]]
        outputs = np.where(passed, mechanism.draw(data, count, seed), 0.0)
        return np.concatenate([found, passed, outputs], axis=1)

    return Mechanism(
        f"{mechanism.name}, behind a test of curvature",
        accounting.unless_test_fails(both, test.reached(proposed.at_least)),
        draw,
        pairs=mechanism.pairs,
    )


class _Repeated:
    """Runs of one schedule as one wide run of many independent chains, block by block."""

    def __init__(
        self,
        parts: Machinery,
        reading: RowModel,
        schedule: Schedule,
        load: Loader,
        start: FloatArray,
        plan: _Noised | None = None,
    ) -> None:
        self._schedule, self._load, self._start, self._plan = schedule, load, start, plan
        self._parts, self._reading = parts, reading
        self._runners: dict[int, ChainRunner] = {}

    def draw(self, data: DataSet, count: int, seed: np.random.SeedSequence) -> FloatArray:
        """What ``count`` runs release: states, ``(count, chains · kept · p)``, or noised averages."""
        block, blocks = _blocks(self._schedule, count)
        runner, where = self._runner(block), _layout(block * self._chains)
        columns, present = self._load(data, where)

        def one(streams: Streams) -> FloatArray:
            if self._plan is None:
                states = runner.run(self._start, columns, present, streams, lambda done: None).states
                return np.asarray(states, dtype=np.float64).reshape(block, -1)
            averages = self._averages(runner, columns, present, streams)
            return np.asarray(averages.reshape(block, self._chains, -1).mean(axis=1), dtype=np.float64)

        outputs = _in_threads(one, [_streams(child) for child in seed.spawn(blocks)])[:count]
        return outputs if self._plan is None else _released(self._plan, outputs)

    @property
    def _chains(self) -> int:
        return self._schedule.num_chains

    def _runner(self, block: int) -> ChainRunner:
        if block not in self._runners:
            wide = replace(self._schedule, num_chains=block * self._chains)
            observable = None if self._plan is None else self._plan.observable
            program = self._parts.program(self._reading, wide)
            self._runners[block] = self._parts.runner(program, wide, observable, _layout(wide.num_chains))
        return self._runners[block]

    def _averages(
        self, runner: ChainRunner, columns: Any, present: jax.Array, streams: Streams
    ) -> FloatArray:
        """Every chain's own average of the observable, ``(chains, d)``."""
        wide = runner.schedule
        with jax.enable_x64(True):
            rows, keys = runner.prepare(columns, present), StepKeys(streams.steps, streams.batches)
            start = runner.program.whitening.from_parameter(jnp.asarray(self._start))
            state = first_state(wide, start, runner.observable)
            u, total, size = jnp.asarray(state.u), jnp.asarray(state.total), buffer_size(wide)
            for segment in segments(wide):
                count = len(segment.gaps)
                gaps = np.pad(segment.gaps, (0, size - count))
                u, _, total = runner.advance(u, segment.first, gaps, count, total, keys, rows)
            kept = wide.num_steps - wide.release.first + 1  # type: ignore[union-attr]
            return np.asarray(total, dtype=np.float64) / kept


def _released(plan: _Noised, averages: FloatArray) -> FloatArray:
    released = (plan.release(average, {}) for average in averages)
    return np.stack([np.concatenate([np.ravel(v.value) for v in one.values]) for one in released])


def _layout(chains: int) -> Layout:
    """Chains spread over all devices there are."""
    return layout("parallel", num_chains=chains) if len(jax.devices()) > 1 else layout()


def _blocks(schedule: Schedule, count: int) -> tuple[int, int]:
    """Runs of one block and number of blocks, the blocks as equal as can be, whole on every device."""
    devices = len(jax.devices())
    steps = 1 if schedule.release == "last" else schedule.num_steps
    most = min(_BLOCK_PREDICTORS // schedule.num_rows, _BLOCK_STATES // (steps * schedule.dim))
    block = min(count, max(devices * most // schedule.num_chains, 64))
    block = -(-block // devices) * devices
    return block, -(-count // block)


def _in_threads(one: Callable[[Streams], FloatArray], work: list[Streams]) -> FloatArray:
    """The first block by itself, so that it is compiled once; the others side by side on one device."""
    workers = (os.cpu_count() or 1) if len(jax.devices()) == 1 else 1
    with ThreadPoolExecutor(workers) as pool:
        return np.concatenate([one(work[0]), *pool.map(one, work[1:])])


def _streams(seed: np.random.SeedSequence) -> Streams:
    words = seed.generate_state(6, np.uint32).reshape(3, 2)
    return Streams(*(jax.random.wrap_key_data(jnp.asarray(pair), impl="threefry2x32") for pair in words))


def _release_name(release: Release | Expectations) -> str:
    if isinstance(release, Expectations):
        return f"expectations of {', '.join(name for name, _ in release.items)}"
    return release if isinstance(release, str) else f"steps {release}"
