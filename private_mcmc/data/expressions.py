"""Numbers of a formula, such as ``log(kappa)`` or ``age ** 2``: their public bounds, source and values.

Only what follows from declared ranges is taken. What other libraries' formulas estimate from the data
(splines' knots, means, standard deviations) would be a release that nobody pays for.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

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
_NUMPY: Record = {"jnp": np}
exec(PIECEWISE, _NUMPY)


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
    def of_field(cls, name: str, transform: str = "") -> Expression:
        """A field, through its declared transform."""
        word = identifier(name)
        node: ast.expr = ast.Name(word, ast.Load())
        if transform:
            node = ast.Call(ast.Name(transform, ast.Load()), [node], [])
        return cls(f"{transform}({name})" if transform else name, node, {word: name})

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

    def value(self, values: Mapping[str, Array]) -> Array:
        """At numbers of the fields, by Python name."""
        return _value(self.tree, values)


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


def _value(node: ast.expr, values: Mapping[str, Array]) -> Array:
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.Constant):
        return np.asarray(float(node.value))  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, values)
    if isinstance(node, ast.Call) and node.func.id == "piecewise":  # type: ignore[attr-defined]
        curve: Array = _NUMPY["piecewise"](
            _value(node.args[0], values), *map(ast.literal_eval, node.args[1:])
        )
        return curve
    if isinstance(node, ast.Call):
        found: Array = getattr(np, node.func.id)(_value(node.args[0], values))  # type: ignore[attr-defined]
        return found
    if not isinstance(node, ast.BinOp):
        raise ValueError("not arithmetic")
    left, right = _value(node.left, values), _value(node.right, values)
    done: Array = {
        ast.Add: np.add,
        ast.Sub: np.subtract,
        ast.Mult: np.multiply,
        ast.Div: np.divide,
        ast.Pow: np.power,
    }[type(node.op)](left, right)  # type: ignore[index]
    return done
