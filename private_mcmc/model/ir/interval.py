"""Interval rules of sums and products.

Floating-point results are widened outward by a few units in the last place; exact zeros stay exact, so
that signs and sparsity survive. A rule returns ``None`` where it has nothing to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.real import Ball
from private_mcmc.model.ir.evaluate import FUNCTIONS
from private_mcmc.model.ir.program import Params, Shape


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


Operands: TypeAlias = Sequence[Interval]
Rule: TypeAlias = Callable[[Operands, Params, Shape], Interval | None]

_LARGEST_PRODUCT = 10_000_000
_LARGEST_POWER = 64
TINY = float(np.finfo(np.float64).tiny)


def widen(lo: np.ndarray, hi: np.ndarray, ulps: int = 1) -> Interval:
    """Widen by ``ulps``; an exact zero or infinity is kept."""
    lo, hi = np.asarray(lo, np.float64), np.asarray(hi, np.float64)
    low = np.where(np.isfinite(lo) & (lo != 0), lo - ulps * np.spacing(np.abs(lo)), lo)
    high = np.where(np.isfinite(hi) & (hi != 0), hi + ulps * np.spacing(np.abs(hi)), hi)
    return between(low, high)


def hypot(norms: Sequence[float]) -> float:
    """Norm of a vector of norms, rounded up; exact where only one is not zero."""
    positive = [norm for norm in norms if norm > 0]
    return sum(positive) if len(positive) <= 1 else up(math.hypot(*positive))


def _add(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, b = operands
    result = widen(a.lo + b.lo, a.hi + b.hi)
    zero_a, zero_b = (a.lo == 0) & (a.hi == 0), (b.lo == 0) & (b.hi == 0)
    disjoint = bool(np.all(zero_a | zero_b))
    norm = hypot([a.norm, b.norm]) if disjoint else up(a.norm + b.norm)
    whole, uniform = a.whole and b.whole, a.uniform and b.uniform
    return Interval(result.lo, result.hi, min(result.norm, norm), whole, uniform or result.uniform)


def negate(a: Interval) -> Interval:
    """Bounds of ``−a``."""
    return Interval(0.0 - a.hi, 0.0 - a.lo, a.norm, a.whole, a.uniform)


def _sub(operands: Operands, params: Params, shape: Shape) -> Interval:
    return _add([operands[0], negate(operands[1])], params, shape)


def _product_bounds(a: Interval, b: Interval) -> tuple[np.ndarray, np.ndarray]:
    pairs: list[tuple[np.ndarray, np.ndarray]] = [(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    # 0·inf: an infinite bound only means "unbounded", and zero times any number is zero.
    corners = [np.where(np.isnan(x * y), 0.0, x * y) for x, y in pairs]
    lo, hi = np.minimum.reduce(corners), np.maximum.reduce(corners)
    small = [(np.abs(c) < TINY) & (x != 0) & (y != 0) for c, (x, y) in zip(corners, pairs, strict=True)]
    lost = np.asarray(np.logical_or.reduce(small), bool)
    return _where(lost, np.minimum(lo, -TINY), lo), _where(lost, np.maximum(hi, TINY), hi)


def _where(condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    return np.asarray(np.where(condition, yes, no))


def _mul(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, b = operands
    lo, hi = _product_bounds(a, b)
    exact = any(c.is_point and np.all(np.abs(c.lo) <= 1) and c.whole for c in (a, b))
    result = widen(lo, hi, 0 if exact else 1)
    norms = [_scaled(a.largest, b.norm), _scaled(b.largest, a.norm)]
    whole, uniform = a.whole and b.whole, a.uniform and b.uniform
    return Interval(result.lo, result.hi, min(result.norm, *norms), whole, uniform or result.uniform)


def _scaled(factor: float, norm: float) -> float:
    if factor == 0 or norm == 0:
        return 0.0
    return norm if factor == 1 else up(factor * norm)


def reciprocal(a: Interval) -> Interval | None:
    """Bounds of ``1/a`` where ``a`` keeps away from zero, whose sign would decide the infinity."""
    one_sign = (a.lo > 0) | (a.hi < 0)
    if not np.any(one_sign):
        return None
    lo, hi = np.where(one_sign, 1 / a.hi, -np.inf), np.where(one_sign, 1 / a.lo, np.inf)
    # The reciprocal of a huge number is small, not zero.
    return widen(np.where((lo == 0) & (a.hi < 0), -TINY, lo), np.where((hi == 0) & (a.lo > 0), TINY, hi))


def _div(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    a, b = operands
    inverse = reciprocal(b)
    if inverse is None:
        return None
    if np.all((b.lo == 1) & (b.hi == 1)) and a.shape == shape:
        return a
    return _mul([a, inverse], params, shape)


def integer_division(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    """Division of integers truncates towards zero; by zero it gives some other number."""
    result = _div(operands, params, shape)
    if result is None or not np.all((operands[1].lo > 0) | (operands[1].hi < 0)):
        return None
    return between(np.minimum(result.lo, np.trunc(result.lo)), np.maximum(result.hi, np.trunc(result.hi)))


def _pow(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    """``a^b``: monotone in each argument where ``a > 0``, so extreme at the corners."""
    a, b = operands
    if b.is_point and np.all(b.lo == np.round(b.lo)) and b.largest <= _LARGEST_POWER:
        return _whole_powers(a, b.lo, shape)
    if not np.all(a.lo >= 0) or (np.any(a.lo == 0) and not np.all(b.lo > 0)):
        return None
    corners = np.stack([x**y for x in (a.lo, a.hi) for y in (b.lo, b.hi)])
    if np.any(np.isnan(corners)):
        return None
    return widen(corners.min(axis=0), np.where(a.hi > 0, np.maximum(corners.max(axis=0), TINY), 0.0), 16)


def _whole_powers(a: Interval, powers: np.ndarray, shape: Shape) -> Interval | None:
    lo, hi = np.full(shape, -np.inf), np.full(shape, np.inf)
    for power in np.unique(powers):
        part = _integer_pow([a], {"y": int(power)}, shape)
        if part is None:
            return None
        lo, hi = np.where(powers == power, part.lo, lo), np.where(powers == power, part.hi, hi)
    return between(lo, hi, whole=a.whole and bool(np.all(powers >= 0)))


def _rem(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    """The remainder has the sign of the dividend and is smaller than the divisor."""
    a, b = operands
    if a.whole and b.is_point and np.all(np.abs(b.lo) == 1):
        return constant(np.zeros(shape))
    if a.is_point and b.is_point:
        return constant(np.fmod(a.lo, b.lo))
    if not np.all((b.lo > 0) | (b.hi < 0)):
        return None
    size = np.maximum(np.abs(b.lo), np.abs(b.hi))
    return between(np.where(a.lo >= 0, 0.0, -size), np.where(a.hi <= 0, 0.0, size), whole=a.whole and b.whole)


def _integer_pow(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    a, power = operands[0], int(params["y"])
    if power < 0:
        inverse = reciprocal(a)
        return None if inverse is None else _integer_pow([inverse], {"y": -power}, shape)
    ends = np.stack([a.lo**power, a.hi**power])
    lo, hi = ends.min(axis=0), ends.max(axis=0)
    if power % 2 == 0 and power:
        lo = np.where((a.lo <= 0) & (a.hi >= 0), 0.0, lo)
    lost = np.any((np.abs(ends) < TINY) & (np.stack([a.lo, a.hi]) != 0), axis=0)
    lo, hi = np.where(lost, np.minimum(lo, -TINY), lo), np.where(lost, np.maximum(hi, TINY), hi)
    wide = widen(lo, hi, 0 if power <= 1 else 2 * power)
    if power % 2 == 0:
        wide = between(np.maximum(wide.lo, 0.0), wide.hi)
    return Interval(wide.lo, wide.hi, wide.norm, a.whole, a.uniform)


def _dot_general(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, b = operands
    (contract_a, contract_b), (batch_a, batch_b) = params["dimension_numbers"]
    if a.lo.size * b.lo.size > _LARGEST_PRODUCT:
        return anything(shape).with_norm(up(a.norm * b.norm))
    left = _batched_matrix(a, contract_a, batch_a, True)
    right = _batched_matrix(b, contract_b, batch_b, False)
    lo, hi = _product_bounds(
        between(left[0][..., None], left[1][..., None]), between(right[0][:, None], right[1][:, None])
    )
    terms = lo.shape[2]
    size = np.maximum(np.abs(lo), np.abs(hi)).sum(axis=2)
    slack = np.where(np.isfinite(size), size * (terms + 2) * 2.0**-52, 0.0)
    result = between((lo.sum(axis=2) - slack).reshape(shape), (hi.sum(axis=2) + slack).reshape(shape))
    norms = [a.norm * b.norm]
    for matrix, other in ((a, b), (b, a)):
        if matrix.is_point and matrix.lo.size == 1:
            norms.append(_scaled(matrix.largest, other.norm))
    for value, parts, other in ((a, left, b), (b, right, a)):
        if value.is_point and not batch_a:
            norms.append(_scaled(_spectral_norm(parts[0][0]), other.norm))
    return Interval(
        result.lo, result.hi, min(result.norm, *map(up, norms[:1]), *norms[1:]), False, result.uniform
    )


def _batched_matrix(
    value: Interval, contract: Sequence[int], batch: Sequence[int], contract_last: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds as (batch, free, contracted), or (batch, contracted, free)."""
    free = [axis for axis in range(value.lo.ndim) if axis not in (*contract, *batch)]
    order = [*batch, *free, *contract] if contract_last else [*batch, *contract, *free]

    def shaped(bound: np.ndarray) -> np.ndarray:
        count = [int(np.prod([value.shape[axis] for axis in axes])) for axes in (batch, free, contract)]
        sizes = count if contract_last else [count[0], count[2], count[1]]
        return np.transpose(bound, order).reshape(sizes)

    return shaped(value.lo), shaped(value.hi)


