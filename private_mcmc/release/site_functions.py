"""Declared functions of the sites, as functions of the flat unconstrained vector with proved bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike

from private_mcmc.errors import DeclarationError
from private_mcmc.model import RowModel
from private_mcmc.model.ir.dependence import Level, affinity
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.intervals import bounds as proved_bounds
from private_mcmc.model.ir.program import Equation, Program, Variable
from private_mcmc.release.noise import FloatArray
from private_mcmc.schedule import Average, Schedule

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
# What they are at zero, where that is not zero.
_AT_ZERO: Mapping[str, float] = {"logistic": 0.5, "cos": 1.0, "erfc": 1.0}
_SUMS = ("add", "sub")
_ONE_LIPSCHITZ_IN_EACH = frozenset([*_SUMS, "max", "min", "clamp"])
_SAME_ENTRIES = frozenset(["reshape", "squeeze", "expand_dims", "broadcast_in_dim"])
# They round nothing.
_PICK = _SAME_ENTRIES | {"slice", "rev", "transpose", "gather", "dynamic_slice", "concatenate", "copy", "neg"}


_UNIT = 2.0**-53
# Of two values, by an operation of four units in the last place at most.
_ROUNDINGS = 8


@dataclass(frozen=True, eq=False)
class Chain:
    """``value_j = g_j(inner_j)`` with ``inner`` affine and ``g_j`` of slope at most ``factors_j``.

    ``added_j``: the sizes of all constants that ``g_j``, of so many ``steps``, adds, each times the slope of
    what follows it.
    """

    inner: Variable
    factors: FloatArray
    added: FloatArray
    steps: int


def chain(program: Program, levels: Mapping[Variable, Level], target: Variable) -> Chain | None:
    """Walk from ``target`` back to an affine variable through functions of single entries; ``None`` if
    anything else is met.
    """
    variable, factors, steps = target, np.ones(program.shape(target)), 0
    added = np.zeros(program.shape(target))
    while levels[variable] is Level.UNKNOWN:
        producer = next(e for e in reversed(program.equations) if variable in e.outputs)
        step = _step(program, levels, producer)
        if step is None:
            return None
        variable, slope = step
        shape = program.shape(variable)
        if math.prod(shape) != factors.size:
            return None
        with np.errstate(all="ignore"):
            added = (added + factors * _constant(program, producer, variable)).reshape(shape)
            factors = factors.reshape(shape) * slope
        steps += 1
    return Chain(variable, factors, added, steps) if bool(np.all(np.isfinite(factors))) else None


def _constant(program: Program, equation: Equation, operand: Variable) -> float | FloatArray:
    """What an equation adds to what moves, in size."""
    if equation.name not in _SUMS:
        return _AT_ZERO.get(equation.name, 0.0)
    other = [v for v in equation.inputs if v != operand]
    return np.abs(np.asarray(program.run(other, {})[0], dtype=np.float64))


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

    ``matrix`` is ``A``, shape ``(d, p)``. In floats two values may be ``lost_j`` further apart, shape
    ``(d,)``: constants that are added round what moves, as ``w + 1e16`` does.
    """

    matrix: FloatArray
    lost: FloatArray | float = 0.0


Sites = Mapping[str, jax.Array]
# From the unconstrained vector to the variables of a program that are known then.
Start = Callable[[jax.Array], dict[Variable, jax.Array]]
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
        slopes: what bounds its change; ``None`` where its range alone does.
        low, high: what it is clamped to, entry by entry, shape ``(d,)``; infinite if nothing.
    """

    name: str
    shape: tuple[int, ...]
    evaluate: Callable[[jax.Array], jax.Array]
    slopes: Slopes | None
    low: FloatArray
    high: FloatArray

    @property
    def size(self) -> int:
        """Number of values ``d``."""
        return math.prod(self.shape)


def bind_functions(
    model: RowModel,
    items: tuple[tuple[str, What], ...],
    bounds: Mapping[str, Bounds],
) -> tuple[Function, ...]:
    """One ``Function`` for every declared item.

    Slopes (affine functions of ``θ``, and smooth or clamped functions of their entries, which includes
    sites on an interval) and ranges are proved on the traced function.
    """
    with jax.enable_x64(True):
        return tuple(_bind(model, name, what, bounds.get(name)) for name, what in items)


def _bind(model: RowModel, name: str, what: What, bounds: Bounds | None) -> Function:
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
    slopes, start = _slopes(program, model.dim)
    low, high = _range(program, math.prod(shape), bounds)
    if slopes is None and not np.all(np.isfinite(high - low)):
        raise DeclarationError(
            f"expectation {name!r}: nothing bounds how far a row moves it. Give bounds={{{name!r}: (a, b)}}, "
            "to which values are clamped. Affine functions of sites on the real line, sites on an interval "
            "and bounded functions need none."
        )

    def evaluate(theta: jax.Array) -> jax.Array:
        (found,) = program.run([program.outputs["value"]], start(theta))
        return jnp.asarray(found)

    return Function(name, shape, evaluate, slopes, low, high)


def site_function(model: RowModel, what: What) -> SiteFunction:
    """A function of the dict of sites: itself, or the one that picks a site. Unknown names are refused."""
    if not isinstance(what, str):
        return what
    shapes = jax.eval_shape(model.constrain, abstract((model.dim,), np.float64))
    if what not in shapes:
        raise DeclarationError(f"expectation of {what!r}: the model's sites are {sorted(shapes)}.")
    return lambda sites: sites[what]


def _slopes(program: Program, dim: int) -> tuple[Slopes | None, Start]:
    """``A`` where each value is proved to be a 1-Lipschitz function of an entry of ``Aθ + b``, and where the
    program begins: behind ``Aθ + b``, whose own way of adding it up may lose what moves (``θ + c − c``).
    """
    steps = chain(program, affinity(program, "theta"), program.outputs["value"])
    if steps is None:
        return None, lambda theta: {program.inputs["theta"]: theta}
    inner = steps.inner

    def affine(theta: jax.Array) -> jax.Array:
        (value,) = program.run([inner], {program.inputs["theta"]: theta})
        return jnp.ravel(value)

    origin = jnp.zeros(dim)
    matrix = np.asarray(jax.jacfwd(affine)(origin), dtype=np.float64)
    offset = np.asarray(affine(origin), dtype=np.float64)
    added = steps.added.ravel() + steps.factors.ravel() * np.abs(offset)
    found = Slopes(steps.factors.reshape(-1, 1) * matrix, _ROUNDINGS * (steps.steps + 2) * _UNIT * added)
    if all(equation.name in _PICK for equation in program.slice([inner])):
        return found, lambda theta: {program.inputs["theta"]: theta}
    return found, lambda theta: {inner: matrix @ theta + offset}


def _range(program: Program, size: int, bounds: Bounds | None) -> tuple[FloatArray, FloatArray]:
    """The caller's bounds, or the range that interval arithmetic proves over all parameters."""
    if bounds is not None:
        return np.full(size, bounds[0]), np.full(size, bounds[1])
    (interval,) = proved_bounds(program, {}, [program.outputs["value"]])
    low, high = np.asarray(interval.lo, dtype=np.float64), np.asarray(interval.hi, dtype=np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, low, -math.inf), np.where(bounded, high, math.inf)


