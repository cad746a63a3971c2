"""Proposing shifts: the exact optimum for affine moduli, a Gauss–Newton search for all others.

Nothing here is trusted: a proposal is only ever used through ``shifts.certify``, which checks it
and computes the number. A poor proposal costs tightness, never soundness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import solveh_banded

from private_mcmc.accounting.langevin.moduli import Moduli, Modulus, per_step
from private_mcmc.accounting.rounding import FloatArray
from private_mcmc.errors import DeclarationError

_Block = tuple[float, float, float, int]  # total push N, squared weight W, product of slopes, first step


def noise_array(noise: float | Sequence[float] | FloatArray, steps: int) -> FloatArray:
    """The noise standard deviation of every step; raises unless all are positive and finite."""
    sds = np.broadcast_to(np.asarray(noise, dtype=np.float64), (steps,))
    if not ((sds > 0).all() and np.isfinite(sds).all()):
        raise DeclarationError("noise: every standard deviation must be positive and finite.")
    return sds


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
        slopes, offsets = self.phi.tangent(at)
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
        slopes = np.asarray(self.phi.tangent(inner)[0])
        bump = 1e-6 * inner + 1e-300
        weighted = (np.maximum(self.phi.value(inner) - z[1:], 0.0)) / self.variances
        # A modulus with an infinite slope at zero gives 0·∞ or ∞ − ∞ there: such a shift stays where it is.
        with np.errstate(invalid="ignore"):
            bend = np.fmax((np.asarray(self.phi.tangent(inner + bump)[0]) - slopes) / bump, 0.0)
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