def _spectral_norm(matrix: np.ndarray) -> float:
    if matrix.size == 0 or not np.all(np.isfinite(matrix)):
        return math.inf if matrix.size else 0.0
    top = float(np.linalg.norm(matrix, 2))
    slack = float(np.linalg.norm(matrix)) * (sum(matrix.shape) + 8) * 2.0**-50
    return top if matrix.size == 1 else top + slack


def _reduce_sum(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, axes = operands[0], tuple(params["axes"])
    count = int(np.prod([a.shape[axis] for axis in axes]))
    lo, hi = a.lo.sum(axis=axes), a.hi.sum(axis=axes)
    if count > 1:
        size = np.maximum(np.abs(a.lo), np.abs(a.hi)).sum(axis=axes) * (count + 1) * 2.0**-52
        size = np.where(np.isfinite(size), size, 0.0)
        lo, hi = lo - size, hi + size
    result = between(lo, hi, whole=a.whole, uniform=a.uniform)
    return result.with_norm(a.norm if count == 1 else up(a.norm * math.sqrt(count)))


def _cumsum(operands: Operands, params: Params, shape: Shape) -> Interval:
    a = operands[0]
    ends = (a.lo, a.hi, np.maximum(np.abs(a.lo), np.abs(a.hi)))
    lo, hi, size = (np.asarray(FUNCTIONS["cumsum"]([end], params, shape)) for end in ends)
    slack = 2.0**-51 * shape[params["axis"]] * size
    slack = np.where(np.isfinite(slack), slack, 0.0)
    return between(lo - slack, hi + slack, whole=a.whole)


def _products(a: Interval, axis: int) -> list[Interval]:
    """The products of the first one, two, … elements along an axis."""
    lows, highs = np.moveaxis(a.lo, axis, 0), np.moveaxis(a.hi, axis, 0)
    found = [between(lows[0], highs[0])]
    for low, high in zip(lows[1:], highs[1:], strict=True):
        found.append(widen(*_product_bounds(found[-1], between(low, high))))
    return found


def _cumprod(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    a, axis = operands[0], params["axis"]
    if shape[axis] == 0:
        return None
    turned = between(np.flip(a.lo, axis), np.flip(a.hi, axis)) if params["reverse"] else a
    found = _products(turned, axis)
    lo, hi = (np.stack([getattr(part, end) for part in found], axis) for end in ("lo", "hi"))
    lo, hi = (np.flip(lo, axis), np.flip(hi, axis)) if params["reverse"] else (lo, hi)
    return between(lo, hi, whole=a.whole)


def _reduce_prod(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    a, axes = operands[0], sorted(params["axes"], reverse=True)
    if 0 in a.shape:
        return None
    for axis in axes:
        a = _products(a, axis)[-1]
    return between(a.lo, a.hi, whole=operands[0].whole)


ARITHMETIC: Mapping[str, Rule] = {
    "add": _add,
    "add_any": _add,
    "sub": _sub,
    "neg": lambda operands, params, shape: negate(operands[0]),
    "mul": _mul,
    "div": _div,
    "integer_pow": _integer_pow,
    "pow": _pow,
    "rem": _rem,
    "square": lambda operands, params, shape: _integer_pow(operands, {"y": 2}, shape),
    "dot_general": _dot_general,
    "reduce_sum": _reduce_sum,
    "reduce_prod": _reduce_prod,
    "cumsum": _cumsum,
    "cumprod": _cumprod,
}
