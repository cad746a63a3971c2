"""Rows in several places: over the devices of this process, or in partitions, which answer pure questions.

A partition holds some persons' rows. The driver alone has the schedule, the noise and its keys, the ledger
and the release; a partition is given states and keys of batches. Whoever makes partitions (blocks of a file,
other machines) implements :class:`Partition`. A person's rows are in one partition, and a row has the same
number whatever the partitions, so that its batches are the same. Answers are added in the order of the
partitions, in float64: one of the orders of summation that the accountant's rounding allowance covers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, PartitionSpec

from private_mcmc.domains.columns import HostColumn, blank, holds_person, padded
from private_mcmc.domains.persons import Slots
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.batches import StepKeys
from private_mcmc.kernels.chain import ChainRunner, observed
from private_mcmc.kernels.clipping import Columns, PreparedRows
from private_mcmc.kernels.step import LangevinProgram, Observable
from private_mcmc.schedule import Schedule

# Starts an answer; the function that it gives waits for it.
Ask = Callable[..., Callable[[], Any]]


@dataclass(frozen=True, eq=False)
class Question:
    """Pure functions of the rows, computed where they are; nothing but the answer leaves.

    Attributes:
        prepare: ``(columns, present) -> kept``, of columns as they are outside: it maps them into the domain.
        answer: ``(kept, first, *given) -> array``, where ``first`` is the number of the first row.
        reduce: what NumPy makes of the answer and ``present`` before it leaves; left out: nothing.
    """

    prepare: Callable[[Columns, jax.Array], PreparedRows]
    answer: Callable[..., jax.Array]
    reduce: Callable[[np.ndarray, np.ndarray], npt.NDArray[np.float64]] | None = None

    @cached_property
    def at_once(self) -> Callable[..., jax.Array]:
        """``(columns, present, first, *given) -> array``, compiled."""

        def whole(columns: Columns, present: jax.Array, first: jax.Array, *given: Any) -> jax.Array:
            return self.answer(self.prepare(columns, present), first, *given)

        return jax.jit(whole)


class Partition(Protocol):
    """Some persons' rows, wherever they are."""

    def ask(self, question: Question) -> Ask:
        """``ask(question)(*given)()`` is this partition's answer; asked again, it is the same."""


class Engine(Protocol):
    """Where rows lie besides this process."""

    def partitions(
        self,
        columns: Mapping[str, HostColumn],
        n: int,
        slots: Slots | None = None,
        before: tuple[Partition, ...] = (),
    ) -> tuple[Partition, ...]:
        """Partitions of the rows, in their order, or of ``slots``; a column may be that of presence.

        ``before``: partitions of the same rows in other slots, which are asked no more.
        """


def summed(question: Question, partitions: Sequence[Partition], *given: Any) -> npt.NDArray[np.float64]:
    """The answers of all partitions, added with one rounding, whatever their order."""
    with jax.enable_x64(True):
        started = [partition.ask(question)(*given) for partition in partitions]
        return rounded_once([np.asarray(answer()) for answer in started])


def rounded_once(parts: Sequence[np.ndarray]) -> npt.NDArray[np.float64]:
    """Their sum, each entry rounded once."""
    each = np.stack([np.ravel(part) for part in parts], axis=1)
    return np.asarray([math.fsum(entry) for entry in each]).reshape(np.shape(parts[0]))


