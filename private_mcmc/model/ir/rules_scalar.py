"""Interval rules of comparisons, choices and functions of one number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import scipy.special as special

from private_mcmc.model.ir.interval import Interval, between
from private_mcmc.model.ir.program import Params, Shape
from private_mcmc.model.ir.rules_arithmetic import TINY, Operands, Rule, hypot, negate, reciprocal, widen


def _select(operands: Operands, params: Params, shape: Shape) -> Interval:
    which, *cases = operands
    lo, hi = np.full(shape, np.inf), np.full(shape, -np.inf)
    used = []
    for index, case in enumerate(cases):
        possible = (which.lo <= index) & (which.hi >= index)
        lo = np.where(possible, np.minimum(lo, case.lo), lo)
        hi = np.where(possible, np.maximum(hi, case.hi), hi)
        if np.any(possible):
            used.append(case)
    chosen = between(lo, hi, whole=all(case.whole for case in used))
    return chosen.with_norm(hypot([case.norm for case in used]))


def _max(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, b = operands
    larger = between(
        np.maximum(a.lo, b.lo),
        np.maximum(a.hi, b.hi),
        whole=a.whole and b.whole,
        uniform=a.uniform and b.uniform,
    )
    norm = min((a.norm if b.largest == 0 else math.inf), (b.norm if a.largest == 0 else math.inf))
    return larger.with_norm(norm)


def _min(operands: Operands, params: Params, shape: Shape) -> Interval:
    return negate(_max([negate(operands[0]), negate(operands[1])], params, shape))


def _clamp(operands: Operands, params: Params, shape: Shape) -> Interval:
    low, a, high = operands
    return _min([_max([a, low], params, shape), high], params, shape)


def _compare(
    surely: Callable[[Interval, Interval], np.ndarray], never: Callable[[Interval, Interval], np.ndarray]
) -> Callable[[Operands, Params, Shape], Interval]:
    def rule(operands: Operands, params: Params, shape: Shape) -> Interval:
        a, b = operands
        lo = surely(a, b).astype(np.float64)
        hi = 1.0 - never(a, b).astype(np.float64)
        return between(lo, hi, whole=True, uniform=a.uniform and b.uniform)

    return rule


def _both_known(a: Interval, b: Interval) -> np.ndarray:
    return np.asarray((a.lo == a.hi) & (b.lo == b.hi) & (a.lo == b.lo))


def _apart(a: Interval, b: Interval) -> np.ndarray:
    return np.asarray((a.hi < b.lo) | (a.lo > b.hi))


def _eq(operands: Operands, params: Params, shape: Shape) -> Interval:
    result = _compare(_both_known, _apart)(operands, params, shape)
    a, b = operands
    for one, other in ((a, b), (b, a)):
        # One number compared with distinct constants matches at most one of them: a one-hot vector.
        if one.uniform and other.is_point and len(np.unique(other.lo)) == other.lo.size:
            return result.with_norm(1.0)
    return result


def _logical(function: Callable[..., np.ndarray]) -> Rule:
    def rule(operands: Operands, params: Params, shape: Shape) -> Interval | None:
        if any(a.lowest < 0 or a.highest > 1 for a in operands):
            return None
        ends = [a.lo for a in operands], [a.hi for a in operands]
        lo, hi = (function(*end) for end in ends)
        return between(np.minimum(lo, hi), np.maximum(lo, hi), whole=True)

    return rule


def _xor(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    a, b = operands
    if any(value.lowest < 0 or value.highest > 1 for value in operands):
        return None
    decided = (a.lo == a.hi) & (b.lo == b.hi)
    apart = (a.lo != b.lo).astype(np.float64)
    return between(np.where(decided, apart, 0.0), np.where(decided, apart, 1.0), whole=True)


def _is_finite(operands: Operands, params: Params, shape: Shape) -> Interval:
    a = operands[0]
    return between((np.isfinite(a.lo) & np.isfinite(a.hi)).astype(np.float64), np.ones(shape), whole=True)


def _monotone(function: Callable[[np.ndarray], np.ndarray], lowest: float, highest: float) -> Rule:
    """An increasing function with values in [lowest, highest]."""

    def rule(operands: Operands, params: Params, shape: Shape) -> Interval:
        a = operands[0]
        wide = widen(function(a.lo), function(a.hi), 8)
        # What decays to its lowest value does not reach it.
        top = np.where((wide.hi == lowest) & (a.hi > -np.inf), lowest + TINY, wide.hi)
        return between(np.maximum(wide.lo, lowest), np.minimum(top, highest), uniform=a.uniform)

    return rule


def _shrinking(rule: Rule) -> Rule:
    """For functions with ``|f(x)| ≤ |x|``: the norm does not grow."""

    def bounded(operands: Operands, params: Params, shape: Shape) -> Interval | None:
        result = rule(operands, params, shape)
        return None if result is None else result.with_norm(operands[0].norm)

    return bounded


def _positive_part(function: Callable[[np.ndarray], np.ndarray], edge: float, at_edge: float) -> Rule:
    """An increasing function defined above ``edge`` only."""

    def rule(operands: Operands, params: Params, shape: Shape) -> Interval:
        a = operands[0]
        inside = a.lo >= edge
        lo = np.where(a.lo == edge, at_edge, function(np.maximum(a.lo, edge)))
        hi = np.where(a.hi == edge, at_edge, function(np.maximum(a.hi, edge)))
        wide = widen(np.where(inside, lo, -np.inf), np.where(inside, hi, np.inf), 8)
        return between(wide.lo, wide.hi, uniform=a.uniform)

    return rule


def _abs(operands: Operands, params: Params, shape: Shape) -> Interval:
    a = operands[0]
    crosses = (a.lo <= 0) & (a.hi >= 0)
    lo = np.where(crosses, 0.0, np.minimum(np.abs(a.lo), np.abs(a.hi)))
    return between(lo, np.maximum(np.abs(a.lo), np.abs(a.hi)), whole=a.whole, uniform=a.uniform).with_norm(
        a.norm
    )


def _erfc(operands: Operands, params: Params, shape: Shape) -> Interval:
    a = operands[0]
    wide = widen(special.erfc(a.hi), special.erfc(a.lo), 8)
    top = np.where((wide.hi == 0) & (a.lo < np.inf), TINY, wide.hi)
    return between(np.maximum(wide.lo, 0.0), np.minimum(top, 2.0), uniform=a.uniform)


def _rsqrt(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    root = _positive_part(np.sqrt, 0.0, 0.0)(operands, params, shape)
    return None if root is None else reciprocal(root)


def _lgamma(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    a = operands[0]
    minimum_at, minimum = 1.4616321449683623, -0.12148629053584962
    if not np.all(a.lo > 0):
        return None
    ends = np.stack([special.gammaln(a.lo), special.gammaln(a.hi)])
    lo = np.where((a.lo <= minimum_at) & (a.hi >= minimum_at), minimum, ends.min(axis=0))
    return between(lo - 1e-12 * (1 + np.abs(lo)), ends.max(axis=0) + 1e-12 * (1 + np.abs(ends.max(axis=0))))


def _wave(operands: Operands, params: Params, shape: Shape) -> Interval:
    return between(np.full(shape, -1.0), np.ones(shape))


def _round(function: Callable[[np.ndarray], np.ndarray]) -> Rule:
    def rule(operands: Operands, params: Params, shape: Shape) -> Interval:
        return between(
            function(operands[0].lo), function(operands[0].hi), whole=True, uniform=operands[0].uniform
        )

    return rule


def _nearest(operands: Operands, params: Params, shape: Shape) -> Interval:
    # Ties go to even or away from zero: the floor and the ceiling hold either way.
    return between(np.floor(operands[0].lo), np.ceil(operands[0].hi), whole=True, uniform=operands[0].uniform)


def _convert(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    a = operands[0]
    target: np.dtype = np.dtype(params["new_dtype"])
    if target.kind == "f":
        return a if target.itemsize >= 8 or (a.whole and a.largest <= 2**8) else None
    if target.kind == "b":
        return _compare(_apart, _both_known)(
            [a, between(np.zeros(a.shape), np.zeros(a.shape))], params, shape
        )
    if target.kind not in "iu":
        return None  # shorter floats than NumPy's own
    # Out of range, the cast wraps around or saturates.
    fits = a.lowest >= np.iinfo(target).min and a.highest <= np.iinfo(target).max
    return between(np.trunc(a.lo), np.trunc(a.hi), whole=True, uniform=a.uniform) if fits else None


SCALARS: Mapping[str, Rule] = {
    "select_n": _select,
    "max": _max,
    "min": _min,
    "clamp": _clamp,
    "eq": _eq,
    "ne": _compare(_apart, _both_known),
    "lt": _compare(lambda a, b: a.hi < b.lo, lambda a, b: a.lo >= b.hi),
    "le": _compare(lambda a, b: a.hi <= b.lo, lambda a, b: a.lo > b.hi),
    "gt": _compare(lambda a, b: a.lo > b.hi, lambda a, b: a.hi <= b.lo),
    "ge": _compare(lambda a, b: a.lo >= b.hi, lambda a, b: a.hi < b.lo),
    "and": _logical(np.minimum),
    "or": _logical(np.maximum),
    "xor": _xor,
    "not": _logical(lambda a: 1.0 - a),
    "is_finite": _is_finite,
    "exp": _monotone(np.exp, 0.0, np.inf),
    "expm1": _monotone(np.expm1, -1.0, np.inf),
    "logistic": _monotone(special.expit, 0.0, 1.0),
    "tanh": _shrinking(_monotone(np.tanh, -1.0, 1.0)),
    "atan": _shrinking(_monotone(np.arctan, -2.0, 2.0)),
    "erf": _monotone(special.erf, -1.0, 1.0),
    "erfc": _erfc,
    "cbrt": _monotone(np.cbrt, -np.inf, np.inf),
    "asinh": _shrinking(_monotone(np.arcsinh, -np.inf, np.inf)),
    "log": _positive_part(np.log, 0.0, -np.inf),
    "log1p": _positive_part(np.log1p, -1.0, -np.inf),
    "sqrt": _positive_part(np.sqrt, 0.0, 0.0),
    "rsqrt": _rsqrt,
    "lgamma": _lgamma,
    "abs": _abs,
    "sign": _round(np.sign),
    "floor": _round(np.floor),
    "ceil": _round(np.ceil),
    "round": _nearest,
    "sin": _wave,
    "cos": _wave,
    "convert_element_type": _convert,
}
