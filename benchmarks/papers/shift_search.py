"""Shifts of any increasing moduli, by search; the library's ``certify`` checks them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import solveh_banded

from benchmarks.papers import shift_bound as shifts
from benchmarks.papers.cross_moduli import (
    Affine,
    Minimum,
    Moduli,
    Modulus,
    PerStep,
    Point,
    per_step,
    undominated,
)
from benchmarks.papers.shift_bound import ShiftBound, affine_shifts, certify, noise_array
from private_mcmc.accounting.rounding import FloatArray, up

_LONGEST = 20_000  # steps optimised numerically
_COMPARABLE = 1e100  # slopes of what is compared by squares
_TAIL = 2_000  # a shorter end is searched more thoroughly


def last_state(
    moduli: Moduli, noise: float | Sequence[float] | FloatArray, steps: int, *, diameter: float = math.inf
) -> ShiftBound:
    """The library's bound on the last state, or a lower one that a search finds."""
    sds = noise_array(noise, steps)
    candidates = [shifts.last_state(moduli, noise, steps, diameter=diameter)]
    if isinstance(moduli, Sequence):
        if not all(isinstance(phi, Affine) for phi in moduli):
            candidates += _numerical(moduli, sds, steps, diameter)
    elif bool((sds == sds[0]).all()):
        candidates += _constant(moduli, float(sds[0]), steps, diameter)
    elif not isinstance(moduli, Affine):
        candidates += _numerical([moduli] * steps, sds, steps, diameter)
    return min(candidates, key=lambda bound: bound.m_squared)


