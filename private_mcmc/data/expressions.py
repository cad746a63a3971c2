"""Numbers of a formula, such as ``log(kappa)`` or ``ns(age, df=4)``: their public bounds, source and values.

Only what follows from declared ranges is taken. What other libraries' formulas estimate from the data
(splines' knots, means, standard deviations) would be a release that nobody pays for. Each function of a
spline or a polynomial is a polynomial between each two knots. Its exact bounds over the declared range are
computed here, and hold of what runs, which is clipped to them.
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.interpolate import BSpline, CubicSpline, PPoly
from scipy.special import legendre

from private_mcmc.data.fields import identifier
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record

Bounds: TypeAlias = tuple[float, float]
Array: TypeAlias = npt.NDArray[np.float64]

# Each rises, and is finite above the number beside it.
_FUNCTIONS: Mapping[str, tuple[Callable[[float], float], float]] = {
    "log": (math.log, 0.0),
    "log10": (math.log10, 0.0),
    "log2": (math.log2, 0.0),
    "log1p": (math.log1p, -1.0),
    "sqrt": (math.sqrt, math.nextafter(0.0, -1.0)),
    "exp": (math.exp, -math.inf),
}
_SAME = ("I", "C")
# As in patsy: np.log(x).
_LIBRARIES = ("np", "numpy", "math")
_LEARNT = ("scale", "center", "standardize", "s", "te", "cc", "rcs", "lo", "loess")

# As it stands in the source of models, and as it is computed here.
PIECEWISE = '''def piecewise(x, knots, pieces, low, high):
    """A polynomial between each two knots, by its coefficients, the highest power first."""
    value = None
    for left, right, piece in zip(knots, knots[1:], pieces):
        u, part = (x - left) / (right - left), 0.0
        for coefficient in piece:
            part = part * u + coefficient
        value = part if value is None else jnp.where(x < left, value, part)
    return jnp.clip(value, low, high)
'''


@cache
def _names(xp: Any) -> Record:
    """What the source of an expression reads, computed by ``xp``: NumPy, or JAX."""
    found: Record = {"jnp": xp}
    exec(PIECEWISE, found)
    return found


@dataclass(frozen=True)
class Expression:
    """An expression in fields that are numbers.

    Attributes:
        text: as the user wrote it.
        tree: as ``jax.numpy`` has it, with Python names for fields.
        fields: names of the fields it reads, by Python name.
        bounds: public, over the fields' declared ranges.
        per: what a coefficient is the effect of, where it is not a unit.
        is_level: whether its values are weights of a few curves, as indicators are of levels.
    """

    text: str
    tree: ast.expr
    fields: Mapping[str, str]
    bounds: Bounds
    per: str = ""
    is_level: bool = False

    def __post_init__(self) -> None:
        low, high = self.bounds
        if not -1e30 < low <= high < 1e30:
            raise DeclarationError(
                f"formula: {self.text!r} has no finite value for every declared row. Declare ranges of "
                f"{sorted(self.fields.values())} on which it has, or write log1p(…), log(… + 1)."
            )

    @property
    def is_indicator(self) -> bool:
        """Whether it says that a number is missing."""
        return any(word != identifier(name) for word, name in self.fields.items())

    @property
    def source(self) -> str:
        """As code."""
        return ast.unparse(self.tree)

    def times(self, other: Expression) -> Expression:
        """The product."""
        tree, fields = ast.BinOp(self.tree, ast.Mult(), other.tree), {**self.fields, **other.fields}
        corners = [a * b for a in self.bounds for b in other.bounds]
        return Expression(f"{self.text}:{other.text}", tree, fields, (min(corners), max(corners)))

    def value(self, values: Mapping[str, Any], xp: Any = np) -> Any:
        """At numbers of the fields, by Python name, computed by ``xp``: NumPy, or JAX."""
        # The very source that a model has; its words were checked when it was read.
        return xp.asarray(eval(self.source, _names(xp), dict(values)))


def field_of(word: str, schema: Schema) -> str:
    """The name of the field that a Python name stands for; the word itself where there is none."""
    return next((name for name in schema.by_name if identifier(name) == word), word)


def indicator_of(name: str) -> Expression:
    """Whether the number of a field is missing: 1, or 0."""
    word = identifier(f"{name}_missing")
    return Expression(f"{name} missing", ast.Name(word), {word: name}, (0.0, 1.0), per="vs known")


def number_of(word: str, schema: Schema) -> Expression:
    """A field or an expression, with the fields' own names in its text."""
    name = field_of(word, schema)
    if name in schema.by_name or word.isidentifier():
        known = schema[name].range
        return Expression(name, ast.Name(identifier(name)), {identifier(name): name}, known)
    numbers = (field.name for field in schema.fields if field.is_used and not field.is_category)
    names = {identifier(name): name for name in numbers}
    try:
        # As in R: ^ is a power.
        node = ast.parse(word.strip().replace("^", "**"), mode="eval").body
        used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} & set(names)
        ranges = {each: schema[names[each]].range for each in sorted(used)}
        tree, bounds = _Reader(word, ranges).read(node)
    except ArithmeticError:
        tree, bounds = node, (math.nan, math.nan)
    except DeclarationError:
        raise
    except (SyntaxError, ValueError, RecursionError):
        raise DeclarationError(f"formula: {word!r} cannot be read as arithmetic.") from None
    own = re.compile(rf"\b({'|'.join(ranges) or '$^'})\b")
    text = own.sub(lambda match: names[match[1]], word)
    return Expression(text, tree, {each: names[each] for each in ranges}, bounds)


