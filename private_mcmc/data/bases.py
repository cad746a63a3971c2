"""Splines and polynomials of a number, whose knots come from its declared range and never from rows.

Each function of a basis is a polynomial between each two knots. Its exact bounds over the range are computed
here, and hold of what runs, which is clipped to them.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.interpolate import BSpline, CubicSpline, PPoly
from scipy.special import legendre

from private_mcmc.data.expressions import Bounds, Expression
from private_mcmc.errors import DeclarationError

# Options of each, the second argument first.
_OPTIONS = {
    "bs": ("df", "knots", "degree"),
    **dict.fromkeys(("ns", "cr", "cs"), ("df", "knots")),
    "poly": ("degree", "raw"),
}
_MOST = 20


@dataclass(frozen=True)
class _Call:
    text: str
    name: str
    inner: str
    options: dict[str, object]

    def count(self, option: str, usual: int | None, least: int) -> int | None:
        """A whole number."""
        value = self.options.get(option, usual)
        if value is not None and not (
            isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST
        ):
            raise self.wrong(f"{option} is a whole number from {least} to {_MOST}")
        return value

    def inner_knots(self, bounds: Bounds, spare: int) -> list[float]:
        """Those that are stated, or ``df − spare`` at equal distances in the declared range."""
        low, high = bounds
        given = self.options.get("knots")
        if given is None:
            df = self.count("df", None, max(spare, 1))
            if df is None:
                raise self.wrong("say how many columns, df=4, or where its knots are, knots=[30, 50]")
            return [float(knot) for knot in np.linspace(low, high, df - spare + 2)[1:-1]]
        if "df" in self.options:
            raise self.wrong("df or knots, not both")
        if not isinstance(given, Sequence) or not all(isinstance(knot, int | float) for knot in given):
            raise self.wrong("knots is a list of numbers, as knots=[30, 50]")
        knots = [float(knot) for knot in given]
        if not (
            0 < len(knots) <= _MOST and all(a < b for a, b in zip([low, *knots], [*knots, high], strict=True))
        ):
            raise self.wrong(f"knots increase and lie inside the declared range, {low:g} to {high:g}")
        return knots

    def wrong(self, why: str) -> DeclarationError:
        return DeclarationError(f"formula: {self.text!r}: {why}.")


def basis(
    text: str, number: Callable[[str], Expression], bounds: Callable[[Expression], Bounds]
) -> tuple[Expression, ...] | None:
    """The columns of ``bs(…)``, ``ns(…)`` (also ``cr``, ``cs``) or ``poly(…)``; ``None`` for another text.

    Over the declared range of what is inside: ``bs`` are B-splines without the first; ``ns`` are natural
    cubic splines by their values at the knots, as differences to the one in the middle; ``poly`` are Legendre
    polynomials, orthogonal for values that are uniform, or powers with ``raw=True``.

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
        if call.options.get("raw", False) is True:
            return _powers(call, inner, shown)
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
    names = _OPTIONS[node.func.id]
    found = _Call(text.strip(), node.func.id, ast.unparse(node.args[0]) if node.args else "", {})
    given = [
        *zip(names, node.args[1:], strict=False),
        *((word.arg or "", word.value) for word in node.keywords),
    ]
    if not node.args or len(node.args) > 1 + len(names) or {name for name, _ in given} - set(names):
        raise found.wrong(f"takes a number and {', '.join(names)}, as in {node.func.id}(age, {names[0]}=3)")
    return _Call(found.text, found.name, found.inner, {name: _value(found, node) for name, node in given})


def _value(call: _Call, node: ast.expr) -> object:
    """A constant, a list, or R's ``c(…)`` and ``TRUE``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "c":
        node = ast.List(node.args, ast.Load())
    if isinstance(node, ast.Name) and node.id in ("TRUE", "FALSE"):
        return node.id == "TRUE"
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        raise call.wrong("its options are numbers, or lists of numbers") from None


_Made = tuple[PPoly, list[tuple[int, str]], str]


def _b_splines(call: _Call, bounds: Bounds) -> _Made:
    degree = call.count("degree", 3, 1) or 3
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
    degree = _degree(call)
    low, high = bounds
    # In powers of x − low, the highest first.
    rows = [legendre(k)(np.poly1d([2 / (high - low), -1])).coeffs for k in range(1, degree + 1)]
    columns = np.stack([np.pad(row, (degree + 1 - len(row), 0)) for row in rows], axis=1)
    labels = [(k, str(k + 1)) for k in range(degree)]
    return PPoly(columns[:, None, :], np.array([low, high])), labels, "Legendre polynomial"


def _degree(call: _Call) -> int:
    degree = call.count("degree", None, 1)
    if degree is None or degree > 9:
        raise call.wrong("say its degree, from 1 to 9, as in poly(age, 2)")
    return degree


def _powers(call: _Call, inner: Expression, shown: str) -> tuple[Expression, ...]:
    found = [inner]
    for _ in range(_degree(call) - 1):
        found.append(found[-1].times(inner))
    return tuple(replace(one, text=f"{shown}[{k}]") for k, one in enumerate(found, start=1))


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
