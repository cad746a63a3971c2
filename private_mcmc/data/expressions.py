"""Numbers of a formula, such as ``log(kappa)`` or ``ns(age, df=4)``: their public bounds, source and values.

Only what follows from declared ranges is taken. What other libraries' formulas estimate from the data
(splines' knots, means, standard deviations) would be a release that nobody pays for. Each function of a
spline or a polynomial is a polynomial between each two knots. Its exact bounds over the declared range are
computed here, and hold of what runs, which is clipped to them.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.interpolate import BSpline, CubicSpline, PPoly
from scipy.special import legendre

from private_mcmc.data.fields import identifier
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record

Bounds: TypeAlias = tuple[float, float]
Array: TypeAlias = npt.NDArray[np.float64]

_FUNCTIONS: Mapping[str, tuple[Callable[[float], float], float]] = {
    "log": (math.log, 0.0),
    "log10": (math.log10, 0.0),
    "log2": (math.log2, 0.0),
    "log1p": (math.log1p, -1.0),
    "sqrt": (math.sqrt, -0.0),
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
        tree: its syntax, with Python names for fields.
        fields: names of the fields it reads, by Python name.
        per: what a coefficient is the effect of, where it is not a unit.
        is_level: whether its values are weights of a few curves, as indicators are of levels.
    """

    text: str
    tree: ast.expr
    fields: Mapping[str, str]
    per: str = ""
    is_level: bool = False

    @classmethod
    def parse(cls, text: str, names: Mapping[str, str]) -> Expression:
        """``text`` with fields ``names``, by Python name."""
        try:
            # As in R: ^ is a power.
            tree = _Checked(text, names).visit(ast.parse(text.strip().replace("^", "**"), mode="eval").body)
        except DeclarationError:
            raise
        except (SyntaxError, ValueError, RecursionError):
            raise DeclarationError(f"formula: {text!r} cannot be read as arithmetic.") from None
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & set(names)
        return cls(text, tree, {name: names[name] for name in sorted(used)})

    @classmethod
    def of_field(cls, name: str) -> Expression:
        """A field."""
        word = identifier(name)
        return cls(name, ast.Name(word, ast.Load()), {word: name})

    def times(self, other: Expression) -> Expression:
        """The product."""
        tree = ast.BinOp(self.tree, ast.Mult(), other.tree)
        return Expression(f"{self.text}:{other.text}", tree, {**self.fields, **other.fields})

    def piecewise(
        self, text: str, knots: Sequence[float], pieces: Sequence[Sequence[float]], bounds: Bounds
    ) -> Expression:
        """A polynomial of it between each two knots, in ``(x − left)/(right − left)``, kept in ``bounds``."""
        stated = (tuple(knots), tuple(tuple(piece) for piece in pieces), *bounds)
        constants = [ast.parse(repr(each), mode="eval").body for each in stated]
        tree = ast.Call(ast.Name("piecewise", ast.Load()), [self.tree, *constants], [])
        return replace(self, text=text, tree=tree)

    def bounds(self, ranges: Mapping[str, Bounds]) -> Bounds:
        """Public bounds, from those of the fields by Python name."""
        try:
            low, high = _bounds(self.tree, ranges)
        except (ValueError, ZeroDivisionError, OverflowError):
            low = high = math.nan
        if not -1e30 < low <= high < 1e30:
            shown = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in ranges.items())
            raise DeclarationError(
                f"formula: {self.text!r} has no finite value for every declared row ({shown}). Declare a "
                "range on which it has, or write log1p(…), log(… + 1)."
            )
        return low, high

    def source(self) -> str:
        """As ``jax.numpy`` code."""
        return ast.unparse(
            ast.fix_missing_locations(_Numpy().visit(ast.parse(ast.unparse(self.tree), mode="eval")))
        )

    def value(self, values: Mapping[str, Any], xp: Any = np) -> Any:
        """At numbers of the fields, by Python name, computed by ``xp``: NumPy, or JAX."""
        # The very source that a model has; its words were checked when it was read.
        return xp.asarray(eval(self.source(), _names(xp), dict(values)))


