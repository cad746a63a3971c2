"""Bounds of intermediate results over the declared row domain, by interval arithmetic on the program.

Of designs it gives the radius, of outcomes, scales and weights the ranges that a line of the table of
likelihoods asks for, of declared functions of the latents their range. It knows the primitives that such
programs are made of; what it does not know is unbounded, and claims nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from private_mcmc.domains.rows import Rows
from private_mcmc.model.ir.evaluate import CALLS, FUNCTIONS, values
from private_mcmc.model.ir.flatten import flatten
from private_mcmc.model.ir.interval import (
    TINY,
    Interval,
    anything,
    between,
    constant,
    hypot,
    of_domain,
    plus,
    power,
    product,
    product_bounds,
    reciprocal,
    up,
    widen,
)
from private_mcmc.model.ir.program import Equation, Params, Program, Shape, Variable

_LARGEST = float(np.finfo(np.float64).max)
_ROUNDING = 2.0**-26
_LARGEST_PRODUCT, _LARGEST_POWER = 10_000_000, 64

Operands: TypeAlias = Sequence[Interval]
# ``None`` where there is nothing to say.
Rule: TypeAlias = Callable[[Operands, Params, Shape], Interval | None]


def bounds(
    program: Program, given: Mapping[Variable, Interval], targets: Iterable[Variable]
) -> list[Interval]:
    """Bounds of ``targets`` for all values of the variables ``given`` within theirs.

    The bounds are those of the program in real arithmetic, widened for the rounding of the bounds
    themselves. An input that is not given, the result of any primitive without a rule, and what is not
    defined everywhere (a division by zero, the logarithm of a negative number) is unbounded.
    """
    targets = list(targets)
    known = {variable: _literal(program, variable) for variable in program.constants}
    known.update({variable: _nothing(program, variable) for variable in program.inputs.values()})
    known.update(given)
    with np.errstate(all="ignore"):
        for equation in program.slice(targets, given):
            results = _apply(equation, [known[variable] for variable in equation.inputs], program)
            for output, result in zip(equation.outputs, results, strict=True):
                if output not in given:
                    known[output] = _representable(program, output, result)
    return [known[variable] for variable in targets]


_FARTHEST = 1e60


def bounds_in_floats(
    program: Program, given: Mapping[Variable, Interval], targets: Iterable[Variable]
) -> list[Interval]:
    """``bounds``; nothing where floats may overflow on the way, of inputs of size ``1e60`` at most.

    There a computed value is infinite or no number, while that of real arithmetic, of which ``bounds``
    speaks, may be as bounded as one likes: ``0·e^x``, or the choice that ``tanh(e^x − e^{2x}) ≤ 1`` makes.
    """
    targets = list(targets)
    made = [variable for equation in program.slice(targets, given) for variable in equation.outputs]
    near = {
        v: one if one.largest <= _FARTHEST else between(*np.clip([one.lo, one.hi], -_FARTHEST, _FARTHEST))
        for v, one in given.items()
    }
    if all(math.isfinite(one.largest) for one in bounds(program, near, made)):
        return bounds(program, given, targets)
    return [_nothing(program, variable) for variable in targets]


def row_values(program: Program, rows: Rows, leading: tuple[int, ...] = (1,)) -> dict[Variable, Interval]:
    """Bounds of the program's columns of one row, with these axes before their own."""
    return {program.inputs[name]: of_domain(domain, leading) for name, domain in rows.items}


def _apply(equation: Equation, operands: list[Interval], program: Program) -> list[Interval | None]:
    shapes = [program.shape(output) for output in equation.outputs]
    if equation.name != "select_n" and not all(operand.defined for operand in operands):
        return [anything(shape, defined=False) for shape in shapes]
    if equation.name in CALLS:
        return list(_inside(equation, operands))
    if equation.name == "split":
        return _split(operands[0], equation.params)
    rule, kind = _RULES.get(equation.name), _kind(program, equation.outputs[0])
    # Of integers division truncates, and negation is another operation than that of booleans.
    if rule is None or (equation.name, kind) in (("div", "i"), ("div", "u"), ("not", "i"), ("not", "u")):
        return _of_constants(equation, program)
    same = len(equation.inputs) == 2 and equation.inputs[0] == equation.inputs[1]
    if same and equation.name == "mul":
        return [power(operands[0], 2)]
    if same and equation.name in ("eq", "ne") and math.isfinite(operands[0].largest):
        # How JAX looks for what is not a number.
        return [constant(np.full(shapes[0], equation.name == "eq"))]
    if equation.name in _ELEMENTWISE:
        operands = [_spread(operand, shapes[0]) for operand in operands]
    return [rule(operands, equation.params, shapes[0])]


