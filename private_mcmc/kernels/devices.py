"""Where a run lies: its rows over the devices of this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.batches import BatchKeys
from private_mcmc.kernels.clipping import Columns, PreparedRows
from private_mcmc.kernels.step import LangevinProgram

Devices = int | Sequence[jax.Device] | None


@dataclass(frozen=True)
class Layout:
    """Rows over ``devices``, each of which holds all chains; none for a run on the default device.

    The numbers a run draws do not depend on its layout: the same keys give the same chain, up to the
    rounding of sums in another order, which the accountant's allowance covers for every order.
    """

    devices: tuple[jax.Device, ...] = ()

    @cached_property
    def mesh(self) -> Mesh | None:
        """The mesh with the axis ``rows``, or ``None`` on the default device."""
        return Mesh(np.asarray(self.devices), ("rows",)) if self.devices else None

    def rows_here(self, num_rows: int) -> int:
        """Row slots of one device."""
        return -(-num_rows // max(1, len(self.devices)))

    def slots(self, num_rows: int) -> int:
        """Row slots of all devices: ``num_rows``, and what fills the last share up."""
        return self.rows_here(num_rows) * max(1, len(self.devices))


ONE_DEVICE = Layout()


def layout(devices: Devices = None) -> Layout:
    """Rows over the first so many of ``jax.devices()``, or over these; the default device if left out."""
    if devices is None:
        return ONE_DEVICE
    if isinstance(devices, int):
        if not 1 <= devices <= len(jax.devices()):
            raise DeclarationError(f"devices={devices}: there are {len(jax.devices())} of them.")
        return Layout(tuple(jax.devices()[:devices]))
    chosen = tuple(devices)
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise DeclarationError("devices: a number, or a sequence of jax.devices().")
    return Layout(chosen)


_EVERYWHERE, _BY_ROW = PartitionSpec(), PartitionSpec("rows")  # type: ignore[no-untyped-call]


def spread(program: LangevinProgram, layout: Layout, num_rows: int) -> LangevinProgram:
    """The program with its rows over the devices of ``layout``: in a step only sums are communicated.

    ``prepare(columns, present)`` takes ``layout.rows_here(num_rows)`` rows for every device.
    """
    if layout.mesh is None:
        return program
    rows_here = layout.rows_here(num_rows)

    def prepare(columns: Columns, present: jax.Array) -> PreparedRows:
        rows = program.prepare(columns, present)
        # A leading axis of devices, whatever the layout of the rows behind it.
        return jax.tree.map(lambda leaf: leaf[None], rows)

    def data(u: jax.Array, k: jax.Array, batches: BatchKeys, rows: PreparedRows) -> jax.Array:
        first = jax.lax.axis_index("rows") * rows_here
        own = jax.tree.map(lambda leaf: leaf[0], rows)
        total: jax.Array = jax.lax.psum(program.data(u, k, batches, own, first), "rows")  # type: ignore[no-untyped-call]
        return total

    shard = partial(jax.shard_map, mesh=layout.mesh, check_vma=False)
    everywhere = (_EVERYWHERE, _EVERYWHERE, _EVERYWHERE, _BY_ROW)
    return replace(
        program,
        prepare=shard(prepare, in_specs=_BY_ROW, out_specs=_BY_ROW),
        data=shard(data, in_specs=everywhere, out_specs=_EVERYWHERE),
    )
