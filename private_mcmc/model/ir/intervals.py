"""Bounds of intermediate results over the declared row domain, by interval arithmetic on the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.rows import Rows
from private_mcmc.model.ir.evaluate import CALLS, values
from private_mcmc.model.ir.flatten import flatten
from private_mcmc.model.ir.interval import (
    ARITHMETIC,
    Interval,
    Rule,
    anything,
    between,
    constant,
    integer_division,
    of_domain,
    spread,
)
from private_mcmc.model.ir.interval_rules import SCALARS, SHAPES, split
from private_mcmc.model.ir.program import Equation, Program, Variable


def is_defined(equation: Equation, operands: Sequence[Interval]) -> bool:
    """Every result is a number, for all operands within their bounds."""
    if equation.name == "select_n":
        which, *cases = operands
        possible = [np.any((which.lo <= index) & (which.hi >= index)) for index in range(len(cases))]
        return all(case.defined for case, used in zip(cases, possible, strict=True) if used)
    if _inverts(equation, operands) and not _nonzero(operands[0]):
        return False
    inside = _DOMAINS.get(equation.name)
    return all(operand.defined for operand in operands) and (inside is None or inside(operands[-1]))


def _inverts(equation: Equation, operands: Sequence[Interval]) -> bool:
    """Some power may be negative."""
    if equation.name == "integer_pow":
        return bool(equation.params["y"] < 0)
    return equation.name == "pow" and operands[1].lowest < 0


def _nonzero(value: Interval) -> bool:
    return bool(np.all((value.lo > 0) | (value.hi < 0)))


def _above(edge: float) -> Callable[[Interval], bool]:
    return lambda value: value.lowest >= edge


# Of the last operand. A logarithm of zero is the limit −∞, of either zero.
_DOMAINS: Mapping[str, Callable[[Interval], bool]] = {
    "div": _nonzero,
    "rem": _nonzero,
    "rsqrt": lambda value: value.lowest > 0,
    "lgamma": lambda value: value.lowest > 0,
    "sqrt": _above(0.0),
    "log": _above(0.0),
    "log1p": _above(-1.0),
}


_RULES: Mapping[str, Rule] = {**ARITHMETIC, **SHAPES, **SCALARS}
_OF_NUMBERS = ("add", "add_any", "sub", "mul", "div", "rem", "pow", "max", "min", "clamp", "select_n")
_ELEMENTWISE = frozenset([*_OF_NUMBERS, "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor"])
# They make an ordinary value of NaN.
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "is_finite")
_TELLS_UNDEFINED = frozenset([*_COMPARISONS, "sign", "convert_element_type"])
_LARGEST = float(np.finfo(np.float64).max)
_ROUNDING = 2.0**-26


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
    return [
        known[variable] if known[variable].defined else replace(_nothing(program, variable), defined=False)
        for variable in targets
    ]


def row_values(program: Program, rows: Rows, leading: tuple[int, ...] = (1,)) -> dict[Variable, Interval]:
    """Bounds of the program's columns of one row, with these axes before their own."""
    return {program.inputs[name]: of_domain(domain, leading) for name, domain in rows.items}


def _apply(equation: Equation, operands: list[Interval], program: Program) -> list[Interval | None]:
    if equation.name in CALLS:
        return list(_inside(equation, operands))
    if equation.name in _TELLS_UNDEFINED and not all(operand.defined for operand in operands):
        return [None] * len(equation.outputs)
    if equation.name == "split":
        parts = split(operands[0], equation.params)
        return [replace(part, defined=operands[0].defined) for part in parts]
    if equation.name not in _RULES or len(equation.outputs) != 1:
        return _of_constants(equation, program)
    result = _bounded(equation, operands, program)
    return [None if result is None else replace(result, defined=is_defined(equation, operands))]


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


def _bounded(equation: Equation, operands: list[Interval], program: Program) -> Interval | None:
    shape = program.shape(equation.outputs[0])
    same = _same_operand(equation, operands, shape)
    if same is not None:
        return same
    rule = _RULES[equation.name]
    kind = _kind(program, equation.outputs[0])
    if equation.name == "not" and kind != "b":
        return None  # of integers it is −1 − a
    if equation.name == "div" and kind != "f":
        rule = integer_division
    if equation.name in _ELEMENTWISE:
        operands = [spread(operand, shape) for operand in operands]
    return rule(operands, equation.params, shape)


def _same_operand(equation: Equation, operands: list[Interval], shape: tuple[int, ...]) -> Interval | None:
    """``x = x``, ``x − x`` and ``x·x`` of one variable, which the bounds of two would lose."""
    if len(equation.inputs) != 2 or equation.inputs[0] != equation.inputs[1]:
        return None
    bounded = bool(np.all(np.isfinite(operands[0].lo) & np.isfinite(operands[0].hi)))
    if equation.name == "mul":
        return ARITHMETIC["integer_pow"](operands, {"y": 2}, shape)
    if not bounded:
        return None
    if equation.name in ("eq", "le", "ge"):
        return constant(np.ones(shape, bool))
    if equation.name in ("ne", "lt", "gt"):
        return constant(np.zeros(shape, bool))
    return constant(np.zeros(shape)) if equation.name == "sub" else None


def _inside(equation: Equation, operands: list[Interval]) -> list[Interval]:
    names = [str(position) for position in range(len(operands))]
    outputs = [str(position) for position in range(len(equation.outputs))]
    inner = flatten(equation.params["call_jaxpr"], names, outputs)
    given = {inner.inputs[name]: operand for name, operand in zip(names, operands, strict=True)}
    return bounds(inner, given, [inner.outputs[name] for name in outputs])


def _representable(program: Program, variable: Variable, value: Interval | None) -> Interval:
    """What the bounds say of the variable in its own type: integers wrap around, narrow floats round."""
    nothing, kind = _nothing(program, variable), _kind(program, variable)
    if value is None or value.shape != nothing.shape:
        return replace(nothing, defined=kind != "f")
    # A number that overflows is still a number: it lies between the largest float and infinity.
    value = replace(value, lo=np.minimum(value.lo, _LARGEST), hi=np.maximum(value.hi, -_LARGEST))
    nothing = replace(nothing, defined=value.defined)
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
