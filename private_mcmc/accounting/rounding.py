"""Outward rounding: upper bounds are pushed up by more than the float64 error of computing them.

Products, sums and roots of a few numbers are computed exactly, as fractions, and rounded once, outward: they
neither underflow to zero nor lose digits below the normal numbers. ``up`` is for longer formulas, and for
arrays, where all intermediate results are normal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

UP = 1.0 + 2.0**-48  # a dozen correctly rounded operations on non-negative numbers err by less
# Of dozens of operations, roots among them; of norms, products and eigenvalues of small matrices.
UP_LONG, UP_MATRIX = 1.0 + 1e-12, 1.0 + 1e-9
TINY = math.ulp(0.0)


def up(value: float) -> float:
    """``value ≥ 0``, the result of at most a dozen roundings without cancellation, as an upper bound."""
    return value * UP


def product_up(*factors: float, over: tuple[float, ...] = ()) -> float:
    """``Π factors / Π over`` of non-negative numbers, rounded up; 0 only where a factor is 0.

    ``inf`` where it overflows, where a factor is ``inf``, or where a divisor is 0.
    """
    if 0.0 in factors:
        return 0.0
    if math.inf in factors or 0.0 in over:
        return math.inf
    if math.inf in over:
        return TINY
    return above(_ratio(factors, over))


def product_down(*factors: float, over: tuple[float, ...] = ()) -> float:
    """``Π factors / Π over`` of non-negative, finite numbers, ``over`` positive, rounded down."""
    if math.inf in factors:
        return math.inf
    return 0.0 if math.inf in over else below(_ratio(factors, over))


def sum_up(values: Iterable[float]) -> float:
    """The sum of numbers, not negative in all, rounded up only where it is not a number of this precision."""
    terms = list(values)
    return math.inf if math.inf in terms else above(sum(map(Fraction, terms), Fraction(0)))


def root_up(value: float) -> float:
    """Square root of an upper bound ``value ≥ 0``, rounded up; 0 only of 0."""
    root = math.sqrt(value)
    enough = root in (0.0, math.inf) or Fraction(root) ** 2 >= value
    return root if enough else math.nextafter(root, math.inf)


def root_down(value: float) -> float:
    """Square root of a lower bound ``value ≥ 0``, rounded down."""
    root = math.sqrt(value)
    return root if root == math.inf or Fraction(root) ** 2 <= value else math.nextafter(root, 0.0)


def norm_up(values: Iterable[float]) -> float:
    """``√Σ v²`` of non-negative numbers, rounded up; one number is its own norm."""
    terms = [value for value in values if value > 0]
    if len(terms) <= 1 or math.inf in terms:
        return max(terms, default=0.0)
    largest = max(terms)
    shares = sum((Fraction(term) / Fraction(largest)) ** 2 for term in terms)
    return product_up(largest, root_up(above(Fraction(shares))))


def _ratio(factors: tuple[float, ...], over: tuple[float, ...]) -> Fraction:
    top, bottom = (math.prod(map(Fraction, part), start=Fraction(1)) for part in (factors, over))
    return top / bottom


def above(exact: Fraction) -> float:
    """The least double that is not below ``exact ≥ 0``."""
    try:
        value = float(exact)
    except OverflowError:
        return math.inf
    return value if value == math.inf or Fraction(value) >= exact else math.nextafter(value, math.inf)


def below(exact: Fraction) -> float:
    """The largest double that is not above ``exact ≥ 0``."""
    try:
        value = float(exact)
    except OverflowError:
        return math.nextafter(math.inf, 0.0)
    return value if Fraction(value) <= exact else math.nextafter(value, 0.0)
