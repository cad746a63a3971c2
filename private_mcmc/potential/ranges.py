"""Ranges over the declared row domain: radii of designs, ends of outcomes, of scales and of weights.

Interval arithmetic on the few primitives that such programs are made of, each defined and finite for all
operands within their ranges. Everything else has no range, and nothing that is computed of it has one: other
primitives, columns without ends, floats that may overflow or are short, quotients by what may be 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, product
from typing import Any, TypeAlias

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from scipy import special

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.real import Ball
from private_mcmc.domains.rows import Rows
from private_mcmc.potential.flatten import abstract, row_shapes, trace
from private_mcmc.potential.program import Equation, Program, Variable, name_of

_TINY = float(np.finfo(np.float64).tiny)
# Whole numbers up to this one are exact.
_WHOLE = 2.0**53
_MOST_PICKED = 2**20  # numbers in all windows of an array that are compared
# Of public values, by how much another compilation of them may round otherwise.
_ROUNDING = 2.0**-26


@dataclass(frozen=True, eq=False)
class Range:
    """Elementwise ``lo ≤ value ≤ hi`` of an array, and ``‖value‖ ≤ norm`` over all its elements.

    ``whole``: every element is a whole number; ``Σ|value| ≤ sum``. Infinite ends say nothing, not even that
    it is a number.
    """

    lo: np.ndarray
    hi: np.ndarray
    norm: float
    whole: bool = False
    sum: float = math.inf

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.lo.shape

    @property
    def is_point(self) -> bool:
        """The ends leave one value."""
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

    def with_norm(self, norm: float, total: float = math.inf) -> Range:
        """The same with second bounds on the norm and the sum; the smaller ones are kept."""
        return replace(self, norm=min(self.norm, norm), sum=min(self.sum, total))


Ranges: TypeAlias = Sequence[Range]
Shape: TypeAlias = tuple[int, ...]
# ``None`` where there is no range.
Rule: TypeAlias = Callable[[Ranges, Mapping[str, Any], Shape], Range | None]


def between(lo: Any, hi: Any, *, whole: bool = False) -> Range:
    """A value between these ends."""
    low, high = np.asarray(lo, np.float64), np.asarray(hi, np.float64)
    sizes = np.maximum(np.abs(low), np.abs(high)).ravel()
    total = sum(sizes.tolist()) * (1 + sizes.size * 2.0**-52)
    return Range(low, high, hypot(sizes[sizes > 0].tolist()), whole, total)


def constant(array: Any) -> Range:
    """A known array."""
    values = np.asarray(array).astype(np.float64)
    return between(values, values, whole=bool(np.all(values == np.round(values))))


def of_domain(domain: Domain, leading: Shape = (1,)) -> Range | None:
    """One row of the domain, whichever, with leading axes of length 1; ``None`` without ends."""
    lo, hi = (end.reshape(leading + domain.event_shape) for end in domain.interval())
    value = between(lo, hi, whole=domain.dtype.kind in "biu")
    if not math.isfinite(value.largest):
        return None
    return value.with_norm(domain.norm_bound) if isinstance(domain, Ball) else value


def of_rows(
    program: Program,
    rows: Rows,
    targets: Iterable[Variable],
    given: Mapping[Variable, Range] | None = None,
    leading: Shape = (1,),
) -> list[Range]:
    """Ranges of ``targets`` over one row, whichever, whose columns have these axes before their own."""
    columns = {program.inputs[name]: of_domain(domain, leading) for name, domain in rows.items}
    return ranges(program, {**columns, **(given or {})}, targets)


def of_function(function: Callable[[Any], jax.Array], rows: Rows) -> Range:
    """The range of a function of a row."""
    program = trace(lambda **row: {"x": function(row)}, **row_shapes(rows))
    return of_rows(program, rows, [program.outputs["x"]], leading=())[0]


def ranges(
    program: Program, given: Mapping[Variable, Range | None], targets: Iterable[Variable]
) -> list[Range]:
    """Ranges of ``targets`` for all values of the variables ``given`` within theirs; other inputs have none.

    They are those of the program in real arithmetic, widened by their own rounding.
    """
    targets = list(targets)
    known: dict[Variable, Range | None] = dict.fromkeys(program.inputs.values())
    known |= {variable: _literal(variable, value) for variable, value in program.constants.items()}
    known |= given
    with np.errstate(all="ignore"):
        for equation in program.slice(targets, given):
            found = _apply(program, equation, [known[variable] for variable in equation.invars])
            for output, one in zip(equation.outvars, found, strict=True):
                if output not in given:
                    known[output] = _of_type(output, one)
    return [known[variable] or _unbounded(program.shape(variable)) for variable in targets]


def up(number: float) -> float:
    """A little above: covers the rounding of a short formula."""
    return number * (1 + 1e-14) if number > 0 else number


def hypot(norms: Sequence[float]) -> float:
    """Norm of a vector of norms, rounded up; exact where only one is not zero."""
    positive = [norm for norm in norms if norm > 0]
    return sum(positive) if len(positive) <= 1 else up(math.hypot(*positive))


def _unbounded(shape: Shape) -> Range:
    return Range(np.full(shape, -np.inf), np.full(shape, np.inf), math.inf)


def _literal(variable: Variable, value: Any) -> Range | None:
    if jnp.issubdtype(variable.aval.dtype, jax.dtypes.extended) or not np.all(np.isfinite(np.asarray(value))):
        return None
    found = constant(value)
    # Of larger whole numbers the ends, which are floats, may be others.
    return found if found.largest < _WHOLE or jnp.issubdtype(variable.aval.dtype, jnp.floating) else None


def _of_type(variable: Variable, value: Range | None) -> Range | None:
    """The range, where the variable's type holds it: integers wrap around, short floats round."""
    shape, dtype = tuple(variable.aval.shape), variable.aval.dtype
    if dtype == np.bool_:
        return value or between(np.zeros(shape), np.ones(shape), whole=True)
    if value is None or value.shape != shape or not np.all(np.isfinite([value.lo, value.hi])):
        return None
    if jnp.issubdtype(dtype, jnp.integer) and np.dtype(dtype).kind in "iu":
        ends = np.iinfo(dtype)
        return replace(value, whole=True) if ends.min <= value.lowest <= value.highest <= ends.max else None
    # Short floats hold few whole numbers exactly.
    exact = (
        value.whole and value.largest <= 2**8 and jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize > 1
    )
    return value if dtype == np.float64 or exact else None


