"""Which slots hold a person: under ``zero_out`` an absent row is a hole in its own slot, and no other moves.

The law of a run may depend on where a row lies (cyclic batches use slot ``i`` at its own steps): closing the
gap that an absent row leaves would change the others' batches, which no statement covers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# The argument of a run that tells it; among a data set's columns it lies under the same name.
PRESENT = "present"


def holds_person(flags: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a flag is true or 1. Any other value, NaN included, marks a hole: no value is refused."""
    there: npt.NDArray[np.bool_] = np.equal(flags, 1)
    return there


def blank(values: npt.NDArray[Any], flags: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``values`` of shape ``(n, …)``, zeros where ``flags`` of shape ``(n,)`` have a hole."""
    there = holds_person(flags)
    if there.all():
        return values
    return np.where(there.reshape(-1, *(1,) * (values.ndim - 1)), values, np.zeros((), values.dtype))