def tangent(phi: Modulus, distance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slope and offset of a touching line at each distance; they only guide the search."""
    shape = np.shape(distance)
    if isinstance(phi, Affine):
        return np.broadcast_to(phi.slope, shape), np.broadcast_to(phi.offset, shape)
    if isinstance(phi, Point):
        return np.broadcast_to(np.inf, shape), np.broadcast_to(phi.offset, shape)
    if isinstance(phi, Minimum):
        best = np.argmin([part.value(distance) for part in phi.parts], axis=0)
        lines = [tangent(part, distance) for part in phi.parts]
        slope = np.choose(best, [line[0] for line in lines])
        return slope, np.choose(best, [line[1] for line in lines])
    if isinstance(phi, PerStep):
        slope, offset = np.empty_like(distance), np.empty_like(distance)
        for index, part in phi.groups:
            slope[index], offset[index] = tangent(part, distance[index])
        return slope, offset
    found: tuple[FloatArray, FloatArray] = phi.tangent(distance)  # type: ignore[attr-defined]
    return found


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
        return []
    return _numerical(phi, noise, steps, diameter)


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

        togo = shifts._least(cost, min(steps, _LONGEST))
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


def optimise(
    moduli: Moduli,
    noise: float | Sequence[float] | FloatArray,
    steps: int,
    *,
    start: float = 0.0,
    work: int = 600_000,
) -> FloatArray | None:
    """Propose shifts for any increasing moduli: repeated exact solutions of the tangent problem.

    Searches from several levels, because a minimum of moduli has several local optima. ``work``
    bounds steps times solutions, not time, so that results are reproducible.

    Returns ``z_0 = start, …, z_T = 0``, feasible, or ``None`` where nothing finite was found.
    """
    phi = per_step(moduli) if isinstance(moduli, Sequence) else moduli
    variances = noise_array(noise, steps) ** 2
    search = _Search(phi, variances, start, work)
    guesses = [z for z in map(search.solve, search.guesses()) if z is not None]
    guesses.sort(key=search.cost)
    descended = sorted(map(search.descend, _distinct(guesses, search)[:5]), key=search.cost)
    refined = [search.refine(z) for z in _distinct(descended, search)[:2]]
    return min(refined, key=search.cost) if refined else None


def _distinct(candidates: list[FloatArray], search: _Search) -> list[FloatArray]:
    kept: list[FloatArray] = []
    for z in candidates:
        if not kept or search.cost(z) > search.cost(kept[-1]) * (1 + 1e-6):
            kept.append(z)
    return kept


class _Search:
    """One shift problem: cost, tangent solutions, descent."""

    def __init__(self, phi: Modulus, variances: FloatArray, start: float, work: int) -> None:
        self.phi, self.variances, self.start = phi, variances, start
        self.steps = len(variances)
        self.solves = 50 + work // self.steps

    def cost(self, z: FloatArray) -> float:
        """``Σ a_k²/σ_k²`` of feasible shifts."""
        return float(np.sum(np.maximum(self.phi.value(z[:-1]) - z[1:], 0.0) ** 2 / self.variances))

    def guesses(self) -> list[FloatArray]:
        """Distances to linearise at: constant levels, and levels that drop to zero near the end."""
        rest = np.zeros(self.steps)
        low = float(np.max(self.phi.value(rest)))
        high = self._invariant_level(max(low, self.start, 1e-300))
        bottom = max(min(low, high), high * 1e-6)
        levels = [0.0, *np.geomspace(bottom, high, 7).tolist()]
        togo = np.arange(self.steps, 0, -1.0)
        lengths = {max(1, round(self.steps * 10.0 ** (-k / 2))) for k in range(9)}
        shapes = [np.full(self.steps, level) for level in levels]
        shapes += [level * (togo > length) for level in levels[2::2] for length in sorted(lengths)]
        return shapes + [high * np.minimum(1.0, togo / length) for length in sorted(lengths)[::2]]

    def _invariant_level(self, level: float) -> float:
        """A level the distance never leaves, or that of a free climb over all steps."""
        climb = (self.steps + 1) * level
        while level < climb:
            if bool((self.phi.value(np.full(self.steps, level)) <= level).all()):
                return level
            level *= 1.5
        return climb

    def solve(self, at: FloatArray) -> FloatArray | None:
        """Exact solution of the problem linearised at these distances, made feasible."""
        self.solves -= 1
        slopes, offsets = tangent(self.phi, at)
        z = affine_shifts(np.asarray(slopes), np.asarray(offsets), self.variances, self.start)
        return None if z is None else self.repair(z)

    def repair(self, z: FloatArray) -> FloatArray:
        """Lower shifts that exceed what the moduli allow."""
        z = z.copy()
        for _ in range(self.steps):
            bound = self.phi.value(z[:-1])
            if bool((z[1:] <= bound).all()):
                break
            z[1:] = np.minimum(z[1:], bound)
        return z

    def descend(self, z: FloatArray) -> FloatArray:
        """Tangent problems, then Newton steps, until neither helps."""
        return self._newton(self._tangents(z))

    def refine(self, z: FloatArray) -> FloatArray:
        """Alternate moves in time with descents until neither helps or the work is spent."""
        for _ in range(8):
            before = self.cost(z)
            z = self.descend(self._move(z))
            if not self.cost(z) < before * (1 - 1e-6) or self.solves <= 0:
                break
        return z

    def _tangents(self, z: FloatArray) -> FloatArray:
        best = self.cost(z)
        for _ in range(30):
            target = self.solve(z[:-1])
            trial = z if target is None else self._line(z, target, best)
            cost = self.cost(trial)
            if not cost < best * (1 - 1e-9):
                return z
            z, best = trial, cost
        return z

    def _line(self, z: FloatArray, target: FloatArray, best: float) -> FloatArray:
        for step in (1.0, 0.5, 0.1, 0.01):
            trial = self.repair(z + step * (target - z))
            if self.cost(trial) < best:
                return trial
        return z

    def _move(self, z: FloatArray) -> FloatArray:
        """Linearise at the current distances moved in time, all of them or those after the peak."""
        best, peak = self.cost(z), int(np.argmax(z))
        for distance in (1, 2, 4, 8, 16, 64, 256, 1024):
            for by in (distance, -distance):
                if self.solves <= 0:
                    return z
                index = np.clip(np.arange(self.steps) + by, 0, self.steps - 1)
                tail = np.where(np.arange(self.steps) < peak, np.arange(self.steps), np.maximum(index, peak))
                for at in (z[index], z[tail]):
                    trial = self.solve(at)
                    if trial is not None and self.cost(trial) < best:
                        z, best = trial, self.cost(trial)
            if distance >= self.steps:
                break
        return z

    def _newton(self, z: FloatArray) -> FloatArray:
        """Levenberg–Marquardt on the shifts that are positive; the Hessian is tridiagonal."""
        best, damping = self.cost(z), 1e-3
        for _ in range(100):
            change = self._newton_step(z, damping)
            if change is None:
                return z
            trial = z.copy()
            trial[1:-1] = np.maximum(z[1:-1] + change, 0.0)
            trial = self.repair(trial)
            cost = self.cost(trial)
            if cost < best:
                settled = cost > best * (1 - 1e-8)
                z, best, damping = trial, cost, damping / 5
                if settled:
                    return z
            elif damping > 1e6:
                return z
            else:
                damping *= 8
        return z

    def _newton_step(self, z: FloatArray, damping: float) -> FloatArray | None:
        if self.steps < 2:
            return None
        inner = z[:-1]
        slopes = np.asarray(tangent(self.phi, inner)[0])
        bump = 1e-6 * inner + 1e-300
        weighted = (np.maximum(self.phi.value(inner) - z[1:], 0.0)) / self.variances
        # A modulus with an infinite slope at zero gives 0·∞ or ∞ − ∞ there: such a shift stays where it is.
        with np.errstate(invalid="ignore"):
            bend = np.fmax((np.asarray(tangent(self.phi, inner + bump)[0]) - slopes) / bump, 0.0)
            gradient = weighted[1:] * slopes[1:] - weighted[:-1]
            curved = weighted[1:] * bend[1:]
        free = np.isfinite(gradient) & ((inner[1:] > 0) | (gradient < 0))
        if not free.any():
            return None
        diagonal = 1 / self.variances[:-1] + (slopes[1:] ** 2) / self.variances[1:] + curved
        coupling = -slopes[1:] / self.variances[1:]
        if len(gradient) == 1:
            return -gradient / (diagonal * (1 + damping))
        banded = np.zeros((2, len(gradient)))
        banded[1] = np.where(free, diagonal * (1 + damping), 1.0)
        banded[0, 1:] = np.where(free[1:] & free[:-1], coupling[:-1], 0.0)
        if not np.isfinite(banded).all():
            return None
        return np.asarray(solveh_banded(banded, np.where(free, -gradient, 0.0)))
