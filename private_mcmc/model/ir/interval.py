"""Abstract values: what is proved of an intermediate result for every row of the declared domain."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.real import Ball


@dataclass(frozen=True, eq=False)
class Interval:
    """Bounds of an array: elementwise ``lo ≤ value ≤ hi`` and ``‖value‖ ≤ norm`` over all its elements.

    Attributes:
        lo: lower bounds, float64, of the array's shape.
        hi: upper bounds.
        norm: bound on the Euclidean norm of the whole array.
        whole: every element is a whole number.
        uniform: all elements are equal.
        defined: no element can be NaN, or come from a division by zero or a function outside its domain.
            The bounds say nothing of a value that is not.
    """

    lo: np.ndarray
    hi: np.ndarray
    norm: float
    whole: bool
    uniform: bool
    defined: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.lo.shape

    @property
    def is_point(self) -> bool:
        """The bounds leave one value."""
        return bool(np.all(self.lo == self.hi))

    @property
    def largest(self) -> float:
        """Bound on the absolute value of every element."""
        return float(np.max(np.maximum(np.abs(self.lo), np.abs(self.hi)), initial=0.0))

    @property
    def lowest(self) -> float:
        """Lower bound of every element."""
        return float(np.min(self.lo, initial=np.inf))

    @property
    def highest(self) -> float:
        """Upper bound of every element."""
        return float(np.max(self.hi, initial=-np.inf))

    def with_norm(self, norm: float) -> Interval:
        """The same with a second bound on the norm; the smaller one is kept."""
        return replace(self, norm=min(self.norm, norm)) if norm >= 0 else self


def between(lo: np.ndarray, hi: np.ndarray, *, whole: bool = False, uniform: bool = False) -> Interval:
    """A value between bounds; a bound that is NaN is no bound."""
    low = np.asarray(lo, np.float64)
    high = np.asarray(hi, np.float64)
    low = np.where(np.isnan(low), -np.inf, low)
    high = np.where(np.isnan(high), np.inf, high)
    return Interval(low, high, _norm(low, high), whole, uniform or low.size <= 1)


def constant(array: np.ndarray) -> Interval:
    """A known array; a NaN in it is unknown."""
    values = array.astype(np.float64)
    exact = between(values, values, whole=bool(np.all(values == np.round(values))))
    uniform = bool(np.all(values == values.flat[0])) if values.size else True
    return replace(exact, uniform=uniform, defined=not bool(np.any(np.isnan(values))))


def pinned(value: Interval, number: float) -> Interval:
    """The value where every element is the same whole number."""
    point = np.full(value.shape, number)
    return between(point, point, whole=True, uniform=True)


def anything(shape: tuple[int, ...], *, whole: bool = False) -> Interval:
    """Every number."""
    return between(np.full(shape, -np.inf), np.full(shape, np.inf), whole=whole)


def of_domain(domain: Domain, leading: tuple[int, ...] = (1,)) -> Interval:
    """One row of the domain, whichever, with leading axes of length 1."""
    lo, hi = (bound.reshape(leading + domain.event_shape) for bound in domain.interval())
    value = between(lo, hi, whole=domain.dtype.kind in "biu")
    return value.with_norm(domain.norm_bound) if isinstance(domain, Ball) else value


def spread(value: Interval, shape: tuple[int, ...]) -> Interval:
    """The value repeated to a larger shape, as elementwise primitives do with their operands."""
    if value.shape == shape:
        return value
    lo, hi = np.broadcast_to(value.lo, shape), np.broadcast_to(value.hi, shape)
    copies = math.prod(shape) // max(value.lo.size, 1)
    wide = between(lo, hi, whole=value.whole, uniform=value.uniform)
    return wide.with_norm(up(value.norm * math.sqrt(copies)))


def up(number: float) -> float:
    """A little above: covers the rounding of a short formula."""
    return number * (1 + 1e-14) if number > 0 else number


def _norm(lo: np.ndarray, hi: np.ndarray) -> float:
    largest = np.maximum(np.abs(lo), np.abs(hi)).ravel()
    nonzero = largest[largest > 0]
    if nonzero.size <= 1:
        return float(np.sum(nonzero))
    top = float(nonzero.max())
    if not math.isfinite(top):
        return math.inf
    return up(top * math.sqrt(math.fsum((float(entry) / top) ** 2 for entry in nonzero)))
