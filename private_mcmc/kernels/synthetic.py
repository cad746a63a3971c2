"""The chain of a run on public synthetic rows, each of which stands for several: for simulations.

Weights of rows would change what one row may add to a gradient, so they are part of no schedule: this is the
only way to give some, and it hands out states without any statement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import NotYetSupported
from private_mcmc.kernels.chain import ChainRunner, steps_of
from private_mcmc.kernels.gradient import ClippedGradient, Columns, Whitening, clipped_gradient
from private_mcmc.kernels.keys import Streams
from private_mcmc.kernels.step import LangevinProgram, StepNumbers, step_program, without_numbers
from private_mcmc.potential.potential import Potential
from private_mcmc.potential.rowwise import at_each
from private_mcmc.schedule import Schedule
from private_mcmc.system import ON_FEW_ROWS

# Of the preconditioner's root and the clip.
Followed: TypeAlias = Callable[[jax.Array, jax.Array], Potential]


def synthetic_path(
    model: Followed,
    schedule: Schedule,
    theta: npt.ArrayLike,
    columns: Columns,
    weights: npt.ArrayLike,
    key: jax.Array,
) -> npt.NDArray[np.float64]:
    """States of one chain of ``model(root, clip)`` after every step from ``theta``, shape ``(steps, p)``.

    ``weights`` is ``(rows,)``. The step, the clipped sums, the noise and the loop are those of a run; the
    numbers of a schedule are arguments, so that all schedules of a model share one compiled program.
    """
    weighed = replace(schedule, num_rows=len(np.asarray(weights)))
    shared = without_numbers(weighed)
    if shared is None:
        raise NotYetSupported("only paths of one chain over all rows are simulated, in a full metric.")
    numbers = StepNumbers.of(schedule)
    parts = (partial(function, model, shared, numbers) for function in (_prepare, _advance))
    runner = ChainRunner(weighed, Whitening(numbers.root), None, *parts)
    with jax.enable_x64(True):
        given = jnp.asarray(weights, jnp.float64)
        path = runner.run(theta, runner.prepare(columns, given), Streams(key), lambda done: None)
    return np.asarray(path[0])


def _program(model: Followed, shared: Schedule, numbers: StepNumbers) -> LangevinProgram:
    read = model(jnp.asarray(numbers.root), jnp.asarray(numbers.clip))
    clipped = clipped_gradient(read, Whitening(numbers.root), numbers.clip)

    def prepare(columns: Columns, weights: jax.Array) -> Any:
        rows = clipped.prepare(columns, jnp.ones(len(weights), dtype=bool))
        return weights, jax.tree.map(lambda leaf: leaf[:, None], rows)

    def total(u: jax.Array, rows: Any) -> jax.Array:
        weights, each = rows
        # The clipped sum of every row by itself: what it adds is bounded by its weight times the clip only.
        found: jax.Array = weights @ at_each(partial(clipped.total, u), each)
        return found

    return step_program(read, shared, ClippedGradient(prepare, total), numbers)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=ON_FEW_ROWS)
def _prepare(
    model: Followed, shared: Schedule, numbers: StepNumbers, columns: Columns, weights: jax.Array
) -> Any:
    return _program(model, shared, numbers).prepare(columns, weights)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=ON_FEW_ROWS)
def _advance(
    model: Followed, shared: Schedule, numbers: StepNumbers, *now: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    return steps_of(_program(model, shared, numbers), shared)(*now)
