"""Columns that stay outside the device's memory, read block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc.domains.numeric import check_type, check_unmasked, native
from private_mcmc.errors import DataSchemaError

_LOADED = 2**16


@dataclass(frozen=True, eq=False)
class HostColumn(ABC):
    """A column of known shape and type whose rows are read in order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @abstractmethod
    def blocks(self, size: int) -> Iterator[npt.NDArray[Any]]:
        """All rows in order, ``size`` at a time; the last block may be shorter."""

    @property
    def schema(self) -> npt.NDArray[Any]:
        """An array of this shape and type that holds no row, for checks of the schema."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def loaded(self) -> npt.NDArray[Any]:
        """All rows, in memory."""
        return np.concatenate([np.zeros((0, *self.shape[1:]), native(self.dtype)), *self.blocks(_LOADED)])


@dataclass(frozen=True, eq=False)
class ArrayColumn(HostColumn):
    """An array in memory or mapped into it (``np.memmap``, ``np.load(…, mmap_mode="r")``)."""

    values: npt.NDArray[Any]

    def blocks(self, size: int) -> Iterator[npt.NDArray[Any]]:
        """Copies of consecutive rows, in native byte order."""
        kind = native(self.dtype)
        for first in range(0, len(self.values), size):
            yield np.array(self.values[first : first + size], dtype=kind)


def on_host(column: Any) -> bool:
    """Whether a column asks to stay outside the device's memory."""
    return isinstance(column, (HostColumn, np.memmap))


def host_column(name: str, column: Any) -> HostColumn:
    """``column`` as one that is read block by block.

    Raises:
        DataSchemaError: for something that is neither an array nor a source of this module, a masked array,
            or one that is not numeric.
    """
    if isinstance(column, HostColumn):
        return column
    check_unmasked(name, column)
    if not isinstance(column, np.ndarray):
        raise DataSchemaError(
            f"column {name!r} is a {type(column).__name__}: rows are streamed from NumPy arrays, Parquet and "
            "Arrow files."
        )
    check_type(name, column.dtype)
    return ArrayColumn(column.shape, column.dtype, column)