def partitioned_runner(
    program: LangevinProgram,
    schedule: Schedule,
    mapped: Callable[[Columns], Columns],
    observable: Observable | None = None,
) -> ChainRunner:
    """The chain of ``schedule`` over partitions, whose columns ``mapped`` brings into the row domain.

    Its ``run`` takes partitions in the place of columns.
    """
    path, with_state = schedule.release == "path", observed(program, schedule, observable)

    def prepare(columns: Columns, present: jax.Array) -> PreparedRows:
        return program.prepare(mapped(columns), present)

    def answer(
        rows: PreparedRows, first: jax.Array, u: jax.Array, k: jax.Array, batches: jax.Array | None
    ) -> jax.Array:
        return program.data(u, k, batches, program.drawn(batches, k), rows, first)

    @jax.jit
    def move(
        u: jax.Array, k: jax.Array, key: jax.Array, rows_sum: jax.Array, total: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        u = program.move(u, k, program.noise(key, k), rows_sum)
        return u, with_state(u, total, k + 1), program.whitening.to_parameter(u)

    def advance(
        u: jax.Array, first: int, count: int, total: jax.Array, keys: StepKeys, asks: Sequence[Ask]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        def one(u: jax.Array, k: int, total: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            rows_sum = jnp.zeros_like(u)
            for part in [ask(u, k, keys.batches) for ask in asks]:
                rows_sum = rows_sum + part()
            moved: tuple[jax.Array, jax.Array, jax.Array] = move(u, k, keys.steps, rows_sum, total)
            return moved

        if not count:
            # Tried out: all rows are read, and all is compiled.
            return one(u, 0, total)
        states = []
        for k in range(first, first + count):
            u, total, state = one(u, k, total)
            states.append(np.asarray(state))
        return u, jnp.asarray(states if path else states[-1:]), total

    question = Question(prepare, answer)

    def ask_all(partitions: Sequence[Partition], present: None) -> list[Ask]:
        return [partition.ask(question) for partition in partitions]

    return ChainRunner(schedule, program.whitening, observable, ask_all, advance)  # type: ignore[arg-type]


class Block(NamedTuple):
    """Rows ``first, first + 1, …`` as they are outside.

    All blocks have one shape; ``present`` is false where there is no row: in holes, whose columns are zeros,
    and in what only fills the last block up.
    """

    first: int
    columns: Mapping[str, npt.NDArray[np.generic]]
    present: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Blocks:
    """A partition whose rows are read again for each answer, ``size`` at a time.

    They are the rows ``start, start + 1, …`` of the run. ``present``: their flags; left out, all are present.
    """

    columns: Mapping[str, HostColumn]
    size: int
    present: HostColumn | None = None
    start: int = 0

    def ask(self, question: Question) -> Ask:
        """The next block is read while the device works on this one, and at most two are on it."""

        def each(*given: Any) -> Iterator[Any]:
            for block in self:
                part = question.at_once(block.columns, block.present, self.start + block.first, *given)
                yield part if question.reduce is None else question.reduce(np.asarray(part), block.present)

        def started(*given: Any) -> Callable[[], Any]:
            if question.reduce is not None:
                return lambda: rounded_once(list(each(*given)))
            before: Any
            total: Any = 0.0
            for part in each(*given):
                before, total = total, total + part
                jax.block_until_ready(before)  # type: ignore[no-untyped-call]
            return lambda: total

        return started

    def __iter__(self) -> Iterator[Block]:
        columns = self.columns.values()
        number = len(next(iter(columns)).schema)
        parts = [column.blocks(self.size) for column in columns]
        sizes = (min(self.size, number - first) for first in range(0, number, self.size))
        here = (np.ones(size, dtype=bool) for size in sizes)
        flags: Iterator[np.ndarray] = here if self.present is None else self.present.blocks(self.size)
        if not number:
            # No row: a block without any, so that there is an answer.
            parts = [iter([column.loaded()]) for column in columns]
            flags = iter([np.ones(0, dtype=bool)])
        for index, (there, *values) in enumerate(zip(flags, *parts, strict=True)):
            filled = {
                name: padded(blank(value, there), self.size)
                for name, value in zip(self.columns, values, strict=True)
            }
            yield Block(index * self.size, filled, padded(holds_person(there), self.size))


Devices = int | Sequence[jax.Device] | None


def mesh_of(devices: Devices = None) -> Mesh | None:
    """Rows over the first so many of ``jax.devices()``, or over these; ``None``: on the default device.

    The numbers a run draws do not depend on it: the same keys give the same chain, up to the rounding of sums
    in another order, which the accountant's allowance covers for every order.
    """
    if devices is None:
        return None
    if isinstance(devices, int) and not 1 <= devices <= len(jax.devices()):
        raise DeclarationError(f"devices={devices}: there are {len(jax.devices())} of them.")
    chosen = jax.devices()[:devices] if isinstance(devices, int) else list(devices)
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise DeclarationError("devices: a number, or a sequence of jax.devices().")
    return Mesh(np.asarray(chosen), ("rows",))


def row_slots(mesh: Mesh | None, num_rows: int) -> int:
    """Row slots of all devices: ``num_rows``, and what fills the last share up."""
    return num_rows if mesh is None else -(-num_rows // mesh.size) * mesh.size


_EVERYWHERE, _BY_ROW = PartitionSpec(), PartitionSpec("rows")  # type: ignore[no-untyped-call]


def spread(program: LangevinProgram, mesh: Mesh | None, num_rows: int) -> LangevinProgram:
    """The program with its rows over the devices of ``mesh``: in a step only sums are communicated.

    ``prepare(columns, present)`` takes as many rows for every device.
    """
    if mesh is None:
        return program
    rows_here = row_slots(mesh, num_rows) // mesh.size

    def prepare(columns: Columns, present: jax.Array) -> PreparedRows:
        rows = program.prepare(columns, present)
        # A leading axis of devices, whatever the layout of the rows behind it.
        return jax.tree.map(lambda leaf: leaf[None], rows)

    def data(
        u: jax.Array, k: jax.Array, batches: jax.Array | None, drawn: jax.Array | None, rows: PreparedRows
    ) -> jax.Array:
        first = jax.lax.axis_index("rows") * rows_here
        own = jax.tree.map(lambda leaf: leaf[0], rows)
        total: jax.Array = jax.lax.psum(program.data(u, k, batches, drawn, own, first), "rows")  # type: ignore[no-untyped-call]
        return total

    shard = partial(jax.shard_map, mesh=mesh, check_vma=False)
    everywhere = (*[_EVERYWHERE] * 4, _BY_ROW)
    return replace(
        program,
        prepare=shard(prepare, in_specs=_BY_ROW, out_specs=_BY_ROW),
        data=shard(data, in_specs=everywhere, out_specs=_EVERYWHERE),
    )