def _inside(equation: Equation, operands: list[Interval]) -> list[Interval]:
    names = [str(position) for position in range(len(operands))]
    outputs = [str(position) for position in range(len(equation.outputs))]
    inner = flatten(equation.params["call_jaxpr"], names, outputs)
    given = {inner.inputs[name]: operand for name, operand in zip(names, operands, strict=True)}
    return bounds(inner, given, [inner.outputs[name] for name in outputs])


def _of_constants(equation: Equation, program: Program) -> list[Interval | None]:
    """Results that no input enters are computed, and widened by more than another compilation rounds."""
    if program.reads(equation.outputs) or any(_kind(program, one) == "other" for one in equation.outputs):
        return [None] * len(equation.outputs)
    with jax.enable_x64(True):
        results = [np.asarray(value, np.float64) for value in values(program, equation.outputs, {})]
    if not all(np.all(np.isfinite(value)) for value in results):
        return [None] * len(results)
    slack = [_ROUNDING * float(np.max(np.abs(value), initial=0.0)) for value in results]
    return [between(value - gap, value + gap) for value, gap in zip(results, slack, strict=True)]


def _representable(program: Program, variable: Variable, value: Interval | None) -> Interval:
    """What the bounds say of the variable in its own type: integers wrap around, narrow floats round."""
    nothing, kind = _nothing(program, variable), _kind(program, variable)
    if value is None or value.shape != nothing.shape:
        return replace(nothing, defined=kind != "f")
    if not value.defined:
        return replace(nothing, defined=False)
    # A number that overflows is still a number: it lies between the largest float and infinity.
    value = replace(value, lo=np.minimum(value.lo, _LARGEST), hi=np.maximum(value.hi, -_LARGEST))
    if kind in "iub" or value.whole:
        # A whole number between the bounds lies between the whole numbers within them.
        value = replace(value, lo=np.ceil(value.lo), hi=np.floor(value.hi), whole=True)
    if kind in "iu":
        limits = np.iinfo(program.avals[variable].dtype)
        return value if value.lowest >= limits.min and value.highest <= limits.max else nothing
    if kind == "f" and (size := program.avals[variable].dtype.itemsize) < 8:
        # All floats of two bytes or more hold these exactly.
        return value if size >= 2 and value.whole and value.largest <= 2**8 else nothing
    return nothing if kind == "other" else value


def _nothing(program: Program, variable: Variable) -> Interval:
    shape, kind = program.shape(variable), _kind(program, variable)
    if kind == "b":
        return between(np.zeros(shape), np.ones(shape), whole=True)
    return anything(shape, whole=kind in "iu")


def _literal(program: Program, variable: Variable) -> Interval:
    if _kind(program, variable) == "other":
        return anything(program.shape(variable))
    return constant(np.asarray(program.constants[variable]))


def _kind(program: Program, variable: Variable) -> str:
    """``f`` of all floats; ``i``, ``u``, ``b`` of NumPy's types; ``other`` of keys and four-bit integers."""
    dtype = program.avals[variable].dtype
    if jnp.issubdtype(dtype, jnp.floating):
        return "f"
    known = any(jnp.issubdtype(dtype, kind) for kind in (jnp.integer, jnp.bool_))
    return kind if known and (kind := np.dtype(dtype).kind) in "iub" else "other"


