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

from benchmarks.papers.cross_moduli import (
    Affine,
    Moduli,
    Modulus,
    parts_of,
    per_step,
)
from private_mcmc.accounting.rounding import TINY, FloatArray, product_up, root_up, up
from private_mcmc.errors import DeclarationError

UNIT = 2.0**-53
_STEEPEST = 300.0  # no bound is looked for where one step stretches by more than e^300


def noise_array(noise: float | Sequence[float] | FloatArray, steps: int) -> FloatArray:
    """The noise standard deviation of every step; raises unless all are positive and finite."""
    sds = np.broadcast_to(np.asarray(noise, dtype=np.float64), (steps,))
    if not ((sds > 0).all() and np.isfinite(sds).all()):
        raise DeclarationError("noise: every standard deviation must be positive and finite.")
    return sds


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


_Block = tuple[float, float, float, int]  # total push N, squared weight W, product of slopes, first step


def affine_shifts(
    slopes: FloatArray, offsets: FloatArray, variances: FloatArray, start: float
) -> FloatArray | None:
    """The optimal ``z_0, …, z_T`` for ``φ_k(z) = ρ_k z + s_k`` and variances ``σ_k²``; ``None`` if infinite.

    A taut string below an obstacle: adjacent stretches between visits of zero are pooled while that is
    cheaper, each costing ``N²/W`` with ``N = Σ s_i Π_{l>i} ρ_l``, ``W = Σ σ_i² Π_{l>i} ρ_l²``. Linear time.
    """
    blocks = _pool(slopes.tolist(), offsets.tolist(), variances.tolist(), start)
    if blocks is None:
        return None
    z = np.zeros(len(slopes) + 1)
    z[0] = start
    ends = [block[3] for block in blocks[1:]] + [len(slopes)]
    for (push, weight, _, first), end in zip(blocks, ends, strict=True):
        if end - first > 1 or first == 0:
            _fill(z, slopes, offsets, variances, first, end, push / weight)
    return np.maximum(z, 0.0)


def _pool(rho: list[float], s: list[float], variance: list[float], start: float) -> list[_Block] | None:
    blocks: list[_Block] = [(start, 0.0, 1.0, 0)] if start > 0 else []
    for step, (slope, push, weight) in enumerate(zip(rho, s, variance, strict=True)):
        product, first = slope, step
        while blocks and blocks[-1][0] * weight > product * push * blocks[-1][1]:
            before, before_weight, before_product, first = blocks.pop()
            push, weight = product * before + push, product * product * before_weight + weight
            product *= before_product
            if not (math.isfinite(push) and math.isfinite(weight)):
                return None
        blocks.append((push, weight, product, first))
    return None if blocks[0][1] == 0 else blocks


def _fill(
    z: FloatArray,
    slopes: FloatArray,
    offsets: FloatArray,
    variances: FloatArray,
    first: int,
    end: int,
    multiplier: float,
) -> None:
    """Shifts inside one pooled stretch: what was pushed so far less what was absorbed so far."""
    later = np.ones(end - first)
    if end - first > 1:
        later[:-1] = np.cumprod(slopes[first + 1 : end][::-1])[::-1]
    pushed, weight = float(z[first]), 0.0
    rows = zip(*(x[first:end].tolist() for x in (slopes, offsets, variances)), later.tolist(), strict=True)
    for step, (slope, offset, variance, tail) in enumerate(rows, first + 1):
        pushed, weight = slope * pushed + offset, slope * slope * weight + variance
        z[step] = pushed - multiplier * tail * weight
    z[end] = 0.0


@dataclass(frozen=True)
class ShiftBound:
    """``X_T`` is ``m``-GDP with ``m² = m_squared``.

    Attributes:
        m_squared: the bound, rounded up.
        shifts: ``z_τ, …, z_T`` where no closed form gives the bound, else ``None``.
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
        lines = [part for part in parts_of(moduli) if isinstance(part, Affine)]
        candidates += [bound for line in lines for bound in _affine(line, float(sds[0]), steps, diameter)]
    else:
        candidates += _varying([moduli] * steps, sds, diameter)
    return min(candidates, key=lambda bound: bound.m_squared)


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
    """The best shifts of one line of every step, held against all that is known of each."""
    each = [[part for part in parts_of(phi) if isinstance(part, Affine)] for phi in moduli]
    if not all(each):
        return []
    found = []
    for kind in range(max(map(len, each))):
        found += _of_lines([lines[min(kind, len(lines) - 1)] for lines in each], moduli, sds, diameter)
    return found


def _of_lines(
    lines: Sequence[Affine], moduli: Sequence[Modulus], sds: FloatArray, diameter: float
) -> list[ShiftBound]:
    steps = len(lines)
    slopes = np.array([float(phi.slope) for phi in lines])
    offsets = np.array([float(phi.offset) for phi in lines])

    def certified(first: int, start: float) -> ShiftBound | None:
        z = affine_shifts(slopes[first:], offsets[first:], sds[first:] ** 2, start)
        if z is None:
            return None
        if lines != moduli:
            # What is known besides the line may allow less.
            for step, phi in enumerate(moduli[first:], 1):
                z[step] = min(z[step], float(phi.value(z[step - 1 : step])[0]))
        value = certify(list(moduli[first:]), sds[first:], z, start=start)
        return ShiftBound(value, tuple(z.tolist()), first, start > 0)

    found = [certified(0, 0.0)]
    if math.isfinite(diameter):

        def cost(togo: int) -> float:
            bound = certified(steps - togo, diameter)
            return math.inf if bound is None else bound.m_squared

        found.append(certified(steps - _least(cost, steps), diameter))
    return [bound for bound in found if bound is not None]