def _apply(program: Program, equation: Equation, operands: list[Range | None]) -> Sequence[Range | None]:
    name, shape = name_of(equation), program.shape(equation.outvars[0])
    if name == "select_n":
        return [_select(operands, shape)]
    found: Sequence[Range | None] = [None] * len(equation.outvars)
    if name in ("gather", "scatter-add", "dynamic_slice", "dynamic_update_slice"):
        # Places are whole numbers, whatever they are.
        whole = [jnp.issubdtype(variable.aval.dtype, jnp.integer) for variable in equation.invars]
        known = zip(operands, equation.invars, whole, strict=True)
        operands = [one or (_unbounded(program.shape(v)) if is_whole else None) for one, v, is_whole in known]
    some = [one for one in operands if one is not None]
    if len(some) == len(operands):
        same = len(operands) == 2 and equation.invars[0] == equation.invars[1]
        # Of integers a quotient is cut off.
        floats = equation.outvars[0].aval.dtype == np.float64
        if name == "custom_jvp_call":
            found = _inside(equation, some)
        elif name == "split":
            found = _parted(some[0], equation.params)
        elif same and name == "mul":
            found = [_power(some[0], 2)]
        elif name in _RULES and (floats or name != "div"):
            spread = [_spread(one, shape) for one in some] if name in _ELEMENTWISE else some
            found = [_RULES[name](spread, equation.params, shape)]
        if name == "eq" and found[0] is not None and _is_one_of_several(program, equation, some):
            found = [found[0].with_norm(1.0, 1.0)]
    if any(one is None for one in found) and not program.reads(equation.outvars):
        return _public(program, equation)
    return found


