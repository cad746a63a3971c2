"""Outward rounding: upper bounds are pushed up by more than the float64 error of computing them."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Real = TypeVar("Real", float, FloatArray)

UP = 1.0 + 2.0**-48  # a dozen correctly rounded operations on non-negative numbers err by less


def up(value: Real) -> Real:
    """``value ≥ 0``, the result of at most a dozen roundings without cancellation, as an upper bound."""
    return value * UP


def root_up(value: float) -> float:
    """Square root of an upper bound ``value ≥ 0``, rounded up."""
    return math.nextafter(math.sqrt(value), math.inf)