class _Checked(ast.NodeTransformer):
    """Whatever is not arithmetic of declared fields is refused."""

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        self.text, self.names = text, names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Pow | ast.USub | ast.Load):
            raise self._refused(f"{type(node).__name__} is not taken")
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names:
            raise DeclarationError(
                f"formula: {node.id!r} is not a field that is a number (in {self.text!r})."
            )
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise self._refused("only numbers are constants")
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.visit(node.op)
        return ast.UnaryOp(node.op, self.visit(node.operand))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.visit(node.op)
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.Pow):
            power = right.value if isinstance(right, ast.Constant) else None
            if not (isinstance(power, int) and 1 <= power <= 9):
                raise self._refused("powers are whole numbers from 1 to 9")
        return ast.BinOp(left, node.op, right)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in _LIBRARIES:
            name = node.func.attr
        if name in _LEARNT:
            raise self._refused(
                f"{name} would be estimated from the private rows; declared ranges centre and scale every "
                "number already, and ns(x, df=4), bs(x, df=5), poly(x, 2) take their knots from them"
            )
        if (name not in _FUNCTIONS and name not in _SAME) or len(node.args) != 1 or node.keywords:
            raise self._refused(f"functions are {', '.join(_FUNCTIONS)}, of one argument")
        inner = self.visit(node.args[0])
        return inner if name in _SAME else ast.Call(ast.Name(name, ast.Load()), [inner], [])

    def _refused(self, why: str) -> DeclarationError:
        return DeclarationError(f"formula: {self.text!r}: {why}.")


class _Numpy(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id != "piecewise":
            node.func = ast.Attribute(ast.Name("jnp", ast.Load()), node.func.id, ast.Load())
        return node


def _bounds(node: ast.expr, ranges: Mapping[str, Bounds]) -> Bounds:
    """By interval arithmetic."""
    if isinstance(node, ast.Name):
        return ranges[node.id]
    if isinstance(node, ast.Constant):
        value = float(node.value)  # type: ignore[arg-type]
        return value, value
    if isinstance(node, ast.UnaryOp):
        low, high = _bounds(node.operand, ranges)
        return -high, -low
    if isinstance(node, ast.Call) and node.func.id == "piecewise":  # type: ignore[attr-defined]
        return ast.literal_eval(node.args[3]), ast.literal_eval(node.args[4])
    if isinstance(node, ast.Call):
        function, least = _FUNCTIONS[node.func.id]  # type: ignore[attr-defined]
        low, high = _bounds(node.args[0], ranges)
        if not (low > least or (low == 0 and function is math.sqrt)):
            return math.nan, math.nan
        return function(low), function(high)
    if not isinstance(node, ast.BinOp):
        raise ValueError("not arithmetic")
    left, right = _bounds(node.left, ranges), _bounds(node.right, ranges)
    if isinstance(node.op, ast.Pow):
        ends = [end ** right[0] for end in left]
        least = 0.0 if right[0] % 2 == 0 and left[0] <= 0 <= left[1] else min(ends)
        return least, max(ends)
    if isinstance(node.op, ast.Add):
        return left[0] + right[0], left[1] + right[1]
    if isinstance(node.op, ast.Sub):
        return left[0] - right[1], left[1] - right[0]
    if isinstance(node.op, ast.Div):
        if right[0] <= 0 <= right[1]:
            return math.nan, math.nan
        corners = [a / b for a in left for b in right]
    else:
        corners = [a * b for a in left for b in right]
    return min(corners), max(corners)


# Options of each, the second argument first.
_OPTIONS = {"bs": ("df", "knots", "degree"), "ns": ("df", "knots"), "poly": ("degree",)}
_MOST = 20
# Of the declared range between two knots: in single precision nearer ones are one.
_CLOSEST = 1e-4


@dataclass(frozen=True)
class _Call:
    """``name(inner, options…)`` as it stands in a formula."""

    text: str
    name: str
    inner: str
    options: dict[str, object]

    def count(self, option: str, usual: int, least: int, most: int = _MOST) -> int:
        """A whole number."""
        value = self.options.get(option, usual)
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(f"{option} is a whole number from {least} to {most}")
        return value

    def inner_knots(self, bounds: Bounds, spare: int) -> list[float]:
        """Those that are stated, or ``df − spare`` at equal distances in the declared range."""
        low, high = bounds
        if ("df" in self.options) == ("knots" in self.options):
            raise self.wrong("say how many columns, df=4, or where its knots are, knots=[30, 50]")
        if "df" in self.options:
            even = np.linspace(low, high, self.count("df", 0, max(spare, 1)) - spare + 2)
            return [float(knot) for knot in even[1:-1]]
        given = self.options["knots"]
        if not isinstance(given, Sequence) or not all(type(knot) in (int, float) for knot in given):
            raise self.wrong("knots is a list of numbers, as knots=[30, 50]")
        knots = [float(knot) for knot in given]
        gaps = np.diff([low, *knots, high])
        if not (0 < len(knots) <= _MOST and (gaps >= _CLOSEST * (high - low)).all()):
            raise self.wrong(f"knots increase inside the declared range, {low:g} to {high:g}, and are apart")
        return knots

    def wrong(self, why: str) -> DeclarationError:
        return DeclarationError(f"formula: {self.text!r}: {why}.")


def basis(
    text: str, number: Callable[[str], Expression], bounds: Callable[[Expression], Bounds]
) -> tuple[Expression, ...] | None:
    """The columns of ``bs(…)``, ``ns(…)`` or ``poly(…)``; ``None`` for another text.

    Over the declared range of what is inside: ``bs`` are B-splines without the first; ``ns`` are natural
    cubic splines by their values at the knots, as differences to the one in the middle; ``poly`` are Legendre
    polynomials, orthogonal for values that are uniform.

    Source: de Boor 1978 (B-splines); Wood 2017, section 5.3.1 (natural splines by their values).
    """
    call = _parsed(text)
    if call is None:
        return None
    inner = number(call.inner)
    low, high = bounds(inner)
    if not low < high:
        raise call.wrong("its number does not vary")
    shown = (
        f"{call.name}({', '.join([inner.text, *(f'{key}={value}' for key, value in call.options.items())])})"
    )
    if call.name == "poly":
        pieces, labels, per = _polynomials(call, (low, high))
    elif call.name == "bs":
        pieces, labels, per = _b_splines(call, (low, high))
    else:
        pieces, labels, per = _natural(call, (low, high))
    return tuple(
        replace(
            inner.piecewise(f"{shown}[{label}]", pieces.x.tolist(), parts, extremes(parts)),
            per=per,
            is_level=call.name != "poly",
        )
        for column, label in labels
        for parts in [_local(pieces, column)]
    )


def _parsed(text: str) -> _Call | None:
    try:
        node = ast.parse(text.strip().replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OPTIONS):
        return None
    name, names = node.func.id, _OPTIONS[node.func.id]
    found = _Call(text.strip(), name, ast.unparse(node.args[0]) if node.args else "", {})
    given = [*zip(names, node.args[1:], strict=False), *((str(one.arg), one.value) for one in node.keywords)]
    for option, value in given:
        # A list may be R's c(…).
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "c":
            value = ast.List(value.args, ast.Load())
        try:
            found.options[option] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError):
            raise found.wrong("its options are numbers, or lists of numbers") from None
    once = len(given) == len(found.options) and set(found.options) <= set(names)
    if not (once and 1 <= len(node.args) <= 1 + len(names)):
        raise found.wrong(f"takes a number and {', '.join(names)}, once, as in {name}(age, {names[0]}=3)")
    return found


