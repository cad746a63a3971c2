"""Released chain states, rounded to a declared public grid.

The low-order bits of a float64 state depend on the order of operations and on rounding, of which the
theorems know nothing. Rounding is post-processing: it costs nothing and needs no proof, only a grid
that does not depend on the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DeclarationError
from private_mcmc.release.noise import FloatArray, power_of_two_below
from private_mcmc.schedule import Schedule

_BITS_BELOW_NOISE = 24
_MAX_MULTIPLE = 2.0**52


@dataclass(frozen=True)
class StateGrid:
    """Multiples of ``step``, a power of two.

    Raises:
        DeclarationError: when ``step`` is not a power of two.
    """

    step: float

    def __post_init__(self) -> None:
        if not 0 < self.step < math.inf or math.frexp(self.step)[0] != 0.5:
            raise DeclarationError(f"grid step {self.step}: a power of two is needed.")

    def round(self, states: npt.ArrayLike) -> FloatArray:
        """The nearest multiples; what is not finite becomes 0 and what is huge the largest multiple."""
        with np.errstate(all="ignore"):
            multiples = np.rint(np.asarray(states, dtype=np.float64) / self.step)
            finite = np.nan_to_num(multiples, nan=0.0, posinf=_MAX_MULTIPLE, neginf=-_MAX_MULTIPLE)
            # Adding 0 turns -0.0 into 0.0: a sign of zero is one of the bits that must not leave.
            rounded: FloatArray = np.clip(finite, -_MAX_MULTIPLE, _MAX_MULTIPLE) * self.step + 0.0
            return rounded


def state_grid(schedule: Schedule) -> StateGrid:
    """A grid ``2^-24`` below the smallest noise of a step, ``√(2γ λ_min)``, of the schedule alone."""
    shape = schedule.noise if schedule.noise is not None else schedule.preconditioner
    smallest = 1.0
    if shape is not None:
        array = np.asarray(shape, dtype=np.float64)
        smallest = float(array.min() if array.ndim == 1 else np.linalg.eigvalsh(array)[0])
    noise = math.sqrt(2 * min(schedule.step_sizes) * smallest) if smallest > 0 else 0.0
    if not noise > 0:
        raise DeclarationError("the schedule adds no noise in some direction: its states cannot be released.")
    return StateGrid(math.ldexp(power_of_two_below(noise), -_BITS_BELOW_NOISE))
