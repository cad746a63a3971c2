"""Least squares of linearised residuals, and how much there is of each synthetic row given the releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
# Weights are positive, as two sds of this leave them.
LARGEST_SD = 0.5


def conditioned(
    weights: Array, moving: Array, seen: Sequence[Array], released: Sequence[Array], total_sd: float = 0.0
) -> tuple[Array, Array]:
    """Weights ``∝ w exp(φe)`` at the most likely ``e ~ N(0, I)``, and deviations of what is left of ``e``.

    They stay positive however far releases pull them; deviations are those of small changes from there. Where
    nothing was released they are bounded: of some that releases tell, bounded ones would be too small.

    Args:
        weights: ``w``, ``(rows,)``.
        moving: ``φ``, ``(rows, functions)``.
        seen: what one person of every row adds to each release, over its noise's sd, ``(rows, entries)``.
        released: over its noise's sd, ``(entries,)``.
        total_sd: of the logarithm of the sum of all weights before anything was released; 0 where it is
            public.
    """
    if not seen:
        return weights, _positive(weights, _centred(weights, moving, total_sd))
    adds, found = np.concatenate(seen, axis=1), np.concatenate(released)
    first = weights

    def of(effects: Array) -> Array:
        logs = moving @ effects[:-1]
        made = first * np.exp(logs - logs.max())
        return np.asarray(made * (first.sum() * np.exp(total_sd * effects[-1]) / made.sum()))

    def linearised(effects: Array) -> tuple[Array, Array]:
        made = of(effects)
        sides = (made[:, None] * _centred(made, moving, total_sd)).T @ adds
        off = np.concatenate([effects, made @ adds - found])
        return off, np.vstack([np.eye(len(effects)), sides.T])

    best, _ = least_squares(linearised, np.zeros(moving.shape[1] + 1))
    weights = first if best is None else of(best)
    centred, factor = _factored(weights, moving, adds, total_sd)
    return weights, np.asarray(np.linalg.solve(factor, centred.T).T)


def _positive(weights: Array, deviations: Array) -> Array:
    """Deviations that leave every weight positive: those of a row have :data:`LARGEST_SD` together, or less.

    Weights are linear in Normal numbers. Where these can be many sds of a weight, people of positive and of
    negative weight cancel, whatever the parameter is, and far parameters are as likely as near ones. What
    all weights have in common is how many people there are, and stays.
    """
    shares = weights / weights.sum()
    common = shares @ deviations
    apart = deviations - common
    sds = np.linalg.norm(apart, axis=1, keepdims=True)
    bounded = apart * np.minimum(1.0, LARGEST_SD / np.maximum(sds, 1e-300))
    return np.asarray(bounded - shares @ bounded + common)


def _centred(weights: Array, moving: Array, total_sd: float) -> Array:
    """``φ`` less its mean, which moves no total, and what moves all weights alike."""
    everyone = np.full(len(weights), total_sd)
    return np.column_stack([moving - weights @ moving / weights.sum(), everyone])


def _factored(weights: Array, moving: Array, adds: Array, total_sd: float) -> tuple[Array, Array]:
    """These functions, and a factor of the precision of ``e``."""
    centred = _centred(weights, moving, total_sd)
    jacobian = (weights[:, None] * centred).T @ adds
    return centred, np.asarray(np.linalg.cholesky(np.eye(len(jacobian)) + jacobian @ jacobian.T))


_FITTING_STEPS, _SETTLED = 40, 1e-3


def least_squares(
    linearised: Callable[[Array], tuple[Array, Array]], start: Array
) -> tuple[Array, Array] | tuple[None, None]:
    """Levenberg's and Marquardt's method: the minimum and the Jacobian there; ``None`` where they fail."""
    at, damping = start, 0.01
    residuals, jacobian = linearised(at)
    if not (np.all(np.isfinite(residuals)) and np.all(np.isfinite(jacobian))):
        return None, None
    for _ in range(_FITTING_STEPS):
        normal = jacobian.T @ jacobian
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), jacobian.T @ residuals)
        tried, other = linearised(at - step)
        before, after = float(residuals @ residuals), float(tried @ tried)
        if not (np.all(np.isfinite(tried)) and np.all(np.isfinite(other)) and after < before):
            damping = min(8 * damping, 1e6)
            continue
        at, residuals, jacobian = at - step, tried, other
        damping = max(damping / 4, 1e-8)
        if before - after < _SETTLED * max(after, 1.0):
            break
    return at, jacobian
