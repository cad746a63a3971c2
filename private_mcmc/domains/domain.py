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
from jax.typing import ArrayLike

from private_mcmc.arguments import construction_checked
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record

LARGEST_COUNT = 2**31 - 1


@dataclass(frozen=True)
class Domain:
    """Base of the row domains; see the module."""

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one row's value."""
        return self.interval()[0].shape

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

    def project(self, column: ArrayLike) -> jax.Array:
        """Map ``(n, *event_shape)`` numbers into the domain, row by row and silently; traceable."""
        raise DeclarationError(f"{type(self).__name__} is not a row domain.")

    def synthetic(self, random: np.random.Generator, n: int) -> jax.Array:
        """``n`` public random rows; every other one lies at an extreme of the domain."""
        raise DeclarationError(f"{type(self).__name__} is not a row domain.")

    def to_dict(self) -> Record:
        """``{"ball": {"radius": 1.0, "dim": 9}}``; the inverse of ``domain_from_dict``."""
        return {type(self).__name__.lower(): {k: v for k, v in asdict(self).items() if v is not None}}


def every_other(n: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Rows of ``first`` at even, of ``second`` at odd positions."""
    even = (np.arange(n) % 2 == 0).reshape((n,) + (1,) * (first.ndim - 1))
    return np.where(even, first, second)


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


def _integer() -> np.dtype:
    """int64 under ``enable_x64``: JAX computes functions of int32 numbers in float32."""
    return np.dtype(jax.dtypes.canonicalize_dtype(np.int64))


def _as_whole(column: ArrayLike, largest: int) -> jax.Array:
    """Nearest integer in [0, largest]; NaN becomes 0. Clipped before the cast, which would wrap around."""
    values = jnp.asarray(column)
    if jnp.issubdtype(values.dtype, jnp.floating):
        # In float32 the bound itself may round up past the largest int32.
        bound = values.dtype.type(largest)
        bound = bound if float(bound) <= largest else np.nextafter(bound, values.dtype.type(0))
        values = jnp.clip(jnp.round(jnp.where(jnp.isnan(values), 0.0, values)), 0, bound)
    elif values.dtype == jnp.bool_:
        values = values.astype(_integer())
    else:
        values = jnp.clip(values, 0, min(largest, int(np.iinfo(values.dtype).max)))
    return jnp.clip(values.astype(_integer()), 0, largest)


@construction_checked
@dataclass(frozen=True)
class Binary(Domain):
    """0 or 1, as int64: at least one half is 1, everything else (NaN too) is 0.

    Example:
        >>> print(pmc.Binary().project([0.2, 0.5, 7.0, np.nan]))
        [0 1 1 0]
    """

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """``(0, 1)``."""
        return np.zeros(()), np.ones(())

    def project(self, column: ArrayLike) -> jax.Array:
        """Threshold at one half."""
        return (jnp.asarray(column) >= 0.5).astype(_integer())

    def synthetic(self, random: np.random.Generator, n: int) -> jax.Array:
        """Fair coin flips."""
        return self.project(random.integers(0, 2, n))


@dataclass(frozen=True)
class _Whole(Domain):
    """Whole numbers from 0 to ``_largest``."""

    @property
    def _largest(self) -> int:
        raise DeclarationError(f"{type(self).__name__} is not a row domain.")

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """From 0 to the largest."""
        return np.zeros(()), np.full((), float(self._largest))

    def project(self, column: ArrayLike) -> jax.Array:
        """The nearest one; NaN becomes 0."""
        return _as_whole(column, self._largest)

    def synthetic(self, random: np.random.Generator, n: int) -> jax.Array:
        """Half the rows at 0 or at the largest, half uniform."""
        extreme = random.integers(0, 2, n) * self._largest
        return self.project(every_other(n, extreme, random.integers(0, self._largest + 1, n)))


@construction_checked
@dataclass(frozen=True)
class Categories(_Whole):
    """One of ``0 … k−1``, as int64; other numbers go to the nearest category, NaN to 0.

    Raises:
        DeclarationError: unless ``2 ≤ k < 2^31``.

    Example:
        >>> print(pmc.Categories(3).project([0, 1.8, 7, np.nan]))
        [0 2 2 0]
    """

    k: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole("Categories k", self.k, 2))

    @property
    def _largest(self) -> int:
        return self.k - 1


@construction_checked
@dataclass(frozen=True)
class Counts(_Whole):
    """A whole number from 0 to ``max``, as int64; other numbers go to the nearest one, NaN to 0.

    Raises:
        DeclarationError: unless ``1 ≤ max < 2^31``.

    Example:
        >>> print(pmc.Counts(20).project([3, 2.4, 500, -1]))
        [ 3  2 20  0]
    """

    max: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "max", whole("Counts max", self.max, 1))

    @property
    def _largest(self) -> int:
        return self.max
