"""How a row's influence on the gradient is bounded, and what the bound costs.

Clipping a slope ``ψ'(η, y)`` at ``c`` makes its expectation under the model differ from zero, and the
posterior's mode drifts by many posterior sds when rows are many; where gradients grow with the parameters,
as in networks and products of latents, the chain runs away. A factor ``min(1, c/max_y|ψ'(η, y)|)`` bounds
the slope too, and does not depend on the outcome: at the true parameter the expectation stays zero
(conditionally unbiased bounded influence: Künsch, Stefanski, Carroll 1989).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.model import Predictor, RowModel
from private_mcmc.planning.influence_counts import cell_of
from private_mcmc.planning.stages import Array, Row

Bound: TypeAlias = Literal["weights", "clip"]
# The derived column that carries the largest slope of a row, ``c = C/‖Aᵀx‖``, to its loss.
SLOPE_CAP = "_slope_cap"
_FEW = 8
# Where weights come first, they leave a typical slope this share of the clip or more.
_NEAR = 4.0


def weighted_model(
    reading: RowModel, outcomes: Mapping[str, jax.Array], root: ArrayLike, clip: float | jax.Array
) -> RowModel:
    """The model whose rows have the gradient ``min(1, C / max_y ‖Aᵀ∇v(θ, x, y)‖) ∇v``.

    The maximum is over ``outcomes``, shape ``(values, …)`` by name; ``root`` is ``A``, ``clip`` is ``C``. The
    loss's value means nothing, and rows are no longer functions of an affine predictor.
    """
    score = jax.grad(reading.row_loss)

    def weighted(theta: jax.Array, row: Row) -> jax.Array:
        fixed = jax.lax.stop_gradient(theta)
        gradients = jax.vmap(lambda outcome: score(fixed, {**row, **outcome}))(dict(outcomes))
        largest = jnp.max(jnp.linalg.norm(gradients @ jnp.asarray(root, dtype=gradients.dtype), axis=-1))
        weight = jnp.minimum(1.0, clip / jnp.maximum(largest, 1e-30))
        return jax.lax.stop_gradient(weight) * reading.row_loss(theta, row)

    return replace(reading, row_loss=weighted, predictor=None, predictors=None)


@dataclass(frozen=True, eq=False)
class Influence:
    """The influence of rows with one affine predictor ``η = x·θ + o``: ``|ψ'(η, y)|·‖Aᵀx‖``.

    Attributes:
        model: the model as it was read.
        predictor: its one predictor.
        outcomes: possible values of the outcome column, by name.
    """

    model: RowModel
    predictor: Predictor
    outcomes: Mapping[str, np.ndarray]

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """How the influence may be bounded, the way to begin with first.

        By weights where outcomes are few. Else by whatever is predicted to err less: weights do no harm but
        count rows by the worst outcome that was declared. They come first where that is not far away.
        """
        if len(self._values) <= _FEW:
            return ("weights",)
        return ("weights", "clip") if self._reach <= _NEAR else ("clip", "weights")

    @cached_property
    def _reach(self) -> float:
        """The largest slope over a typical one, ``√ψ''``, where predictor and outcome are in the middle.

        Curvature is that of the middle outcome: at the ends, far from what the predictor says, that of heavy
        tails is negative.
        """
        if not self.symmetric:
            return math.inf
        middle, step = float(self._values[len(self._values) // 2]), 1e-6 * float(np.ptp(self._values))
        largest = float(np.abs(self._slopes(np.full(1, middle), self._values)).max())
        ahead, behind = self._slopes(middle + np.array([step, -step]), np.full(2, middle))
        return largest / math.sqrt(max(float(ahead - behind) / (2 * step), 1e-12))

    @cached_property
    def symmetric(self) -> bool:
        """Whether ``ψ'(η, η + d) = −ψ'(η, η − d)``, as for a location: what clips take then cancels."""
        if len(self._values) <= _FEW:
            return False
        span = float(np.ptp(self._values)) or 1.0
        shift = np.linspace(0.01, 0.5, 16) * span
        eta = np.linspace(-0.5, 0.5, 5)[:, None] * span + float(np.mean(self._values))
        if not np.issubdtype(self._values.dtype, np.floating):
            shift, eta = np.ceil(shift), eta.round()
        up, down = (self._slopes(eta, eta + sign * shift) for sign in (1.0, -1.0))
        return bool(np.allclose(up, -down, rtol=1e-6, atol=1e-9 * max(1.0, float(np.abs(up).max()))))

    def believed(self, bound: Bound) -> bool:
        """Whether the model's own slopes say enough of rows': of skewed outcomes people's are longer."""
        return bound == "weights" or self.symmetric

    @property
    def _name(self) -> str:
        return next(iter(self.outcomes))

    @property
    def _values(self) -> np.ndarray:
        return self.outcomes[self._name]

    @cached_property
    def _extreme(self) -> np.ndarray:
        """Outcomes among which the largest slope is found: the two ends, wherever it is at one of them."""
        if len(self._values) <= _FEW:
            return self._values
        ends = self._values[[0, -1]]
        eta = np.linspace(-8.0, 8.0, 33)[:, None]
        every, two = (np.abs(self._slopes(eta, some)).max(axis=-1) for some in (self._values, ends))
        return ends if np.all(two >= every * (1 - 1e-9)) else self._values

    def _slopes(self, eta: Array, outcomes: np.ndarray) -> Array:
        """``ψ'`` of one synthetic row with other predictors and outcomes: ``(…, outcomes)``."""
        # The first one who asks may be tracing a step.
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            rows = self.model.rows
            row = jax.tree.map(lambda leaf: leaf[0], rows.project(rows.synthetic(0, 1)))
            dtype = row[self._name].dtype

            def slope(eta: jax.Array, outcome: jax.Array) -> jax.Array:
                return jnp.asarray(
                    jax.grad(self.predictor.loss)(eta, {**row, self._name: outcome.astype(dtype)})
                )

            each = jax.jit(jnp.vectorize(slope))(*np.broadcast_arrays(eta, outcomes))
            return np.nan_to_num(np.asarray(each, dtype=np.float64))

    def largest_slope(self, eta: jax.Array, row: Row, bound: Bound = "weights") -> jax.Array:
        """``max_y |ψ'(η, y)|`` over the possible outcomes for weights, the row's own ``|ψ'|`` for a clip."""
        slope = jax.grad(self.predictor.loss)
        if bound == "clip":
            return jnp.abs(slope(eta, row))
        choices = jnp.asarray(self._extreme)
        each = jnp.abs(jax.vmap(lambda choice: slope(eta, {**row, self._name: choice}))(choices))
        # An outcome at which the model has no slope leaves rows no weight.
        return jnp.max(jnp.where(jnp.isnan(each), jnp.inf, each))

    @cached_property
    def weighted(self) -> RowModel:
        """The model of weighted slopes: its rows carry ``SLOPE_CAP``, and its loss's value means nothing."""

        def loss(eta: ArrayLike, row: Row) -> jax.Array:
            eta = jnp.asarray(eta)
            slope = jax.grad(self.predictor.loss)(eta, row)
            largest = jnp.maximum(self.largest_slope(eta, row), 1e-300)
            weight = jnp.minimum(1.0, row[SLOPE_CAP] / largest)
            return jnp.asarray(jax.lax.stop_gradient(weight * slope) * eta)

        return replace(self.model, predictor=replace(self.predictor, loss=loss))

    def slope_cap(self, root: Array, clip: float) -> Callable[[Row], dict[str, jax.Array]]:
        """``row ↦ C/‖Aᵀx‖``, the largest slope that keeps the row's gradient within the clip."""
        return partial(self._slope_cap, root, clip)

    def _slope_cap(self, root: ArrayLike, clip: ArrayLike, row: Row) -> dict[str, jax.Array]:
        norm = jnp.linalg.norm(self.predictor.design(row) @ jnp.asarray(root))
        return {SLOPE_CAP: jnp.asarray(clip / jnp.maximum(norm, 1e-300))}

    def design(self, root: ArrayLike, row: Row) -> jax.Array:
        """``Aᵀx``, shape ``(p,)``."""
        return jnp.asarray(self.predictor.design(row) @ jnp.asarray(root))

    def curvature(self, temper: ArrayLike, theta: ArrayLike, root: ArrayLike, row: Row) -> jax.Array:
        """``√(w ψ''(η)) Aᵀx`` at ``θ``: second moments of such vectors are the data's Hessian."""
        design, second = self.predictor.design(row), jax.grad(jax.grad(self.predictor.loss))
        eta = design @ jnp.asarray(theta) + self.predictor.offset(row)
        weight = jnp.sqrt(temper * jnp.maximum(second(eta, row), 0.0))
        return jnp.asarray(weight * (design @ jnp.asarray(root)))

    def cells(self, bound: Bound, theta: Array, root: Array) -> Callable[[Row], jax.Array]:
        """``row ↦`` the cell of ``‖Aᵀx‖`` times the largest slope at ``θ``: what bounds its gradient."""
        return partial(self._weights_cell if bound == "weights" else self._clip_cell, theta, root)

    def _weights_cell(self, theta: ArrayLike, root: ArrayLike, row: Row) -> jax.Array:
        return cell_of(self._size("weights", theta, root, row))

    def _clip_cell(self, theta: ArrayLike, root: ArrayLike, row: Row) -> jax.Array:
        return cell_of(self._size("clip", theta, root, row))

    def _size(self, bound: Bound, theta: ArrayLike, root: ArrayLike, row: Row) -> jax.Array:
        design = self.predictor.design(row)
        eta = design @ jnp.asarray(theta) + self.predictor.offset(row)
        norm = jnp.linalg.norm(design @ jnp.asarray(root))
        return jnp.asarray(norm * self.largest_slope(eta, row, bound))
