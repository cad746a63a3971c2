"""Columns that stay outside the device: their schema, and the blocks in which they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from private_mcmc.domains.host_tables import HostColumn, host_column, on_host
from private_mcmc.domains.numeric import PRESENT
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.devices import Layout
from private_mcmc.kernels.streamed_chain import Blocks

_BLOCK_BYTES = 2**26


def streamed(data: Mapping[str, Any], rows_on_device: int | None, layout: Layout) -> dict[str, Any]:
    """The columns as they came, or all of them as columns on the host where one of them asks to stay there.

    Raises:
        DeclarationError: for several devices, each of which would read all rows.
    """
    if rows_on_device is None and not any(on_host(column) for column in data.values()):
        return dict(data)
    if layout.mesh is not None:
        raise DeclarationError(
            "devices=: rows are either streamed to one device or shared by several; give each process of "
            "several its own part, or load the columns (np.asarray)."
        )
    return {name: host_column(name, column) for name, column in data.items()}


def in_memory(data: Mapping[str, Any]) -> dict[str, Any]:
    """The columns, those of files read whole: for runs that need all rows at once."""
    return {
        name: column.loaded() if isinstance(column, HostColumn) else column for name, column in data.items()
    }


def schema(columns: Mapping[str, Any]) -> dict[str, Any]:
    """What checks of the schema look at: columns on the host without their rows."""
    return {
        name: column.schema if isinstance(column, HostColumn) else column for name, column in columns.items()
    }


def blocks_of(columns: Mapping[str, HostColumn], rows_on_device: int | None, n: int) -> Blocks:
    """Blocks of at most ``n`` rows, by default some tens of megabytes each; a function of public sizes."""
    if rows_on_device is not None:
        size = rows_on_device
    else:
        width = sum(column.schema[:1].size * 8 for column in columns.values())
        size = _BLOCK_BYTES // max(width, 1)
    number = len(next(iter(columns.values())).schema)
    readers = {name: column.blocks for name, column in columns.items()}
    return Blocks(readers, number, max(1, min(size, n)), readers.pop(PRESENT, None))
