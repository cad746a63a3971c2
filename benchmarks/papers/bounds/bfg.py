"""Bravo, Flores-Mella, Guzmán: Theorem 3.4, Table 1 and the privacy curves of Section 5 as printed.

``m²`` in place of the paper's ``2R_α/α``. In Section 5 the step is ``η``, batches are means over an
expected ``b`` of ``n`` rows, and the noise of a step is ``N(0, η²σ²)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from benchmarks.papers.bounds.printed import Printed
from private_mcmc.errors import DeclarationError

_NAME = "Bravo, Flores-Mella, Guzmán"
_CONDITIONING = (
    "the proof conditions on all of Z at once, which also fixes the maps of later steps; not proved"
)
Row = Literal[
    "convex Lipschitz", "weakly smooth", "strongly convex", "convex smooth", "nonconvex", "dissipative"
]


def theorem_3_4(c: Sequence[float], h: Sequence[float], noise: Sequence[float], diameter: float) -> float:
    """``m²`` by the printed products and sums; quadratic in ``T`` and prone to overflow, for small ``T``.

    Slip: none known.
    """
    steps = len(c)

    def tail(start: int) -> float:
        return math.prod(c[start:])

    def weight(start: int) -> float:
        return math.fsum(noise[j] ** 2 * tail(j + 1) for j in range(start, steps))

    spread = math.fsum(h[t] * tail(t + 1) / weight(t) for t in range(steps))
    return tail(0) * diameter**2 / weight(0) + spread


def table_1(row: Row, c: float, h: float, noise: float, diameter: float, steps: int) -> float:
    """``m²`` of one row of Table 1, from that row's printed expression.

    Slip: none known. The last row bounds a sum by a logarithm and lies above Theorem 3.4.
    """
    if row in ("convex Lipschitz", "weakly smooth"):
        total = diameter**2 / steps + h * math.fsum(1 / t for t in range(1, steps + 1))
    elif row == "convex smooth":
        total = diameter**2 / steps
    elif row == "strongly convex":
        total = diameter**2 * c**steps * (1 - c) / (1 - c**steps)
    elif row == "nonconvex":
        total = diameter**2 * c**steps * (c - 1) / (c**steps - 1)
    elif row == "dissipative":
        series = (1 - c**steps) / (1 - c)
        total = diameter**2 * c**steps / series + h * math.log(series * math.e)
    else:
        raise DeclarationError(f"row={row!r}: not a row of Table 1.")
    return total / noise**2


def largest_order(rate: float, noise: float) -> float:
    """``α*(q, σ)`` of Lemma A.18 (Mironov, Talwar, Zhang 2019), by bisection."""
    if not (0 < rate < 1 and noise > 1):
        raise DeclarationError("largest_order: 0 < q < 1 and σ > 1 are needed.")

    def allowed(alpha: float) -> bool:
        gap = math.log(1 + 1 / (rate * (alpha - 1)))
        first = gap * noise**2 / 2 - math.log(noise**2)
        below = gap + math.log(rate * alpha) + 1 / (2 * noise**2)
        second = gap**2 * noise**2 / 2 - math.log(5 * noise**2)
        return alpha <= first and (below <= 0 or alpha * below <= second)

    low, high = 1.0, 2.0
    if not allowed(1 + 1e-9):
        return 1.0
    while allowed(high) and high < 1e12:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle > 1 and allowed(middle):
            low = middle
        else:
            high = middle
    return low


def theorem_5_2(
    *,
    steps: int,
    rows: int,
    batch: float,
    step: float,
    noise: float,
    lipschitz: float,
    exponent: float,
    constant: float,
    diameter: float,
) -> Printed:
    """Last state of noisy SGD, convex ``L``-Lipschitz ``(p, M)``-weakly smooth losses.

    Raises:
        DeclarationError: unless ``T > T̄ = ⌈Dn/(4ηL)⌉`` and ``σ > 8√2 L/b``.
    """
    back = math.ceil(diameter * rows / (4 * step * lipschitz))
    if not (steps > back and noise > 8 * math.sqrt(2) * lipschitz / batch):
        raise DeclarationError(
            f"Theorem 5.2 needs T > {back} and σ > {8 * math.sqrt(2) * lipschitz / batch:.6g}."
        )
    rough = 4 * _weak(step, exponent, constant) * math.log(back * math.e)
    rate = (16 * lipschitz**2 * back / rows**2 + diameter**2 / (step**2 * back) + rough) / noise**2
    order = largest_order(batch / rows, batch * noise / (2 * math.sqrt(2) * lipschitz))
    return Printed(f"{_NAME}, Theorem 5.2", _CONDITIONING, rate, order)


def _weak(step: float, exponent: float, constant: float) -> float:
    if exponent == 1:
        if not step * constant <= 2:
            raise DeclarationError("p = 1 needs ηM ≤ 2.")
        return 0.0
    share = (1 - exponent) / (1 + exponent)
    return float(step ** (2 * exponent / (1 - exponent)) * share * (constant / 2) ** (2 / (1 - exponent)))


def theorem_1_2(
    *,
    steps: int,
    rows: int,
    batch: float,
    step: float,
    noise: float,
    lipschitz: float,
    exponent: float,
    constant: float,
    diameter: float,
) -> Printed:
    """``ε ≤ 16αL²/(n²σ²) min{T, 2T̄ + V}``: Theorem 1.2, stated in full as Remark 5.3."""
    back = math.ceil(diameter * rows / (4 * step * lipschitz))
    if exponent == 1:
        rough = 0.0
    else:
        share = (1 - exponent) / (1 + exponent)
        inner = 2 * back / diameter * (step * constant / 2) ** (1 / (1 - exponent))
        rough = inner**2 * share * math.log(back * math.e)
    rate = 16 * lipschitz**2 / (rows**2 * noise**2) * min(steps, 2 * back + rough)
    order = largest_order(batch / rows, batch * noise / (2 * math.sqrt(2) * lipschitz))
    return Printed(f"{_NAME}, Theorem 1.2", _CONDITIONING, rate, order)


def theorem_5_4(
    *,
    steps: int,
    rows: int,
    batch: int,
    step: float,
    noise: float,
    lipschitz: float,
    smoothness: float,
    diameter: float,
) -> Printed:
    """Last state of noisy SGD, ``β``-smooth losses with gradients bounded by ``L``, fixed-size batches.

    Raises:
        DeclarationError: unless ``T > T̄``, ``b ≤ n/10`` and ``σ ≥ 2√10 L/b``.
    """
    back = math.ceil(math.log(2) / (2 * math.log1p(step * smoothness)))
    if not (steps > back and batch <= rows / 10 and noise >= 2 * math.sqrt(10) * lipschitz / batch):
        raise DeclarationError(f"Theorem 5.4 needs T > {back}, b ≤ n/10 and σ ≥ 2√10 L/b.")
    rate = _nonconvex(rows, step, noise, lipschitz, smoothness, diameter)
    order = batch**2 * noise**2 / (16 * lipschitz**2) * math.log(rows / batch)
    slip = _CONDITIONING + "; writes σ_j = ησ/2 for σ_j² = η²σ²/2"
    return Printed(f"{_NAME}, Theorem 5.4", slip, rate, order)


def _nonconvex(
    rows: int, step: float, noise: float, lipschitz: float, smoothness: float, diameter: float
) -> float:
    back = math.ceil(math.log(2) / (2 * math.log1p(step * smoothness)))
    spread = 4 * diameter**2 * smoothness / step + 2 * diameter**2 * smoothness**2
    return (52 * lipschitz**2 * back / rows**2 + spread) / noise**2


def asoodeh_diaz(
    *,
    delta: float,
    rows: int,
    batch: int,
    step: float,
    noise: float,
    lipschitz: float,
    diameter: float,
) -> float:
    """``ε''`` of Asoodeh, Diaz 2023 as quoted in (24), with the logarithm; any loss, any batch.

    Slip: none known; quoted at second hand.
    """
    share = batch / rows
    reach = diameter / step
    tail = math.sqrt(2 * math.log1p(share * (1 - delta) / delta))
    drift = reach**2 / 2 + reach * lipschitz + 2 * lipschitz**2
    return drift / noise**2 + (reach + 2 * lipschitz) * tail / noise
