"""Declared functions of the sites, as functions of the flat unconstrained vector with proved bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.accounting import AverageByConvergence
from private_mcmc.errors import DeclarationError
from private_mcmc.model import RowModel
from private_mcmc.model.ir.dependence import Level, affinity
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.intervals import bounds as proved_bounds
from private_mcmc.model.ir.program import Equation, Program, Variable
from private_mcmc.release.noise import FloatArray

# Largest slope of a function of one number; of the bounds of its argument where it has none everywhere.
_SLOPES: Mapping[str, float] = {
    "logistic": 0.25 * (1 + 1e-12),
    "tanh": 1.0,
    "sin": 1.0,
    "cos": 1.0,
    "atan": 1.0,
    "abs": 1.0,
    "neg": 1.0,
    "copy": 1.0,
    "erf": 2 / math.sqrt(math.pi) * (1 + 1e-12),
    "erfc": 2 / math.sqrt(math.pi) * (1 + 1e-12),
}
_ONE_LIPSCHITZ_IN_EACH = frozenset(["add", "sub", "max", "min", "clamp"])
_SAME_ENTRIES = frozenset(["reshape", "squeeze", "expand_dims", "broadcast_in_dim"])


@dataclass(frozen=True, eq=False)
class Chain:
    """``value_j = g_j(inner_j)`` with ``inner`` affine and ``g_j`` of slope at most ``factors_j``."""

    inner: Variable
    factors: FloatArray


def chain(program: Program, levels: Mapping[Variable, Level], target: Variable) -> Chain | None:
    """Walk from ``target`` back to an affine variable through functions of single entries; ``None`` if
    anything else is met.
    """
    variable, factors = target, np.ones(program.shape(target))
    while levels[variable] is Level.UNKNOWN:
        producer = next(e for e in reversed(program.equations) if variable in e.outputs)
        step = _step(program, levels, producer)
        if step is None:
            return None
        variable, slope = step
        if math.prod(program.shape(variable)) != factors.size:
            return None
        with np.errstate(all="ignore"):
            factors = factors.reshape(program.shape(variable)) * slope
    return Chain(variable, factors) if bool(np.all(np.isfinite(factors))) else None


def _step(
    program: Program, levels: Mapping[Variable, Level], equation: Equation
) -> tuple[Variable, float | FloatArray] | None:
    """The operand that moves, and the slope in it."""
    moving = {v for v in equation.inputs if levels[v] is not Level.CONSTANT}
    if len(moving) != 1 or len(equation.outputs) != 1:
        return None
    (operand,) = moving
    name, once = equation.name, equation.inputs.count(operand) == 1
    if name in _SLOPES:
        return operand, _SLOPES[name]
    if name in _SAME_ENTRIES or (name in _ONE_LIPSCHITZ_IN_EACH and once):
        return operand, 1.0
    if name in ("mul", "div") and once:
        return _scaled(program, equation, operand)
    if name == "square" or (name == "mul" and not once):
        return operand, 2 * _largest(program, operand) * (1 + 1e-12)
    if name == "integer_pow" and equation.params["y"] >= 1:
        power = int(equation.params["y"])
        return operand, power * _largest(program, operand) ** (power - 1) * (1 + 1e-12)
    return None


def _scaled(program: Program, equation: Equation, operand: Variable) -> tuple[Variable, FloatArray] | None:
    """Slope of a product with a constant, or of a quotient by one."""
    if equation.name == "div" and equation.inputs[0] != operand:
        return None
    other = next(v for v in equation.inputs if v != operand)
    size = np.abs(np.asarray(program.run([other], {})[0], dtype=np.float64))
    with np.errstate(divide="ignore"):
        return operand, size if equation.name == "mul" else 1 / size


def _largest(program: Program, variable: Variable) -> FloatArray:
    """Bound on the absolute value of every entry; ``inf`` where none is proved."""
    (interval,) = proved_bounds(program, {}, [variable])
    largest: FloatArray = np.maximum(np.abs(interval.lo), np.abs(interval.hi)).astype(np.float64)
    return largest


@dataclass(frozen=True, eq=False)
class Slopes:
    """Values with ``|f_j(θ) − f_j(θ')| ≤ |A_j·(θ − θ')|``: affine maps, and 1-Lipschitz functions of them.

    ``matrix`` is ``A``, shape ``(d, p)``.
    """

    matrix: FloatArray


@dataclass(frozen=True)
class Lipschitz:
    """``size`` values, jointly ``ℓ``-Lipschitz from ``‖·‖_2`` on the unconstrained space to ``‖·‖_2``."""

    size: int
    constant: float


Sites = Mapping[str, jax.Array]
SiteFunction = Callable[[Sites], ArrayLike]
What = str | SiteFunction
Bounds = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Function:
    """One declared item: values computed from the constrained sites.

    Attributes:
        name: as declared.
        shape: shape of the value.
        evaluate: from the flat unconstrained vector to the value, flat: the very program that was proved.
        slopes: what bounds its change.
        low, high: what it is clamped to, entry by entry, shape ``(d,)``; infinite if nothing.
        assumption: what the caller stated and nobody proved, or ``None``.
        by_convergence: the caller's bound on how far averages are from their limits, or ``None``.
    """

    name: str
    shape: tuple[int, ...]
    evaluate: Callable[[jax.Array], jax.Array]
    slopes: Slopes | Lipschitz
    low: FloatArray
    high: FloatArray
    assumption: str | None
    by_convergence: AverageByConvergence | None = None

    @property
    def size(self) -> int:
        """Number of values ``d``."""
        return math.prod(self.shape)


def bind_functions(
    model: RowModel,
    items: tuple[tuple[str, What], ...],
    lipschitz: Mapping[str, float],
    bounds: Mapping[str, Bounds],
    by_convergence: Mapping[str, AverageByConvergence],
) -> tuple[Function, ...]:
    """One ``Function`` for every declared item.

    Slopes (affine functions of ``θ``, and smooth or clamped functions of their entries, which includes
    sites on an interval) and ranges are proved on the traced function.
    """
    with jax.enable_x64(True):
        return tuple(
            _bind(model, name, what, lipschitz.get(name), bounds.get(name), by_convergence.get(name))
            for name, what in items
        )


def _bind(
    model: RowModel,
    name: str,
    what: What,
    constant: float | None,
    bounds: Bounds | None,
    by_convergence: AverageByConvergence | None,
) -> Function:
    of_sites = site_function(model, what)

    def value(theta: jax.Array) -> jax.Array:
        return jnp.asarray(of_sites(model.constrain(theta)))

    result = jax.eval_shape(value, abstract((model.dim,), np.float64))
    if not any(jnp.issubdtype(result.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise DeclarationError(f"expectation {name!r}: the function returns {result.dtype}, not numbers.")
    shape = tuple(result.shape)

    def flat(theta: jax.Array) -> jax.Array:
        return jnp.ravel(value(theta)).astype(theta.dtype)

    program = trace(lambda theta: {"value": flat(theta)}, theta=abstract((model.dim,), np.float64))
    slopes: Slopes | Lipschitz | None = _slopes(program, model.dim)
    low, high = _range(program, math.prod(shape), bounds)
    assumption = None
    if slopes is None and constant is not None:
        slopes = Lipschitz(math.prod(shape), constant)
        assumption = f"{name} is {constant:.12g}-Lipschitz on the unconstrained space (stated, not proved)"
    if slopes is None:
        if not np.all(np.isfinite(high - low)) and by_convergence is None:
            raise DeclarationError(
                f"expectation {name!r}: nothing bounds how far a row moves it. Give "
                f"bounds={{{name!r}: (a, b)}}, to which values are clamped, or the Lipschitz constant on the "
                f"unconstrained space, lipschitz={{{name!r}: ...}}, quoted in the statement as your "
                "assumption. Affine functions of sites on the real line, sites on an interval and bounded "
                "functions need neither."
            )
        slopes = Lipschitz(math.prod(shape), math.inf)

    def evaluate(theta: jax.Array) -> jax.Array:
        (found,) = program.run([program.outputs["value"]], {program.inputs["theta"]: theta})
        return jnp.asarray(found)

    return Function(name, shape, evaluate, slopes, low, high, assumption, by_convergence)


def site_function(model: RowModel, what: What) -> SiteFunction:
    """A function of the dict of sites: itself, or the one that picks a site. Unknown names are refused."""
    if not isinstance(what, str):
        return what
    shapes = jax.eval_shape(model.constrain, abstract((model.dim,), np.float64))
    if what not in shapes:
        raise DeclarationError(f"expectation of {what!r}: the model's sites are {sorted(shapes)}.")
    return lambda sites: sites[what]


def _slopes(program: Program, dim: int) -> Slopes | None:
    """``A`` where each value is proved to be a 1-Lipschitz function of an entry of ``Aθ + b``."""
    steps = chain(program, affinity(program, "theta"), program.outputs["value"])
    if steps is None:
        return None

    def inner(theta: jax.Array) -> jax.Array:
        (value,) = program.run([steps.inner], {program.inputs["theta"]: theta})
        return jnp.ravel(value)

    matrix = np.asarray(jax.jacfwd(inner)(jnp.zeros(dim)), dtype=np.float64)
    return Slopes(steps.factors.reshape(-1, 1) * matrix)


def _range(program: Program, size: int, bounds: Bounds | None) -> tuple[FloatArray, FloatArray]:
    """The caller's bounds, or the range that interval arithmetic proves over all parameters."""
    if bounds is not None:
        return np.full(size, bounds[0]), np.full(size, bounds[1])
    (interval,) = proved_bounds(program, {}, [program.outputs["value"]])
    low, high = np.asarray(interval.lo, dtype=np.float64), np.asarray(interval.hi, dtype=np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, low, -math.inf), np.where(bounded, high, math.inf)