def _inside(equation: Equation, operands: Ranges) -> list[Range | None]:
    """The values of a function that has a derivative rule of its own (``jax.nn.softplus``)."""
    names = [f"x{index}" for index in range(len(operands))]
    function = jex.jaxpr_as_fun(equation.params["call_jaxpr"])
    shapes = [abstract(one.aval.shape, one.aval.dtype) for one in equation.invars]
    with jax.enable_x64(True):
        inner = trace(
            lambda **given: dict(enumerate(function(*(given[name] for name in names)))),
            **dict(zip(names, shapes, strict=True)),
        )
    given = {inner.inputs[name]: one for name, one in zip(names, operands, strict=True)}
    return list(ranges(inner, given, inner.outputs.values()))


def _public(program: Program, equation: Equation) -> list[Range | None]:
    """Results that no input enters are computed."""
    if any(jnp.issubdtype(output.aval.dtype, jax.dtypes.extended) for output in equation.outvars):
        return [None] * len(equation.outvars)
    with jax.enable_x64(True):
        values = [np.asarray(value, np.float64) for value in program.run(equation.outvars, {})]
    slack = [_ROUNDING * float(np.max(np.abs(value), initial=0.0)) for value in values]
    return [between(value - gap, value + gap) for value, gap in zip(values, slack, strict=True)]


def _is_one_of_several(program: Program, equation: Equation, operands: Ranges) -> bool:
    """One number is compared with distinct constants, of which it is at most one."""
    for variable, other in zip(equation.invars, operands[::-1], strict=True):
        while variable in program.producers and name_of(program.producers[variable]) in _REPEATS:
            variable = program.producers[variable].invars[0]
        distinct = other.is_point and len(np.unique(other.lo)) == other.lo.size
        if program.size(variable) == 1 and distinct:
            return True
    return False


def _spread(value: Range, shape: Shape) -> Range:
    """The value repeated to a larger shape, as elementwise primitives do with their operands."""
    if value.shape == shape:
        return value
    return between(np.broadcast_to(value.lo, shape), np.broadcast_to(value.hi, shape), whole=value.whole)