def _spread(value: Interval, shape: Shape) -> Interval:
    """The value repeated to a larger shape, as elementwise primitives do with their operands."""
    if value.shape == shape:
        return value
    lo, hi = np.broadcast_to(value.lo, shape), np.broadcast_to(value.hi, shape)
    wide = between(lo, hi, whole=value.whole, uniform=value.uniform)
    return wide.with_norm(up(value.norm * math.sqrt(math.prod(shape) // max(value.lo.size, 1))))


def _select(operands: Operands, params: Params, shape: Shape) -> Interval:
    which, *cases = operands
    lo, hi, used = np.full(shape, np.inf), np.full(shape, -np.inf), []
    for index, case in enumerate(cases):
        possible = (which.lo <= index) & (which.hi >= index)
        lo = np.where(possible, np.minimum(lo, case.lo), lo)
        hi = np.where(possible, np.maximum(hi, case.hi), hi)
        if np.any(possible):
            used.append(case)
    if not (which.defined and all(case.defined for case in used)):
        return anything(shape, defined=False)
    chosen = between(lo, hi, whole=all(case.whole for case in used))
    return chosen.with_norm(hypot([case.norm for case in used]))


def _larger(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, b = operands
    lo, hi = np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi)
    norm = min((a.norm if b.largest == 0 else math.inf), (b.norm if a.largest == 0 else math.inf))
    return between(lo, hi, whole=a.whole and b.whole, uniform=a.uniform and b.uniform).with_norm(norm)


def _smaller(operands: Operands, params: Params, shape: Shape) -> Interval:
    return -_larger([-operand for operand in operands], params, shape)


def _clamp(operands: Operands, params: Params, shape: Shape) -> Interval:
    low, a, high = operands
    return _smaller([_larger([a, low], params, shape), high], params, shape)


def _comparison(surely: Callable[..., np.ndarray], never: Callable[..., np.ndarray]) -> Rule:
    def rule(operands: Operands, params: Params, shape: Shape) -> Interval:
        a, b = operands
        lo, hi = surely(a, b).astype(np.float64), 1.0 - never(a, b).astype(np.float64)
        return between(lo, hi, whole=True, uniform=a.uniform and b.uniform)

    return rule


def _same(a: Interval, b: Interval) -> np.ndarray:
    return np.asarray((a.lo == a.hi) & (b.lo == b.hi) & (a.lo == b.lo))


def _apart(a: Interval, b: Interval) -> np.ndarray:
    return np.asarray((a.hi < b.lo) | (a.lo > b.hi))


def _equal(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    result = _comparison(_same, _apart)(operands, params, shape)
    for one, other in (operands, operands[::-1]):
        # One number compared with distinct constants matches at most one of them: a one-hot vector.
        if one.uniform and other.is_point and len(np.unique(other.lo)) == other.lo.size:
            return None if result is None else result.with_norm(1.0)
    return result


def _of_booleans(rule: Rule) -> Rule:
    """For operands that are 0 or 1: of other integers the primitive works bit by bit."""

    def bounded(operands: Operands, params: Params, shape: Shape) -> Interval | None:
        inside = all(a.lowest >= 0 and a.highest <= 1 for a in operands)
        return rule(operands, params, shape) if inside else None

    return bounded


def _monotone(
    function: Callable[[np.ndarray], np.ndarray],
    lowest: float = -np.inf,
    highest: float = np.inf,
    *,
    above: float = -np.inf,
    shrinks: bool = False,
) -> Rule:
    """An increasing function with values in [lowest, highest], defined from ``above`` on.

    Of one that ``shrinks``, ``|f(x)| ≤ |x|``, the norm does not grow.
    """

    def rule(operands: Operands, params: Params, shape: Shape) -> Interval:
        a = operands[0]
        if not np.all(a.lo >= above):
            return anything(shape, defined=False)
        wide = widen(function(a.lo), function(a.hi), 8)
        # What decays to its lowest value does not reach it.
        top = np.where((wide.hi == lowest) & (a.hi > above), lowest + TINY, wide.hi)
        found = between(np.maximum(wide.lo, lowest), np.minimum(top, highest), uniform=a.uniform)
        return found.with_norm(a.norm if shrinks else math.inf)

    return rule


_SQRT = _monotone(np.sqrt, 0.0, above=0.0)


def _rsqrt(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    root = _SQRT(operands, params, shape)
    return root if root is None or not root.defined else reciprocal(root)


def _quotient(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, b = operands
    if b.is_point and np.all(b.lo == 1):
        return a
    inverse = reciprocal(b)
    return product(a, inverse) if inverse.defined else inverse


def _pow(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    """Of public whole powers."""
    a, b = operands
    if not (b.is_point and np.all(b.lo == np.round(b.lo)) and b.largest <= _LARGEST_POWER):
        return None
    lo, hi = np.full(shape, -np.inf), np.full(shape, np.inf)
    for exponent in np.unique(b.lo):
        part, here = power(a, int(exponent)), b.lo == exponent
        if not part.defined:
            return part
        lo, hi = np.where(here, part.lo, lo), np.where(here, part.hi, hi)
    return between(lo, hi, whole=a.whole and bool(np.all(b.lo >= 0)))


def _abs(operands: Operands, params: Params, shape: Shape) -> Interval:
    a = operands[0]
    ends = np.abs(a.lo), np.abs(a.hi)
    lo = np.where((a.lo <= 0) & (a.hi >= 0), 0.0, np.minimum(*ends))
    return between(lo, np.maximum(*ends), whole=a.whole, uniform=a.uniform).with_norm(a.norm)


def _rounded(below: Callable[[np.ndarray], np.ndarray], above: Callable[[np.ndarray], np.ndarray]) -> Rule:
    return lambda x, params, shape: between(below(x[0].lo), above(x[0].hi), whole=True, uniform=x[0].uniform)


def _convert(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    a = operands[0]
    target: np.dtype = np.dtype(params["new_dtype"])
    if target.kind == "f":
        return a if target.itemsize >= 8 or (a.whole and a.largest <= 2**8) else None
    if target.kind == "b":
        return _comparison(_apart, _same)([a, constant(np.zeros(a.shape))], params, shape)
    # Out of range, the cast wraps around or saturates; shorter floats are not NumPy's own.
    fits = target.kind in "iu" and a.lowest >= np.iinfo(target).min and a.highest <= np.iinfo(target).max
    return between(np.trunc(a.lo), np.trunc(a.hi), whole=True, uniform=a.uniform) if fits else None


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
        ends = [[getattr(a, end) for a in operands] for end in ("lo", "hi")]
        lo, hi = (np.asarray(function(end, params, shape)) for end in ends)
        joined = between(lo, hi, whole=all(a.whole for a in operands))
        return joined.with_norm(hypot([a.norm for a in operands]))

    return rule


def _split(a: Interval, params: Params) -> list[Interval | None]:
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


def _extreme(function: Callable[..., np.ndarray]) -> Rule:
    def rule(operands: Operands, params: Params, shape: Shape) -> Interval | None:
        a, axes = operands[0], tuple(params["axes"])
        # The extreme of no numbers is JAX's choice.
        if not a.lo.size:
            return None
        return between(function(a.lo, axis=axes), function(a.hi, axis=axes), whole=a.whole).with_norm(a.norm)

    return rule


def _sum(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, axes = operands[0], tuple(params["axes"])
    count = math.prod(a.shape[axis] for axis in axes)
    lo, hi = a.lo.sum(axis=axes), a.hi.sum(axis=axes)
    size = np.maximum(np.abs(a.lo), np.abs(a.hi)).sum(axis=axes) * (count + 1) * 2.0**-52
    slack = np.where(np.isfinite(size), size, 0.0) if count > 1 else 0.0
    result = between(lo - slack, hi + slack, whole=a.whole, uniform=a.uniform)
    return result.with_norm(a.norm if count == 1 else up(a.norm * math.sqrt(count)))


def _running_sum(operands: Operands, params: Params, shape: Shape) -> Interval:
    a = operands[0]
    ends = (a.lo, a.hi, np.maximum(np.abs(a.lo), np.abs(a.hi)))
    lo, hi, size = (np.asarray(FUNCTIONS["cumsum"]([end], params, shape)) for end in ends)
    slack = 2.0**-51 * shape[params["axis"]] * np.where(np.isfinite(size), size, 0.0)
    return between(lo - slack, hi + slack, whole=a.whole)


def _dot(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, b = operands
    (contract_a, contract_b), (batch_a, batch_b) = params["dimension_numbers"]
    if a.lo.size * b.lo.size > _LARGEST_PRODUCT:
        return anything(shape).with_norm(up(a.norm * b.norm))
    left, right = _matrices(a, contract_a, batch_a, True), _matrices(b, contract_b, batch_b, False)
    lo, hi = product_bounds(
        between(left[0][..., None], left[1][..., None]), between(right[0][:, None], right[1][:, None])
    )
    size = np.maximum(np.abs(lo), np.abs(hi)).sum(axis=2)
    slack = np.where(np.isfinite(size), size * (lo.shape[2] + 2) * 2.0**-52, 0.0)
    result = between((lo.sum(axis=2) - slack).reshape(shape), (hi.sum(axis=2) + slack).reshape(shape))
    result = result.with_norm(up(a.norm * b.norm))
    for value, parts, other in ((a, left, b), (b, right, a)):
        if value.is_point and not batch_a:
            top = _spectral_norm(parts[0][0])
            result = result.with_norm(other.norm if top == 1 else up(top * other.norm) if top else 0.0)
    return result


def _matrices(
    value: Interval, contract: Sequence[int], batch: Sequence[int], last: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds as (batch, free, contracted) with the contracted axes ``last``, or (batch, contracted, free)."""
    free = [axis for axis in range(value.lo.ndim) if axis not in (*contract, *batch)]
    groups = [batch, free, contract] if last else [batch, contract, free]
    order = [axis for group in groups for axis in group]
    sizes = [math.prod(value.shape[axis] for axis in group) for group in groups]
    return value.lo.transpose(order).reshape(sizes), value.hi.transpose(order).reshape(sizes)


def _spectral_norm(matrix: np.ndarray) -> float:
    if matrix.size == 0 or not np.all(np.isfinite(matrix)):
        return math.inf if matrix.size else 0.0
    top = float(np.linalg.norm(matrix, 2))
    slack = float(np.linalg.norm(matrix)) * (sum(matrix.shape) + 8) * 2.0**-50
    return top if matrix.size == 1 else top + slack


def _gather(operands: Operands, params: Params, shape: Shape) -> Interval | None:
    """Any window of ``a``; of windows of one entry along one axis, what any of these entries can be."""
    a, indices = operands
    numbers, sizes = params["dimension_numbers"], tuple(params["slice_sizes"])
    starts = np.asarray(numbers.start_index_map, int)
    last = np.asarray(a.shape)[starts] - np.asarray(sizes)[starts]
    # Out of bounds, the filler (NaN) would appear: nothing is proved then.
    if not np.all((indices.lo >= 0) & (indices.hi <= last)):
        return None
    windows = max(math.prod(indices.shape[:-1]), 1)
    whole_but_one = tuple(1 if axis in starts else size for axis, size in enumerate(a.shape))
    batched = getattr(numbers, "operand_batching_dims", ())
    distinct = windows == 1
    if len(starts) == 1 and sizes == whole_but_one and not batched:
        axis = int(starts[0])
        entries = range(int(indices.lowest), int(indices.highest) + 1)
        parts = [between(np.take(a.lo, [i], axis), np.take(a.hi, [i], axis)) for i in entries]
        norm = min(a.norm, max(part.norm for part in parts))
        if indices.is_point and np.unique(indices.lo).size == windows:
            distinct, norm = True, min(a.norm, up(norm * math.sqrt(windows)))
        lo, hi = np.minimum.reduce([p.lo for p in parts]), np.maximum.reduce([p.hi for p in parts])
        a = between(lo, hi, whole=a.whole).with_norm(norm)
    low, high = np.full(shape, a.lowest), np.full(shape, a.highest)
    if windows == 1 and math.prod(shape) == a.lo.size:
        low, high = a.lo.reshape(shape), a.hi.reshape(shape)
    norm = a.norm if distinct else up(a.norm * math.sqrt(windows))
    return between(low, high, whole=a.whole).with_norm(norm)


def _scatter_add(operands: Operands, params: Params, shape: Shape) -> Interval:
    a, indices, updates = operands
    windows = max(math.prod(indices.shape[:-1]), 1)
    result = widen(
        a.lo + min(updates.lowest, 0.0) * windows, a.hi + max(updates.highest, 0.0) * windows, windows
    )
    apart = windows == 1 or _distinct(indices, params["dimension_numbers"], shape)
    added = updates.norm if apart else up(updates.norm * math.sqrt(windows))
    return result.with_norm(added if a.norm == 0 else up(a.norm + added))


def _distinct(indices: Interval, numbers: jax.lax.ScatterDimensionNumbers, shape: Shape) -> bool:
    """Every window lands at a public place of its own."""
    axes = numbers.scatter_dims_to_operand_dims
    places = indices.lo.reshape(-1, len(axes))
    inside = bool(np.all((places >= 0) & (places < np.asarray(shape)[list(axes)])))
    single = set(axes) <= set(numbers.inserted_window_dims)
    return indices.is_point and inside and single and len(np.unique(places, axis=0)) == len(places)


def _scatter(operands: Operands, params: Params, shape: Shape) -> Interval:
    """Every element is the old one or one of the updates, each of which lands at most once."""
    a, _, updates = operands
    lo, hi = np.minimum(a.lo, updates.lowest), np.maximum(a.hi, updates.highest)
    return between(lo, hi, whole=a.whole and updates.whole).with_norm(hypot([a.norm, updates.norm]))


def _dynamic_slice(operands: Operands, params: Params, shape: Shape) -> Interval:
    a = operands[0]
    return between(np.full(shape, a.lowest), np.full(shape, a.highest), whole=a.whole).with_norm(a.norm)


_SCALARS: Mapping[str, Rule] = {
    "add": lambda x, params, shape: plus(*x),
    "add_any": lambda x, params, shape: plus(*x),
    "sub": lambda x, params, shape: plus(x[0], -x[1]),
    "mul": lambda x, params, shape: product(*x),
    "div": _quotient,
    "pow": _pow,
    "max": _larger,
    "min": _smaller,
    "clamp": _clamp,
    "select_n": _select,
    "eq": _equal,
    "ne": _comparison(_apart, _same),
    "lt": _comparison(lambda a, b: a.hi < b.lo, lambda a, b: a.lo >= b.hi),
    "le": _comparison(lambda a, b: a.hi <= b.lo, lambda a, b: a.lo > b.hi),
    "gt": _comparison(lambda a, b: a.lo > b.hi, lambda a, b: a.hi <= b.lo),
    "ge": _comparison(lambda a, b: a.lo >= b.hi, lambda a, b: a.hi < b.lo),
    "and": _of_booleans(_smaller),
    "or": _of_booleans(_larger),
}
_ELEMENTWISE = frozenset(_SCALARS)
_RULES: Mapping[str, Rule] = {
    **_SCALARS,
    "neg": lambda x, params, shape: -x[0],
    "not": _of_booleans(lambda x, params, shape: between(1.0 - x[0].hi, 1.0 - x[0].lo, whole=True)),
    "integer_pow": lambda x, params, shape: power(x[0], int(params["y"])),
    "square": lambda x, params, shape: power(x[0], 2),
    "exp": _monotone(np.exp, 0.0),
    "expm1": _monotone(np.expm1, -1.0),
    "log": _monotone(np.log, above=0.0),
    "log1p": _monotone(np.log1p, above=-1.0),
    "sqrt": _SQRT,
    "rsqrt": _rsqrt,
    "logistic": _monotone(special.expit, 0.0, 1.0),
    "erf": _monotone(special.erf, -1.0, 1.0),
    "tanh": _monotone(np.tanh, -1.0, 1.0, shrinks=True),
    "atan": _monotone(np.arctan, -2.0, 2.0, shrinks=True),
    **dict.fromkeys(
        ("sin", "cos"), lambda x, params, shape: between(np.full(shape, -1.0), np.full(shape, 1.0))
    ),
    "abs": _abs,
    "sign": _rounded(np.sign, np.sign),
    "floor": _rounded(np.floor, np.floor),
    "ceil": _rounded(np.ceil, np.ceil),
    # Ties go to even or away from zero: the floor and the ceiling hold either way.
    "round": _rounded(np.floor, np.ceil),
    "convert_element_type": _convert,
    **{
        name: _moved(name)
        for name in ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice")
    },
    **dict.fromkeys(("copy", "copy_p", "stop_gradient"), _moved("reshape")),
    "concatenate": _joined("concatenate"),
    "stack": _joined("stack"),
    "pad": _pad,
    "iota": lambda x, params, shape: constant(np.asarray(FUNCTIONS["iota"]([], params, shape))),
    "reduce_sum": _sum,
    "cumsum": _running_sum,
    "dot_general": _dot,
    "gather": _gather,
    "scatter": _scatter,
    "scatter-add": _scatter_add,
    "dynamic_slice": _dynamic_slice,
    **{f"reduce_{name}": _extreme(np.max) for name in ("max", "or")},
    **{f"reduce_{name}": _extreme(np.min) for name in ("min", "and")},
}
