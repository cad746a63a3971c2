"""The non-private posterior, by importance sampling around its mode: curator-side only.

The proposal is a multivariate t at the mode with the Laplace covariance. Its effective sample size is
stored with the result; a poor one is an error, not a footnote.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro import handlers

from benchmarks.datasets import Dataset

Array = npt.NDArray[np.float64]

_PROPOSALS = 6_000
_KEPT = 2_000
_FREEDOM = 10.0
_NEWTON_STEPS = 100
_LEAST_SHARE = 0.2
# Rows times draws evaluated at once.
_MOST_AT_ONCE = 4_000_000


@dataclass(frozen=True, eq=False)
class Reference:
    """Moments and draws of a posterior.

    Attributes:
        mean: shape ``(p,)``.
        covariance: shape ``(p, p)``.
        draws: equally weighted draws, shape ``(k, p)``.
        mode: shape ``(p,)``.
        laplace: covariance of the Laplace approximation at the mode, shape ``(p, p)``.
        ess: effective number of draws behind the moments.
    """

    mean: Array
    covariance: Array
    draws: Array
    mode: Array
    laplace: Array
    ess: float

    @property
    def sd(self) -> Array:
        """Posterior standard deviations."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))


def reference(dataset: Dataset, temper: float = 1.0, cache: Path | None = None) -> Reference:
    """The posterior with the likelihood to the power ``temper``, read from ``cache`` where it is there.

    Raises:
        ArithmeticError: if the effective sample size is below a fifth of the proposals.
    """
    file = None if cache is None else cache / f"{dataset.name}-{temper:g}-{_PROPOSALS}.npz"
    if file is not None and file.exists():
        with np.load(file) as stored:
            return Reference(**{name: stored[name] for name in stored.files})
    with jax.enable_x64(True):
        result = _importance_sample(dataset, temper)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, **vars(result))
    return result


def _log_density(
    dataset: Dataset, temper: float, w: jax.Array, X: jax.Array, y: jax.Array, counts: jax.Array
) -> jax.Array:
    model = handlers.substitute(handlers.seed(dataset.regression.model, 0), data={"w": w})
    sites = handlers.trace(model).get_trace(X=X, y=y)
    prior, likelihood = (sites[name]["fn"].log_prob(sites[name]["value"]) for name in ("w", "y"))
    return prior + temper * jnp.sum(counts * likelihood)


def _importance_sample(dataset: Dataset, temper: float) -> Reference:
    rows = tuple(map(jnp.asarray, dataset.distinct))
    log_density = partial(_log_density, dataset, temper)
    mode = _mode(log_density, rows, dataset.dim)
    laplace = np.linalg.inv(-np.asarray(jax.jit(jax.hessian(log_density))(mode, *rows)))
    laplace = (laplace + laplace.T) / 2
    generator = np.random.default_rng(0)
    normal = generator.standard_normal((_PROPOSALS, dataset.dim))
    stretch = np.sqrt(_FREEDOM / generator.chisquare(_FREEDOM, _PROPOSALS))[:, None]
    standard = normal * stretch
    proposals = np.asarray(mode) + standard @ np.linalg.cholesky(laplace).T
    log_proposal = -(_FREEDOM + dataset.dim) / 2 * np.log1p(np.sum(standard**2, axis=1) / _FREEDOM)
    evaluate = jax.jit(
        lambda points, *rows: jax.lax.map(
            lambda w: log_density(w, *rows), points, batch_size=max(_MOST_AT_ONCE // len(rows[0]), 1)
        )
    )
    log_weights = np.asarray(evaluate(jnp.asarray(proposals), *rows)) - log_proposal
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    ess = float(1.0 / np.sum(weights**2))
    if not ess >= _LEAST_SHARE * _PROPOSALS:
        raise ArithmeticError(f"{dataset.name}: importance sampling kept {ess:.0f} of {_PROPOSALS} draws.")
    mean = weights @ proposals
    centred = proposals - mean
    at = (np.arange(_KEPT) + generator.uniform()) / _KEPT
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), at), _PROPOSALS - 1)
    return Reference(
        mean=mean,
        covariance=(weights[:, None] * centred).T @ centred,
        draws=generator.permutation(proposals[chosen]),
        mode=np.asarray(mode),
        laplace=laplace,
        ess=ess,
    )


def _mode(log_density: Any, rows: tuple[jax.Array, ...], dim: int) -> jax.Array:
    """Newton's method with halved steps: the log densities here are strictly concave."""
    value = jax.jit(log_density)
    slope_of, curvature_of = jax.jit(jax.grad(log_density)), jax.jit(jax.hessian(log_density))
    w = jnp.zeros(dim)
    for _ in range(_NEWTON_STEPS):
        slope = slope_of(w, *rows)
        move = jnp.linalg.solve(-curvature_of(w, *rows), slope)
        if float(slope @ move) < 1e-12:
            return w
        size = 1.0
        while not value(w + size * move, *rows) >= value(w, *rows) and size > 1e-12:
            size /= 2
        w = w + size * move
    raise ArithmeticError("Newton's method did not settle.")
