"""Predicting the error of a run on made-up rows: post-processing of public facts and released moments.

A pilot draws rows with the given second moments, a parameter from the prior, outcomes from the model,
and follows the noiseless clipped flow ``du/dt = −∇U(u)`` from the start. What the flow misses after the
time the budget buys is burn-in and clipping bias; the Monte Carlo error of the path's average is that of
the Ornstein-Uhlenbeck process at the mode, ``Var = 2 H^{-2}/t``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Loss = Callable[[jax.Array, Mapping[str, jax.Array]], jax.Array]
Array = npt.NDArray[np.float64]

PILOT_ROWS = 2048
PILOT_DRAWS = 4
BURN_IN_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_FLOW_STEPS = 1024
_NEWTON_STEPS = 60


class Prediction(NamedTuple):
    """Predicted error of the posterior mean in posterior standard deviations, and what it is made of."""

    rms: float
    burn_in_share: float
    bias: float
    monte_carlo: float


@dataclass(frozen=True, eq=False)
class Pilot:
    """Made-up data sets in whitened coordinates, one for each prior draw.

    Attributes:
        design: whitened designs, shape ``(draws, rows, p)``.
        columns: the other columns of the rows, leading axes ``(draws, rows)``.
        precision: the prior's precision matrix in whitened coordinates, shape ``(p, p)``.
        root: ``A`` with ``θ = Au``, shape ``(p, p)``.
        typical: root mean square norm of a row's gradient at the drawn parameters.
        weight: real rows per pilot row.
        loss: ``ψ(η, row)``.
    """

    design: Array
    columns: Mapping[str, Array]
    precision: Array
    root: Array
    typical: float
    weight: float
    loss: Loss

    def predict(self, clip: float, time: float, temper: float = 1.0) -> Prediction:
        """Error of the average over a path of Langevin time ``time``, the best burn-in share included."""
        with jax.enable_x64(True):
            bias, monte_carlo = self._errors(clip, time, temper)
        total = np.mean(bias**2 + monte_carlo**2, axis=0)
        best = int(np.argmin(total))
        return Prediction(
            rms=float(np.sqrt(total[best])),
            burn_in_share=BURN_IN_SHARES[best],
            bias=float(np.sqrt(np.mean(bias[:, best] ** 2))),
            monte_carlo=float(np.sqrt(np.mean(monte_carlo[:, best] ** 2))),
        )

    def _errors(self, clip: float, time: float, temper: float) -> tuple[Array, Array]:
        # The flow is at rest long before the step reaches 2, the stability limit of curvatures up to 1.
        step = min(time / _FLOW_STEPS, 1.0)
        shared = (None,) * 7
        errors = jax.vmap(partial(_errors_of_one, self.loss), in_axes=(0, 0, *shared))
        bias, monte_carlo = errors(
            jnp.asarray(self.design),
            {name: jnp.asarray(value) for name, value in self.columns.items()},
            jnp.asarray(self.precision),
            jnp.asarray(self.root),
            self.weight * temper,
            clip,
            step,
            time,
            jnp.asarray(BURN_IN_SHARES),
        )
        return np.asarray(bias), np.asarray(monte_carlo)


@partial(jax.jit, static_argnums=0)
def _errors_of_one(
    loss: Loss,
    design: jax.Array,
    columns: Mapping[str, jax.Array],
    precision: jax.Array,
    root: jax.Array,
    weight: jax.Array,
    clip: jax.Array,
    step: jax.Array,
    time: jax.Array,
    shares: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    slope = jax.vmap(jax.grad(loss))
    curvature = jax.vmap(jax.grad(jax.grad(loss)))
    cap = clip / jnp.maximum(jnp.linalg.norm(design, axis=1), 1e-300)

    def gradient(u: jax.Array, bound: jax.Array | float) -> jax.Array:
        return precision @ u + weight * jnp.clip(slope(design @ u, columns), -bound, bound) @ design

    def hessian(u: jax.Array) -> jax.Array:
        return precision + weight * (design.T * jnp.maximum(curvature(design @ u, columns), 0.0)) @ design

    def newton(u: jax.Array, _: None) -> tuple[jax.Array, None]:
        move = jnp.linalg.solve(hessian(u), gradient(u, jnp.inf))
        longest = jnp.sqrt(jnp.mean((design @ move) ** 2))
        return u - move * jnp.minimum(1.0, 1.0 / jnp.maximum(longest, 1e-300)), None

    def flow(u: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        u = u - step * gradient(u, cap)
        return u, u

    start = jnp.zeros(design.shape[1])
    mode = jax.lax.scan(newton, start, None, length=_NEWTON_STEPS)[0]
    path = jax.lax.scan(flow, start, None, length=_FLOW_STEPS)[1]
    covariance = jnp.linalg.inv(hessian(mode))
    scale = jnp.sqrt(jnp.diag(root @ covariance @ root.T))
    integral = jnp.concatenate([jnp.zeros((1, path.shape[1])), jnp.cumsum(path, axis=0)]) * step

    def mean_from(share: jax.Array) -> jax.Array:
        covered = step * _FLOW_STEPS
        begin = jnp.minimum(share * time, covered)
        at_begin = integral[jnp.round(begin / step).astype(int)]
        rest = (time - covered) * path[-1]
        return (integral[-1] - at_begin + rest) / (time - begin)

    def bias_of(share: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.mean((root @ (mean_from(share) - mode) / scale) ** 2))

    spread = jnp.diag(root @ covariance @ covariance @ root.T) / scale**2
    monte_carlo = jnp.sqrt(2.0 * jnp.mean(spread) / (time * (1.0 - shares)))
    return jax.vmap(bias_of)(shares), monte_carlo


def make_pilot(
    moments: Array,
    noise_sd: float,
    num_rows: int,
    radius: float,
    precision: Array,
    root: Array,
    loss: Loss,
    outcomes: Mapping[str, Array],
    effect: float,
    key: jax.Array,
) -> Pilot:
    """Draw pilot data sets with second moments near ``moments`` (``XᵀX`` of ``num_rows`` rows).

    ``moments`` carries noise of sd ``noise_sd``; each data set's own moments differ from it by as much, so
    that the pilot feels a preconditioner made from noisy moments. Rows keep to ``‖x‖ ≤ radius``.
    ``outcomes`` lists possible values of the columns the loss needs, each of shape ``(k,)``; a row's
    outcome is drawn with probabilities proportional to ``exp(−ψ(η, outcome))``. Predictors have root
    mean square ``effect``.
    """
    count = min(PILOT_ROWS, num_rows)
    with jax.enable_x64(True):
        keys = jax.random.split(key, PILOT_DRAWS)
        second, noise = jnp.asarray(moments / num_rows), noise_sd / num_rows
        draw = partial(
            _draw_data, loss, second, noise, count, radius, jnp.asarray(precision), outcomes, effect
        )
        design, columns, slope = jax.vmap(draw)(keys)
        whitened_precision = root.T @ precision @ root
        design = design @ root
        return Pilot(
            design=np.asarray(design),
            columns={name: np.asarray(value) for name, value in columns.items()},
            precision=whitened_precision,
            root=root,
            typical=float(jnp.sqrt(jnp.mean(slope**2 * jnp.sum(design**2, axis=-1)))),
            weight=num_rows / count,
            loss=loss,
        )


def _draw_data(
    loss: Loss,
    second_moment: jax.Array,
    noise_sd: float,
    count: int,
    radius: float,
    precision: jax.Array,
    outcomes: Mapping[str, Any],
    effect: float,
    key: jax.Array,
) -> tuple[jax.Array, dict[str, jax.Array], jax.Array]:
    """Designs, other columns, and the slope of every row's loss at the drawn parameter."""
    noise_key, rows_key, parameter_key, outcome_key = jax.random.split(key, 4)
    p = second_moment.shape[0]
    noise = jax.random.normal(noise_key, (p, p)) * noise_sd / jnp.sqrt(2.0)
    values, vectors = jnp.linalg.eigh(second_moment + (noise + noise.T) / jnp.sqrt(2.0))
    # Like real covariates: one nearly constant direction (the largest) and skewed ones.
    scores = (jax.random.exponential(rows_key, (count, p)) - 1.0).at[:, -1].set(1.0)
    design = scores @ (vectors * jnp.sqrt(jnp.maximum(values, 0.0))).T
    norm = jnp.linalg.norm(design, axis=1, keepdims=True)
    design = design * jnp.minimum(1.0, radius / jnp.maximum(norm, 1e-300))
    theta = jnp.linalg.solve(jnp.linalg.cholesky(precision).T, jax.random.normal(parameter_key, (p,)))
    eta = design @ theta
    eta = eta * effect / jnp.sqrt(jnp.mean(eta**2))
    choices = {name: jnp.asarray(value) for name, value in outcomes.items()}
    log_weight = -jax.vmap(lambda e: jax.vmap(lambda row: loss(e, row))(choices))(eta)
    chosen = jax.random.categorical(outcome_key, log_weight, axis=-1)
    columns = {name: value[chosen] for name, value in choices.items()}
    return design, columns, jax.vmap(jax.grad(loss))(eta, columns)
