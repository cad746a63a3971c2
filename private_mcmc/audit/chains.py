"""A kernel's run as a mechanism under attack: thousands of independent chains in one compiled program."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.audit.confidence import FloatArray
from private_mcmc.audit.mechanism import DataSet, Mechanism
from private_mcmc.audit.pairs import worst_pairs
from private_mcmc.audit.scores import chain_scores
from private_mcmc.errors import DeclarationError
from private_mcmc.inference.columns import on_device
from private_mcmc.kernels import ChainRunner, LangevinKernel, Streams, chain_runner, langevin_program
from private_mcmc.kernels.batches import StepKeys
from private_mcmc.kernels.langevin import LangevinProgram
from private_mcmc.modeling import RowModel, Rows, read
from private_mcmc.preflight.curvature import curvature
from private_mcmc.release import Expectations, ReleasedExpectations, plan_expectations
from private_mcmc.schedule import Release, Schedule
from private_mcmc.target import Target

# Rows × chains of one block: its predictors stay in a core's cache.
_BLOCK_PREDICTORS = 2**17
_BLOCK_STATES = 2**22


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
    )
    proved = curvature(reading, schedule)
    start = np.zeros(reading.dim) if init_params is None else np.asarray(init_params, dtype=np.float64)
    if start.shape != (reading.dim,):
        raise DeclarationError(f"init_params: {reading.dim} numbers are needed.")
    name = f"{type(kernel).__name__}({getattr(kernel.model, '__name__', 'model')}), {_release_name(release)}"
    if isinstance(release, Expectations):
        plan = plan_expectations(release, reading, schedule, proved, target)
        runner = parts.runner(parts.program(reading, schedule), schedule, plan.observable)
        draw = _averages(runner, plan, rows, start)
        return Mechanism(name, plan.statement, draw, pairs=lambda: worst_pairs(reading, schedule))
    many = _Repeated(parts, reading, schedule, rows, start)
    return Mechanism(
        name,
        accounting.run(schedule, proved),
        many.draw,
        scores=lambda pair: chain_scores(reading, schedule, start, pair),
        pairs=lambda: worst_pairs(reading, schedule),
    )


class _Repeated:
    """Runs of a schedule that releases states, as one run with many chains, block by block."""

    def __init__(
        self, parts: Machinery, reading: RowModel, schedule: Schedule, rows: Rows, start: FloatArray
    ) -> None:
        self._schedule, self._rows, self._start = schedule, rows, start
        self._parts, self._reading = parts, reading
        self._runners: dict[int, ChainRunner] = {}

    def draw(self, data: DataSet, count: int, seed: np.random.SeedSequence) -> FloatArray:
        """Released states of ``count`` runs, shape ``(count, chains · kept · p)``."""
        schedule = self._schedule
        columns, present = on_device(self._rows, dict(data), schedule.num_rows)
        block, blocks = _blocks(schedule, count)
        runner = self._runner(block)

        def one(streams: Streams) -> FloatArray:
            states = runner.run(self._start, columns, present, streams, lambda done: None).states
            if states is None:
                raise DeclarationError("this schedule keeps no states.")
            return np.asarray(states, dtype=np.float64).reshape(block, -1)

        return _in_threads(one, [_streams(child) for child in seed.spawn(blocks)])[:count]

    def _runner(self, block: int) -> ChainRunner:
        if block not in self._runners:
            wide = replace(self._schedule, num_chains=block * self._schedule.num_chains)
            self._runners[block] = self._parts.runner(self._parts.program(self._reading, wide), wide)
        return self._runners[block]


def _averages(
    runner: ChainRunner, plan: _Noised, rows: Rows, start: FloatArray
) -> Callable[[DataSet, int, np.random.SeedSequence], FloatArray]:
    """Noised averages: the chain's own block of steps, vectorised over runs, then the release's own noise."""
    schedule = runner.schedule
    advance = jax.jit(jax.vmap(runner.advance, in_axes=(0, None, None, 0, 0, None)))
    with jax.enable_x64(True):
        shape = jax.eval_shape(plan.observable, jnp.zeros(schedule.dim)).shape

    def draw(data: DataSet, count: int, seed: np.random.SeedSequence) -> FloatArray:
        columns, present = on_device(rows, dict(data), schedule.num_rows)
        with jax.enable_x64(True):
            prepared = runner.prepare(columns, present)
            _, *used = _streams(seed.spawn(1)[0])
            keys = StepKeys(*(jax.random.split(key, count) for key in used if key is not None))
            first = runner.program.whitening.from_parameter(jnp.asarray(start))
            u = jnp.broadcast_to(first, (count, schedule.num_chains, schedule.dim))
            total = jnp.zeros((count, *shape))
            for done in range(0, schedule.num_steps, runner.block):
                steps = min(runner.block, schedule.num_steps - done)
                u, _, total = advance(u, done, steps, total, keys, prepared)
        kept = schedule.num_steps - schedule.release.first + 1  # type: ignore[union-attr]
        averages = np.asarray(total) / (kept * schedule.num_chains)
        released = (plan.release(average, {}) for average in averages)
        return np.stack([np.concatenate([np.ravel(v.value) for v in one.values]) for one in released])

    return draw


def _blocks(schedule: Schedule, count: int) -> tuple[int, int]:
    """Runs of one block and number of blocks, the blocks as equal as can be."""
    steps = 1 if schedule.release == "last" else schedule.num_steps
    chains = schedule.num_chains
    most = min(_BLOCK_PREDICTORS // schedule.num_rows, _BLOCK_STATES // (steps * schedule.dim)) // chains
    blocks = max(-(-count // max(most, 64)), min(count, _workers()))
    return -(-count // blocks), blocks


def _in_threads(one: Callable[[Streams], FloatArray], work: list[Streams]) -> FloatArray:
    with ThreadPoolExecutor(_workers()) as pool:
        return np.concatenate(list(pool.map(one, work)))


def _workers() -> int:
    return os.cpu_count() or 1


def _streams(seed: np.random.SeedSequence) -> Streams:
    words = seed.generate_state(6, np.uint32).reshape(3, 2)
    return Streams(*(jax.random.wrap_key_data(jnp.asarray(pair), impl="threefry2x32") for pair in words))


def _release_name(release: Release | Expectations) -> str:
    if isinstance(release, Expectations):
        return f"expectations of {', '.join(name for name, _ in release.items)}"
    return release if isinstance(release, str) else f"steps {release}"
