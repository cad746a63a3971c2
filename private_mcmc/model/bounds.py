"""Ends and norms of functions of one row, from its declared domain: in closed form where they are affine.

Columns of few whole numbers are listed, in every combination of them; in all others the function must be
affine, which is proved of its program. It is then ``a + Σ_j B_j (c_j − m_j)`` for each combination, and every
``c_j`` lies in a ball, or in an interval, around ``m_j``. Nothing is proved of any other function (squares,
logarithms, products of numbers): of these public rows propose a radius, and ends, which kernels enforce.

Source of the norm: ``‖Σ_j v_j‖² ≤ Σ_jk |⟨v_j, v_k⟩|``, which counts nothing twice where parts are orthogonal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.accounting.rounding import up
from private_mcmc.domains.domain import Ball, Box, Domain
from private_mcmc.domains.rows import Rows
from private_mcmc.model.program import Level, Program, Variable, affinity, trace, without_cancellation
from private_mcmc.potential.families import Interval
from private_mcmc.potential.predictor import Predictor
from private_mcmc.potential.rowwise import row_shapes
from private_mcmc.system import RUN_ONCE

Values: TypeAlias = Mapping[Variable, jax.Array]

_MOST_NUMBERS, _MOST_CASES = 2**24, 2**18  # in all slopes together, and combinations of listed columns
_MOST_SQUARED = 2**20  # in a matrix whose singular values are computed
# Sums of sizes that are this many times what is left of them: rounding is then some 1e-12 of that.
_MOST_CANCELLED = 2.0**12
# Of a few operations here. Kernels hold designs that are longer by rounding at the radius.
_ROUNDING = 1 + 1e-13


@dataclass(frozen=True, eq=False)
class AffineFunction:
    """``value = a + B(c − m)`` for each combination of listed columns, ``c`` being the other columns.

    Attributes:
        value: ``a``, ``(combinations, size)``.
        slope: ``B``, ``(combinations, size, length of c)``.
        columns: the other columns, as they lie in ``c``, and one of what is rounded off where that counts.
    """

    value: np.ndarray
    slope: np.ndarray
    columns: Mapping[str, Domain]

    def _parts(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """``v_j`` of the intervals side by side, ``B_j`` of the balls times their radius."""
        lines, balls = [np.zeros((*self.value.shape, 0))], []
        edges = np.cumsum([0, *(math.prod(one.event_shape) for one in self.columns.values())])
        for domain, first, last in zip(self.columns.values(), edges, edges[1:], strict=False):
            slope = self.slope[:, :, first:last]
            if isinstance(domain, Ball):
                balls.append(slope * domain.radius)
            else:
                with np.errstate(invalid="ignore"):
                    lines.append(np.where(slope == 0, 0.0, slope * _middle(domain)[1]))
        return np.concatenate(lines, axis=2), balls

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends, ``(combinations, size)``."""
        lines, balls = self._parts()
        away = np.abs(lines).sum(axis=2) + sum(np.linalg.norm(ball, axis=2) for ball in balls)
        return self.value - away, self.value + away

    def norm(self) -> float:
        """Bound of the Euclidean norm over all rows."""
        lines, balls = self._parts()
        known = np.concatenate([self.value[:, :, None], lines], axis=2)
        if not np.all(np.isfinite(known)):
            return math.inf
        square = np.abs(np.swapaxes(known, 1, 2) @ known).sum(axis=(1, 2))
        for place, ball in enumerate(balls):
            across = np.swapaxes(ball, 1, 2)
            square += _spectral_norms(ball) ** 2 + 2 * np.linalg.norm(across @ known, axis=1).sum(axis=1)
            square += sum(2 * _spectral_norms(across @ other) for other in balls[:place])
        away = np.abs(lines).sum(axis=2) + sum(np.linalg.norm(ball, axis=2) for ball in balls)
        apart = np.square(np.abs(self.value) + away).sum(axis=1)
        largest = float(np.minimum(square, apart).max())
        root = math.sqrt(largest)
        return root if root * root == largest else root * _ROUNDING


