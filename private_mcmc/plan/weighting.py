"""Bounding a row's influence without bias, where its outcome takes a few values.

Clipping a slope ``ψ'(η, y)`` at ``c`` makes its expectation under the model differ from zero, and the
posterior's mode drifts by many posterior sds when rows are many. A factor ``min(1, c/max_y|ψ'(η, y)|)``
bounds it too, and does not depend on the outcome: at the true parameter the expectation stays zero
(conditionally unbiased bounded influence: Künsch, Stefanski, Carroll 1989).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.modeling import Predictor, RowModel

Row: TypeAlias = Mapping[str, Any]

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

    @property
    def unbiased(self) -> bool:
        """Whether weights can be used: the outcome takes a few values."""
        return len(self._values) <= _FEW

    @property
    def symmetric(self) -> bool:
        """Whether outcomes are continuous: their residuals are taken for symmetric, and clipped."""
        return bool(np.issubdtype(self._values.dtype, np.floating))

    @property
    def _values(self) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = next(iter(self.outcomes.values()))
        return values

    def steepest(self, eta: jax.Array, row: Row) -> jax.Array:
        """``max_y |ψ'(η, y)|`` over the possible outcomes, or the row's own ``|ψ'|``."""
        slope = jax.grad(self.predictor.loss)
        if not self.unbiased:
            return jnp.abs(slope(eta, row))
        choices = {name: jnp.asarray(values) for name, values in self.outcomes.items()}
        return jnp.max(jnp.abs(jax.vmap(lambda choice: slope(eta, {**row, **choice}))(choices)))

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
