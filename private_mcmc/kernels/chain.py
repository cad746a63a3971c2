"""Running whole chains: one compiled block of steps, called until the schedule is done.

Only what the schedule releases is kept: every state for a path, the declared states, the last one, or a
running sum for an average. How a run is cut into calls depends on the schedule alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float

from private_mcmc.accounting.langevin.sensitivity import rows_summed
from private_mcmc.kernels.batches import StepKeys, drawn_size
from private_mcmc.kernels.gradient.clipping import Columns, PreparedRows
from private_mcmc.kernels.step import (
    LangevinProgram,
    Observable,
    PathNumbers,
    langevin_program,
    without_numbers,
)
from private_mcmc.potential.potential import Potential
from private_mcmc.schedule import Average, Schedule

Advance = Callable[..., tuple[jax.Array, jax.Array, jax.Array]]


class Streams(NamedTuple):
    """Independent random keys of one run; ``batches`` is needed by schedules that draw batches."""

    start: jax.Array
    steps: jax.Array
    batches: jax.Array | None = None


class ChainState(NamedTuple):
    """A run so far, curator-side: enough to go on from, with the keys and the rows.

    ``u`` in whitened coordinates; ``total``: every chain's running sum; ``kept``: states kept, unconstrained.
    """

    done: int
    u: Float[np.ndarray, "chains p"]
    total: Float[np.ndarray, "chains d"]
    kept: Float[np.ndarray, "kept chains p"]


class ChainOutput(NamedTuple):
    """Curator-side result of a run.

    ``states``: unconstrained states at the released steps, or ``None``.
    ``average``: mean of the observable over kept steps and chains, or ``None``.
    """

    states: Float[np.ndarray, "chains kept p"] | None
    average: Float[np.ndarray, " d"] | None


@runtime_checkable
class Saving(Protocol):
    """Keeps a long run's state where it can be taken up again."""

    def due(self) -> bool:
        """Whether it is time to save."""

    def save(self, state: ChainState) -> None:
        """Save it."""