def affine_function(
    program: Program,
    rows: Rows,
    targets: Iterable[Variable],
    known: Mapping[Variable, jax.Array] | None = None,
) -> AffineFunction | None:
    """What ``targets`` are, one after the other, over rows of the domain, at ``known`` values of variables.

    ``None`` where they are not proved to be affine, or are too many numbers.
    """
    targets, known = list(targets), known or {}
    read, size = program.reads(targets, known), sum(map(program.size, targets))
    if not read <= rows.columns.keys():
        return None
    listed, rest = _listed({name: rows.columns[name] for name in sorted(read)}, size)
    levels = affinity(program, *rest, known=known)
    ends = [(np.zeros(0), np.zeros(0)), *map(_middle, rest.values())]
    middle, half = (np.concatenate(parts) for parts in zip(*ends, strict=True))
    cases = math.prod(len(values) for values in listed.values())
    if any(levels[one] is Level.UNKNOWN for one in targets):
        return None
    solved = (one for one in program.slice(targets, known) if one.primitive.name == "triangular_solve")
    if any(levels[one.outvars[0]] is Level.AFFINE for one in solved):
        return None  # Sizes of what is solved for do not follow from sizes.
    if cases * size * (half.size + 1) > _MOST_NUMBERS:
        return None
    # From the middle, or of whole numbers from 0, as far along each number as rows may be.
    sizes = np.array([math.prod(one.event_shape) for one in rest.values()], dtype=int)
    whole = np.repeat(np.array([one.dtype.kind != "f" for one in rest.values()], dtype=bool), sizes)
    first, steps = np.where(whole, 0.0, middle), np.where(whole, 2 * half, half)
    steps = np.where((steps > 0) & np.isfinite(steps), steps, 1.0)
    points = first + np.concatenate([np.zeros((1, half.size)), np.diag(steps)])

    def at(program: Program, point: jax.Array, case: Mapping[str, jax.Array]) -> jax.Array:
        given, first = {**known, **program.columns(case)}, 0
        for name in rest:
            last = first + program.size(program.inputs[name])
            given[program.inputs[name]] = point[first:last]
            first = last
        return jnp.concatenate([jnp.ravel(value).astype(float) for value in program.run(targets, given)])

    def both(points: jax.Array, far: jax.Array, given: Mapping[str, jax.Array]) -> list[jax.Array]:
        found = []
        for each, places in ((program, points), (sizes_only, far)):
            every = jax.vmap(functools.partial(at, each), (0, None))
            found.append((jax.vmap(every, (None, 0)) if given else every)(places, given))
        return found

    columns = np.meshgrid(*listed.values(), indexing="ij")
    with jax.enable_x64(True):
        given = {name: column.ravel() for name, column in zip(listed, columns, strict=True)}
        # What floats compute is affine but for a share of sums of sizes, which counts where these cancel.
        sizes_only, far = without_cancellation(program, levels), np.abs(first) + steps
        values, most = jax.jit(both, compiler_options=RUN_ONCE)(points, far[None], given)
        values = np.asarray(values).reshape(cases, half.size + 1, size)
        most = np.abs(np.asarray(most)).reshape(cases, size)
    slope = np.swapaxes(values[:, 1:] - values[:, :1], 1, 2) / steps
    value = values[:, 0] + slope @ (middle - first)
    if not np.all(np.isfinite(values)):
        return None
    if np.all(most <= _MOST_CANCELLED * np.abs(values).max(axis=1)):
        return AffineFunction(value, slope, rest)
    if not np.all(np.isfinite(most)) or cases * size * (half.size + size) > _MOST_NUMBERS:
        return None
    added = sum(program.size(one) for equation in program.slice(targets, known) for one in equation.invars)
    apart = most[:, :, None] * np.eye(size) * (added * 2.0**-52)
    rounding: dict[str, Domain] = {" rounding": Box(-1.0, 1.0, dim=size)}
    return AffineFunction(value, np.concatenate([slope, apart], axis=2), rest | rounding)