_ARITHMETIC: Mapping[type, Callable[[float, float], float]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub},
    **{ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: operator.pow},
}


@dataclass(frozen=True)
class _Reader:
    """Arithmetic of fields: its code, and its bounds by interval arithmetic. All else is refused."""

    text: str
    ranges: Mapping[str, Bounds]

    def read(self, node: ast.expr) -> tuple[ast.expr, Bounds]:
        match node:
            case ast.Name(word):
                if word not in self.ranges:
                    raise self._wrong(f"{word!r} is not a field that is a number")
                return node, self.ranges[word]
            case ast.Constant(value):
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise self._wrong("only numbers are constants")
                return node, (value, value)
            case ast.UnaryOp(ast.USub() as sign, inner):
                tree, (low, high) = self.read(inner)
                return ast.UnaryOp(sign, tree), (-high, -low)
            case ast.BinOp(left, sign, right) if type(sign) in _ARITHMETIC:
                (one, here), (other, there) = self.read(left), self.read(right)
                return ast.BinOp(one, sign, other), self._bounds(sign, here, there, right)
            case ast.Call(function, arguments, keywords):
                library, _, name = ast.unparse(function).rpartition(".")
                if name in _LEARNT:
                    raise self._wrong(
                        f"{name} would be estimated from the private rows; declared ranges centre and scale "
                        "every number already, and ns(x, df=4), bs(x, df=5), poly(x, 2) take their knots "
                        "from them"
                    )
                known = name in (*_FUNCTIONS, *_SAME) and library in ("", *_LIBRARIES)
                if not known or len(arguments) != 1 or keywords:
                    raise self._wrong(f"functions are {', '.join(_FUNCTIONS)}, of one argument")
                tree, ends = self.read(arguments[0])
                if name in _SAME:
                    return tree, ends
                made, least = _FUNCTIONS[name]
                if not ends[0] > least:
                    raise ArithmeticError
                code = ast.Call(ast.Attribute(ast.Name("jnp"), name), [tree], [])
                return code, (made(ends[0]), made(ends[1]))
        raise self._wrong(f"{type(node).__name__} is not taken")

    def _bounds(self, sign: ast.operator, left: Bounds, right: Bounds, power: ast.expr) -> Bounds:
        """Of sums, products and powers at corners; an even power is also 0 inside."""
        if isinstance(sign, ast.Div) and right[0] <= 0 <= right[1]:
            raise ArithmeticError
        raised, whole = isinstance(sign, ast.Pow), isinstance(power, ast.Constant)
        if raised and not (whole and type(right[0]) is int and 1 <= right[0] <= 9):
            raise self._wrong("powers are whole numbers from 1 to 9")
        corners = [_ARITHMETIC[type(sign)](a, b) for a in left for b in right]
        inside = raised and right[0] % 2 == 0 and left[0] <= 0 <= left[1]
        return (0.0 if inside else min(corners)), max(corners)

    def _wrong(self, why: str) -> DeclarationError:
        return DeclarationError(f"formula: {self.text!r}: {why}.")


_MOST = 20
# Of the declared range between two knots: in single precision nearer ones are one.
_CLOSEST = 1e-4


def basis(text: str, schema: Schema) -> tuple[Expression, ...] | None:
    """The columns of ``bs(…)``, ``ns(…)`` or ``poly(…)``; ``None`` for another text.

    Over the declared range of what is inside: ``bs`` are B-splines without the first; ``ns`` are natural
    cubic splines by their values at the knots, as differences to the one in the middle; ``poly`` are Legendre
    polynomials, orthogonal for values that are uniform.

    Source: de Boor 1978 (B-splines); Wood 2017, section 5.3.1 (natural splines by their values).
    """
    try:
        node = ast.parse(text.strip().replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MADE):
        return None
    name, made = node.func.id, _MADE[node.func.id]
    try:
        stated = [_literal(each) for each in node.args[1:]]
        named = {str(one.arg): _literal(one.value) for one in node.keywords}
        _, *options = inspect.signature(made).bind(node.args[0], *stated, **named).arguments.items()
        inner = number_of(ast.unparse(node.args[0]), schema)
        if not inner.bounds[0] < inner.bounds[1]:
            raise _Unfit("its number does not vary")
        pieces, labels, per = made(inner.bounds, **dict(options))
    except _Unfit as error:
        raise DeclarationError(f"formula: {text.strip()!r}: {error}.") from None
    except (TypeError, IndexError):
        _, *names = inspect.signature(made).parameters
        raise DeclarationError(
            f"formula: {text.strip()!r}: takes a number and {', '.join(names)}, once, as in "
            f"{name}(age, {names[0]}=3)."
        ) from None
    shown = f"{name}({', '.join([inner.text, *(f'{key}={value}' for key, value in options)])})"
    found = []
    for column, label in labels:
        parts = _local(pieces, column)
        bounds = extremes(parts)
        fixed = (tuple(pieces.x.tolist()), tuple(map(tuple, parts)), *bounds)
        constants = [ast.parse(repr(each), mode="eval").body for each in fixed]
        tree = ast.Call(ast.Name("piecewise"), [inner.tree, *constants], [])
        own, level = f"{shown}[{label}]", name != "poly"
        found.append(replace(inner, text=own, tree=tree, bounds=bounds, per=per, is_level=level))
    return tuple(found)


