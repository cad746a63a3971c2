"""The shift bound for affine moduli ``φ_k(z) = ρ_k z + s_k``, in closed form.

With ``z_k = φ_k(z_{k−1}) − a_k ≥ 0`` and ``z_T = 0`` the last state is GDP with ``m² = Σ a_k²/σ_k²``
(shifted interpolation: Bok, Su, Altschuler 2024; Rényi form: Bravo, Flores-Mella, Guzmán, Lemma 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from private_mcmc.errors import DeclarationError

_ROUND_UP = 1 + 1e-14


def last_state(rho: float, shift: float, variance: float, steps: int, start: float = 0.0) -> float:
    """``m²`` of the state after ``steps`` steps with modulus ``ρz + s`` and noise ``σ²`` each.

    ``(s/σ)² (1+ρ)/(1−ρ) (1−ρ^T)/(1+ρ^T)`` for ``start = 0`` and ``ρ < 1``; ``T (s/σ)²`` for ``ρ ≥ 1``,
    where no contraction helps. With ``start > 0`` (two states at most that far apart) ``ρ ≤ 1`` is
    needed and the numerator carries ``ρ^T·start``.

    Raises:
        DeclarationError: for negative or NaN arguments, or ``start > 0`` with ``ρ > 1``.
    """
    if not rho >= 0:
        raise DeclarationError(f"rho={rho}: a Lipschitz constant is a number ≥ 0.")
    return last_state_by_gap(1 - rho, shift, variance, steps, start)


def last_state_by_gap(gap: float, shift: float, variance: float, steps: int, start: float = 0.0) -> float:
    """``last_state`` for ``ρ = 1 − gap``: a small ``gap = γμ`` keeps all its digits."""
    if not (gap <= 1 and shift >= 0 and variance > 0 and start >= 0 and steps >= 0):
        raise DeclarationError(
            f"rho={1 - gap}, shift={shift}, variance={variance}, start={start}, steps={steps}: "
            "need rho, shift, start, steps ≥ 0 and variance > 0."
        )
    if steps == 0:
        return 0.0 if start == 0 else math.inf
    if start == 0 and gap <= 0:
        return steps * shift**2 / variance * _ROUND_UP
    if not gap >= 0:
        raise DeclarationError(
            f"rho={1 - gap}: a start at positive distance needs rho ≤ 1 in the closed form."
        )
    power, total, squares = _geometric(gap, steps)
    travelled = power * start + shift * total
    return travelled**2 / (variance * squares) * _ROUND_UP


def _geometric(gap: float, steps: int) -> tuple[float, float, float]:
    """``ρ^T``, ``Σ_{j<T} ρ^j`` and ``Σ_{j<T} ρ^{2j}`` for ``ρ = 1 − gap``."""
    if gap == 0:
        return 1.0, float(steps), float(steps)
    if gap == 1:
        return 0.0, 1.0, 1.0
    exponent = steps * math.log1p(-gap)
    return math.exp(exponent), -math.expm1(exponent) / gap, -math.expm1(2 * exponent) / (gap * (2 - gap))


def varying(
    rhos: Sequence[float], shifts: Sequence[float], variances: Sequence[float], start: float = 0.0
) -> float:
    """``m²`` of the last state for coefficients that vary with the step; never above the path bound.

    The unconstrained optimum takes ``a_k ∝ σ_k² Π_{j>k} ρ_j``; it is used only if every ``z_k ≥ 0``.
    Otherwise the valid choice ``a_k = s_k`` (the path bound, for ``start = 0``) is returned.
    """
    rho, shift, variance = (np.asarray(item, dtype=np.float64) for item in (rhos, shifts, variances))
    if not (np.all(rho >= 0) and np.all(shift >= 0) and np.all(variance > 0) and start >= 0):
        raise DeclarationError("rho, shift and start must be ≥ 0 and every variance positive.")
    path = float(np.sum(shift**2 / variance)) if start == 0 else math.inf
    weights = np.concatenate([np.cumprod(rho[:0:-1])[::-1], [1.0]])
    squares = float(np.sum(weights**2 * variance))
    travelled = float(weights[0] * rho[0] * start + np.sum(weights * shift))
    if not (math.isfinite(squares) and math.isfinite(travelled)):
        return path
    best = travelled**2 / squares
    moves = travelled / squares * weights * variance
    if best < path and feasible(rho, shift, moves, start):
        return best * (1 + 1e-12)
    return path * (1 + 1e-12)


def feasible(
    rhos: Sequence[float] | np.ndarray,
    shifts: Sequence[float] | np.ndarray,
    moves: Sequence[float] | np.ndarray,
    start: float,
) -> bool:
    """Whether the moves ``a_k ≥ 0`` keep every ``z_k ≥ 0`` up to rounding and end at ``z_T = 0``."""
    distance, slack = start, 0.0
    for rho, shift, move in zip(rhos, shifts, moves, strict=True):
        reach = rho * distance + shift
        slack = 1e-13 * max(reach, move)
        distance = reach - move
        if not (move >= 0 and distance >= -slack):
            return False
        distance = max(distance, 0.0)
    return bool(distance <= 1e-9 * (1 + slack * 1e13))


def with_diameter(gap: float, shift: float, variance: float, steps: int, diameter: float) -> float:
    """``m²`` of the last state of a chain projected on a set of that diameter: the best start ``τ``.

    The argument may begin at any earlier state, from ``z_τ = diameter``; ``ρ = 1 − gap ≤ 1`` is needed there.
    """
    best = last_state_by_gap(gap, shift, variance, steps)
    if not (math.isfinite(diameter) and gap >= 0):
        return best
    counts = np.arange(1, steps + 1, dtype=np.float64)
    if gap == 0:
        values = (diameter + shift * counts) ** 2 / (variance * counts)
    elif gap == 1:
        values = np.full(1, shift**2 / variance)
    else:
        exponents = counts * math.log1p(-gap)
        travelled = np.exp(exponents) * diameter - shift * np.expm1(exponents) / gap
        values = travelled**2 * gap * (2 - gap) / (variance * -np.expm1(2 * exponents))
    count = int(np.argmin(values)) + 1
    return min(best, last_state_by_gap(gap, shift, variance, count, start=diameter))