def bounds(
    program: Program, rows: Rows, targets: Iterable[Variable], known: Values | None = None
) -> list[Interval] | None:
    """Ends of several variables over all rows of the domain; ``None`` as for ``affine_function``.

    ``where(x == 0, …, x)`` has those of ``x``, if all of these are above 0.
    """
    targets = list(targets)
    inner = [_unless_zero(program, one) for one in targets]
    found = affine_function(program, rows, inner, known)
    if found is None:
        return None
    lo, hi = found.ends()
    ends = _intervals(program, targets, lo.min(axis=0), hi.max(axis=0))
    same = (one is of or end.lowest > 0 for one, of, end in zip(targets, inner, ends, strict=True))
    return ends if all(same) else None


def _unless_zero(program: Program, variable: Variable) -> Variable:
    """``x``, if the variable is ``where(x == 0, …, x)``, else itself."""
    made = program.producers.get(variable)
    if made is None or made.primitive.name != "select_n" or len(made.invars) != 3:
        return variable
    asked, value, _ = made.invars
    test = program.producers.get(asked)
    if test is None or test.primitive.name != "eq" or test.invars[0] is not value:
        return variable
    zero = test.invars[1]
    fixed = not program.reads([zero]) and not np.any(np.asarray(program.run([zero], {})[0]))
    return value if fixed else variable


def ends_of_rows(
    program: Program, rows: Rows, targets: Iterable[Variable], known: Values
) -> tuple[list[Interval] | None, bool]:
    """The same and whether they are proved, or else those of public rows, within which kernels hold all rows.

    ``None`` where a column that they read has no ends, or other public rows are beyond them.
    """
    targets = list(targets)
    found = bounds(program, rows, targets, known)
    if found is not None:
        return found, True
    data = _public_rows(rows, program.reads(targets, known))
    if data is None:
        return None, False

    def at(row: Values) -> jax.Array:
        values = program.run(targets, {**known, **program.columns(row)})
        return jnp.concatenate([jnp.ravel(value).astype(float) for value in values])

    with jax.enable_x64(True):
        values = np.asarray(jax.jit(jax.vmap(at), compiler_options=RUN_ONCE)(data))
    # Half of the rows say where the ends are, if the other half agrees.
    lo, hi = values[::2].min(axis=0), values[::2].max(axis=0)
    if not np.all((values >= lo) & (values <= hi)):
        return None, False
    return _intervals(program, targets, lo, hi), False


def _intervals(program: Program, targets: list[Variable], lo: np.ndarray, hi: np.ndarray) -> list[Interval]:
    edges = np.cumsum([program.size(one) for one in targets])[:-1]
    parts = zip(targets, np.split(lo, edges), np.split(hi, edges), strict=True)
    return [Interval(*(end.reshape(program.shape(one)) for end in ends)) for one, *ends in parts]


_PUBLIC, MOST_LINES = 1024, 64


def _public_rows(rows: Rows, read: Iterable[str]) -> dict[str, np.ndarray] | None:
    """Public rows that reach the ends of the columns ``read``; ``None`` where one has none."""
    if not all(np.all(np.isfinite(rows.columns[name].interval())) for name in read):
        return None
    return {name: np.asarray(column) for name, column in rows.synthetic(0, _PUBLIC).items()}


def proved_radius(predictors: Predictor, rows: Rows) -> float:
    """A bound of ``‖A(row)‖`` over the domain from its lines; ``inf`` where one is not known to be affine.

    ``‖Aᵀu‖² ≤ m·max_i‖a_i‖²·‖u‖²`` if every coordinate of ``θ`` enters at most ``m`` predictors.
    """
    lines = range(min(predictors.size, MOST_LINES + 1))
    found = [function_of_rows(functools.partial(_line, predictors, index), rows) for index in lines]
    known = [line for line in found if line is not None]
    if len(known) < predictors.size:
        return math.inf
    radii = [line.norm() for line in known]
    shared = sum(np.any(line.value, axis=0) | np.any(line.slope, axis=(0, 2)) for line in known)
    most = max(int(np.max(shared, initial=0)), 1)
    return max(radii) if most == 1 else min(up(math.sqrt(most) * max(radii)), up(math.hypot(*radii)))


