"""Cross moduli and bounds of the papers that no kernel of the library uses: nonsmooth and dissipative maps.

Each is tested against exact chains, and takes part in the shift bound of the library as any modulus does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from benchmarks.papers.cross_moduli import Moduli, Parameter, check_parameter
from benchmarks.papers.shift_bound import UNIT, ShiftBound, noise_array
from benchmarks.papers.shift_search import last_state
from private_mcmc.accounting.rounding import TINY, FloatArray, product_up, sum_up, up
from private_mcmc.errors import DeclarationError


def check_positive(**values: float) -> None:
    """Raise ``DeclarationError`` unless every value lies in ``(0, ∞)``."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise DeclarationError(f"{name}={value}: must be positive and finite.")


def check_non_negative(**values: float) -> None:
    """Raise ``DeclarationError`` unless every value lies in ``[0, ∞]``."""
    for name, value in values.items():
        if not value >= 0:
            raise DeclarationError(f"{name}={value}: must be non-negative.")


@dataclass(frozen=True)
class Root:
    """``φ(z) = sqrt(cz² + h) + s``; ``s = 0`` for one map and two starts (BFG, Section 2), else ``γΔ``."""

    c: Parameter
    h: Parameter
    offset: Parameter = 0.0
    _roots: tuple[FloatArray, FloatArray] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("c", "h", "offset"):
            check_parameter(name, getattr(self, name))
        object.__setattr__(self, "_roots", (np.sqrt(self.c), np.sqrt(self.h)))

    def value(self, distance: FloatArray) -> FloatArray:
        """``sqrt(cz² + h) + s``."""
        return np.hypot(self._roots[0] * distance, self._roots[1]) + self.offset

    def tangent(self, distance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The supporting line of this convex function."""
        root = np.hypot(self._roots[0] * distance, self._roots[1])
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = np.where(root > 0, self.c * distance / root, self._roots[0])
            offset = np.where(root > 0, self.h / root, 0.0)
        return slope, offset + self.offset


def convex_lipschitz(step_size: float, lipschitz: float, sensitivity: float = 0.0) -> Root:
    """``sqrt(z² + (2ηG)²) + ηΔ``: ``U_D`` convex and ``G``-Lipschitz, possibly not differentiable.

    Source: BFG, Section 2 (1), from Bassily et al. 2020.
    """
    return weakly_smooth(step_size, 0.0, 2 * lipschitz, sensitivity)


def weakly_smooth(step_size: float, exponent: float, constant: float, sensitivity: float = 0.0) -> Root:
    """``sqrt(z² + h) + ηΔ`` for convex ``U_D`` with ``|∇U(x) − ∇U(y)| ≤ M|x − y|^p``, ``0 ≤ p ≤ 1``.

    ``h = 4 η^{2/(1−p)} (1−p)/(1+p) (M/2)^{2/(1−p)}``; at ``p = 1`` the step must satisfy ``ηM ≤ 2``
    and ``h = 0``.

    Source: BFG, Section 2 (2) and (4), from Lei, Ying 2020.
    """
    check_positive(step_size=step_size)
    check_non_negative(constant=constant, sensitivity=sensitivity)
    if not 0 <= exponent <= 1:
        raise DeclarationError(f"exponent={exponent}: a Hölder exponent lies in [0, 1].")
    half = product_up(step_size, constant, 0.5)
    if exponent == 1:
        if not half <= 1 + 2.0**-51:
            raise DeclarationError(f"step_size={step_size}: needs ηM ≤ 2, that is at most {2 / constant}.")
        return Root(1.0 if half <= 1 else 1.0 + 2.0**-48, 0.0, product_up(step_size, sensitivity))
    power = 2 / (1 - exponent)
    log_h = math.log(4 * (1 - exponent) / (1 + exponent)) + power * math.log(half) if half > 0 else -math.inf
    if not log_h < 700:
        raise DeclarationError("weakly_smooth: the modulus overflows; take a smaller step.")
    h = math.exp(log_h) * (1 + 2.0**-50 * (8 + power * abs(math.log(half)))) + TINY if half > 0 else 0.0
    return Root(1.0, h, product_up(step_size, sensitivity))


def strongly_dissipative(
    step_size: float, dissipativity: float, rate: float, smoothness: float, sensitivity: float = 0.0
) -> Root:
    """``sqrt(cz² + h) + ηΔ``, ``c = 1 − 2ηκ + η²β²``, ``h = 2ηλ``.

    For ``⟨∇U(x) − ∇U(y), x − y⟩ ≥ κ|x − y|² − λ`` and ``β``-smooth ``U``; ``λ = 0`` is strong convexity.

    Source: BFG, Section 2 (3) and (6).
    """
    check_positive(step_size=step_size)
    check_non_negative(dissipativity=dissipativity, rate=rate, smoothness=smoothness, sensitivity=sensitivity)
    if not smoothness < math.inf:
        raise DeclarationError("smoothness: must be finite.")
    drift, bend = 2 * step_size * rate, product_up(step_size, step_size, smoothness, smoothness)
    c = 1 - drift + bend + 2.0**-50 * (1 + drift + bend)
    if not c > 0:
        raise DeclarationError(f"1 − 2ηκ + η²β² = {c}: κ ≤ β is needed.")
    return Root(c, product_up(2.0, step_size, dissipativity), product_up(step_size, sensitivity))


def two_starts_constant(
    c: float, h: float, noise: float, diameter: float, steps: int, *, restart: bool = True
) -> float:
    """``m²`` for one map run from two starts ``diameter`` apart, ``φ(z) = sqrt(cz² + h)``.

    With ``restart`` the argument may start at any step, as it may on a set of that diameter.
    ``V(D) = D²/r_T + h Σ_{k<T} 1/(r_k + σ²)`` with ``r_k = σ² (1 − c^{−k})/(c − 1)`` (``kσ²`` at 1):
    the six rows of BFG Table 1 and their ``c → 1`` limits.

    Source: BFG Theorem 3.4, Corollaries 3.7–3.9.
    """
    if not (steps >= 1 and c > 0 and math.isfinite(c) and h >= 0 and noise > 0 and diameter >= 0):
        raise DeclarationError("two_starts: steps ≥ 1, c > 0, h ≥ 0, diameter ≥ 0 and noise > 0 are needed.")
    done = np.arange(0.0, steps + 1.0)
    rate = math.log1p(c - 1) if c > 0.5 else math.log(c)
    with np.errstate(over="ignore"):
        resistance = done if c == 1 else -np.expm1(-rate * done) / (c - 1)
    resistance = resistance * (1 - 8 * UNIT * (2 + abs(rate) * done))
    far = product_up(diameter, over=(noise,))
    square, spread = product_up(far, far), product_up(h, over=(noise, noise))
    with np.errstate(over="ignore", divide="ignore", under="ignore"):
        spent = np.cumsum(spread / (resistance[:-1] + 1)) * (1 + 4 * UNIT * steps)
        values = square / resistance[1:] + spent
    value = float(values.min() if restart else values[-1])
    return up(value) + 2 * steps * TINY if square > 0 or spread > 0 else 0.0


def two_starts(
    c: Sequence[float] | FloatArray,
    h: Sequence[float] | FloatArray,
    noise: Sequence[float] | FloatArray,
    diameter: float,
    *,
    restart: bool = True,
) -> float:
    """``m²`` for one map run from two starts ``diameter`` apart, ``φ_t(z) = sqrt(c_t z² + h_t)``.

    ``V_t(z) = z²/r_t + Σ_{s≥t} h_s/(r_{s+1} + σ_s²)`` with ``r_t = (r_{t+1} + σ_t²)/c_t``, ``r_T = 0``,
    is the least cost from distance ``z`` before step ``t``; ``V_0(D)`` is BFG Theorem 3.4. On a set of
    that diameter the argument may start anywhere: with ``restart`` the least ``V_t(D)`` is returned.

    Source: BFG Theorem 3.4.
    """
    cs, hs = np.asarray(c, dtype=np.float64), np.asarray(h, dtype=np.float64)
    sds = noise_array(noise, len(cs))
    if not ((cs > 0).all() and (hs >= 0).all() and len(hs) == len(cs) >= 1 and diameter >= 0):
        raise DeclarationError("two_starts: c > 0, h ≥ 0, diameter ≥ 0, one entry for every step.")
    slack = 1 + 8 * UNIT * (len(cs) + 4)
    # In units of the largest noise, so that nothing below under- or overflows to the wrong side.
    unit = float(np.max(sds))
    far = product_up(diameter, over=(unit,))
    square = product_up(far, far)
    hs = np.array([product_up(entry, over=(unit, unit)) for entry in hs.tolist()])
    variances = np.nextafter((sds / unit * (1 - 2 * UNIT)) ** 2, 0.0)
    resistance, spent, best = 0.0, 0.0, math.inf
    for ct, ht, variance in zip(cs[::-1].tolist(), hs[::-1].tolist(), variances[::-1].tolist(), strict=True):
        if ht > 0:
            spent += ht / (resistance + variance) + TINY
        resistance = (resistance + variance) / ct
        last = square / resistance + spent if resistance > 0 else math.inf
        best = min(best, last)
    total = best if restart else last
    return up(total * slack) + TINY if diameter > 0 or bool((hs > 0).any()) else 0.0


def declared_states(
    moduli: Moduli,
    noise: float | Sequence[float] | FloatArray,
    times: Sequence[int],
    *,
    diameter: float = math.inf,
) -> ShiftBound:
    """States released at fixed ``times``: every stretch starts afresh from the state released before it.

    Raises:
        DeclarationError: unless the times are increasing and at least 1.
    """
    edges = [0, *times]
    if len(edges) < 2 or any(not late > early for early, late in pairwise(edges)):
        raise DeclarationError(f"times={tuple(times)}: an increasing sequence of steps from 1 on.")
    sds = noise_array(noise, edges[-1])
    known: dict[object, float] = {}
    total: list[float] = []
    for early, late in pairwise(edges):
        part: Moduli = list(moduli[early:late]) if isinstance(moduli, Sequence) else moduli
        key = (late - early, sds[early:late].tobytes()) if not isinstance(part, list) else object()
        if key not in known:
            known[key] = last_state(part, sds[early:late], late - early, diameter=diameter).m_squared
        total.append(known[key])
    return ShiftBound(sum_up(total))