def _widened(lo: Any, hi: Any, exact: Any = False, ulps: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The ends, further apart by the rounding of each, where it is not ``exact``."""
    gaps = [np.where(exact, 0.0, ulps * np.spacing(np.abs(end)) + _TINY) for end in (lo, hi)]
    return lo - gaps[0], hi + gaps[1]


def _plus(a: Range, b: Range) -> Range:
    whole = a.whole and b.whole and a.largest + b.largest < _WHOLE
    (lo, _), (_, hi) = (
        _widened(x + y, x + y, (x == 0) | (y == 0) | whole) for x, y in ((a.lo, b.lo), (a.hi, b.hi))
    )
    apart = np.all(((a.lo == 0) & (a.hi == 0)) | ((b.lo == 0) & (b.hi == 0)))
    norm = hypot([a.norm, b.norm]) if apart else up(a.norm + b.norm)
    return between(lo, hi, whole=whole).with_norm(norm)


def _minus(a: Range) -> Range:
    return replace(a, lo=0.0 - a.hi, hi=0.0 - a.lo)


def _product(a: Range, b: Range) -> Range:
    whole = a.whole and b.whole and a.largest * b.largest < _WHOLE
    corners = [
        _widened(x * y, x * y, _is_unit(x) | _is_unit(y) | whole) for x in (a.lo, a.hi) for y in (b.lo, b.hi)
    ]
    found = between(
        *(np.min([low for low, _ in corners], 0), np.max([high for _, high in corners], 0)), whole=whole
    )
    return found.with_norm(
        min(_scaled(a.largest, b.norm), _scaled(b.largest, a.norm)),
        min(_scaled(a.largest, b.sum), _scaled(b.largest, a.sum)),
    )


def _is_unit(x: np.ndarray) -> np.ndarray:
    """0, 1 or −1, whose products are exact."""
    return np.asarray((np.abs(x) <= 1) & (x == np.round(x)))


def _scaled(factor: float, norm: float) -> float:
    """``factor·norm`` of bounds, rounded up; nothing times anything is nothing."""
    if factor == 0 or norm == 0:
        return 0.0
    return norm if factor == 1 else up(factor * norm)


def _quotient(x: Ranges, params: Any, shape: Shape) -> Range | None:
    """By what is never 0."""
    a, b = x
    if not np.all((b.lo > 0) | (b.hi < 0)):
        return None
    return _product(a, between(*_widened(1 / b.hi, 1 / b.lo, _is_unit(b.lo) & _is_unit(b.hi))))


def _power(a: Range, exponent: int) -> Range | None:
    if not 0 <= exponent <= 64:
        return None
    found = a if exponent else constant(np.ones(a.shape))
    for _ in range(exponent - 1):
        found = _product(found, a)
    return replace(found, lo=np.maximum(found.lo, 0.0)) if exponent % 2 == 0 else found


def _powers(x: Ranges, params: Any, shape: Shape) -> Range | None:
    """Of public exponents."""
    exponents = np.unique(x[1].lo)
    parts = [_power(x[0], int(exponent)) for exponent in exponents if exponent == round(exponent)]
    if not x[1].is_point or len(parts) != len(exponents) or any(part is None for part in parts):
        return None
    place = np.searchsorted(exponents, x[1].lo)
    lo, hi = (np.choose(place, [getattr(part, end) for part in parts]) for end in ("lo", "hi"))
    return between(lo, hi)


def _magnitude(a: Range) -> Range:
    lo, hi = np.maximum(0.0, np.maximum(a.lo, 0.0 - a.hi)), np.maximum(np.abs(a.lo), np.abs(a.hi))
    return between(lo, hi, whole=a.whole).with_norm(a.norm, a.sum)


def _larger(x: Ranges, params: Any, shape: Shape) -> Range:
    a, b = x
    found = between(np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi), whole=a.whole and b.whole)
    zeros = [other.norm for one, other in ((a, b), (b, a)) if one.largest == 0]
    return found.with_norm(min(zeros, default=math.inf))


def _smaller(x: Ranges, params: Any, shape: Shape) -> Range:
    return _minus(_larger([_minus(one) for one in x], params, shape))


def _select(operands: list[Range | None], shape: Shape) -> Range | None:
    which = operands[0]
    cases = [
        case
        for index, case in enumerate(operands[1:])
        if which is not None and which.lowest <= index <= which.highest
    ]
    if not cases or any(case is None for case in cases):
        return None
    some = [_spread(case, shape) for case in cases if case is not None]
    lo, hi = np.min([case.lo for case in some], 0), np.max([case.hi for case in some], 0)
    return between(lo, hi, whole=all(case.whole for case in some)).with_norm(hypot([c.norm for c in some]))


def _compared(function: Callable[..., Any]) -> Rule:
    """What an order is at the ends is what it can be."""

    def rule(x: Ranges, params: Any, shape: Shape) -> Range:
        ends = 1.0 * function(x[0].lo, x[1].hi), 1.0 * function(x[0].hi, x[1].lo)
        return between(np.minimum(*ends), np.maximum(*ends), whole=True)

    return rule


def _equal(a: Range, b: Range) -> Range:
    certain = (a.lo == a.hi) & (b.lo == b.hi) & (a.lo == b.lo)
    return between(1.0 * certain, 1.0 * ((a.lo <= b.hi) & (b.lo <= a.hi)), whole=True)


def _rising(
    function: Callable[[np.ndarray], np.ndarray], lowest: float, highest: float, above: float = -np.inf
) -> Rule:
    """An increasing function with values in ``[lowest, highest]``, of what is ``above``."""

    def rule(x: Ranges, params: Any, shape: Shape) -> Range | None:
        lo, hi = _widened(function(x[0].lo), function(x[0].hi), ulps=8)
        found = between(np.maximum(lo, lowest), np.minimum(hi, highest))
        return found if x[0].lowest > above else None

    return rule


def _converted(x: Ranges, params: Mapping[str, Any], shape: Shape) -> Range | None:
    kind = np.dtype(params["new_dtype"]).kind
    if kind in "iu":
        return between(np.trunc(x[0].lo), np.trunc(x[0].hi), whole=True)
    return x[0] if kind == "f" and not (x[0].whole and x[0].largest > _WHOLE) else None


def _moved(function: Callable[[np.ndarray, Mapping[str, Any], Shape], np.ndarray]) -> Rule:
    """A rule for a primitive that moves elements, repeats all of them as often, or leaves some out."""

    def rule(x: Ranges, params: Mapping[str, Any], shape: Shape) -> Range:
        lo, hi = (function(end, params, shape) for end in (x[0].lo, x[0].hi))
        copies = math.prod(shape) // max(x[0].lo.size, 1)
        norm = x[0].norm if copies <= 1 else up(x[0].norm * math.sqrt(copies))
        return between(lo, hi, whole=x[0].whole).with_norm(norm, _scaled(max(copies, 1), x[0].sum))

    return rule


def _broadcast(a: np.ndarray, params: Mapping[str, Any], shape: Shape) -> np.ndarray:
    sizes = [1] * len(shape)
    for axis, target in enumerate(params["broadcast_dimensions"]):
        sizes[target] = a.shape[axis]
    return np.broadcast_to(a.reshape(sizes), shape)


def _slice(a: np.ndarray, params: Mapping[str, Any], shape: Shape) -> np.ndarray:
    strides = params["strides"] or (1,) * len(shape)
    ends = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return np.asarray(a[tuple(slice(*entry) for entry in ends)])


def _joined(function: Callable[[list[np.ndarray], Mapping[str, Any]], np.ndarray]) -> Rule:
    """A rule for a primitive that puts arrays beside one another."""

    def rule(x: Ranges, params: Mapping[str, Any], shape: Shape) -> Range:
        lo, hi = (function([getattr(a, end) for a in x], params) for end in ("lo", "hi"))
        return between(lo, hi, whole=all(a.whole for a in x)).with_norm(hypot([a.norm for a in x]))

    return rule


def _parted(a: Range, params: Mapping[str, Any]) -> list[Range | None]:
    edges = np.cumsum(params["sizes"])[:-1]
    parts = zip(*(np.split(end, edges, params["axis"]) for end in (a.lo, a.hi)), strict=True)
    return [between(lo, hi, whole=a.whole).with_norm(a.norm) for lo, hi in parts]


def _padded(x: Ranges, params: Mapping[str, Any], shape: Shape) -> Range | None:
    """Zeros around it; fewer than none cut its ends off."""
    a, config = x[0], params["padding_config"]
    if x[1].largest != 0 or any(inner for _, _, inner in config):
        return None
    around = [(max(low, 0), max(high, 0)) for low, high, _ in config]
    inside = tuple(slice(max(-low, 0), min(high, 0) or None) for low, high, _ in config)
    lo, hi = (np.pad(end, around)[inside] for end in (a.lo, a.hi))
    return between(lo, hi, whole=a.whole).with_norm(a.norm)


def _sum(x: Ranges, params: Mapping[str, Any], shape: Shape) -> Range:
    a, axes = x[0], tuple(params["axes"])
    count = math.prod(a.shape[axis] for axis in axes)
    lo, hi = a.lo.sum(axis=axes), a.hi.sum(axis=axes)
    whole = a.whole and a.largest * count < _WHOLE
    size = np.maximum(np.abs(a.lo), np.abs(a.hi)).sum(axis=axes) * (count + 1) * 2.0**-52
    slack = size if count > 1 and not whole else 0.0
    norm = a.norm if count == 1 else up(a.norm * math.sqrt(count))
    return between(lo - slack, hi + slack, whole=whole).with_norm(norm)


def _dot(x: Ranges, params: Mapping[str, Any], shape: Shape) -> Range:
    """``(c + r)(d + s)`` of ``|r| ≤ ρ, |s| ≤ σ`` lies within ``|c|σ + ρ(|d| + σ)`` of ``cd``."""
    (contract, _), (batch, _) = numbers = params["dimension_numbers"]
    size = math.prod(x[0].shape[axis] for axis in contract)
    (c, rho), (d, sigma) = ((a.lo / 2 + a.hi / 2, a.hi / 2 - a.lo / 2) for a in x)
    middle = _dotted(c, d, numbers)
    away = _dotted(np.abs(c), sigma, numbers) + _dotted(rho, np.abs(d) + sigma, numbers)
    # Of so many products that are not 0 by themselves: none of them is lost, and one by 1 is exact.
    some = [1.0 * (np.abs(a.lo) + np.abs(a.hi) > 0) for a in x]
    many = _dotted(some[0], some[1], numbers)
    exact = (many <= 1) & any(a.is_point and bool(np.all(_is_unit(a.lo))) for a in x)
    away = away + np.where(exact, 0.0, (np.abs(middle) + away) * (size + 8) * 2.0**-50 + many * _TINY)
    norm = _scaled(x[0].norm, x[1].norm)
    for value, other, axes in ((*x, numbers[0][0]), (*x[::-1], numbers[0][1])):
        if value.lo.ndim == 2 and len(contract) == 1 and not batch:
            sizes = np.maximum(np.abs(value.lo), np.abs(value.hi))
            row = float(np.linalg.norm(sizes, axis=1 - axes[0]).max(initial=0.0))
            norm = min(norm, _scaled(row * (1 + sizes.size * 2.0**-50), other.sum))
            if value.is_point:
                norm = min(norm, _scaled(_spectral_norm(value.lo), other.norm))
    return between(middle - away, middle + away).with_norm(norm)


def _dotted(a: np.ndarray, b: np.ndarray, numbers: Any) -> np.ndarray:
    (contract_a, contract_b), (batch_a, batch_b) = numbers
    fresh, axes = count(), [[-1] * a.ndim, [-1] * b.ndim]
    for mine, other in (*zip(batch_a, batch_b, strict=True), *zip(contract_a, contract_b, strict=True)):
        axes[0][mine] = axes[1][other] = next(fresh)
    one, two = ([next(fresh) if axis < 0 else axis for axis in own] for own in axes)
    free = [axis for axis in (*one, *two) if (axis in one) != (axis in two)]
    return np.asarray(np.einsum(a, one, b, two, [*(one[i] for i in batch_a), *free]))


def _spectral_norm(matrix: np.ndarray) -> float:
    top = float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0
    return top if matrix.size <= 1 else top + float(np.linalg.norm(matrix)) * sum(matrix.shape) * 2.0**-50


def _picked(x: Ranges, params: Mapping[str, Any], shape: Shape) -> Range | None:
    """A part that begins, along one axis, where the index says."""
    a, indices = x
    starts, sizes = params["dimension_numbers"].start_index_map, params["slice_sizes"]
    if len(starts) != 1 or indices.lo.size != 1:
        return None
    inside = 0 <= indices.lowest <= indices.highest <= a.shape[starts[0]] - sizes[starts[0]]
    # Out of bounds, the filler (NaN) would appear.
    if not inside and params["mode"] is not jax.lax.GatherScatterMode.CLIP:
        return None
    places = [indices if axis == starts[0] else constant(0) for axis in range(len(a.shape))]
    return _window([a, *places], params, shape)


def _window(x: Ranges, params: Mapping[str, Any], shape: Shape) -> Range | None:
    """A part of these sizes, wherever in the array it may begin."""
    a, *starts = x
    sizes, firsts = params["slice_sizes"], []
    for one, n, size in zip(starts, a.shape, sizes, strict=True):
        first, last = np.clip([one.lowest, one.highest], 0, n - size)
        firsts.append(range(int(first), int(last) + 1))
    if math.prod(map(len, firsts)) * math.prod(sizes) > _MOST_PICKED:
        return None
    parts = []
    for first in product(*firsts):
        place = tuple(slice(one, one + size) for one, size in zip(first, sizes, strict=True))
        parts.append(between(a.lo[place].reshape(shape), a.hi[place].reshape(shape)))
    lo, hi = np.min([part.lo for part in parts], 0), np.max([part.hi for part in parts], 0)
    return between(lo, hi, whole=a.whole).with_norm(min(a.norm, max(part.norm for part in parts)))


def _scattered(x: Ranges, params: Mapping[str, Any], shape: Shape) -> Range:
    """What is added in each window lands at most once, somewhere."""
    a, indices, updates = x
    windows = max(math.prod(indices.shape[:-1]), 1)
    ends = min(updates.lowest, 0.0) * windows, max(updates.highest, 0.0) * windows
    norm = updates.norm if windows == 1 else min(up(updates.norm * math.sqrt(windows)), updates.sum)
    added = between(*(np.full(shape, end) for end in ends)).with_norm(norm, updates.sum)
    return added if a.norm == 0 else _plus(a, added)


def _replaced(x: Ranges, params: Mapping[str, Any], shape: Shape) -> Range | None:
    a, new, *starts = x
    norm = hypot([a.norm, new.norm])
    if not all(start.is_point for start in starts):
        lo, hi = np.minimum(a.lo, new.lowest), np.maximum(a.hi, new.highest)
        return between(lo, hi, whole=a.whole and new.whole).with_norm(norm, up(a.sum + new.sum))
    lo, hi = a.lo.copy(), a.hi.copy()
    firsts = (np.clip(int(one.lo), 0, n - k) for one, n, k in zip(starts, a.shape, new.shape, strict=True))
    place = tuple(slice(first, first + k) for first, k in zip(firsts, new.shape, strict=True))
    lo[place], hi[place] = new.lo, new.hi
    return between(lo, hi, whole=a.whole and new.whole).with_norm(norm)


def _iota(x: Ranges, params: Mapping[str, Any], shape: Shape) -> Range:
    sizes = [-1 if axis == params["dimension"] else 1 for axis in range(len(shape))]
    return constant(np.broadcast_to(np.arange(shape[params["dimension"]]).reshape(sizes), shape))


_REPEATS = ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "convert_element_type", "copy", "copy_p")
_ELEMENTWISE = frozenset(
    ["add", "add_any", "sub", "mul", "div", "pow", "max", "min", "clamp", "eq", "ne", "lt", "le", "gt", "ge"]
)
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("add", "add_any"), lambda x, params, shape: _plus(*x)),
    "sub": lambda x, params, shape: _plus(x[0], _minus(x[1])),
    "neg": lambda x, params, shape: _minus(x[0]),
    "mul": lambda x, params, shape: _product(*x),
    "div": _quotient,
    "integer_pow": lambda x, params, shape: _power(x[0], int(params["y"])),
    "pow": _powers,
    "square": lambda x, params, shape: _power(x[0], 2),
    "max": _larger,
    "min": _smaller,
    "clamp": lambda x, params, shape: _smaller([_larger([x[1], x[0]], params, shape), x[2]], params, shape),
    "round": lambda x, params, shape: between(np.floor(x[0].lo), np.ceil(x[0].hi), whole=True),
    "floor": lambda x, params, shape: between(np.floor(x[0].lo), np.floor(x[0].hi), whole=True),
    "abs": lambda x, params, shape: _magnitude(x[0]),
    "eq": lambda x, params, shape: _equal(*x),
    "ne": lambda x, params, shape: _plus(constant(np.ones(shape)), _minus(_equal(*x))),
    "lt": _compared(np.less),
    "le": _compared(np.less_equal),
    "gt": _compared(np.greater),
    "ge": _compared(np.greater_equal),
    "exp": _rising(np.exp, 0.0, np.inf),
    "log": _rising(np.log, -np.inf, np.inf, 0.0),
    "log1p": _rising(np.log1p, -np.inf, np.inf, -1.0),
    "sqrt": _rising(np.sqrt, 0.0, np.inf, 0.0),
    "logistic": _rising(special.expit, 0.0, 1.0),
    "tanh": _rising(np.tanh, -1.0, 1.0),
    "erf": _rising(special.erf, -1.0, 1.0),
    **dict.fromkeys(("sin", "cos"), lambda x, params, shape: between(np.full(shape, -1.0), np.ones(shape))),
    "convert_element_type": _converted,
    **dict.fromkeys(
        ("reshape", "squeeze", "expand_dims", "copy", "copy_p"),
        _moved(lambda a, params, shape: a.reshape(shape)),
    ),
    "broadcast_in_dim": _moved(_broadcast),
    "transpose": _moved(lambda a, params, shape: np.transpose(a, params["permutation"])),
    "rev": _moved(lambda a, params, shape: np.flip(a, params["dimensions"])),
    "slice": _moved(_slice),
    "concatenate": _joined(lambda parts, params: np.concatenate(parts, params["dimension"])),
    "stack": _joined(lambda parts, params: np.stack(parts, params["axis"])),
    "pad": _padded,
    "iota": _iota,
    "reduce_sum": _sum,
    "dot_general": _dot,
    "gather": _picked,
    "dynamic_slice": _window,
    "scatter-add": _scattered,
    "dynamic_update_slice": _replaced,
}
