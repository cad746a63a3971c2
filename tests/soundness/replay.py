"""What a released path gives away of its noise, worked out from NumPyro's own density and nothing of ours."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.util import log_density
from scipy.stats import binomtest, chi2

Model = Callable[..., Any]


def row_gradients(model: Model, site: str, data: Mapping[str, Any], states: np.ndarray) -> tuple[Any, Any]:
    """``∇K`` and every row's ``∇v`` at states ``(m, p)`` of one real site: ``(m, p)`` and ``(m, n, p)``.

    A row's own term is what its copy adds to a data set of one row.
    """
    shape = () if states.shape[-1] == 1 else (states.shape[-1],)
    n = len(next(iter(data.values())))

    def potential(theta: jax.Array, rows: Mapping[str, Any]) -> jax.Array:
        return -log_density(model, (), rows, {site: theta.reshape(shape)})[0]

    with jax.enable_x64(True):
        columns = {name: jnp.asarray(column) for name, column in data.items()}

        def of_row(theta: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
            one = {name: jnp.stack([column[i]]) for name, column in columns.items()}
            two = {name: jnp.stack([column[i]] * 2) for name, column in columns.items()}
            once, twice = jax.grad(potential)(theta, one), jax.grad(potential)(theta, two)
            return 2 * once - twice, twice - once

        of_all = jax.jit(jax.vmap(jax.vmap(of_row, (None, 0)), (0, None)))
        prior, each = of_all(jnp.asarray(states), jnp.arange(n))
    return np.asarray(prior)[:, 0], np.asarray(each).copy()


def implied_noise(
    model: Model,
    site: str,
    data: Mapping[str, Any],
    paths: np.ndarray,
    *,
    start: np.ndarray | None = None,
    step_size: float,
    clip: float,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """``(x_{k+1} − x_k + γ(∇K + Σ_i w_ki clip_C ∇v_i))/√(2γ)`` of paths ``(chains, steps, p)``.

    Standard normals if the path is what it claims to be. ``weights`` ``(steps, n)``: rows' factors.
    """
    chains, steps, dim = paths.shape
    first = np.zeros(dim) if start is None else start
    before = np.concatenate([np.broadcast_to(first, (chains, 1, dim)), paths[:, :-1]], axis=1)
    prior, rows = row_gradients(model, site, data, before.reshape(-1, dim))
    rows *= np.minimum(1.0, clip / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-300))
    factor = np.ones((steps, rows.shape[1])) if weights is None else weights
    total = np.einsum("cknp,kn->ckp", rows.reshape(chains, steps, -1, dim), factor)
    drift = prior.reshape(paths.shape) + total
    return (paths - before + step_size * drift) / np.sqrt(2 * step_size)


def not_standard(noise: np.ndarray, failure: float) -> list[str]:
    """What speaks against independent standard normals ``(chains, steps, p)``; of true ones anything does
    with probability at most ``failure``, except that two vectors are nearly equal (see ``repeated``)."""
    chains, steps, _ = noise.shape
    sums = {
        "variance of a step": noise,
        "sums over steps": noise.sum(axis=1) / np.sqrt(steps),
        "sums over chains": noise.sum(axis=0) / np.sqrt(chains),
        "differences of neighbouring steps": (noise[:, 1::2] - noise[:, : steps // 2 * 2 : 2]) / np.sqrt(2),
    }
    found = []
    for name, values in sums.items():
        square, count = float(np.sum(values**2)), values.size
        share = failure / (2 * len(sums))
        if not chi2.ppf(share, count) <= square <= chi2.isf(share, count):
            found.append(f"{name}: mean square {square / count:.4g} of {count} implied normals")
    return found


def repeated(vectors: np.ndarray, distance: float = 1e-6) -> list[str]:
    """Pairs of nearly equal vectors ``(m, p)``, ``p ≥ 2``: of ``m`` normals there are some with probability
    at most ``m² r²/8`` in two dimensions (density of a difference at most ``1/4π``)."""
    order = vectors[np.argsort(vectors[:, 0])]
    near = 0
    for lag in range(1, 9):
        near += int(np.sum(np.linalg.norm(order[lag:] - order[:-lag], axis=-1) < distance))
    return [f"{near} pairs of equal noise vectors"] if near else []


def not_drawn_anew(members: np.ndarray, rate: float, failure: float) -> list[str]:
    """Against one row that is in or out, ``(chains, steps)``, independently with probability ``rate``."""
    tests = {"rate": (int(members.sum()), members.size, rate)}
    for lag in (1, 2, 3, 4, 8):
        blocks = members[:, : members.shape[1] // (2 * lag) * 2 * lag].reshape(len(members), -1, 2, lag)
        changes = blocks[:, :, 0] != blocks[:, :, 1]
        tests[f"changes after {lag} steps"] = int(changes.sum()), changes.size, 2 * rate * (1 - rate)
    return [
        f"batch membership, {name}: {count} of {number}"
        for name, (count, number, chance) in tests.items()
        if binomtest(count, number, chance).pvalue < failure / len(tests)
    ]
