"""The tightest shift bound at hand for a run: closed forms, numerical certificates, restarts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from private_mcmc.accounting.langevin.modulus_shapes import (
    Affine,
    Minimum,
    Modulus,
    Point,
    per_step,
    undominated,
)
from private_mcmc.accounting.langevin.shift_optimiser import affine_shifts, optimise
from private_mcmc.accounting.langevin.shifts import (
    Moduli,
    affine,
    affine_from,
    certify,
    noise_array,
)
from private_mcmc.accounting.rounding import FloatArray, product_up, root_up, up
from private_mcmc.errors import DeclarationError

_LONGEST = 20_000  # steps optimised numerically
_STEEPEST = 1e100  # of what is compared by squares
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
    if not 1 < rho < _STEEPEST or not high.offset < _STEEPEST:
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
    """A good number of steps to go back: a ladder of powers, then halving steps around its best rung."""
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
