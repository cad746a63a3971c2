"""Whether what is said to be public is a private column, or a part of one: by memory, never by value."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt


def is_part(one: object, other: object) -> bool:
    """Whether these are one object, or arrays that share memory; no value is looked at.

    Arrays are those of NumPy, what frames of pandas hold, and Arrow's.
    """
    if one is other or _buffers(one) & _buffers(other):
        return True
    here, there = _array(one), _array(other)
    return here is not None and there is not None and np.shares_memory(here, there)


def _array(column: Any) -> npt.NDArray[np.generic] | None:
    """The array that a column is, or shows without a copy."""
    if isinstance(column, np.ndarray):
        return column
    with suppress(Exception):  # of Polars; others have no such argument, or would copy
        return np.asarray(column.to_numpy(allow_copy=False))
    if not (hasattr(column, "to_numpy") and hasattr(column, "dtypes")):
        return None
    # A column of pandas has one type, and a frame those of its columns.
    types = set(column.dtypes) if np.ndim(column) == 2 else {column.dtypes}
    plain = len(types) == 1 and isinstance(types.pop(), np.dtype)
    return np.asarray(column.to_numpy()) if plain else None


def _buffers(column: Any) -> set[int]:
    """Where the memory of a column of Arrow or Polars begins; that of a slice is the whole one's."""
    if hasattr(column, "__arrow_c_stream__") and not hasattr(column, "iloc") and not _chunks(column):
        with suppress(ImportError):  # without it Polars' memory is not seen
            import pyarrow

            column = pyarrow.chunked_array(column)
    parts = (part for part in [column, *_chunks(column)] if hasattr(part, "buffers"))
    return {
        buffer.address for part in parts for buffer in part.buffers() if buffer is not None and buffer.size
    }


def _chunks(column: Any) -> list[Any]:
    """Those of a column of Arrow; other arrays in chunks say how long these are."""
    chunks = getattr(column, "chunks", None)
    return chunks if isinstance(chunks, list) else []
