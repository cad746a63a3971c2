"""Chains whose rows do not fit on the device: read again at every step, in blocks of one shape.

The sum over the rows is carried from block to block in float64; it is one of the orders of summation that
the accountant's rounding allowance covers. Every block is mapped into the row domain before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.accounting.langevin.sensitivity import rows_summed
from private_mcmc.domains import Rows
from private_mcmc.domains.columns import blank, holds_person, padded
from private_mcmc.errors import NotYetSupported
from private_mcmc.kernels.batches import StepKeys
from private_mcmc.kernels.chain import (
    ChainOutput,
    ChainState,
    Saving,
    Streams,
    buffer_size,
    first_state,
    follow,
)
from private_mcmc.kernels.step import LangevinProgram, Observable, Place
from private_mcmc.schedule import Average, Schedule

# Drawing a batch costs time in proportion to it, for every block, unless it is a large share of the rows.
_LARGE_SHARE = 0.125


class Block(NamedTuple):
    """Rows ``first, first + 1, …`` of ``number`` as they are outside.

    All blocks have one shape; ``present`` is false where there is no row: in holes, whose columns are zeros,
    and in what only fills the last block up.
    """

    first: int
    columns: Mapping[str, npt.NDArray[np.generic]]
    present: npt.NDArray[np.bool_]
    number: int


@dataclass(frozen=True, eq=False)
class StreamedRunner:
    """A schedule's chain over rows outside the device, compiled at its first step.

    ``add(sum, u, k, keys, block)`` adds the block's rows to the sum, ``move`` makes the step of it.
    """

    schedule: Schedule
    program: LangevinProgram
    observable: Observable | None
    add: Callable[..., jax.Array]
    move: Callable[..., tuple[jax.Array, jax.Array]]

    def run(
        self,
        blocks: Iterable[Block],
        theta: npt.ArrayLike,
        streams: Streams,
        on_progress: Callable[[int], None],
        saving: Saving | None = None,
        state: ChainState | None = None,
    ) -> ChainOutput:
        """Run from ``θ_0`` of shape ``(p,)``, or on from ``state``; every step goes through ``blocks``."""
        with jax.enable_x64(True):
            if state is None:
                state = first_state(self.program, self.schedule, theta, self.observable)
            keys = StepKeys(streams.steps, streams.batches)
            size = buffer_size(self.schedule)

            def advance(
                u: jax.Array, first: int, gaps: npt.NDArray[np.int64], count: int, total: jax.Array
            ) -> tuple[jax.Array, jax.Array, jax.Array]:
                states = np.zeros((size, *u.shape))
                done = first
                for j in range(count):
                    for k in range(done, done + int(gaps[j])):
                        u, total = self.move(u, k, keys, self._sum(u, k, keys, blocks), total)
                    done += int(gaps[j])
                    states[j] = self.program.whitening.to_parameter(u)
                return u, jnp.asarray(states), total

            return follow(self.schedule, advance, state, on_progress, saving)

    def try_out(self, blocks: Iterable[Block], theta: npt.ArrayLike, streams: Streams) -> None:
        """Make one step with the first block alone and throw it away: all is compiled and read then."""
        with jax.enable_x64(True):
            state = first_state(self.program, self.schedule, theta, self.observable)
            keys = StepKeys(streams.steps, streams.batches)
            u = jnp.asarray(state.u)
            total = self._sum(u, 0, keys, islice(blocks, 1))
            for array in self.move(u, 0, keys, total, jnp.asarray(state.total)):
                array.block_until_ready()

    def _sum(self, u: jax.Array, k: int, keys: StepKeys, blocks: Iterable[Block]) -> jax.Array:
        """The sum over all blocks; the next one is read while the device works on this one."""
        total, before = jnp.zeros_like(u), u
        for block in blocks:
            # At most two blocks are on the device.
            before.block_until_ready()
            before, total = total, self.add(total, u, k, keys, block)
        return total


def streamed_runner(
    program: LangevinProgram, schedule: Schedule, rows: Rows, observable: Observable | None = None
) -> StreamedRunner:
    """Compile-ready chain of ``schedule`` over blocks of rows, which are mapped into ``rows`` one by one."""
    batch = schedule.batch
    if batch is not None:
        share = batch.rate if batch.rate is not None else rows_summed(schedule) / schedule.num_rows
        if share > _LARGE_SHARE:
            raise NotYetSupported(
                f"batches of a share {share:.3g} of streamed rows: use all rows, or batches of at most "
                f"{_LARGE_SHARE:g} of them."
            )
    first_kept = schedule.release.first if isinstance(schedule.release, Average) else 0

    def add(total: jax.Array, u: jax.Array, k: jax.Array, keys: StepKeys, block: Block) -> jax.Array:
        columns = rows.project(block.columns)
        prepared = program.prepare(columns, block.present)
        return total + program.data(u, k, keys, prepared, Place(0, block.first))

    def move(
        u: jax.Array, k: jax.Array, keys: StepKeys, rows_sum: jax.Array, total: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        u = program.move(u, k, keys, rows_sum)
        if observable is not None:
            values = jax.vmap(observable)(program.whitening.to_parameter(u))
            total = total + jnp.where(k + 1 >= first_kept, values, 0.0)
        return u, total

    return StreamedRunner(schedule, program, observable, jax.jit(add), jax.jit(move))


Reader = Callable[[int], Iterator[npt.NDArray[np.generic]]]


@dataclass(frozen=True, eq=False)
class Blocks:
    """``number`` rows in blocks of ``size``; ``columns`` gives every column's parts in order, always anew.

    ``present`` gives the flags of the rows in the same way; left out, every row is present.
    """

    columns: Mapping[str, Reader]
    number: int
    size: int
    present: Reader | None = None

    def __iter__(self) -> Iterator[Block]:
        parts = [column(self.size) for column in self.columns.values()]
        sizes = (min(self.size, self.number - first) for first in range(0, self.number, self.size))
        everyone = (np.ones(size, dtype=bool) for size in sizes)
        here = everyone if self.present is None else self.present(self.size)
        for index, (flags, *values) in enumerate(zip(here, *parts, strict=True)):
            filled = {
                name: padded(blank(value, flags), self.size)
                for name, value in zip(self.columns, values, strict=True)
            }
            yield Block(index * self.size, filled, padded(holds_person(flags), self.size), self.number)
