"""Where a run lies: its chains and its rows over the devices of this process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, get_args

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.batches import BatchKeys
from private_mcmc.kernels.gradient.clipping import Columns, PreparedRows
from private_mcmc.kernels.step import LangevinProgram, Place
from private_mcmc.schedule import Schedule

ChainMethod = Literal["vectorized", "parallel", "sequential"]
Devices = int | Sequence[jax.Device] | None


@dataclass(frozen=True)
class Layout:
    """Chains along the first axis of a mesh of devices, rows along the second.

    The numbers a run draws do not depend on its layout: the same keys give the same chain, up to the
    rounding of sums in another order, which the accountant's allowance covers for every order.

    Attributes:
        devices: of the mesh; none for a run on the default device.
        chain_devices: how many devices the chains are spread over; the rows over the others.
        one_by_one: gradients are taken chain after chain, with the memory of a single chain.
    """

    devices: tuple[jax.Device, ...] = ()
    chain_devices: int = 1
    one_by_one: bool = False

    @cached_property
    def mesh(self) -> Mesh | None:
        """The mesh with axes ``chains`` and ``rows``, or ``None`` on the default device."""
        if not self.devices:
            return None
        return Mesh(np.asarray(self.devices).reshape(self.chain_devices, -1), ("chains", "rows"))

    @property
    def row_devices(self) -> int:
        """How many devices the rows are spread over."""
        return max(1, len(self.devices) // self.chain_devices)

    def rows_here(self, num_rows: int) -> int:
        """Row slots of one device."""
        return -(-num_rows // self.row_devices)

    def slots(self, num_rows: int) -> int:
        """Row slots of all devices: ``num_rows``, and what fills the last shares up."""
        return self.rows_here(num_rows) * self.row_devices


ONE_DEVICE = Layout()


def layout(chain_method: ChainMethod = "vectorized", devices: Devices = None, num_chains: int = 1) -> Layout:
    """The layout of ``num_chains`` chains.

    ``"vectorized"``: every device holds all chains and a share of the rows. ``"parallel"``: chains are
    spread over as many devices as divide their number, and rows over what is left. ``"sequential"``:
    as vectorised, but gradients are taken one chain at a time.

    Args:
        chain_method: NumPyro's word for it.
        devices: the first so many of ``jax.devices()``, or the devices themselves. Left out: the default
            device; all devices for ``"parallel"``.
        num_chains: of the run.
    """
    if chain_method not in get_args(ChainMethod):
        raise DeclarationError(f"chain_method={chain_method!r}: one of {', '.join(get_args(ChainMethod))}.")
    chosen = _devices(devices, everything=chain_method == "parallel")
    parallel = chain_method == "parallel" and bool(chosen)
    spread = math.gcd(num_chains, len(chosen)) if parallel else 1
    return Layout(chosen, spread, chain_method == "sequential")


def _devices(devices: Devices, everything: bool) -> tuple[jax.Device, ...]:
    if devices is None:
        chosen = tuple(jax.devices()) if everything else ()
    elif isinstance(devices, int):
        if not 1 <= devices <= len(jax.devices()):
            raise DeclarationError(f"devices={devices}: there are {len(jax.devices())} of them.")
        chosen = tuple(jax.devices()[:devices])
    else:
        chosen = tuple(devices)
        if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
            raise DeclarationError("devices: a number, or a sequence of jax.devices().")
    return () if len(chosen) == 1 and devices is None else chosen


_EVERYWHERE, _BY_ROW = PartitionSpec(), PartitionSpec("rows")  # type: ignore[no-untyped-call]
_BY_CHAIN = PartitionSpec("chains")  # type: ignore[no-untyped-call]


def spread(program: LangevinProgram, layout: Layout, schedule: Schedule) -> LangevinProgram:
    """The program with its rows over the devices of ``layout``: in a step only sums are communicated.

    ``prepare(columns, present)`` takes ``layout.rows_here(n)`` rows for every device.
    """
    if layout.mesh is None:
        return program
    rows_here = layout.rows_here(schedule.num_rows)
    chains_here = schedule.num_chains // layout.chain_devices

    def prepare(columns: Columns, present: jax.Array) -> PreparedRows:
        rows = program.prepare(columns, present)
        # A leading axis of devices, whatever the layout of the rows behind it.
        return jax.tree.map(lambda leaf: leaf[None], rows)

    def data(u: jax.Array, k: jax.Array, batches: BatchKeys, rows: PreparedRows) -> jax.Array:
        chain, row = jax.lax.axis_index("chains"), jax.lax.axis_index("rows")
        place = Place(chain * chains_here, row * rows_here)
        own = jax.tree.map(lambda leaf: leaf[0], rows)
        total: jax.Array = jax.lax.psum(program.data(u, k, batches, own, place), "rows")  # type: ignore[no-untyped-call]
        return total

    shard = partial(jax.shard_map, mesh=layout.mesh, check_vma=False)
    return replace(
        program,
        prepare=shard(prepare, in_specs=_BY_ROW, out_specs=_BY_ROW),
        data=shard(data, in_specs=(_BY_CHAIN, _EVERYWHERE, _EVERYWHERE, _BY_ROW), out_specs=_BY_CHAIN),
    )
