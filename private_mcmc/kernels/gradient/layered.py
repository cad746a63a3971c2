"""The clipped sum of a block of rows from the factors of their gradients, which are never formed.

One backward pass to the outputs of the layers gives every row's norm *and*, as ``Σ_i s_i a_i ⊗ δ_i``, the
sum (Bu, Wang, Zha, Karypis 2023, "book-keeping"). Norms and sum use the same numbers, so that what is
bounded is what is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from private_mcmc.kernels.gradient.clipping import UNDERFLOW, Clip, Columns, Whitening, around, times, weight
from private_mcmc.model.ir.program import Equation, Program, Variable

Index = npt.NDArray[np.int64]

# Each element of the result is one element of the first operand, whichever that is.
_MOVES = frozenset(
    ["slice", "reshape", "squeeze", "expand_dims", "transpose", "rev", "broadcast_in_dim", "copy"]
)


@dataclass(frozen=True, eq=False)
class Product:
    """``output = a·W``: the block's gradient is ``a ⊗ δ``, element ``(k, f)`` that of ``index[k, f]``.

    Attributes:
        output: the variable ``z``.
        factor: the variable ``a``.
        axes: of ``a``, in the order in which they are summed.
        index: which coordinates of ``θ`` stand in ``W``, ``(K, F)``.
    """

    output: Variable
    factor: Variable
    axes: tuple[int, ...]
    index: Index


@dataclass(frozen=True, eq=False)
class Direct:
    """A rearranged part of ``θ`` that is used otherwise; ``index`` tells its coordinates, flat."""

    variable: Variable
    index: Index


@dataclass(frozen=True, eq=False)
class Layers:
    """All blocks through which ``theta`` enters ``loss``."""

    products: tuple[Product, ...]
    direct: tuple[Direct, ...]


def find_layers(program: Program) -> Layers | None:
    """The blocks of a program with an input ``theta`` and an output ``loss``.

    ``None`` where parts that are used overlap, so that a coordinate would belong to several blocks.
    """
    loss = program.outputs["loss"]
    equations = program.slice([loss])
    views = _views(program, equations)
    uses: dict[Variable, list[Equation]] = {view: [] for view in views}
    for equation in equations:
        if not all(output in views for output in equation.outputs):
            for variable in set(equation.inputs) & views.keys():
                uses[variable].append(equation)
    if loss in views:
        return None
    used = {view: equations_of_view for view, equations_of_view in uses.items() if equations_of_view}
    entries = np.concatenate([np.zeros(0, np.int64), *(views[view].ravel() for view in used)])
    if len(np.unique(entries)) != len(entries):
        return None
    products, direct = [], []
    for view, equations_of_view in used.items():
        product = _product(program, view, views[view], equations_of_view)
        if product is None:
            direct.append(Direct(view, views[view].ravel()))
        else:
            products.append(product)
    return Layers(tuple(products), tuple(direct))


def _views(program: Program, equations: list[Equation]) -> Mapping[Variable, Index]:
    """The variables that are rearranged parts of ``theta``: which coordinate stands where."""
    theta = program.inputs["theta"]
    views = {theta: np.arange(program.size(theta)).reshape(program.shape(theta))}
    for equation in equations:
        if not _moves(program, equation) or equation.inputs[0] not in views:
            continue
        if equation.name == "convert_element_type":
            views[equation.outputs[0]] = views[equation.inputs[0]]
            continue
        with jax.ensure_compile_time_eval():
            moved = equation.primitive.bind(views[equation.inputs[0]], **equation.params)
        coordinates = np.asarray(moved)
        # A repeated coordinate would enter several times.
        if len(np.unique(coordinates)) == coordinates.size:
            views[equation.outputs[0]] = coordinates
    return views


def _moves(program: Program, equation: Equation) -> bool:
    if equation.name == "convert_element_type":
        (before,), (after,) = equation.inputs, equation.outputs
        return bool(program.avals[before].dtype == program.avals[after].dtype)
    return equation.name in _MOVES and len(equation.inputs) == 1


def _product(program: Program, view: Variable, index: Index, uses: list[Equation]) -> Product | None:
    """The product that the view enters, if it enters nothing else and its partner is a vector."""
    equation = uses[0]
    if len(uses) != 1 or equation.name != "dot_general" or equation.inputs.count(view) != 1:
        return None
    contracted, batched = equation.params["dimension_numbers"]
    if batched[0] or batched[1]:
        return None
    side = equation.inputs.index(view)
    factor, ours, theirs = equation.inputs[1 - side], tuple(contracted[side]), tuple(contracted[1 - side])
    if program.size(factor) != int(np.prod([index.shape[axis] for axis in ours], dtype=np.int64)):
        return None
    free = [axis for axis in range(index.ndim) if axis not in ours]
    columns = int(np.prod([index.shape[axis] for axis in free], dtype=np.int64))
    # The factor's other axes have length 1: the result's elements are in the order of the free axes.
    others = [axis for axis in range(len(program.shape(factor))) if axis not in theirs]
    return Product(
        equation.outputs[0],
        factor,
        (*theirs, *others),
        np.transpose(index, (*ours, *free)).reshape(-1, columns),
    )


Values = Mapping[Variable, jax.Array]


def layered(
    program: Program, layers: Layers, whitening: Whitening, clip: Clip
) -> Callable[[jax.Array, Columns, jax.Array, jax.Array | None], jax.Array]:
    """``(u, columns, present, weights) ↦ Σ_i w_i clip_C(Aᵀ∇v_i)`` for ``A`` the identity or diagonal."""
    dim = program.size(program.inputs["theta"])
    root = np.ones(dim) if whitening.root is None else whitening.root
    limit = around(clip, 2 * dim)
    cuts = [*(block.output for block in layers.products), *(block.variable for block in layers.direct)]
    order = [*(block.index.ravel() for block in layers.products), *(block.index for block in layers.direct)]
    place = _place(order, dim)

    def derivatives(theta: jax.Array, row: Columns) -> tuple[Values, list[jax.Array]]:
        shifts = {cut: jnp.zeros(program.shape(cut), program.avals[cut].dtype) for cut in cuts}
        slopes, factors = jax.grad(
            lambda shifts: _shifted(program, layers, {"theta": theta, **row}, shifts), has_aux=True
        )(shifts)
        return slopes, factors

    def total(
        u: Float[Array, " p"],
        columns: Columns,
        present: Bool[Array, " rows"],
        weights: Float[Array, " rows"] | None,
    ) -> Float[Array, " p"]:
        slopes, factors = jax.vmap(derivatives, in_axes=(None, 0))(whitening.to_parameter(u), columns)
        count = present.shape[0]

        def flat(values: jax.Array) -> jax.Array:
            return values.reshape(count, -1).astype(u.dtype)

        ours = [flat(factor) for factor in factors]
        theirs = [flat(slopes[block.output]) for block in layers.products]
        alone = [flat(slopes[block.variable]) * root[block.index] for block in layers.direct]
        scales = [np.asarray(root[block.index]) for block in layers.products]
        norms = [*map(_product_norm, ours, theirs, scales), *map(_norm, alone)]
        norm = _norm(jnp.stack(norms, axis=-1)) if norms else jnp.zeros(count)
        usable = present & jnp.isfinite(norm)
        factor = times(weight(norm, limit, usable), weights)[:, None]

        def kept(values: jax.Array) -> jax.Array:
            return jnp.where(usable[:, None], values, 0.0)

        sums: list[jax.Array] = [
            jnp.asarray(scale) * (kept(a).T @ (factor * kept(d)))
            for a, d, scale in zip(ours, theirs, scales, strict=True)
        ]
        sums += [factor[:, 0] @ kept(g) for g in alone]
        return jnp.concatenate([*(part.ravel() for part in sums), jnp.zeros(1, u.dtype)])[place]

    return total


def _shifted(
    program: Program, layers: Layers, given: Mapping[str, jax.Array], shifts: Values
) -> tuple[jax.Array, list[jax.Array]]:
    """The loss with ``shifts`` added to the cut variables, and the factors of the products."""
    values: dict[Variable, ArrayLike] = dict(program.constants)

    def put(variable: Variable, value: ArrayLike) -> None:
        values[variable] = value + shifts[variable] if variable in shifts else value

    for name, variable in program.inputs.items():
        aval = program.avals[variable]
        put(variable, jnp.asarray(given[name]).astype(aval.dtype).reshape(aval.shape))
    for equation in program.slice([program.outputs["loss"]]):
        params = equation.primitive.get_bind_params(dict(equation.params))
        results = equation.primitive.bind(*(values[variable] for variable in equation.inputs), **params)
        results = results if equation.primitive.multiple_results else [results]
        for output, result in zip(equation.outputs, results, strict=True):
            put(output, result)
    return jnp.asarray(values[program.outputs["loss"]]), [_factor(block, values) for block in layers.products]


def _factor(block: Product, values: Mapping[Variable, ArrayLike]) -> jax.Array:
    """``a``, in the order in which it meets the rows of ``W``."""
    factor = jnp.asarray(values[block.factor])
    return jax.lax.stop_gradient(jnp.transpose(factor, block.axes).ravel())


def _norm(values: Float[Array, "*batch entries"]) -> Float[Array, "*batch"]:
    """An upper bound of the norms along the last axis, but for rounding."""
    return jnp.sqrt(jnp.sum(values * values, axis=-1)) + UNDERFLOW


def _product_norm(
    a: Float[Array, "rows factors"],
    d: Float[Array, "rows slopes"],
    scale: Float[np.ndarray, "factors slopes"],
) -> Float[Array, " rows"]:
    """An upper bound, but for rounding, of the norms of ``scale ∘ (a_i ⊗ d_i)``."""
    largest, ours, theirs = float(scale.max()), _norm(a), _norm(d)
    if np.all(scale == largest):
        return largest * (ours * theirs)
    shape = scale / largest
    squares = jnp.sum(((a * a) @ (shape * shape)) * (d * d), axis=-1)
    # What underflows of a factor, of the scale or of their products changes the norm by less.
    return largest * (jnp.sqrt(squares) + UNDERFLOW * (1 + ours + theirs + ours * theirs))


def _place(order: list[np.ndarray], dim: int) -> np.ndarray:
    """Where each coordinate stands in the concatenated blocks; those that stand nowhere at the end."""
    entries = np.concatenate([np.zeros(0, np.int64), *order])
    place = np.full(dim, len(entries))
    place[entries] = np.arange(len(entries))
    return place