@dataclass(frozen=True, eq=False)
class ChainRunner:
    """A schedule's chain, compiled at its first run and reused by later runs of equal shape.

    ``advance(u, first, gaps, count, total, keys, rows)`` takes ``count`` pieces of ``gaps`` steps after
    step ``first`` and gives the states, the states after each piece, and the running sums. It was compiled
    for calls of the length of those of ``paced``, the schedule itself if left out.
    """

    schedule: Schedule
    program: LangevinProgram
    observable: Observable | None
    prepare: Callable[[Columns, jax.Array], PreparedRows]
    advance: Advance
    paced: Schedule | None = None

    def run(
        self,
        theta: npt.ArrayLike,
        columns: Columns,
        present: jax.Array,
        streams: Streams,
        on_progress: Callable[[int], None],
        saving: Saving | None = None,
        state: ChainState | None = None,
    ) -> ChainOutput:
        """Run from ``θ_0`` of shape ``(p,)`` (public), or on from ``state``; ``on_progress``: steps done."""
        with jax.enable_x64(True):
            rows = self.prepare(columns, present)
            if state is None:
                state = first_state(self.program, self.schedule, theta, self.observable)
            keys = StepKeys(streams.steps, streams.batches)

            def advance(*now: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
                return self.advance(*now, keys, rows)

            return follow(self.schedule, advance, state, on_progress, saving, self.paced)

    def try_out(self, theta: npt.ArrayLike, columns: Columns, present: jax.Array, streams: Streams) -> None:
        """Call for no step all that ``run`` calls: it is compiled then, and what can fail has failed."""
        with jax.enable_x64(True):
            rows = self.prepare(columns, present)
            state = first_state(self.program, self.schedule, theta, self.observable)
            gaps = np.zeros(buffer_size(self.paced or self.schedule), np.int64)
            keys = StepKeys(streams.steps, streams.batches)
            called = self.advance(jnp.asarray(state.u), 0, gaps, 0, jnp.asarray(state.total), keys, rows)
            for array in called:
                array.block_until_ready()


def first_state(
    program: LangevinProgram, schedule: Schedule, theta: npt.ArrayLike, observable: Observable | None
) -> ChainState:
    """All chains at ``theta``, whitened."""
    start = program.whitening.from_parameter(jnp.asarray(theta, dtype=jnp.float64))
    # Through a lambda: JAX describes what it traces, and a callable object by the text of all its fields.
    shape = jax.eval_shape(lambda u: observable(u), jnp.zeros(schedule.dim)).shape if observable else ()
    chains, dim = schedule.num_chains, schedule.dim
    total = np.zeros((chains, *shape) if observable is not None else (chains, 0))
    return ChainState(0, np.broadcast_to(np.asarray(start), (chains, dim)), total, np.zeros((0, chains, dim)))


def follow(
    schedule: Schedule,
    advance: Callable[..., tuple[jax.Array, jax.Array, jax.Array]],
    state: ChainState,
    on_progress: Callable[[int], None],
    saving: Saving | None,
    paced: Schedule | None = None,
) -> ChainOutput:
    """Call ``advance(u, first, gaps, count, total)`` until the schedule is done; keep what it releases.

    The calls are those of ``paced``, for which ``advance`` was compiled.
    """
    u, total, kept = jnp.asarray(state.u), jnp.asarray(state.total), [state.kept]
    size = buffer_size(paced or schedule)
    if saving is not None and state.done == 0:
        # From here on the keys are on disk, and a run that crashes is the same run when it goes on.
        saving.save(state)
    for segment in segments(schedule, state.done, paced):
        count = len(segment.gaps)
        gaps = np.pad(segment.gaps, (0, size - count))
        u, states, total = advance(u, segment.first, gaps, count, total)
        if segment.keep.any():
            kept.append(np.asarray(states)[:count][segment.keep])
        u.block_until_ready()
        on_progress(segment.last)
        if saving is not None and saving.due():
            kept = [np.concatenate(kept)]
            saving.save(ChainState(segment.last, np.asarray(u), np.asarray(total), kept[0]))
    if isinstance(schedule.release, Average):
        count = schedule.num_steps - schedule.release.first + 1
        return ChainOutput(None, np.asarray(total).sum(axis=0) / (count * schedule.num_chains))
    return ChainOutput(np.swapaxes(np.concatenate(kept), 0, 1), None)


def chain_runner(
    program: LangevinProgram, schedule: Schedule, observable: Observable | None = None
) -> ChainRunner:
    """Compile-ready chain of ``schedule``; ``observable`` maps ``θ`` of shape ``(p,)`` to a vector."""
    advance = pieces(program, schedule, observable)
    return ChainRunner(schedule, program, observable, jax.jit(program.prepare), jax.jit(advance))


def path_runner(model: Potential, schedule: Schedule) -> ChainRunner:
    """The chain of :func:`langevin_program`, compiled once for all paths that differ in numbers alone.

    What one stage of a plan learns changes clip, step and metric of the next: they are arguments, like rows.
    """
    shared = without_numbers(schedule)
    program = langevin_program(model, schedule)
    if shared is None:
        return chain_runner(program, schedule)
    prepare, advance = _shared_path(model, shared)
    with jax.enable_x64(True):
        numbers = PathNumbers.of(schedule)
    prepared, advanced = partial(prepare, numbers), partial(advance, numbers)
    return ChainRunner(schedule, program, None, prepared, advanced, shared)


@lru_cache(maxsize=8)
def _shared_path(model: Potential, shared: Schedule) -> tuple[Callable[..., PreparedRows], Advance]:
    def prepare(numbers: PathNumbers, columns: Columns, present: jax.Array) -> PreparedRows:
        return langevin_program(model, shared, numbers=numbers).prepare(columns, present)

    def advance(numbers: PathNumbers, *now: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        program = langevin_program(model, shared, numbers=numbers)
        return pieces(program, shared, None)(*now)

    return jax.jit(prepare), jax.jit(advance)


def observed(
    program: LangevinProgram, schedule: Schedule, observable: Observable | None
) -> Callable[..., jax.Array]:
    """``(u, total, done) ↦ total``, with what is observed of the states after step ``done`` added."""
    first_kept = schedule.release.first if isinstance(schedule.release, Average) else 0

    def with_state(
        u: Float[Array, "chains p"], total: Float[Array, "chains d"], done: jax.Array
    ) -> Float[Array, "chains d"]:
        if observable is None:
            return total
        values = jax.vmap(observable)(program.whitening.to_parameter(u))
        return total + jnp.where(done >= first_kept, values, 0.0)

    return with_state


def pieces(program: LangevinProgram, schedule: Schedule, observable: Observable | None) -> Advance:
    """``advance``: pieces of steps, the state after each of them, running sums."""
    every = schedule.release == "path"
    size, most = buffer_size(schedule), longest(schedule)
    with_state = observed(program, schedule, observable)

    def advance(
        u: Float[Array, "chains p"],
        first: jax.Array,
        gaps: jax.Array,
        count: jax.Array,
        total: Float[Array, "chains d"],
        keys: StepKeys,
        rows: PreparedRows,
    ) -> tuple[Float[Array, "chains p"], Float[Array, "kept chains p"], Float[Array, "chains d"]]:
        drawn = program.ahead(keys, jnp.asarray(first), min(size, most) if every else most)

        def one(k: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            u = program.step(carry[0], k, drawn, rows)
            return u, with_state(u, carry[1], k + 1)

        def piece(j: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            u, total, states, k = carry
            if every:
                u, total = one(k, (u, total))
            else:
                u, total = jax.lax.fori_loop(k, k + gaps[j], one, (u, total))
            return u, total, states.at[j].set(program.whitening.to_parameter(u)), k + gaps[j]

        states = jnp.zeros((size, *u.shape), u.dtype)
        start = u, total, states, jnp.asarray(first, gaps.dtype)
        u, total, states, _ = jax.lax.fori_loop(0, count, piece, start)
        return u, states, total

    return advance


_BUFFER_ELEMENTS = 2**22
_FEWEST = 64
_MOST = 1024
# A call that does about this many multiplications takes about a tenth of a second on a few cores.
_WORK = 2**28
# What a call draws ahead for its steps: a few megabytes.
_DRAWN_ELEMENTS = 2**19
# What a step costs besides its rows, in multiplications.
_STEP_WORK = 2**14


class Segment(NamedTuple):
    """One call: steps ``first + 1, …``, in pieces of ``gaps`` steps; whether the end of a piece is kept."""

    first: int
    gaps: npt.NDArray[np.int64]
    keep: npt.NDArray[np.bool_]

    @property
    def last(self) -> int:
        """Steps done when it ends."""
        return self.first + int(self.gaps.sum())


def stops(schedule: Schedule) -> npt.NDArray[np.int64]:
    """The steps whose states are kept, in order; for an average the last step, whose state is not."""
    if schedule.release == "path":
        return np.arange(1, schedule.num_steps + 1)
    if isinstance(schedule.release, tuple):
        return np.asarray(schedule.release, dtype=np.int64)
    return np.asarray([schedule.num_steps])


def buffer_size(schedule: Schedule) -> int:
    """States that one call gives back at most: memory is bounded whatever the number of steps."""
    return max(1, min(len(stops(schedule)), longest(schedule), _BUFFER_ELEMENTS // _state_size(schedule)))


def longest(schedule: Schedule) -> int:
    """Steps of one call: some ten calls a second, neither a few dozen nor thousands in all.

    There are more calls where that many steps would draw too many numbers at once.
    """
    work = rows_summed(schedule) * _state_size(schedule) + _STEP_WORK
    calls = min(_MOST, max(_FEWEST, schedule.num_steps * work // _WORK))
    drawn = schedule.num_chains * (schedule.dim + drawn_size(schedule))
    return max(1, min(-(-schedule.num_steps // calls), _DRAWN_ELEMENTS // drawn))


def segments(schedule: Schedule, done: int = 0, paced: Schedule | None = None) -> Iterator[Segment]:
    """The calls of a run, or of what is left of it after ``done`` steps; as long as those of ``paced``."""
    wanted, most = stops(schedule), longest(paced or schedule)
    edges = np.union1d(wanted, np.arange(most, wanted[-1], most))
    keep = np.isin(edges, wanted) & (not isinstance(schedule.release, Average))
    gaps = np.diff(edges, prepend=0)
    call = (edges - 1) // most
    begin = int(np.searchsorted(edges, done, side="right"))
    size = buffer_size(paced or schedule)
    while begin < len(edges):
        end = min(begin + size, int(np.searchsorted(call, call[begin], side="right")))
        first = int(edges[begin] - gaps[begin])
        yield Segment(first, gaps[begin:end], keep[begin:end])
        begin = end


def _state_size(schedule: Schedule) -> int:
    return schedule.num_chains * schedule.dim
