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
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from private_mcmc.accounting.langevin.moduli import (
    Affine,
    Minimum,
    Moduli,
    Modulus,
    Point,
    per_step,
    undominated,
)
from private_mcmc.accounting.langevin.shift_optimiser import affine_shifts, noise_array, optimise
from private_mcmc.accounting.rounding import TINY, FloatArray, product_up, root_up, up
from private_mcmc.errors import DeclarationError

UNIT = 2.0**-53
_STEEPEST = 300.0  # no bound is looked for where one step stretches by more than e^300


def reach(moduli: Moduli, distances: FloatArray) -> FloatArray:
    """``φ_k(distances[k−1])`` for every step ``k``, rounded up."""
    if isinstance(moduli, Sequence):
        if len(moduli) != len(distances):
            raise DeclarationError(f"{len(moduli)} moduli for {len(distances)} steps.")
        return up(per_step(moduli).value(distances))
    return up(moduli.value(distances))


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
    if not math.isfinite(distance):
        return math.inf, 0
    togo = np.arange(1.0, steps + 1.0) if gap < 1 else np.ones(1)
    values = _absorbed(distance, offset, gap, noise, togo)
    best = int(np.argmin(values))
    return (float(values[best]), best + 1) if math.isfinite(values[best]) else (math.inf, 0)


def affine_after(distance: float, offset: float, gap: float, noise: float, steps: int) -> float:
    """The same with exactly so many steps to go from chains that are ``distance`` apart."""
    _check_steps(steps)
    return float(_absorbed(distance, offset, gap, noise, np.array([float(steps)]))[0])


def _absorbed(distance: float, offset: float, gap: float, noise: float, togo: FloatArray) -> FloatArray:
    """``(ρ^n D + s Σ_{j<n} ρ^j)²/(σ² Σ_{j<n} ρ^{2j})`` for every ``n``; ``inf`` where a shift is negative."""
    if not (distance >= 0 and offset >= 0 and noise > 0 and gap <= 1):
        raise DeclarationError("affine_from: distance, offset ≥ 0, noise > 0 and gap ≤ 1 are needed.")
    if gap == 1:
        return np.full(togo.shape, product_up(offset, offset, over=(noise, noise)))
    rate = _rate(gap)
    if rate < -_STEEPEST:
        return np.full(togo.shape, np.inf)
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
    return np.where(feasible & np.isfinite(values), values, np.inf)


_LONGEST = 20_000  # steps optimised numerically
_COMPARABLE = 1e100  # slopes of what is compared by squares
_TAIL = 2_000  # a shorter end is searched more thoroughly


@dataclass(frozen=True)
class ShiftBound:
    """``X_T`` is ``m``-GDP with ``m² = m_squared``.

    Attributes:
        m_squared: the bound, rounded up.
        shifts: ``z_τ, …, z_T`` where the bound is a numerical certificate, else ``None``.
        first: ``τ``, the step after which the argument starts (0 without a restart).
        from_diameter: whether it starts from chains as far apart as the set is wide.
    """

    m_squared: float
    shifts: tuple[float, ...] | None = None
    first: int = 0
    from_diameter: bool = False

    @property
    def m(self) -> float:
        """The GDP parameter."""
        return root_up(self.m_squared)


def path(moduli: Moduli, noise: float | Sequence[float] | FloatArray, steps: int) -> ShiftBound:
    """All states released: ``m² = Σ φ_k(0)²/σ_k²``; no curvature is used.

    Source: BJRD Theorem 5.4 (the same number).
    """
    return ShiftBound(certify(moduli, noise, np.zeros(steps + 1)))


def last_state(
    moduli: Moduli, noise: float | Sequence[float] | FloatArray, steps: int, *, diameter: float = math.inf
) -> ShiftBound:
    """The least bound on the last state of ``steps`` steps from equal data-free starts.

    ``diameter`` is that of the set projected on after every step, in the noise metric; the argument may then
    start at any step from chains that far apart.
    """
    if not (steps >= 1 and diameter > 0):
        raise DeclarationError(f"steps={steps}, diameter={diameter}: at least 1 and positive.")
    sds = noise_array(noise, steps)
    candidates = [path(moduli, sds, steps)]
    if isinstance(moduli, Sequence):
        candidates += _varying(moduli, sds, diameter)
    elif bool((sds == sds[0]).all()):
        candidates += _constant(moduli, float(sds[0]), steps, diameter)
    else:
        candidates += _varying([moduli] * steps, sds, diameter)
    return min(candidates, key=lambda bound: bound.m_squared)


def _constant(phi: Modulus, noise: float, steps: int, diameter: float) -> list[ShiftBound]:
    if isinstance(phi, Minimum):
        lines = undominated(phi.parts)
        parts = tuple(part for part in lines if not isinstance(part, Point)) or lines
        if len(parts) > 1:
            single = [bound for part in parts for bound in _constant(part, noise, steps, diameter)]
            if _pointless(parts, noise, steps) and not math.isfinite(diameter):
                return single
            return single + _numerical(Minimum(parts), noise, steps, diameter)
        phi = parts[0]
    if isinstance(phi, Point):
        return []
    if isinstance(phi, Affine):
        return _affine(phi, noise, steps, diameter)
    return _numerical(phi, noise, steps, diameter)