# Share of a value's own sensitivity that rounding may add: of the function, half, and of the running sums,
# half, which sets the window.
ROUNDING_SHARE = 2.0**-14


@dataclass(frozen=True, eq=False)
class Observed:
    """The ``d`` declared values in units of their own sensitivities.

    Values are clamped to ``[low, high]``: the declared bounds, and a window so wide that only a running
    sum of larger values could lose more than ``ROUNDING_SHARE`` of a unit to rounding.

    Attributes:
        functions: the declared items, in order.
        centres, units, low, high: shape ``(d,)``; ``low`` and ``high`` in units.
    """

    functions: tuple[Function, ...]
    centres: FloatArray
    units: FloatArray
    low: FloatArray
    high: FloatArray

    def __call__(self, theta: jax.Array) -> jax.Array:
        """``(f(θ) − centre)/unit`` of shape ``(d,)``, clamped; NaN counts as ``a`` (as 0 without bounds)."""
        parts = []
        for function in self.functions:
            value = function.evaluate(theta)
            parts.append(jnp.where(jnp.isnan(value), _fallback(function), value))
        scaled = (jnp.concatenate(parts) - self.centres) / self.units
        return jnp.clip(scaled, self.low, self.high)

    def averages(self, given: npt.ArrayLike) -> FloatArray:
        """Averages of this vector as a chain computed them, with what is not a number mapped."""
        array = np.asarray(given, dtype=np.float64)
        if array.shape != self.units.shape:
            raise DeclarationError(f"averages of shape {array.shape}, {self.units.shape} were planned.")
        lowest = (np.concatenate([_fallback(f) for f in self.functions]) - self.centres) / self.units
        mapped: FloatArray = np.clip(np.where(np.isnan(array), lowest, array), self.low, self.high)
        return mapped

    def split(self, values: FloatArray) -> list[FloatArray]:
        """A ``(d,)`` vector item by item, each in its own shape."""
        cuts = np.cumsum([function.size for function in self.functions])[:-1]
        return [
            part.reshape(function.shape)
            for part, function in zip(np.split(values, cuts), self.functions, strict=True)
        ]


def observed(functions: tuple[Function, ...], units: FloatArray, schedule: Schedule) -> Observed:
    """The vector of ``functions`` in these units, fit for the running sums of ``schedule``."""
    low, high = (np.concatenate([getattr(f, end) for f in functions]) for end in ("low", "high"))
    bounded = np.isfinite(high - low)
    centres = np.where(bounded, (np.where(bounded, low, 0.0) + np.where(bounded, high, 0.0)) / 2, 0.0)
    half = np.minimum((high - low) / 2 / units, _window(schedule))
    return Observed(functions, centres, units, -half, half)


def _fallback(function: Function) -> FloatArray:
    """What NaN counts as: the lower end, or 0 where there is none."""
    return np.where(np.isfinite(function.low), function.low, 0.0)


def _window(schedule: Schedule) -> float:
    """Largest value, in units, whose running sum over steps and chains rounds by less than the share."""
    first = schedule.release.first if isinstance(schedule.release, Average) else 1
    additions = (schedule.num_steps - first + 1) * schedule.num_chains + 16
    load = additions * _UNIT
    return ROUNDING_SHARE / 2 * (1 - load) / (2 * load)
