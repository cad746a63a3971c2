"""The shift bound: how far apart two chains on adjacent data can be told, from a cross modulus alone.

Two chains ``X' = Φ_D(X) + ξ``, ``Y' = Φ_{D'}(Y) + ξ``, ``ξ ~ N(0, σ_k² I)``, with the same start and
``|Φ_D(x) − Φ_{D'}(y)| ≤ φ_k(|x − y|)``, ``φ_k`` increasing, in both orders of ``D, D'``. For numbers
``z_0 ≥`` the initial ``W_∞`` distance, ``0 ≤ z_k ≤ φ_k(z_{k−1})``, ``z_T = 0``, the last states are
``m``-GDP with ``m² = Σ (φ_k(z_{k−1}) − z_k)²/σ_k²``. A projection in the same metric after a step
changes nothing. Every feasible ``z`` is a proof, so proposing and checking are kept apart.

Sources: BFG Lemma 3.3 (Rényi form); Bok, Su, Altschuler 2024 (Gaussian form).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from private_mcmc.accounting.langevin.modulus_shapes import Modulus, per_step
from private_mcmc.accounting.rounding import TINY, FloatArray, product_up, up
from private_mcmc.errors import DeclarationError

Moduli = Modulus | Sequence[Modulus]

UNIT = 2.0**-53
_STEEPEST = 300.0  # no bound is looked for where one step stretches by more than e^300


def reach(moduli: Moduli, distances: FloatArray) -> FloatArray:
    """``φ_k(distances[k−1])`` for every step ``k``, rounded up."""
    if isinstance(moduli, Sequence):
        if len(moduli) != len(distances):
            raise DeclarationError(f"{len(moduli)} moduli for {len(distances)} steps.")
        return up(per_step(moduli).value(distances))
    return up(moduli.value(distances))


def noise_array(noise: float | Sequence[float] | FloatArray, steps: int) -> FloatArray:
    """The noise standard deviation of every step; raises unless all are positive and finite."""
    sds = np.broadcast_to(np.asarray(noise, dtype=np.float64), (steps,))
    if not ((sds > 0).all() and np.isfinite(sds).all()):
        raise DeclarationError("noise: every standard deviation must be positive and finite.")
    return sds


def certify(
    moduli: Moduli,
    noise: float | Sequence[float] | FloatArray,
    shifts: Sequence[float] | FloatArray,
    *,
    start: float = 0.0,
) -> float:
    """``m²`` proved by the shifts ``z_0, …, z_T``, rounded up; shifts that are not feasible are refused.

    **Guarantee**: ``X_T`` is ``m``-GDP if ``moduli`` hold and the initial ``W_∞`` distance is at most
    ``start``.
    """
    z = np.asarray(shifts, dtype=np.float64)
    if z.ndim != 1 or len(z) < 2:
        raise DeclarationError("shifts: one number before the first step and one after every step.")
    sds = noise_array(noise, len(z) - 1)
    bounds = reach(moduli, z[:-1])
    feasible = np.isfinite(z).all() and (z >= 0).all() and z[0] >= start and z[-1] == 0
    if not (feasible and (bounds >= z[1:]).all()):
        raise DeclarationError("shifts: not feasible (0 ≤ z_k ≤ φ_k(z_{k−1}), z_0 ≥ start, z_T = 0).")
    absorbed = np.where(bounds > z[1:], np.nextafter(bounds - z[1:], np.inf), 0.0)
    with np.errstate(over="ignore", under="ignore"):
        # What quotients and their squares lose below the normal numbers.
        ratios = absorbed / sds + np.where(absorbed > 0, TINY, 0.0)
        return up(math.fsum(ratios**2)) + 2 * np.count_nonzero(absorbed) * TINY


def _rate(gap: float) -> float:
    """``−log ρ`` for ``ρ = 1 − gap``."""
    return math.inf if gap == 1 else -math.log1p(-gap)


def _check_steps(steps: int) -> None:
    if not steps >= 1:
        raise DeclarationError(f"steps={steps}: at least one.")


def affine(ratio: float, gap: float, steps: int) -> float:
    """``m²`` of the last state for ``φ(z) = ρz + s``, ``ρ = 1 − gap ≤ 1``, equal starts, ``s/σ = ratio``.

    ``m² = (s/σ)² (1+ρ)/(1−ρ) (1−ρ^T)/(1+ρ^T)``, at ``ρ = 1`` ``T (s/σ)²``: the optimum of the shift bound,
    exact for quadratic potentials that differ along a least-curved eigenvector. For ``ρ > 1``, where a shift
    would be negative, the path bound ``steps·ratio²`` is what holds.

    Source: Bok, Su, Altschuler 2024 (noisy gradient descent, strongly convex losses).
    """
    _check_steps(steps)
    if not 0 <= gap <= 1:
        raise DeclarationError(
            f"gap={gap}: the closed form holds for 0 ≤ 1 − ρ ≤ 1 only; use the path bound."
        )
    if not ratio >= 0:
        raise DeclarationError(f"ratio={ratio}: must be non-negative.")
    half = _rate(gap) / 2
    growth = float(steps) if half == 0 else math.tanh(half * steps) / math.tanh(half)
    return product_up(ratio, ratio, min(up(growth), float(steps)))


def affine_from(distance: float, offset: float, gap: float, noise: float, steps: int) -> tuple[float, int]:
    """``m²`` for ``φ(z) = ρz + s`` on a set of diameter ``distance``, any ``ρ = 1 − gap ≥ 0``.

    With ``n`` steps to go the chains may be taken to be ``distance`` apart, whatever happened before: ``m² =
    (ρ^n D + s Σ_{j<n} ρ^j)² / (σ² Σ_{j<n} ρ^{2j})``, minimised over ``n ≤ steps``. ``(m², n)``; ``(inf, 0)``
    if no ``n`` has non-negative shifts (possible for ``ρ > 1`` only).

    Source: BFG Lemma 3.3; Bok, Su, Altschuler 2024 (projected noisy gradient descent).
    """
    _check_steps(steps)
    if not (distance >= 0 and offset >= 0 and noise > 0 and gap <= 1):
        raise DeclarationError("affine_from: distance, offset ≥ 0, noise > 0 and gap ≤ 1 are needed.")
    if not math.isfinite(distance):
        return math.inf, 0
    togo = np.arange(1.0, steps + 1.0)
    if gap == 1:
        return product_up(offset, offset, over=(noise, noise)), 1
    rate = _rate(gap)
    if rate < -_STEEPEST:
        return math.inf, 0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if rate == 0:
            sums, squares, kept = togo, togo, np.ones_like(togo)
        else:
            sums = np.expm1(-rate * togo) / math.expm1(-rate)
            squares = np.expm1(-2 * rate * togo) / math.expm1(-2 * rate)
            kept = np.exp(-rate * togo)
        # In units of the noise; every product below the normal numbers loses at most one smallest double.
        far, push = product_up(distance, over=(noise,)), product_up(offset, over=(noise,))
        total = (kept * far + push * sums) * (1 + 8 * UNIT * (1 + abs(rate) * togo))
        total = total + (4 * TINY if far > 0 or push > 0 else 0.0)
        values = up(total**2 / (squares * (1 - 8 * UNIT * (1 + abs(rate) * togo))))
        values = values + np.where(total > 0, 4 * TINY, 0.0)
        # The last shift is (A − s)/ρ with A = total/squares; for ρ ≤ 1 it is never negative.
        feasible = total / squares * (1 - 1e-9) >= push if gap < 0 else np.ones_like(togo, dtype=bool)
        values = np.where(feasible & np.isfinite(values), values, np.inf)
    best = int(np.argmin(values))
    return (float(values[best]), best + 1) if math.isfinite(values[best]) else (math.inf, 0)


def cyclic(ratio: float, gap: float, period: int, steps: int) -> float:
    """``m²`` of the last state when the row is used once in every ``period`` steps, worst position.

    The other steps apply one and the same ``ρ``-Lipschitz map, ``ρ = 1 − gap ≤ 1``, to both chains.
    The worst row is one used in the last step: with ``K = ⌈T/l⌉`` uses,
    ``m² = (s/σ)² [1 + ρ^{2l−2} (1−ρ²)/(1−ρ^l)² (1−ρ^{l(K−1)})/(1+ρ^{l(K−1)})]``.

    Source: Bok, Su, Altschuler 2024 (noisy cyclic gradient descent).
    """
    _check_steps(steps)
    if not period >= 1:
        raise DeclarationError(f"period={period}: at least one step.")
    if period == 1:
        return affine(ratio, gap, steps)
    if not 0 <= gap <= 1:
        raise DeclarationError(
            f"gap={gap}: the closed form holds for 0 ≤ 1 − ρ ≤ 1 only; use the path bound."
        )
    earlier = -(-steps // period) - 1
    rate = _rate(gap)
    if rate < 1e-150:  # as if nothing contracted, which is at least as much
        extra = earlier / period
    elif rate * (period - 1) > 300:
        extra = math.exp(-600.0) * 2  # ρ^{2l−2}·(1−ρ²)/(1−ρ^l)² ≤ 2e^{−600}
    else:
        pass_sum = -math.expm1(-rate * period)
        weight = math.exp(-2 * rate * (period - 1)) * (1 + 8 * UNIT * (1 + 2 * rate * period))
        extra = weight * -math.expm1(-2 * rate) / pass_sum**2 * math.tanh(rate * period * earlier / 2)
    return product_up(ratio, ratio, up(1 + extra))
