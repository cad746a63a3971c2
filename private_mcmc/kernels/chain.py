"""Running whole chains: one compiled block of steps, called until the schedule is done.

Only what the schedule releases is kept: every state for a path, the declared states, the last one, or a
running sum for an average. How a run is cut into calls depends on the schedule alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float

from private_mcmc.kernels.batches import drawn_size
from private_mcmc.kernels.gradient import Columns, PreparedRows, Whitening, whitening
from private_mcmc.kernels.keys import Streams
from private_mcmc.kernels.step import (
    Drawn,
    LangevinProgram,
    Observable,
    States,
    StepNumbers,
    check_magnitudes,
    langevin_program,
    whole_steps,
    without_numbers,
)
from private_mcmc.potential.potential import Potential
from private_mcmc.potential.rowwise import at_each
from private_mcmc.schedule import Average, Schedule

Moved = tuple[jax.Array, jax.Array, jax.Array]
Advance = Callable[..., Moved]
Sums = Float[Array, "chains d"]


class ChainState(NamedTuple):
    """A run so far, curator-side: enough to go on from, with the keys and the rows.

    ``u`` in whitened coordinates; ``total``: every chain's running sum; ``kept``: states kept, unconstrained.
    """

    done: int
    u: Float[np.ndarray, "chains p"]
    total: Float[np.ndarray, "chains d"]
    kept: Float[np.ndarray, "kept chains p"]


class Saving(Protocol):
    """Keeps a long run where it can be taken up again; ``state``: where it is taken up, if it is."""

    state: ChainState | None

    def due(self) -> bool:
        """Whether it is time to save."""

    def save(self, state: ChainState) -> None:
        """Save it."""


@dataclass(frozen=True, eq=False)
class ChainRunner:
    """A schedule's chain, compiled at its first run and reused by later runs of equal shape.

    ``prepare`` makes of rows what ``advance`` takes, once a run. ``advance(u, first, count, total, keys,
    rows)`` takes ``count`` steps after step ``first`` and gives the state, the states to keep, unconstrained,
    and the running sums: of a path every state that it passed, and otherwise the last one.
    """

    schedule: Schedule
    whitening: Whitening
    observable: Observable | None
    prepare: Callable[..., PreparedRows]
    advance: Advance

    def run(
        self,
        theta: npt.ArrayLike,
        rows: PreparedRows,
        streams: Streams,
        on_progress: Callable[[int], None],
        saving: Saving | None = None,
    ) -> npt.NDArray[np.float64]:
        """Run from a public ``θ_0``, ``(p,)``, or on from a saved state; ``on_progress``: steps done.

        Returns the states at the released steps, unconstrained, ``(chains, kept, p)``, or of an average the
        mean of the observable over kept steps and chains, ``(d,)``: curator-side.
        """
        schedule, path = self.schedule, self.schedule.release == "path"
        with jax.enable_x64(True):
            state = None if saving is None else saving.state
            if state is None:
                state = self.first_state(theta)
                if saving is not None:
                    # From here on the keys are on disk: a run that crashes is the same when it goes on.
                    saving.save(state)
            u, total, kept = jnp.asarray(state.u), jnp.asarray(state.total), [state.kept]
            for first, count, keep in calls(schedule, state.done):
                u, states, total = self.advance(u, first, count, total, streams, rows)
                if keep:
                    kept.append(np.asarray(states)[: count if path else 1])
                u.block_until_ready()
                on_progress(first + count)
                if saving is not None and saving.due():
                    kept = [np.concatenate(kept)]
                    saving.save(ChainState(first + count, np.asarray(u), np.asarray(total), kept[0]))
        if isinstance(schedule.release, Average):
            number = schedule.num_steps - schedule.release.first + 1
            return np.asarray(np.asarray(total).sum(axis=0) / (number * schedule.num_chains))
        return np.swapaxes(np.concatenate(kept), 0, 1)

    def try_out(self, theta: npt.ArrayLike, rows: PreparedRows, streams: Streams) -> None:
        """Call for no step all that ``run`` calls: it is compiled then, and what can fail has failed."""
        with jax.enable_x64(True):
            state = self.first_state(theta)
            called = self.advance(jnp.asarray(state.u), 0, 0, jnp.asarray(state.total), streams, rows)
            jax.block_until_ready(called)  # type: ignore[no-untyped-call]

    def first_state(self, theta: npt.ArrayLike) -> ChainState:
        """All chains at ``theta``, whitened."""
        start = self.whitening.from_parameter(jnp.asarray(theta, np.float64))
        observable, chains, dim = self.observable, self.schedule.num_chains, self.schedule.dim
        # Through a lambda: JAX describes what it traces, and a callable object by the text of all its fields.
        shape = jax.eval_shape(lambda u: observable(u), jnp.zeros(dim)).shape if observable else (0,)
        u = np.broadcast_to(np.asarray(start), (chains, dim))
        return ChainState(0, u, np.zeros((chains, *shape)), np.zeros((0, chains, dim)))


def chain_runner(model: Potential, schedule: Schedule, observable: Observable | None = None) -> ChainRunner:
    """The chain of :func:`langevin_program`; ``observable`` maps ``θ`` of shape ``(p,)`` to a vector.

    It is compiled once for all paths that differ in numbers alone: what one stage of a plan learns changes
    clip, step and metric of the next, which are arguments, like rows. Its ``prepare`` takes columns in their
    domains, and which rows are present.
    """
    check_magnitudes(schedule)
    prepare, advance = _compiled(model, without_numbers(schedule) or schedule, observable)
    numbers, change = StepNumbers.of(schedule), whitening(schedule.preconditioner, schedule.dim)
    return ChainRunner(schedule, change, observable, partial(prepare, numbers), partial(advance, numbers))


@lru_cache(maxsize=8)
def _compiled(
    model: Potential, schedule: Schedule, observable: Observable | None
) -> tuple[Callable[..., PreparedRows], Advance]:
    def prepare(numbers: StepNumbers, columns: Columns, present: jax.Array) -> PreparedRows:
        return langevin_program(model, schedule, numbers).prepare(columns, present)

    def advance(numbers: StepNumbers, *now: Any) -> Moved:
        return steps_of(langevin_program(model, schedule, numbers), schedule, observable)(*now)

    return jax.jit(prepare), jax.jit(advance)


def observed(
    program: LangevinProgram, schedule: Schedule, observable: Observable | None
) -> Callable[..., jax.Array]:
    """``(u, total, done) ↦ total``, with what is observed of the states after step ``done`` added."""
    first_kept = schedule.release.first if isinstance(schedule.release, Average) else 0

    def with_state(u: States, total: Sums, done: jax.Array) -> Sums:
        if observable is None:
            return total
        values = at_each(observable, program.whitening.to_parameter(u))
        return total + jnp.where(done >= first_kept, values, 0.0)

    return with_state


def steps_of(program: LangevinProgram, schedule: Schedule, observable: Observable | None = None) -> Advance:
    """``advance``: some steps, the states to keep, and running sums."""
    path, size = schedule.release == "path", call_length(schedule)
    with_state = observed(program, schedule, observable)

    def advance(
        u: States, first: jax.Array, count: jax.Array, total: Sums, keys: Streams, rows: PreparedRows
    ) -> tuple[States, Float[Array, "kept chains p"], Sums]:
        def drawn(j: jax.Array) -> tuple[jax.Array, Drawn]:
            return program.noise(keys.steps, first + j), program.drawn(keys.batches, first + j)

        def one(j: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            u, total, states = carry
            noise, batch = jax.tree.map(lambda leaf: leaf[j], ahead)
            # A step beyond what was drawn has no noise at all, and not another's.
            noise = jnp.where(j < size, noise, jnp.nan)
            k = first + j
            u = program.move(u, k, noise, program.data(u, k, keys.batches, batch, rows))
            if path:
                states = states.at[j].set(program.whitening.to_parameter(u))
            return u, with_state(u, total, k + 1), states

        # All at once: one by one they take longer than what a step does of few rows.
        ahead = jax.vmap(drawn)(jnp.arange(size))
        states = jnp.zeros((size if path else 0, *u.shape), u.dtype)
        u, total, states = jax.lax.fori_loop(0, count, one, (u, total, states))
        return u, states if path else program.whitening.to_parameter(u)[None], total

    return advance


# States that a call keeps, and what it draws ahead for its steps: a few megabytes.
_BUFFER_ELEMENTS, _DRAWN_ELEMENTS = 2**22, 2**19
_CALLS = 64


def call_length(schedule: Schedule) -> int:
    """Steps of one call: some dozens of calls in all, more where one would draw or keep too many numbers."""
    state = schedule.num_chains * schedule.dim
    most = -(-whole_steps(schedule.num_steps) // _CALLS)
    most = min(most, _DRAWN_ELEMENTS // (state + schedule.num_chains * drawn_size(schedule)))
    if schedule.release == "path":
        most = min(most, _BUFFER_ELEMENTS // state)
    elif isinstance(schedule.release, tuple):
        most = min(most, int(np.diff(schedule.release, prepend=0).max()))
    return max(1, most)


def calls(schedule: Schedule, done: int = 0) -> Iterator[tuple[int, int, bool]]:
    """The calls of a run, or of what is left of it after ``done`` steps: first, number, whether to keep.

    A state that is kept ends a call, but on a path, where all of them are.
    """
    most, release = call_length(schedule), schedule.release
    kept = release if isinstance(release, tuple) else (schedule.num_steps,)
    for stop in kept:
        while done < stop:
            count = min(most, stop - done)
            done += count
            keep = release == "path" or (done == stop and not isinstance(release, Average))
            yield done - count, count, keep
