"""A run over a mesh of devices: rows and chains in shares, one all-reduce of the rows' sum a step.

Every device moves its own chains with the same noise, so nothing else has to travel. The order in which
rows are added differs from that on one device; the accountant's rounding allowance bounds every order
(Higham 2002, §4.2): absent rows add zeros, which is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.sharding import PartitionSpec

from private_mcmc.kernels.gradient.clipped import Columns
from private_mcmc.kernels.placement.devices import Layout
from private_mcmc.kernels.randomness.batches import StepKeys
from private_mcmc.kernels.step import LangevinProgram, Place
from private_mcmc.schedule import Schedule

Advance = Callable[..., tuple[jax.Array, jax.Array, jax.Array]]

_EVERYWHERE, _BY_ROW = PartitionSpec(), PartitionSpec("rows")  # type: ignore[no-untyped-call]


def on_mesh(
    layout: Layout,
    program: LangevinProgram,
    schedule: Schedule,
    several: Callable[[Callable[..., jax.Array]], Advance],
) -> tuple[Callable[..., Any], Advance]:
    """``prepare`` and ``advance`` over the mesh; ``several`` makes the latter of one step.

    ``prepare(columns, present)`` takes ``layout.rows_here(n)`` rows for every device. States and sums go
    in and come out whole, the same on every device.
    """
    rows_here = layout.rows_here(schedule.num_rows)
    chains_here = schedule.num_chains // layout.chain_devices

    def place() -> Place:
        chain, row = jax.lax.axis_index("chains"), jax.lax.axis_index("rows")
        return Place(chain * chains_here, row * rows_here)

    def step(u: jax.Array, k: jax.Array, keys: StepKeys, rows: Any) -> jax.Array:
        total = jax.lax.psum(program.data(u, k, keys, rows, place()), "rows")  # type: ignore[no-untyped-call]
        return program.move(u, k, keys, total, place())

    def prepare(columns: Columns, present: jax.Array) -> Any:
        everyone = jax.lax.all_gather(present, "rows", tiled=True)[: schedule.num_rows]
        rows = program.prepare(columns, present, everyone)
        # A leading axis of devices, whatever the layout of the rows behind it.
        return jax.tree.map(lambda leaf: leaf[None], rows)

    def advance(
        u: jax.Array,
        first: jax.Array,
        gaps: jax.Array,
        count: jax.Array,
        total: jax.Array,
        keys: StepKeys,
        rows: Any,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        here = partial(
            jax.lax.dynamic_slice_in_dim, start_index=place().chain, slice_size=chains_here, axis=0
        )
        whole = partial(jax.lax.all_gather, axis_name="chains", tiled=True)
        own = jax.tree.map(lambda leaf: leaf[0], rows)
        u, states, total = several(step)(here(u), first, gaps, count, here(total), keys, own)
        return whole(u), whole(states, axis=1), whole(total)

    shard = partial(jax.shard_map, mesh=layout.mesh, check_vma=False)
    return (
        shard(prepare, in_specs=_BY_ROW, out_specs=_BY_ROW),
        shard(advance, in_specs=(*(_EVERYWHERE,) * 6, _BY_ROW), out_specs=_EVERYWHERE),
    )
