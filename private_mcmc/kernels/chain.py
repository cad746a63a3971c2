"""Running whole chains: one compiled block of steps, called until the schedule is done.

Only what the schedule releases is kept: every state for a path, the declared states, the last one, or a
running sum for an average. The number of calls depends on the schedule alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.kernels.batches import StepKeys
from private_mcmc.kernels.gradient import Columns
from private_mcmc.kernels.langevin import LangevinProgram, Observable
from private_mcmc.schedule import Average, Schedule

_BUFFER_ELEMENTS = 2**22
_BLOCKS_A_RUN = 64


class Streams(NamedTuple):
    """Independent random keys of one run, one for each purpose; each is used in this run only.

    ``batches`` is needed by schedules that draw batches.
    """

    start: jax.Array
    steps: jax.Array
    batches: jax.Array | None = None


class ChainOutput(NamedTuple):
    """Curator-side result of a run.

    ``states``: unconstrained states at the released steps, shape ``(chains, kept, p)``, or ``None``.
    ``average``: mean of the observable over kept steps and chains, or ``None``.
    """

    states: npt.NDArray[np.float64] | None
    average: npt.NDArray[np.float64] | None


@dataclass(frozen=True, eq=False)
class ChainRunner:
    """A schedule's chain, compiled at its first run and reused by later runs of equal shape."""

    schedule: Schedule
    program: LangevinProgram
    observable: Observable | None
    prepare: Callable[[Columns, jax.Array], Any]
    advance: Callable[..., tuple[jax.Array, jax.Array, jax.Array]]
    block: int

    def run(
        self,
        theta: npt.ArrayLike,
        columns: Columns,
        present: jax.Array,
        streams: Streams,
        on_progress: Callable[[int], None],
    ) -> ChainOutput:
        """Run from ``θ_0`` of shape ``(p,)`` (public); ``on_progress`` is told steps done, nothing else."""
        with jax.enable_x64(True):
            return self._run(theta, columns, present, streams, on_progress)

    def _run(
        self,
        theta: npt.ArrayLike,
        columns: Columns,
        present: jax.Array,
        streams: Streams,
        on_progress: Callable[[int], None],
    ) -> ChainOutput:
        schedule = self.schedule
        rows = self.prepare(columns, present)
        start = self.program.whitening.from_parameter(jnp.asarray(theta, dtype=jnp.float64))
        u = jnp.broadcast_to(start, (schedule.num_chains, schedule.dim))
        total = jnp.zeros(self._observed_shape())
        keys = StepKeys(streams.steps, streams.batches)
        kept: list[npt.NDArray[np.float64]] = []
        for first, count, keep in _segments(schedule, self.block):
            u, states, total = self.advance(u, first, count, total, keys, rows)
            if keep == "all":
                kept.append(np.asarray(states)[:count])
            elif keep == "last":
                kept.append(np.asarray(self.program.whitening.to_parameter(u))[None])
            u.block_until_ready()
            on_progress(first + count)
        if isinstance(schedule.release, Average):
            count = schedule.num_steps - schedule.release.first + 1
            return ChainOutput(None, np.asarray(total) / (count * schedule.num_chains))
        return ChainOutput(np.swapaxes(np.concatenate(kept), 0, 1), None)

    def _observed_shape(self) -> tuple[int, ...]:
        if self.observable is None:
            return ()
        return tuple(jax.eval_shape(self.observable, jnp.zeros(self.schedule.dim)).shape)


def chain_runner(
    program: LangevinProgram, schedule: Schedule, observable: Observable | None = None
) -> ChainRunner:
    """Compile-ready chain of ``schedule``; ``observable`` maps ``θ`` of shape ``(p,)`` to a vector."""
    keeps_path = schedule.release == "path"
    block = max(1, -(-schedule.num_steps // _BLOCKS_A_RUN))
    if keeps_path:
        block = max(1, min(block, _BUFFER_ELEMENTS // (schedule.num_chains * schedule.dim)))
    first_kept = schedule.release.first if isinstance(schedule.release, Average) else 0

    def advance(
        u: jax.Array, first: jax.Array, count: jax.Array, total: jax.Array, key: StepKeys, rows: Any
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        def body(j: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            u, states, total = carry
            u = program.step(u, first + j, key, rows)
            if keeps_path:
                states = states.at[j].set(program.whitening.to_parameter(u))
            if observable is not None:
                values = jax.vmap(observable)(program.whitening.to_parameter(u)).sum(axis=0)
                total = total + jnp.where(first + j + 1 >= first_kept, values, 0.0)
            return u, states, total

        buffer = jnp.zeros((block if keeps_path else 0, *u.shape), u.dtype)
        done: tuple[jax.Array, jax.Array, jax.Array] = jax.lax.fori_loop(0, count, body, (u, buffer, total))
        return done

    return ChainRunner(schedule, program, observable, jax.jit(program.prepare), jax.jit(advance), block)


def _segments(schedule: Schedule, block: int) -> Iterator[tuple[int, int, str]]:
    """Cut the steps into blocks that end at every released step: (first step, count, what to keep)."""
    release = schedule.release
    if release == "path":
        stops, keep = {schedule.num_steps}, "all"
    else:
        stops = set(release) if isinstance(release, tuple) else {schedule.num_steps}
        keep = "none" if isinstance(release, Average) else "last"
    done = 0
    while done < max(stops):
        until = min(done + block, min(stop for stop in stops if stop > done))
        yield done, until - done, keep if keep == "all" or until in stops else "none"
        done = until
