"""The clipped sum of a block of rows from the factors of their gradients, which are never formed.

One backward pass to the outputs of the layers gives every row's norm *and*, as ``Σ_i s_i a_i ⊗ δ_i``, the
sum (Bu, Wang, Zha, Karypis 2023, "book-keeping"). Norms and sum use the same numbers, so that what is
bounded is what is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.kernels.gradient.clipping import UNDERFLOW, Columns, around, weight
from private_mcmc.kernels.gradient.program_layers import Layers, Product
from private_mcmc.kernels.whitening import Whitening
from private_mcmc.model.ir.program import Program, Variable

Values = Mapping[Variable, jax.Array]


def layered(
    program: Program, layers: Layers, whitening: Whitening, clip: float
) -> Callable[[jax.Array, Columns, jax.Array], jax.Array]:
    """``(u, columns, present) ↦ Σ_i clip_C(Aᵀ∇v_i)`` for ``A`` the identity or diagonal."""
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

    def total(u: jax.Array, columns: Columns, present: jax.Array) -> jax.Array:
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
        factor = weight(norm, limit, usable)[:, None]

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
    program: Program, layers: Layers, given: Mapping[str, Any], shifts: Values
) -> tuple[jax.Array, list[jax.Array]]:
    """The loss with ``shifts`` added to the cut variables, and the factors of the products."""
    values: dict[Variable, Any] = dict(program.constants)

    def put(variable: Variable, value: Any) -> None:
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
    return values[program.outputs["loss"]], [_factor(block, values) for block in layers.products]


def _factor(block: Product, values: Mapping[Variable, Any]) -> jax.Array:
    """``a``, in the order in which it meets the rows of ``W``."""
    factor = jnp.asarray(values[block.factor])
    return jax.lax.stop_gradient(jnp.transpose(factor, block.axes).ravel())


def _norm(values: jax.Array) -> jax.Array:
    """An upper bound of the norms along the last axis, but for rounding."""
    return jnp.sqrt(jnp.sum(values * values, axis=-1)) + UNDERFLOW


def _product_norm(a: jax.Array, d: jax.Array, scale: np.ndarray) -> jax.Array:
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
