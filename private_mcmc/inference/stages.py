"""What the stages of a plan do with the rows of one process, or of several that hold a part each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.inference.processes import releases, shared_values, summed
from private_mcmc.model.mark import model_marks, program_mark
from private_mcmc.planning import CompletedStage, CountsStage, MomentsStage, PathStage, Plan, Stage

Rows = dict[str, jax.Array]


@dataclass(frozen=True, eq=False)
class Held:
    """Rows on their devices, padded, and which are present; ``here`` of them lie in this process."""

    rows: Rows
    present: jax.Array
    here: int

    def local(self, column: jax.Array) -> np.ndarray:
        """The rows of a column that lie in this process, without those that fill up."""
        if column.is_fully_addressable:
            return np.asarray(column)[: self.here]
        shards = sorted(column.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        return np.concatenate([np.asarray(shard.data) for shard in shards])[: self.here]


def query(stage: MomentsStage | CountsStage, held: Held) -> CompletedStage:
    """What a query releases: of the sums of all processes, with the first one's noise."""
    present = held.local(held.present)
    if isinstance(stage, MomentsStage):
        vectors = _of_rows(stage.vectors, held)
        apart = (slice(None), *(None,) * (vectors.ndim - 1))
        exact = summed(stage.mechanism.sums(np.where(present[apart], vectors, 0.0)))
    else:
        exact = summed(stage.mechanism.sums(_of_rows(stage.cell, held), present))
    noised = shared_values(stage.mechanism.noised(exact) if releases() else np.zeros_like(exact))
    return CompletedStage(stage, stage.mechanism.released(noised))


def _of_rows(function: Callable[[Rows], jax.Array], held: Held) -> np.ndarray:
    """The function of this process's rows."""
    with jax.enable_x64(True):
        here = {name: jnp.asarray(held.local(column)) for name, column in held.rows.items()}
        return np.asarray(jax.vmap(function)(here))


def stage_mark(stage: Stage, plan: Plan) -> str:
    """A hash of all that says what a stage does with the rows."""
    what: list[object] = [type(stage).__name__, stage.statement.to_dict()]
    with jax.enable_x64(True):
        row = {name: jnp.zeros(one.event_shape, one.dtype) for name, one in plan.reading.rows.items}
    if isinstance(stage, PathStage):
        what += [stage.schedule, stage.start.tobytes()]
        if stage.derived is not None:
            what.append(program_mark(stage.derived, row))
            with jax.enable_x64(True):
                row |= stage.derived(row)
        what += model_marks(stage.reading or plan.reading)
    else:
        function = stage.vectors if isinstance(stage, MomentsStage) else stage.cell
        what += [stage.mechanism, program_mark(function, row)]
    return repr(what)


def with_derived(stage: PathStage, rows: Rows) -> Rows:
    """The rows with the columns that a path computes from each of them."""
    if stage.derived is None:
        return rows
    with jax.enable_x64(True):
        # Compiled, since rows of several processes are no arrays of one of them.
        return {**rows, **jax.jit(jax.vmap(stage.derived))(rows)}
