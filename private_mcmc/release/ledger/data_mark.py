"""A keyed hash by which a data set is recognised, computed without a second copy of it in memory."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from private_mcmc.domains.host_columns import HostColumn
from private_mcmc.domains.numeric import numeric_column
from private_mcmc.domains.presence import PRESENT, blank, holds_person

_ROWS = 2**16


def data_mark(key: bytes, data: Mapping[str, Any]) -> str:
    """A keyed hash of the columns: names, shapes and values, block by block, and the numbers of the holes.

    What lies in a hole does not matter, and without holes it does not matter how their absence was told.

    Raises:
        DataSchemaError: for what is no column of numbers; never about values.
    """
    mark = hmac.new(key, b"data", hashlib.sha256)
    values = {
        name: column if isinstance(column, HostColumn) else numeric_column(name, column)
        for name, column in data.items()
    }
    flags = values.pop(PRESENT, None)
    for name in sorted(values):
        mark.update(f"\n{name} {values[name].shape}\n".encode())
        blocks = _blocks(values[name])
        for block in blocks if flags is None else map(blank, blocks, _blocks(flags)):
            # One type for all numbers, so that a narrower copy of the same data is recognised.
            mark.update(np.ascontiguousarray(block, dtype=np.float64).tobytes())
    for holes in [] if flags is None else _holes(flags):
        mark.update(holes.astype("<i8").tobytes())
    return mark.hexdigest()


def _holes(flags: Any) -> Iterator[np.ndarray[Any, Any]]:
    """The numbers of the empty slots, in order."""
    first = 0
    for block in _blocks(flags):
        yield first + np.flatnonzero(~holds_person(block))
        first += len(block)


def _blocks(values: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(values, HostColumn):
        return values.blocks(_ROWS)
    if values.ndim == 0:
        return iter([values])
    return (values[first : first + _ROWS] for first in range(0, len(values), _ROWS))