_Made = tuple[PPoly, list[tuple[int, str]], str]


def _b_splines(call: _Call, bounds: Bounds) -> _Made:
    degree = call.count("degree", 3, 1)
    inner = call.inner_knots(bounds, degree)
    low, high = bounds
    knots = [low] * (degree + 1) + inner + [high] * (degree + 1)
    size = len(knots) - degree - 1
    ends = np.array(knots)
    made = [PPoly.from_spline(BSpline(ends, unit, degree)) for unit in np.eye(size)]
    wide = np.flatnonzero(np.diff(ends) > 0)
    kept = PPoly(np.stack([one.c[:, wide] for one in made], axis=-1), np.append(ends[wide], high))
    return kept, [(column, str(column)) for column in range(1, size)], "basis function"


def _natural(call: _Call, bounds: Bounds) -> _Made:
    knots = [bounds[0], *call.inner_knots(bounds, 1), bounds[1]]
    size, middle = len(knots), (len(knots) - 1) // 2
    made = CubicSpline(knots, np.eye(size), bc_type="natural")
    labels = [(column, f"{knots[column]:g}") for column in range(size) if column != middle]
    return made, labels, f"vs at {knots[middle]:g}"


def _polynomials(call: _Call, bounds: Bounds) -> _Made:
    degree = call.count("degree", 0, 1, 9)
    low, high = bounds
    # In powers of x − low, the highest first.
    rows = [legendre(k)(np.poly1d([2 / (high - low), -1])).coeffs for k in range(1, degree + 1)]
    columns = np.stack([np.pad(row, (degree + 1 - len(row), 0)) for row in rows], axis=1)
    labels = [(k, str(k + 1)) for k in range(degree)]
    return PPoly(columns[:, None, :], np.array([low, high])), labels, "Legendre polynomial"


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
