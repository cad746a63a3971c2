"""What one value of a row may be: public facts that are enforced by a silent map, never trusted.

Every domain answers the same questions: the shape and type of one row's value, a bound on its
Euclidean norm, elementwise bounds, and a map of any numeric column into the domain.
The map is a function of one row alone, so it never changes how many rows two data sets differ in.
"""

from __future__ import annotations

import math
from dataclasses import InitVar, asdict, dataclass, field
from typing import ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.arguments import construction_checked
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record, unplain

LARGEST_COUNT = 2**31 - 1


@dataclass(frozen=True)
class Domain:
    """Base of the row domains; see the module."""

    # Of the column after ``project``.
    dtype: ClassVar[np.dtype] = np.dtype(np.float64)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one row's value."""
        return self.interval()[0].shape

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
        with jax.enable_x64(True):
            return self.mapped(jnp.asarray(column).astype(jnp.float64))

    def mapped(self, values: jax.Array) -> jax.Array:
        """``project`` of float64."""
        raise DeclarationError(f"{type(self).__name__} is not a row domain.")

    def to_dict(self) -> Record:
        """``{"ball": {"radius": 1.0, "dim": 9}}``."""
        return {type(self).__name__.lower(): {k: v for k, v in asdict(self).items() if v is not None}}


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


@dataclass(frozen=True)
class _Whole(Domain):
    """Whole numbers from 0 on."""

    dtype: ClassVar[np.dtype] = np.dtype(np.int64)

    def mapped(self, values: jax.Array) -> jax.Array:
        """The nearest one; NaN becomes 0. Clipped before the cast, which would wrap around."""
        nearest = jnp.round(jnp.where(jnp.isnan(values), 0.0, values))
        return jnp.clip(nearest, *self.interval()).astype(jnp.int64)


@construction_checked
@dataclass(frozen=True)
class Binary(_Whole):
    """0 or 1, as int64: at least one half is 1, everything else (NaN too) is 0.

    Example:
        >>> print(pmc.Binary().project([0.2, 0.5, 7.0, np.nan]))
        [0 1 1 0]
    """

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """``(0, 1)``."""
        return np.zeros(()), np.ones(())

    def mapped(self, values: jax.Array) -> jax.Array:
        """Threshold at one half."""
        return (values >= 0.5).astype(jnp.int64)


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

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """``(0, k − 1)``."""
        return np.zeros(()), np.full((), self.k - 1.0)


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

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """``(0, max)``."""
        return np.zeros(()), np.full((), float(self.max))


Bounds: TypeAlias = float | tuple["Bounds", ...]

_SMALLEST, LARGEST = 1e-30, 1e30
_HUGE = 1e32


@construction_checked
@dataclass(frozen=True)
class Ball(Domain):
    """Vectors of ``dim`` numbers with Euclidean norm at most ``radius``; longer ones are scaled down.

    A row with a NaN or an infinity becomes the zero vector. ``dim`` is 1 for a column of single numbers
    in a matrix; a column of plain numbers is a ``Box``. ``centred`` says of plans' synthetic rows alone that
    they lie on both sides of 0, as standardised covariates do; otherwise they are an intercept and numbers
    from 0 up.

    Raises:
        DeclarationError: unless ``1e-30 ≤ radius ≤ 1e30`` and ``dim ≥ 1``.

    Example:
        >>> print(pmc.Ball(1.0, dim=2).project([[3.0, 4.0], [0.1, np.nan]]).round(3))
        [[0.6 0.8]
         [0.  0. ]]
    """

    radius: float
    dim: int
    centred: bool | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", number("radius", self.radius))
        if not _SMALLEST <= self.radius <= LARGEST:
            raise DeclarationError(
                f"Ball radius={self.radius}: choose units in which it is in [1e-30, 1e30]."
            )
        object.__setattr__(self, "dim", whole("Ball dim", self.dim, 1))

    @property
    def norm_bound(self) -> float:
        """``radius``."""
        return self.radius

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """``±radius`` in every coordinate."""
        return np.full(self.dim, -self.radius), np.full(self.dim, self.radius)

    def mapped(self, rows: jax.Array) -> jax.Array:
        """Scale rows longer than ``radius`` down, to a float64 norm that is at most ``radius``."""
        finite = jnp.all(jnp.isfinite(rows), axis=-1, keepdims=True)
        # Beyond this, XLA's reciprocals are subnormal and flushed to zero.
        rows = jnp.clip(jnp.where(finite, rows, 0.0), -_HUGE, _HUGE)
        # Dividing by the largest entry first keeps the squares from overflowing.
        largest = jnp.max(jnp.abs(rows), axis=-1, keepdims=True)
        safe = jnp.where(largest > 0, largest, 1.0)
        length = safe * jnp.sqrt(jnp.sum(jnp.square(rows / safe), axis=-1, keepdims=True))
        # The margins cover the rounding of the norm (in any order of summation) and of the scaling.
        inside = self.radius * (1 - (self.dim + 16) * 2.0**-52)
        target = inside - self.radius * 2.0**-51
        scaled = (rows / safe) * (target / jnp.where(length > 0, length / safe, 1.0))
        return jnp.where(length <= inside, rows, scaled)


