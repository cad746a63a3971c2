"""Where the parameters enter a row's program: products with a vector, whose gradients factor, and the rest.

If a block ``W`` of the parameters enters once, through ``z = a·W`` with a vector ``a``, the row's gradient
is ``a ⊗ δ`` with ``δ = ∂v/∂z``, and its norm ``‖a‖·‖δ‖`` (Goodfellow 2015, "Efficient per-example gradient
computations"). All else is differentiated as it stands. Every coordinate belongs to one block or to none,
so that the squares of the blocks' norms add up to that of the row's gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np
import numpy.typing as npt

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
    used = {view: found for view, found in uses.items() if found}
    entries = np.concatenate([np.zeros(0, np.int64), *(views[view].ravel() for view in used)])
    if len(np.unique(entries)) != len(entries):
        return None
    products, direct = [], []
    for view, found in used.items():
        product = _product(program, view, views[view], found)
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
        found = np.asarray(moved)
        # A repeated coordinate would enter several times.
        if len(np.unique(found)) == found.size:
            views[equation.outputs[0]] = found
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
