"""The chain of a run on public synthetic rows, each of which stands for several: for simulations.

Weights of rows would change what one row may add to a gradient, so they are part of no schedule: this is the
only way to give some, and it hands out states without any statement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import NotYetSupported
from private_mcmc.kernels.batches import BatchSum, StepKeys
from private_mcmc.kernels.chain import call_length, steps_of
from private_mcmc.kernels.clipping import Columns, Whitening
from private_mcmc.kernels.gradient import clipped_gradient, with_weights
from private_mcmc.kernels.step import LangevinProgram, StepNumbers, step_program, without_numbers
from private_mcmc.potential.potential import Potential
from private_mcmc.records import ON_FEW_ROWS
from private_mcmc.schedule import Schedule

# Of the preconditioner's root and the clip.
Followed: TypeAlias = Callable[[jax.Array, jax.Array], Potential]


@dataclass(frozen=True, eq=False)
class SyntheticChain:
    """Paths of one chain of ``model(root, clip)``, compiled once for all their schedules.

    The step, the clipped sums, the noise and the loop are those of :func:`langevin_program` and
    :func:`chain_runner`; the numbers of a schedule are arguments instead of constants.
    """

    model: Followed

    def path(
        self,
        schedule: Schedule,
        theta: npt.ArrayLike,
        columns: Columns,
        weights: npt.ArrayLike,
        key: jax.Array,
    ) -> npt.NDArray[np.float64]:
        """States after every step from ``θ_0 = theta``, shape ``(steps, p)``; ``weights`` is ``(rows,)``."""
        shared = without_numbers(replace(schedule, num_rows=len(np.asarray(weights))))
        if shared is None:
            raise NotYetSupported("only paths of one chain over all rows are simulated, in a full metric.")
        with jax.enable_x64(True):
            numbers = StepNumbers.of(schedule)
            rows = _prepare(self.model, shared, numbers, columns, jnp.asarray(weights))
            # By NumPy: a program for one inverse would cost more than the others save.
            u = jnp.asarray(np.linalg.inv(np.asarray(numbers.root)) @ np.asarray(theta, np.float64))[None]
            kept, size = [], call_length(shared)
            for first in range(0, schedule.num_steps, size):
                count = min(size, schedule.num_steps - first)
                u, states = _advance(self.model, shared, numbers, rows, key, u, first, count)
                kept.append(np.asarray(states)[:count, 0])
        return np.concatenate(kept)


def _program(model: Followed, shared: Schedule, numbers: StepNumbers) -> LangevinProgram:
    read = model(jnp.asarray(numbers.root), jnp.asarray(numbers.clip))
    clipped = clipped_gradient(read, Whitening(numbers.root), numbers.clip, states=1)

    def prepare(columns: Columns, weights: jax.Array) -> Any:
        return with_weights(clipped.prepare(columns, jnp.ones(len(weights), dtype=bool)), weights)

    every_row = BatchSum(prepare, lambda u, rows, draw, first=None: clipped.total(u, rows))
    return step_program(read, shared, every_row, numbers)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=ON_FEW_ROWS)
def _prepare(
    model: Followed, shared: Schedule, numbers: StepNumbers, columns: Columns, weights: jax.Array
) -> Any:
    return _program(model, shared, numbers).prepare(columns, weights)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=ON_FEW_ROWS)
def _advance(
    model: Followed,
    shared: Schedule,
    numbers: StepNumbers,
    rows: Any,
    key: jax.Array,
    u: jax.Array,
    first: jax.Array,
    count: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    advance = steps_of(_program(model, shared, numbers), shared)
    u, states, _ = advance(u, first, count, jnp.zeros((1, 0)), StepKeys(key), rows)
    return u, states
