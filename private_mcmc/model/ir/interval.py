"""Bounds of an array, and how sums and products of bounded arrays are bounded.

Floating-point results are widened outward by a few units in the last place; exact zeros stay exact, so that
signs and sparsity survive.
"""

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

    def __neg__(self) -> Interval:
        return replace(self, lo=0.0 - self.hi, hi=0.0 - self.lo)


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


def anything(shape: tuple[int, ...], *, whole: bool = False, defined: bool = True) -> Interval:
    """Every number; not even that, if it is not ``defined``."""
    found = between(np.full(shape, -np.inf), np.full(shape, np.inf), whole=whole)
    return replace(found, defined=defined)


def of_domain(domain: Domain, leading: tuple[int, ...] = (1,)) -> Interval:
    """One row of the domain, whichever, with leading axes of length 1."""
    lo, hi = (bound.reshape(leading + domain.event_shape) for bound in domain.interval())
    value = between(lo, hi, whole=domain.dtype.kind in "biu")
    return value.with_norm(domain.norm_bound) if isinstance(domain, Ball) else value


def up(number: float) -> float:
    """A little above: covers the rounding of a short formula."""
    return number * (1 + 1e-14) if number > 0 else number


def hypot(norms: list[float]) -> float:
    """Norm of a vector of norms, rounded up; exact where only one is not zero."""
    positive = [norm for norm in norms if norm > 0]
    return sum(positive) if len(positive) <= 1 else up(math.hypot(*positive))


def scaled(factor: float, norm: float) -> float:
    """``factor·norm`` of bounds, rounded up; nothing times anything is nothing."""
    if factor == 0 or norm == 0:
        return 0.0
    return norm if factor == 1 else up(factor * norm)


def _norm(lo: np.ndarray, hi: np.ndarray) -> float:
    largest = np.maximum(np.abs(lo), np.abs(hi)).ravel()
    nonzero = largest[largest > 0]
    if nonzero.size <= 1:
        return float(np.sum(nonzero))
    top = float(nonzero.max())
    if not math.isfinite(top):
        return math.inf
    return up(top * math.sqrt(math.fsum((float(entry) / top) ** 2 for entry in nonzero)))


TINY = float(np.finfo(np.float64).tiny)


def widen(lo: np.ndarray, hi: np.ndarray, ulps: int = 1) -> Interval:
    """Widen by ``ulps``; an exact zero or infinity is kept."""
    lo, hi = np.asarray(lo, np.float64), np.asarray(hi, np.float64)
    low = np.where(np.isfinite(lo) & (lo != 0), lo - ulps * np.spacing(np.abs(lo)), lo)
    high = np.where(np.isfinite(hi) & (hi != 0), hi + ulps * np.spacing(np.abs(hi)), hi)
    return between(low, high)


def plus(a: Interval, b: Interval) -> Interval:
    """Bounds of ``a + b``."""
    result = widen(a.lo + b.lo, a.hi + b.hi)
    zero_a, zero_b = (a.lo == 0) & (a.hi == 0), (b.lo == 0) & (b.hi == 0)
    disjoint = bool(np.all(zero_a | zero_b))
    norm = hypot([a.norm, b.norm]) if disjoint else up(a.norm + b.norm)
    uniform = (a.uniform and b.uniform) or result.uniform
    return Interval(result.lo, result.hi, min(result.norm, norm), a.whole and b.whole, uniform)


def product_bounds(a: Interval, b: Interval) -> tuple[np.ndarray, np.ndarray]:
    """The ends of ``ab``, not widened."""
    pairs: list[tuple[np.ndarray, np.ndarray]] = [(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    # 0·inf: an infinite bound only means "unbounded", and zero times any number is zero.
    corners = [np.where(np.isnan(x * y), 0.0, x * y) for x, y in pairs]
    lo, hi = np.minimum.reduce(corners), np.maximum.reduce(corners)
    small = [(np.abs(c) < TINY) & (x != 0) & (y != 0) for c, (x, y) in zip(corners, pairs, strict=True)]
    lost = np.asarray(np.logical_or.reduce(small), bool)
    low, high = np.where(lost, np.minimum(lo, -TINY), lo), np.where(lost, np.maximum(hi, TINY), hi)
    return np.asarray(low), np.asarray(high)


def product(a: Interval, b: Interval) -> Interval:
    """Bounds of ``ab``."""
    lo, hi = product_bounds(a, b)
    exact = any(c.is_point and np.all(np.abs(c.lo) <= 1) and c.whole for c in (a, b))
    result = widen(lo, hi, 0 if exact else 1)
    norm = min(result.norm, scaled(a.largest, b.norm), scaled(b.largest, a.norm))
    uniform = (a.uniform and b.uniform) or result.uniform
    return Interval(result.lo, result.hi, norm, a.whole and b.whole, uniform)


def reciprocal(a: Interval) -> Interval:
    """Bounds of ``1/a``; undefined where ``a`` may be zero, whose sign would decide the infinity."""
    if not np.all((a.lo > 0) | (a.hi < 0)):
        return anything(a.shape, defined=False)
    lo, hi = 1 / a.hi, 1 / a.lo
    # The reciprocal of a huge number is small, not zero.
    return widen(np.where((lo == 0) & (a.hi < 0), -TINY, lo), np.where((hi == 0) & (a.lo > 0), TINY, hi))


def power(a: Interval, exponent: int) -> Interval:
    """Bounds of ``a^exponent``."""
    if exponent < 0:
        inverse = reciprocal(a)
        return power(inverse, -exponent) if inverse.defined else inverse
    ends = np.stack([a.lo**exponent, a.hi**exponent])
    lo, hi = ends.min(axis=0), ends.max(axis=0)
    if exponent % 2 == 0 and exponent:
        lo = np.where((a.lo <= 0) & (a.hi >= 0), 0.0, lo)
    lost = np.any((np.abs(ends) < TINY) & (np.stack([a.lo, a.hi]) != 0), axis=0)
    lo, hi = np.where(lost, np.minimum(lo, -TINY), lo), np.where(lost, np.maximum(hi, TINY), hi)
    wide = widen(lo, hi, 0 if exponent <= 1 else 2 * exponent)
    if exponent % 2 == 0:
        wide = between(np.maximum(wide.lo, 0.0), wide.hi)
    return replace(wide, whole=a.whole, uniform=a.uniform)
