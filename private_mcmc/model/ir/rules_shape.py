"""Interval rules of primitives that move, copy, select or collect elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from private_mcmc.model.ir.interval import Interval, between, constant, up
from private_mcmc.model.ir.numpy_functions import FUNCTIONS, positions
from private_mcmc.model.ir.program import Params, Shape
from private_mcmc.model.ir.rules_arithmetic import Operands, Rule, hypot, widen


def _moved(name: str) -> Rule:
    """A rule for a primitive that only moves elements, each at most once."""
    function = FUNCTIONS[name]

    def rule(operands: Operands, params: Params, shape: Shape) -> Interval:
        a = operands[0]
        lo, hi = (np.asarray(function([bound], params, shape)) for bound in (a.lo, a.hi))
        return between(lo, hi, whole=a.whole, uniform=a.uniform).with_norm(a.norm)

    return rule


def _broadcast(operands: Operands, params: Params, shape: Shape) -> Interval:
    a = operands[0]
    lo, hi = (np.asarray(FUNCTIONS["broadcast_in_dim"]([bound], params, shape)) for bound in (a.lo, a.hi))
    copies = int(np.prod(shape)) // max(a.lo.size, 1)
    norm = a.norm if copies == 1 else up(a.norm * math.sqrt(copies))
    return between(lo, hi, whole=a.whole, uniform=a.uniform).with_norm(norm)


def _concatenate(operands: Operands, params: Params, shape: Shape) -> Interval:
    axis = params["dimension"]
    lo, hi = (np.concatenate([getattr(a, end) for a in operands], axis) for end in ("lo", "hi"))
    joined = between(lo, hi, whole=all(a.whole for a in operands))
    return joined.with_norm(hypot([a.norm for a in operands]))


def _stack(operands: Operands, params: Params, shape: Shape) -> Interval:
    los, his = ([getattr(a, end) for a in operands] for end in ("lo", "hi"))
    axis = params["axis"]
    together = between(np.stack(los, axis), np.stack(his, axis), whole=all(a.whole for a in operands))
    return together.with_norm(hypot([a.norm for a in operands]))


def split(a: Interval, params: Params) -> list[Interval]:
    """The parts of an array cut along one axis."""
    edges = np.cumsum(params["sizes"])[:-1]
    los, his = (np.split(bound, edges, params["axis"]) for bound in (a.lo, a.hi))
    parts = zip(los, his, strict=True)
    return [between(lo, hi, whole=a.whole, uniform=a.uniform).with_norm(a.norm) for lo, hi in parts]


def _pad(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    a, filler = operands
    if not filler.is_point or any(low < 0 or high < 0 for low, high, _ in params["padding_config"]):
        return None
    where = tuple(
        slice(int(low), int(low) + size + int(inner) * max(size - 1, 0), int(inner) + 1)
        for (low, _, inner), size in zip(params["padding_config"], a.shape, strict=True)
    )
    lo, hi = np.full(shape, filler.lo), np.full(shape, filler.lo)
    lo[where], hi[where] = a.lo, a.hi
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


def _dynamic_update_slice(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, updates = operands[:2]
    return _scatter([a, a, updates], params, shape)


def _dynamic_slice(operands: Operands, params: Params, shape: Shape) -> Interval:
    a = operands[0]
    return between(np.full(shape, a.lowest), np.full(shape, a.highest), whole=a.whole).with_norm(a.norm)


SHAPES: Mapping[str, Rule] = {
    "broadcast_in_dim": _broadcast,
    **{name: _moved(name) for name in ("reshape", "squeeze", "expand_dims", "transpose", "rev", "slice")},
    **dict.fromkeys(("copy", "copy_p", "stop_gradient"), _moved("reshape")),
    "concatenate": _concatenate,
    "stack": _stack,
    "pad": _pad,
    "iota": lambda operands, params, shape: constant(np.asarray(FUNCTIONS["iota"]([], params, shape))),
    "gather": _gather,
    "scatter": _scatter,
    "scatter-add": _scatter_add,
    "dynamic_update_slice": _dynamic_update_slice,
    "dynamic_slice": _dynamic_slice,
    "reduce_max": _reduce(np.max),
    "reduce_min": _reduce(np.min),
    "reduce_and": _reduce(np.min),
    "reduce_or": _reduce(np.max),
}
