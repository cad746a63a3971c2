"""Interval rules of comparisons, choices and functions of one number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import scipy.special as special

from private_mcmc.model.ir.evaluate import FUNCTIONS, positions
from private_mcmc.model.ir.interval import (
    TINY,
    Interval,
    Operands,
    Rule,
    between,
    constant,
    hypot,
    negate,
    reciprocal,
    up,
    widen,
)
from private_mcmc.model.ir.program import Params, Shape


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


def _of_booleans(rule: Rule) -> Rule:
    """For operands that are 0 or 1: of other integers the primitive works bit by bit."""

    def bounded(operands: Operands, params: Params, shape: Shape) -> Interval | None:
        if any(a.lowest < 0 or a.highest > 1 for a in operands):
            return None
        return rule(operands, params, shape)

    return bounded


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


_SQRT = _positive_part(np.sqrt, 0.0, 0.0)


def _abs(operands: Operands, params: Params, shape: Shape) -> Interval:
    a = operands[0]
    crosses = (a.lo <= 0) & (a.hi >= 0)
    lo = np.where(crosses, 0.0, np.minimum(np.abs(a.lo), np.abs(a.hi)))
    return between(lo, np.maximum(np.abs(a.lo), np.abs(a.hi)), whole=a.whole, uniform=a.uniform).with_norm(
        a.norm
    )


def _falling(rule: Rule) -> Rule:
    """The rule of ``x ↦ f(−x)``."""
    return lambda operands, params, shape: rule([negate(operands[0])], params, shape)


def _rsqrt(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    root = _SQRT(operands, params, shape)
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


def _round(below: Callable[[np.ndarray], np.ndarray], above: Callable[[np.ndarray], np.ndarray]) -> Rule:
    def rule(operands: Operands, params: Params, shape: Shape) -> Interval:
        a = operands[0]
        return between(below(a.lo), above(a.hi), whole=True, uniform=a.uniform)

    return rule


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
    "and": _of_booleans(_min),
    "or": _of_booleans(_max),
    "xor": _of_booleans(_compare(_apart, _both_known)),
    "not": _of_booleans(lambda x, params, shape: between(1.0 - x[0].hi, 1.0 - x[0].lo, whole=True)),
    "is_finite": _is_finite,
    "exp": _monotone(np.exp, 0.0, np.inf),
    "expm1": _monotone(np.expm1, -1.0, np.inf),
    "logistic": _monotone(special.expit, 0.0, 1.0),
    "tanh": _shrinking(_monotone(np.tanh, -1.0, 1.0)),
    "atan": _shrinking(_monotone(np.arctan, -2.0, 2.0)),
    "erf": _monotone(special.erf, -1.0, 1.0),
    "erfc": _falling(_monotone(lambda x: special.erfc(-x), 0.0, 2.0)),
    "cbrt": _monotone(np.cbrt, -np.inf, np.inf),
    "asinh": _shrinking(_monotone(np.arcsinh, -np.inf, np.inf)),
    "log": _positive_part(np.log, 0.0, -np.inf),
    "log1p": _positive_part(np.log1p, -1.0, -np.inf),
    "sqrt": _SQRT,
    "rsqrt": _rsqrt,
    "lgamma": _lgamma,
    "abs": _abs,
    "sign": _round(np.sign, np.sign),
    "floor": _round(np.floor, np.floor),
    "ceil": _round(np.ceil, np.ceil),
    # Ties go to even or away from zero: the floor and the ceiling hold either way.
    "round": _round(np.floor, np.ceil),
    "sin": _wave,
    "cos": _wave,
    "convert_element_type": _convert,
}


_ENDS = ("lo", "hi")
_MOVES = ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice")


def _moved(name: str) -> Rule:
    """A rule for a primitive that only moves elements, or repeats all of them as often."""
    function = FUNCTIONS[name]

    def rule(operands: Operands, params: Params, shape: Shape) -> Interval:
        a = operands[0]
        lo, hi = (np.asarray(function([bound], params, shape)) for bound in (a.lo, a.hi))
        copies = math.prod(shape) // max(a.lo.size, 1)
        norm = a.norm if copies <= 1 else up(a.norm * math.sqrt(copies))
        return between(lo, hi, whole=a.whole, uniform=a.uniform).with_norm(norm)

    return rule


def _joined(name: str) -> Rule:
    """A rule for a primitive that puts arrays beside one another."""
    function = FUNCTIONS[name]

    def rule(operands: Operands, params: Params, shape: Shape) -> Interval:
        lo, hi = (np.asarray(function([getattr(a, end) for a in operands], params, shape)) for end in _ENDS)
        joined = between(lo, hi, whole=all(a.whole for a in operands))
        return joined.with_norm(hypot([a.norm for a in operands]))

    return rule


def split(a: Interval, params: Params) -> list[Interval]:
    """The parts of an array cut along one axis."""
    edges = np.cumsum(params["sizes"])[:-1]
    los, his = (np.split(bound, edges, params["axis"]) for bound in (a.lo, a.hi))
    parts = zip(los, his, strict=True)
    return [between(lo, hi, whole=a.whole, uniform=a.uniform).with_norm(a.norm) for lo, hi in parts]


def _pad(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    a, filler = operands
    lo, hi = (FUNCTIONS["pad"]([bound, filler.lo], params, shape) for bound in (a.lo, a.hi))
    if not filler.is_point or lo is None or hi is None:
        return None
    padded = between(lo, hi, whole=a.whole and filler.whole)
    return padded.with_norm(a.norm) if filler.largest == 0 else padded


def _reduce(function: Callable[..., np.ndarray]) -> Rule:
    def rule(operands: Operands, params: Params, shape: Shape) -> Interval | None:
        a, axes = operands[0], tuple(params["axes"])
        # The extreme of no numbers is JAX's choice.
        if not a.lo.size:
            return None
        return between(function(a.lo, axis=axes), function(a.hi, axis=axes), whole=a.whole).with_norm(a.norm)

    return rule


def _gather(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    a, indices = operands
    if indices.is_point:
        numbers, sizes, mode = (params[name] for name in ("dimension_numbers", "slice_sizes", "mode"))
        places, inside = positions(indices.lo, a.shape, numbers, sizes, mode)
        if not np.all(inside):
            return None
        where = np.broadcast_to(np.ravel_multi_index(places, a.shape), shape)
        taken = between(a.lo.ravel()[where], a.hi.ravel()[where], whole=a.whole)
        return taken.with_norm(a.norm) if np.unique(where).size == where.size else taken
    last = np.asarray(a.shape) - np.asarray(params["slice_sizes"])
    starts = np.asarray(params["dimension_numbers"].start_index_map, int)
    # Out of bounds, the filler (NaN) would appear: nothing is proved then.
    if not np.all((indices.lo >= 0) & (indices.hi <= last[starts])):
        return None
    windows = max(int(np.prod(indices.shape[:-1])), 1)
    a, norm = _one_entry(a, indices, params)
    lo, hi = np.full(shape, a.lowest), np.full(shape, a.highest)
    if windows == 1 and math.prod(shape) == a.lo.size:
        lo, hi = a.lo.reshape(shape), a.hi.reshape(shape)
    return between(lo, hi, whole=a.whole).with_norm(norm if windows == 1 else up(norm * math.sqrt(windows)))


def _one_entry(a: Interval, indices: Interval, params: Params) -> tuple[Interval, float]:
    """What a window can be, and a bound on its norm: any one entry along an axis, or anything of ``a``."""
    numbers = params["dimension_numbers"]
    sizes = tuple(1 if axis in numbers.start_index_map else size for axis, size in enumerate(a.shape))
    batched = getattr(numbers, "operand_batching_dims", ())
    if len(numbers.start_index_map) != 1 or tuple(params["slice_sizes"]) != sizes or batched:
        return a, a.norm
    axis = numbers.start_index_map[0]
    chosen = range(int(indices.lowest), int(indices.highest) + 1)
    entries = [between(np.take(a.lo, [i], axis), np.take(a.hi, [i], axis)) for i in chosen]
    lo, hi = np.minimum.reduce([e.lo for e in entries]), np.maximum.reduce([e.hi for e in entries])
    return between(lo, hi, whole=a.whole), min(a.norm, max(entry.norm for entry in entries))


def _scatter_add(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, indices, updates = operands
    windows = max(int(np.prod(indices.shape[:-1])), 1)
    lo = a.lo + min(updates.lowest, 0.0) * windows
    hi = a.hi + max(updates.highest, 0.0) * windows
    added = updates.norm if windows == 1 else up(updates.norm * math.sqrt(windows))
    result = widen(lo, hi, windows)
    return result.with_norm(added if a.norm == 0 else up(a.norm + added))


def _scatter(operands: Operands, params: Params, shape: Shape) -> Interval:
    """Every element is the old one or one of the updates, each of which lands at most once."""
    a, _, updates = operands
    lo, hi = np.minimum(a.lo, updates.lowest), np.maximum(a.hi, updates.highest)
    return between(lo, hi, whole=a.whole and updates.whole).with_norm(hypot([a.norm, updates.norm]))


def _dynamic_slice(operands: Operands, params: Params, shape: Shape) -> Interval:
    a = operands[0]
    return between(np.full(shape, a.lowest), np.full(shape, a.highest), whole=a.whole).with_norm(a.norm)


SHAPES: Mapping[str, Rule] = {
    **{name: _moved(name) for name in _MOVES},
    **dict.fromkeys(("copy", "copy_p", "stop_gradient"), _moved("reshape")),
    "concatenate": _joined("concatenate"),
    "stack": _joined("stack"),
    "pad": _pad,
    "iota": lambda operands, params, shape: constant(np.asarray(FUNCTIONS["iota"]([], params, shape))),
    "gather": _gather,
    "scatter": _scatter,
    "scatter-add": _scatter_add,
    "dynamic_update_slice": lambda x, params, shape: _scatter([x[0], x[0], x[1]], params, shape),
    "dynamic_slice": _dynamic_slice,
    "reduce_max": _reduce(np.max),
    "reduce_min": _reduce(np.min),
    "reduce_and": _reduce(np.min),
    "reduce_or": _reduce(np.max),
}
