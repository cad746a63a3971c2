"""Bounding a row's influence: by weights without bias, or by a clip.

Clipping a slope ``ψ'(η, y)`` at ``c`` makes its expectation under the model differ from zero, and the
posterior's mode drifts by many posterior sds when rows are many. A factor ``min(1, c/max_y|ψ'(η, y)|)``
bounds it too, and does not depend on the outcome: at the true parameter the expectation stays zero
(conditionally unbiased bounded influence: Künsch, Stefanski, Carroll 1989).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.model import Predictor, RowModel

Row: TypeAlias = Mapping[str, Any]
Array: TypeAlias = npt.NDArray[np.float64]
Way: TypeAlias = Literal["weights", "clip"]

# The derived column that carries a row's cap ``c = C/‖x‖`` to its loss.
REACH = "_reach"
_FEW = 8


@dataclass(frozen=True, eq=False)
class Influence:
    """How far a row's slope can reach, for every outcome where these are few, else for its own.

    Attributes:
        model: the model as it was read.
        predictor: its one predictor.
        outcomes: possible values of the outcome column, by name.
    """

    model: RowModel
    predictor: Predictor
    outcomes: Mapping[str, npt.NDArray[Any]]

    @cached_property
    def ways(self) -> tuple[Way, ...]:
        """How a row's slope may be bounded, the one to begin with first.

        By weights where outcomes are few, by a clip where residuals are symmetric. Else by whatever is
        predicted to err less: weights do no harm but count rows by the worst outcome that was declared.
        """
        if len(self._values) <= _FEW:
            return ("weights",)
        return ("clip",) if self.symmetric else ("clip", "weights")

    @cached_property
    def symmetric(self) -> bool:
        """Whether ``ψ'(η, η + d) = −ψ'(η, η − d)``, as for a location: what clips take then cancels."""
        if not np.issubdtype(self._values.dtype, np.floating):
            return False
        span = float(np.ptp(self._values)) or 1.0
        shift = np.linspace(0.01, 0.5, 16) * span
        eta = np.linspace(-0.5, 0.5, 5)[:, None] * span + float(np.mean(self._values))
        up, down = (self._slopes(eta, eta + sign * shift) for sign in (1.0, -1.0))
        return bool(np.allclose(up, -down, rtol=1e-6, atol=1e-9 * max(1.0, float(np.abs(up).max()))))

    @property
    def _name(self) -> str:
        return next(iter(self.outcomes))

    @property
    def _values(self) -> npt.NDArray[Any]:
        return self.outcomes[self._name]

    @cached_property
    def _steep(self) -> npt.NDArray[Any]:
        """Outcomes among which the steepest slope is found: the extremes, wherever these are the steepest."""
        if len(self._values) <= _FEW:
            return self._values
        ends = self._values[[0, -1]]
        eta = np.linspace(-8.0, 8.0, 33)[:, None]
        every, two = (np.abs(self._slopes(eta, some)).max(axis=-1) for some in (self._values, ends))
        return ends if np.all(two >= every * (1 - 1e-9)) else self._values

    def _slopes(self, eta: Array, outcomes: npt.NDArray[Any]) -> Array:
        """``ψ'`` of one synthetic row with other predictors and outcomes: ``(…, outcomes)``."""
        # The first one who asks may be tracing a step.
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            rows = self.model.rows
            row = jax.tree.map(lambda leaf: leaf[0], rows.project(rows.synthetic(jax.random.key(0), 1)))
            dtype = row[self._name].dtype

            def slope(eta: jax.Array, outcome: jax.Array) -> jax.Array:
                found: jax.Array = jax.grad(self.predictor.loss)(
                    eta, {**row, self._name: outcome.astype(dtype)}
                )
                return found

            each = jnp.vectorize(slope)(*map(jnp.asarray, np.broadcast_arrays(eta, outcomes)))
            return np.nan_to_num(np.asarray(each, dtype=np.float64))

    def steepest(self, eta: jax.Array, row: Row, way: Way = "weights") -> jax.Array:
        """``max_y |ψ'(η, y)|`` over the possible outcomes for weights, the row's own ``|ψ'|`` for a clip."""
        slope = jax.grad(self.predictor.loss)
        if way == "clip":
            return jnp.abs(slope(eta, row))
        choices = jnp.asarray(self._steep)
        each = jnp.abs(jax.vmap(lambda choice: slope(eta, {**row, self._name: choice}))(choices))
        # An outcome at which the model has no slope leaves rows no weight.
        return jnp.max(jnp.where(jnp.isnan(each), jnp.inf, each))

    @cached_property
    def weighted(self) -> RowModel:
        """The model whose slopes are weighted; its rows carry ``REACH``, its loss's value means nothing."""

        def loss(eta: Any, row: Row) -> jax.Array:
            slope = jax.grad(self.predictor.loss)(eta, row)
            steepest = jnp.maximum(self.steepest(eta, row), 1e-300)
            held: jax.Array = jax.lax.stop_gradient(jnp.minimum(1.0, row[REACH] / steepest) * slope)
            total: jax.Array = held * eta
            return total

        return replace(self.model, predictor=replace(self.predictor, loss=loss))

    def reach(self, root: npt.NDArray[np.float64], clip: float) -> Callable[[Row], dict[str, jax.Array]]:
        """``row ↦ C/‖Aᵀx‖``, the largest slope that keeps the row's gradient within the clip."""

        def derived(row: Row) -> dict[str, jax.Array]:
            norm = jnp.linalg.norm(self.predictor.design(row) @ jnp.asarray(root))
            return {REACH: clip / jnp.maximum(norm, 1e-300)}

        return derived