class _Unfit(Exception):
    """Options that make no columns."""


def _literal(node: ast.expr) -> Any:
    """A number, or a list of them, which may be R's ``c(…)``."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "c":
        node = ast.List(node.args, ast.Load())
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        raise _Unfit("its options are numbers, or lists of numbers") from None


def _count(option: str, value: object, least: int, most: int = _MOST) -> int:
    if type(value) is not int or not least <= value <= most:
        raise _Unfit(f"{option} is a whole number from {least} to {most}")
    return value


def _inner_knots(bounds: Bounds, df: object, knots: Any, spare: int) -> list[float]:
    """Those that are stated, or ``df − spare`` at equal distances in the declared range."""
    low, high = bounds
    if (df is None) == (knots is None):
        raise _Unfit("say how many columns, df=4, or where its knots are, knots=[30, 50]")
    if df is not None:
        even = np.linspace(low, high, _count("df", df, max(spare, 1)) - spare + 2)
        return [float(knot) for knot in even[1:-1]]
    if not isinstance(knots, list | tuple) or not all(type(knot) in (int, float) for knot in knots):
        raise _Unfit("knots is a list of numbers, as knots=[30, 50]")
    gaps = np.diff([low, *knots, high])
    if not (0 < len(knots) <= _MOST and (gaps >= _CLOSEST * (high - low)).all()):
        raise _Unfit(f"knots increase inside the declared range, {low:g} to {high:g}, and are apart")
    return [float(knot) for knot in knots]


_Made = tuple[PPoly, list[tuple[int, str]], str]


def _b_splines(bounds: Bounds, df: object = None, knots: object = None, degree: object = 3) -> _Made:
    power = _count("degree", degree, 1)
    inner, (low, high) = _inner_knots(bounds, df, knots, power), bounds
    ends = np.array([low] * (power + 1) + inner + [high] * (power + 1))
    size = len(ends) - power - 1
    made = [PPoly.from_spline(BSpline(ends, unit, power)) for unit in np.eye(size)]
    wide = np.flatnonzero(np.diff(ends) > 0)
    kept = PPoly(np.stack([one.c[:, wide] for one in made], axis=-1), np.append(ends[wide], high))
    return kept, [(column, str(column)) for column in range(1, size)], "basis function"


def _natural(bounds: Bounds, df: object = None, knots: object = None) -> _Made:
    ends = [bounds[0], *_inner_knots(bounds, df, knots, 1), bounds[1]]
    size, middle = len(ends), (len(ends) - 1) // 2
    made = CubicSpline(ends, np.eye(size), bc_type="natural")
    labels = [(column, f"{ends[column]:g}") for column in range(size) if column != middle]
    return made, labels, f"vs at {ends[middle]:g}"


def _polynomials(bounds: Bounds, degree: object) -> _Made:
    most, (low, high) = _count("degree", degree, 1, 9), bounds
    # In powers of x − low, the highest first.
    rows = [legendre(k)(np.poly1d([2 / (high - low), -1])).coeffs for k in range(1, most + 1)]
    columns = np.stack([np.pad(row, (most + 1 - len(row), 0)) for row in rows], axis=1)
    labels = [(k, str(k + 1)) for k in range(most)]
    return PPoly(columns[:, None, :], np.array([low, high])), labels, "Legendre polynomial"


_MADE: Mapping[str, Callable[..., _Made]] = {"bs": _b_splines, "ns": _natural, "poly": _polynomials}


def _local(pieces: PPoly, column: int) -> list[list[float]]:
    """Coefficients in ``(x − left)/(right − left)``, the highest power first."""
    widths = np.diff(pieces.x)
    powers = np.arange(pieces.c.shape[0])[::-1]
    scaled = pieces.c[:, :, column] * widths[None, :] ** powers[:, None]
    return [np.trim_zeros(scaled[:, place].round(12), "f").tolist() or [0.0] for place in range(len(widths))]


def extremes(pieces: Sequence[Sequence[float]]) -> Bounds:
    """The least and the largest value of polynomials on ``[0, 1]``: at ends or where the slope vanishes."""
    low, high = math.inf, -math.inf
    for piece in pieces:
        roots = np.roots(np.polyder(np.asarray(piece)))
        inside = [float(root.real) for root in roots if abs(root.imag) < 1e-9 and 0 < root.real < 1]
        values = np.polyval(np.asarray(piece), [0.0, 1.0, *inside])
        low, high = min(low, float(values.min())), max(high, float(values.max()))
    return low, high