def _affine(phi: Affine, noise: float, steps: int, diameter: float) -> list[ShiftBound]:
    gap, offset = float(phi.gap), float(phi.offset)
    found = []
    if gap >= 0:
        ratio = product_up(offset, over=(noise,))
        found.append(ShiftBound(affine(ratio, gap, steps)))
    value, togo = affine_from(diameter, offset, gap, noise, steps)
    if math.isfinite(value):
        found.append(ShiftBound(value, first=steps - togo, from_diameter=True))
    return found


def _pointless(parts: tuple[Modulus, ...], noise: float, steps: int) -> bool:
    """Whether no certificate mixing an expanding line with one far above it can beat the path.

    It would have to climb to where the lines cross, and coming down again costs at least ``N²/W`` for
    some number of steps on the lower line; below the crossing the path is optimal.
    """
    if len(parts) != 2 or not all(isinstance(part, Affine) for part in parts):
        return False
    low, high = sorted((part for part in parts if isinstance(part, Affine)), key=lambda part: part.offset)
    rho, offset = float(low.slope), float(low.offset)
    if not 1 < rho < _COMPARABLE or not high.offset < _COMPARABLE:
        return False
    crossing = (float(high.offset) - offset) / (float(high.gap) - float(low.gap))
    left = rho ** -np.arange(1.0, min(steps, 100_000) + 1)
    descent = (crossing + offset * (1 - left) / (rho - 1)) ** 2 * (rho * rho - 1) / (1 - left * left)
    return bool(steps * offset**2 <= float(np.min(descent)))


def _numerical(moduli: Moduli, noise: float | FloatArray, steps: int, diameter: float) -> list[ShiftBound]:
    sds = noise_array(noise, steps)
    found = []
    if steps <= _LONGEST:
        found += _certified(moduli, sds, 0, 0.0)
    start = _invariant(moduli) if steps > _TAIL else math.inf
    if math.isfinite(start):  # what happened before the tail is covered by a distance never exceeded
        for tail in (_TAIL, _LONGEST):
            if tail < steps:
                found += _certified(moduli, sds, steps - tail, start)
    if math.isfinite(diameter):

        def cost(togo: int) -> float:
            bounds = _certified(moduli, sds, steps - togo, diameter, work=60_000)
            return bounds[0].m_squared if bounds else math.inf

        togo = _least(cost, min(steps, _LONGEST))
        found += _certified(moduli, sds, steps - togo, diameter, from_diameter=True)
    return found


def _certified(
    moduli: Moduli,
    sds: FloatArray,
    first: int,
    start: float,
    *,
    work: int = 600_000,
    from_diameter: bool = False,
) -> list[ShiftBound]:
    tail: Moduli = list(moduli[first:]) if isinstance(moduli, Sequence) else moduli
    z = optimise(tail, sds[first:], len(sds) - first, start=start, work=work)
    if z is None:
        return []
    value = certify(tail, sds[first:], z, start=start)
    return [ShiftBound(value, tuple(z.tolist()), first, from_diameter)]


def _invariant(moduli: Moduli) -> float:
    """A distance that equal starts never exceed: ``φ_k(ℓ) ≤ ℓ`` for every step."""
    phi = per_step(moduli) if isinstance(moduli, Sequence) else moduli
    size = len(moduli) if isinstance(moduli, Sequence) else 1
    level = float(np.max(phi.value(np.zeros(size))))
    for _ in range(400):
        if bool((up(phi.value(np.full(size, level))) <= level).all()):
            return level
        level *= 1.1
    return math.inf


def _least(cost: Callable[[int], float], longest: int) -> int:
    """A good number of steps to go back: powers of two, then halving steps around the best of them."""
    ladder = sorted({min(longest, 1 << k) for k in range(longest.bit_length() + 1)})
    known = {togo: cost(togo) for togo in ladder}
    best = min(known, key=lambda togo: known[togo])
    width = max(1, best // 2)
    while True:
        for togo in (best - width, best + width):
            if 1 <= togo <= longest and togo not in known:
                known[togo] = cost(togo)
        nearest = min(known, key=lambda togo: known[togo])
        if nearest == best and width <= max(1, best // 32):
            return best
        best, width = nearest, width if nearest != best else max(1, width // 2)


def _varying(moduli: Sequence[Modulus], sds: FloatArray, diameter: float) -> list[ShiftBound]:
    steps = len(moduli)
    if not all(isinstance(phi, Affine) for phi in moduli):
        return _numerical(moduli, sds, steps, diameter)
    lines = [phi for phi in moduli if isinstance(phi, Affine)]
    slopes = np.array([float(phi.slope) for phi in lines])
    offsets = np.array([float(phi.offset) for phi in lines])

    def certified(first: int, start: float) -> ShiftBound | None:
        z = affine_shifts(slopes[first:], offsets[first:], sds[first:] ** 2, start)
        if z is None:
            return None
        value = certify(list(moduli[first:]), sds[first:], z, start=start)
        return ShiftBound(value, tuple(z.tolist()), first, start > 0)

    found = [certified(0, 0.0)]
    if math.isfinite(diameter):

        def cost(togo: int) -> float:
            bound = certified(steps - togo, diameter)
            return math.inf if bound is None else bound.m_squared

        found.append(certified(steps - _least(cost, steps), diameter))
    return [bound for bound in found if bound is not None]
