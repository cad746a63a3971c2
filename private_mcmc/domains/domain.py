"""What one value of a row may be: public facts that are enforced by a silent map, never trusted.

Every domain answers the same questions: the shape and type of one row's value, a bound on its
Euclidean norm, elementwise bounds, a map of any numeric column into the domain, and public random rows.
The map is a function of one row alone, so it never changes how many rows two data sets differ in.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from private_mcmc.errors import DeclarationError
from private_mcmc.types import Record

LARGEST_COUNT = 2**31 - 1


@dataclass(frozen=True)
class Domain:
    """Base of the row domains; see the module."""

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one row's value."""
        return ()

    @property
    def dtype(self) -> np.dtype:
        """Type of the column after ``project`` under x64: float64 for reals, int64 for whole numbers."""
        return np.dtype(np.int64)

    @property
    def norm_bound(self) -> float:
        """An upper bound on the Euclidean norm of one row's value."""
        lo, hi = self.interval()
        largest = np.maximum(np.abs(lo), np.abs(hi))
        if np.size(largest) == 1:
            return float(np.max(largest))
        total = math.sqrt(math.fsum(float(bound) ** 2 for bound in np.ravel(largest)))
        return math.nextafter(math.nextafter(total, math.inf), math.inf)

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Elementwise bounds ``(lo, hi)``, float64 arrays of ``event_shape``."""
        raise DeclarationError(f"{type(self).__name__} is not a row domain.")

    def project(self, column: ArrayLike, dtype: DTypeLike | None = None) -> jax.Array:
        """Map ``(n, *event_shape)`` numbers into the domain, row by row and silently; traceable.

        ``dtype`` narrows the storage of real columns; the bounds hold for the narrowed values.
        """
        raise DeclarationError(f"{type(self).__name__} is not a row domain.")

    def synthetic(self, key: jax.Array, n: int) -> jax.Array:
        """``n`` public random rows; every other one lies at an extreme of the domain."""
        raise DeclarationError(f"{type(self).__name__} is not a row domain.")

    def to_dict(self) -> Record:
        """``{"ball": {"radius": 1.0, "dim": 9}}``; the inverse of ``domain_from_dict``."""
        return {type(self).__name__.lower(): {k: v for k, v in asdict(self).items() if v is not None}}


def every_other(n: int, first: jax.Array, second: jax.Array) -> jax.Array:
    """Rows of ``first`` at even, of ``second`` at odd positions."""
    even = (jnp.arange(n) % 2 == 0).reshape((n,) + (1,) * (first.ndim - 1))
    return jnp.where(even, first, second)


def number(name: str, value: object) -> float:
    """``value`` as a float, or a ``DeclarationError`` that names it."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{name}={value!r}: must be a number.") from error


def whole(name: str, value: object, smallest: int) -> int:
    """``value`` as an int from ``smallest`` to 2^31 − 1, or a ``DeclarationError`` that names it."""
    given = number(name, value)
    if not (smallest <= given <= LARGEST_COUNT and given == int(given)):
        raise DeclarationError(f"{name}={value!r}: a whole number from {smallest} to 2^31 - 1.")
    return int(given)
