"""A keyed hash by which a data set is recognised, computed without a second copy of it in memory."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from private_mcmc.modeling.host import HostColumn
from private_mcmc.modeling.numeric import numeric_column

_ROWS = 2**16


def data_mark(key: bytes, data: Mapping[str, Any]) -> str:
    """A keyed hash of the columns: names, shapes and values, block by block.

    Raises:
        DataSchemaError: for what is no column of numbers; never about values.
    """
    mark = hmac.new(key, b"data", hashlib.sha256)
    for name in sorted(data):
        column = data[name]
        values = column if isinstance(column, HostColumn) else numeric_column(name, column)
        mark.update(f"\n{name} {values.shape}\n".encode())
        for block in _blocks(values):
            # One type for all numbers, so that a narrower copy of the same data is recognised.
            mark.update(np.ascontiguousarray(block, dtype=np.float64).tobytes())
    return mark.hexdigest()


def _blocks(values: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(values, HostColumn):
        return values.blocks(_ROWS)
    if values.ndim == 0:
        return iter([values])
    return (values[first : first + _ROWS] for first in range(0, len(values), _ROWS))