def _line(predictors: Predictor, index: int, row: Any) -> jax.Array:
    """One row of ``A``, without the others."""
    return jnp.asarray(jax.grad(lambda theta: predictors.eta(theta, row)[index])(jnp.zeros(predictors.dim)))


def proposed_radius(length: Callable[[Any], jax.Array], rows: Rows) -> float:
    """The longest of public rows that reach the ends of the domain, one column changed after another.

    Where it is too short, kernels shorten what is longer, and no price changes. ``inf`` where a column that
    the design reads has no ends.
    """
    program = trace(lambda **row: {"x": length(row)}, **row_shapes(rows))
    read = sorted(program.reads(program.outputs.values()))
    data = _public_rows(rows, read)
    if data is None:
        return math.inf
    each = jax.jit(jax.vmap(length), compiler_options=RUN_ONCE)
    found, best = data, 0
    for name in (None, *read, *read):
        if name is not None:
            same = {key: np.repeat(one[best : best + 1], _PUBLIC, axis=0) for key, one in found.items()}
            found = {**same, name: np.concatenate([same[name][:1], data[name][1:]])}
        lengths = np.asarray(each(found))
        if not np.all(np.isfinite(lengths)):
            return math.inf
        best = int(lengths.argmax())
    longest = float(lengths[best])
    # Of seven digits, so that rounding elsewhere proposes the same.
    unit = 10.0 ** (math.floor(math.log10(longest)) - 6) if longest > 0 else 1.0
    return math.ceil(longest / unit * (1 - 1e-9)) * unit


def function_of_rows(function: Callable[[Any], jax.Array], rows: Rows) -> AffineFunction | None:
    """``affine_function`` of a Python function of a row."""
    with jax.enable_x64(True):
        program = trace(lambda **row: {"x": function(row)}, **row_shapes(rows))
    return affine_function(program, rows, [program.outputs["x"]])


def _listed(columns: Mapping[str, Domain], size: int) -> tuple[dict[str, np.ndarray], dict[str, Domain]]:
    """All values of columns of whole numbers, those of the fewest first, while there are not too many."""
    listed: dict[str, np.ndarray] = {}
    length = sum(math.prod(one.event_shape) for one in columns.values() if one.dtype.kind == "f")
    left = min(_MOST_NUMBERS / (max(size, 1) * (length + 1)), _MOST_CASES)
    for name in sorted(columns, key=lambda name: float(np.max(columns[name].interval()[1], initial=0.0))):
        domain = columns[name]
        if domain.dtype.kind != "f" and not domain.event_shape:
            count = int(domain.interval()[1]) + 1
            if count <= left:
                listed[name], left = np.arange(count), left / count
    return listed, {name: domain for name, domain in columns.items() if name not in listed}


def _middle(domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """Middles and half lengths of a column's intervals, flat; around 0 without ends."""
    lo, hi = (np.ravel(end) for end in domain.interval())
    middle = (lo / 2 + hi / 2) if np.all(np.isfinite([lo, hi])) else np.zeros(lo.size)
    return middle, np.maximum(hi - middle, middle - lo)


def _spectral_norms(matrices: np.ndarray) -> np.ndarray:
    """Bounds of the spectral norms of ``(…, m, n)``: exact where no row and no column has two entries."""
    sizes = np.abs(matrices)
    found = np.sqrt(sizes.sum(axis=1).max(axis=1, initial=0.0) * sizes.sum(axis=2).max(axis=1, initial=0.0))
    if matrices.size > _MOST_SQUARED:
        return np.asarray(found)
    return np.asarray(np.minimum(found, np.linalg.norm(matrices, 2, axis=(1, 2)) * _ROUNDING))


def is_whole(program: Program, variable: Variable) -> bool:
    """Whether it is, or was before it became a float, of an integer type."""
    while jnp.issubdtype(variable.aval.dtype, jnp.floating):
        equation = program.producers.get(variable)
        if equation is None or equation.primitive.name not in _MOVES:
            return False
        variable = equation.invars[0]
    return True


_MOVES = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "convert_element_type")
