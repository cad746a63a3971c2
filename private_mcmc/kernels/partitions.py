"""Rows in several places: on devices, in files, at other machines, in partitions that answer pure questions.

A partition holds some persons' rows. The driver alone has the schedule, the noise and its keys, the ledger
and the release; a partition is given states and keys of batches. Whoever makes partitions on other machines
implements :class:`Partition`. A person's rows are in one partition, and a row has the same number whatever
the partitions, so that its batches are the same. Answers are added in the order of the partitions, in
float64: one of the orders of summation that the accountant's rounding allowance covers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.domains.columns import PRESENT, HostColumn, blank, holds_person, padded
from private_mcmc.domains.persons import Slots
from private_mcmc.kernels.chain import ChainRunner, Moved, observed
from private_mcmc.kernels.gradient import Columns, PreparedRows
from private_mcmc.kernels.keys import Streams
from private_mcmc.kernels.step import Drawn, LangevinProgram, Observable
from private_mcmc.schedule import Schedule

# Starts an answer; the function that it gives waits for it.
Ask = Callable[..., Callable[[], Any]]
HeldRows = dict[str, np.ndarray]


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
    def compiled(self) -> tuple[Callable[..., PreparedRows], Callable[..., jax.Array]]:
        """Both functions, compiled."""
        return jax.jit(self.prepare), jax.jit(self.answer)

    @cached_property
    def at_once(self) -> Callable[..., jax.Array]:
        """``(columns, present, first, *given) -> array``, compiled."""
        return jax.jit(lambda columns, present, *given: self.answer(self.prepare(columns, present), *given))

    def reduced(self, found: jax.Array, present: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """What leaves, once it is there."""
        values = np.asarray(found)
        return values if self.reduce is None else self.reduce(values, np.asarray(present))


class Partition(Protocol):
    """Some persons' rows, wherever they are."""

    def ask(self, question: Question) -> Ask:
        """``ask(question)(*given)()`` is this partition's answer; asked again, it is the same."""


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

    Its ``prepare`` takes partitions in the place of columns.
    """
    path, with_state = schedule.release == "path", observed(program, schedule, observable)

    def answer(rows: PreparedRows, first: jax.Array, u: jax.Array, k: jax.Array, batches: Drawn) -> jax.Array:
        return program.data(u, k, batches, program.drawn(batches, k), rows, first)

    @jax.jit
    def move(u: jax.Array, k: jax.Array, key: jax.Array, rows_sum: jax.Array, total: jax.Array) -> Moved:
        u = program.move(u, k, program.noise(key, k), rows_sum)
        return u, with_state(u, total, k + 1), program.whitening.to_parameter(u)

    def advance(
        u: jax.Array, first: int, count: int, total: jax.Array, keys: Streams, asks: Sequence[Ask]
    ) -> Moved:
        def one(u: jax.Array, k: int, total: jax.Array) -> Moved:
            rows_sum = np.zeros(u.shape)
            for part in [ask(u, k, keys.batches) for ask in asks]:
                rows_sum = rows_sum + np.asarray(part())
            moved: Moved = move(u, k, keys.steps, rows_sum, total)
            return moved

        if not count:
            # Tried out: all rows are read, and all is compiled.
            return one(u, 0, total)
        states = []
        for k in range(first, first + count):
            u, total, state = one(u, k, total)
            states.append(np.asarray(state))
        return u, jnp.asarray(states if path else states[-1:]), total

    question = Question(lambda columns, present: program.prepare(mapped(columns), present), answer)
    return ChainRunner(
        schedule, program.whitening, observable, lambda parts: [part.ask(question) for part in parts], advance
    )


@dataclass(frozen=True, eq=False)
class Resident:
    """A partition in the memory of a device, prepared once a question: rows ``start, …`` of the run."""

    columns: Columns
    present: jax.Array
    start: int = 0

    def ask(self, question: Question) -> Ask:
        """It is computed where the columns lie."""
        prepare, answer = question.compiled
        kept = prepare(self.columns, self.present)

        def started(*given: Any) -> Callable[[], Any]:
            found = answer(kept, self.start, *given)
            return lambda: question.reduced(found, self.present)

        return started


@dataclass(frozen=True, eq=False)
class Blocks:
    """A partition that is read again for each answer, ``size`` rows at a time: the run's from ``start`` on.

    A column may be that of presence; without one all are present.
    """

    columns: Mapping[str, HostColumn]
    size: int
    start: int = 0

    def ask(self, question: Question) -> Ask:
        """The next block is read while the device works on this one, and at most two are on it."""

        def each(*given: Any) -> Iterator[Any]:
            for first, columns, present in self:
                part = question.at_once(columns, present, self.start + first, *given)
                yield part if question.reduce is None else question.reduced(part, present)

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

    def __iter__(self) -> Iterator[tuple[int, HeldRows, npt.NDArray[np.bool_]]]:
        """The number of the first row of each block, its rows as they are outside, and which are present.

        All blocks have one shape: there is no row in holes, whose columns are zeros, nor in what only fills
        the last block up.
        """
        columns = {name: one for name, one in self.columns.items() if name != PRESENT}
        number = len(next(iter(columns.values())).schema)
        parts = [column.blocks(self.size) for column in columns.values()]
        sizes = (min(self.size, number - first) for first in range(0, number, self.size))
        here = (np.ones(size, dtype=bool) for size in sizes)
        flags = self.columns[PRESENT].blocks(self.size) if PRESENT in self.columns else here
        if not number:
            # No row: a block without any, so that there is an answer.
            parts = [iter([column.loaded()]) for column in columns.values()]
            flags = iter([np.ones(0, dtype=bool)])
        for index, (there, *values) in enumerate(zip(flags, *parts, strict=True)):
            filled = {k: padded(blank(v, there), self.size) for k, v in zip(columns, values, strict=True)}
            yield index * self.size, filled, padded(holds_person(there), self.size)


@dataclass(frozen=True, eq=False)
class Share:
    """What one of several holds: ``size`` rows, or slots with those that lie in them, from ``first`` on."""

    columns: Mapping[str, HostColumn]
    size: int
    first: int = 0
    slots: Slots | None = field(default=None, repr=False)

    def read(self) -> tuple[HeldRows, npt.NDArray[np.bool_]]:
        """The rows as they are outside, and which are present; zeros where there is none."""
        if self.slots is None:
            # To the end, where files are checked again, and cells without a fate are refused.
            ((_, rows, present),) = Blocks(self.columns, self.size)
        else:
            rows = self.slots.filled(self.columns)
            present = rows.pop(PRESENT)
        return rows, present


def shares(columns: Mapping[str, HostColumn], count: int, slots: Slots | None) -> list[Share]:
    """All rows divided among ``count``, in order; fewer where there are too few."""
    number = len(next(iter(columns.values())).schema) if slots is None else slots.size
    size, found = max(1, -(-number // count)), []
    for first in range(0, max(number, 1), size):
        part, own = slots and slots.part(first, first + size), columns
        if slots is None:
            own = {name: one.part(first, min(first + size, number)) for name, one in columns.items()}
        found.append(Share(own, size, first, part))
    return found


def on_devices(
    columns: Mapping[str, HostColumn], slots: Slots | None, devices: Sequence[jax.Device | None]
) -> tuple[Partition, ...]:
    """A share in the memory of each device, copied: an array of the caller's may change."""
    found = []
    with jax.enable_x64(True):
        for share, device in zip(shares(columns, len(devices), slots), devices, strict=False):
            rows, present = jax.device_put(share.read(), device, may_alias=False)
            found.append(Resident(rows, present, share.first))
    return tuple(found)