@construction_checked
@dataclass(frozen=True)
class Box(Domain):
    """Numbers, or arrays of one shape, with ``lo ≤ value ≤ hi`` elementwise; others are clipped.

    NaN becomes the point nearest to zero. ``lo`` and ``hi`` are numbers, with ``dim`` of vectors, or arrays.

    Raises:
        DeclarationError: unless the bounds are finite and ``lo ≤ hi``.

    Example:
        >>> print(pmc.Box(1, 10).project([4.5, 99.0, np.nan]))
        [ 4.5 10.   1. ]
    """

    lo: Bounds
    hi: Bounds
    dim: InitVar[int | None] = None

    def __post_init__(self, dim: int | None) -> None:
        shape = () if dim is None else (whole("Box dim", dim, 1),)
        try:
            ends = (np.asarray(end, np.float64) for end in (self.lo, self.hi))
            lo, hi, _ = np.broadcast_arrays(*ends, np.empty(shape))
        except (TypeError, ValueError) as error:
            raise DeclarationError(f"Box(lo, hi): numbers or arrays of one shape ({error}).") from error
        if lo.size == 0 or not np.all(np.isfinite(lo) & np.isfinite(hi) & (lo <= hi)):
            raise DeclarationError("Box(lo, hi): bounds must be finite with lo <= hi in every coordinate.")
        if not np.all(np.maximum(np.abs(lo), np.abs(hi)) <= LARGEST):
            raise DeclarationError("Box(lo, hi): choose units in which the bounds are at most 1e30.")
        object.__setattr__(self, "lo", unplain(lo.tolist()))
        object.__setattr__(self, "hi", unplain(hi.tolist()))

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """The box itself."""
        return np.asarray(self.lo, np.float64), np.asarray(self.hi, np.float64)

    def mapped(self, values: jax.Array) -> jax.Array:
        """Clip to the box."""
        lo, hi = self.interval()
        # Compiled code may take subnormal numbers for 0, which lies outside.
        tiny = np.finfo(np.float64).tiny
        lo = np.where((lo > 0) & (lo < tiny), tiny, lo)
        hi = np.where((hi < 0) & (hi > -tiny), -tiny, hi)
        if not np.all(lo <= hi):
            raise DeclarationError("Box(lo, hi): no normal float64 lies between the bounds; widen them.")
        nearest = np.clip(np.zeros(self.event_shape), lo, hi)
        return jnp.where(jnp.isnan(values), nearest, jnp.clip(values, lo, hi))


del Box.dim  # type: ignore[attr-defined]  # a Box holds its ends alone


@construction_checked
@dataclass(frozen=True)
class Real(Domain):
    """Unbounded numbers (``dim=None``) or vectors of ``dim`` numbers; NaN and infinities become 0.

    Nothing bounds such a column: a row that enters a predictor through it needs clipping.

    Raises:
        DeclarationError: unless ``dim`` is ``None`` or at least 1.

    Example:
        >>> print(pmc.Real().project([4.5, -np.inf, np.nan]))
        [4.5 0.  0. ]
    """

    dim: int | None = None

    def __post_init__(self) -> None:
        if self.dim is not None:
            object.__setattr__(self, "dim", whole("Real dim", self.dim, 1))

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one row's value."""
        return () if self.dim is None else (self.dim,)

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """``(−∞, ∞)``."""
        return np.full(self.event_shape, -np.inf), np.full(self.event_shape, np.inf)

    def mapped(self, values: jax.Array) -> jax.Array:
        """Replace what is not finite by 0."""
        return jnp.where(jnp.isfinite(values), values, 0.0)
