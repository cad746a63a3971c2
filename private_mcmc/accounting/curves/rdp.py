"""Rényi divergences: closed forms, conversion to ``δ(ε)``, and subsampled Gaussian steps by quadrature.

The pairs of one step, in units of the noise's sd, with ``r`` the shift of one present row:

- ``add_remove``: ``(1−q)N(0) + qN(r)`` against ``N(0)``, both orders (Poisson; also ``zero_out``);
- ``replace_one``: ``(1−q)N(0) + qN(r)`` against ``(1−q)N(0) + qN(−r)`` (Poisson);
- ``fixed``: ``δ(ε) = q δ_{2r}(log(1 + (e^ε − 1)/q))``, symmetrised (without replacement).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr

from private_mcmc.accounting.rounding import product_up, up_last
from private_mcmc.errors import DeclarationError

_LOG_GAPS = tuple(-7 + 0.25 * step for step in range(85))
ORDERS = tuple(1 + math.exp(gap) for gap in _LOG_GAPS)


def check_order(alpha: float) -> float:
    """Return ``alpha`` if it is a finite Rényi order above 1."""
    if not 1 < alpha < math.inf:
        raise DeclarationError(f"alpha={alpha}: a Rényi order is a finite number above 1.")
    return float(alpha)


def randomised_response(level: float, alpha: float) -> float:
    """Rényi divergence of losses ``±level``: what every ``level``-DP mechanism stays below."""
    if level in (0, math.inf):
        return level
    log_high = -math.log1p(math.exp(-level))
    log_low = log_high - level
    first = alpha * log_high + (1 - alpha) * log_low
    second = alpha * log_low + (1 - alpha) * log_high
    value = (max(first, second) + math.log1p(math.exp(-abs(first - second)))) / (alpha - 1)
    # Cancellation for tiny levels: the general bound α level²/2 holds as well.
    closed = max(0.0, value) * (1 + 1e-12) + 1e-15 * alpha / (alpha - 1)
    return min(level, up_last(alpha * level * level / 2), closed)


def laplace(level: float, alpha: float) -> float:
    """Rényi divergence of one Laplace draw whose shift is ``level`` scales (Mironov 2017, Prop. 6)."""
    if level == math.inf:
        return math.inf
    first = math.log(alpha / (2 * alpha - 1)) + (alpha - 1) * level
    second = math.log((alpha - 1) / (2 * alpha - 1)) - alpha * level
    value = (max(first, second) + math.log1p(math.exp(-abs(first - second)))) / (alpha - 1)
    bound = randomised_response(level, alpha)
    return min(bound, max(0.0, value) * (1 + 1e-12) + 1e-15 * alpha / (alpha - 1))


def delta_at_order(alpha: float, divergence: float, epsilon: float) -> float:
    """``δ`` at ``ε`` from one order: ``e^{(α−1)(D−ε)} (1 − 1/α)^{α} / (α−1)``.

    Source: Canonne, Kamath, Steinke 2020, Proposition 12 (the conversion dp_accounting uses).
    """
    if not divergence < math.inf:
        return 1.0
    log_delta = (alpha - 1) * (divergence - epsilon) - math.log(alpha - 1) + alpha * math.log1p(-1 / alpha)
    # Rounding of the exponent is a relative error of δ.
    log_delta += 2.0**-50 * ((alpha - 1) * (divergence + epsilon) + abs(math.log(alpha - 1)) + 2)
    if log_delta >= 0:
        return 1.0
    return min(1.0, math.exp(log_delta) * (1 + 1e-12) + math.ulp(0.0))


def to_delta(divergence: Callable[[float], float], epsilon: float) -> float:
    """The smallest ``δ`` over orders: a grid in ``log(α−1)``, then golden-section search."""
    if not epsilon >= 0:
        raise DeclarationError(f"epsilon={epsilon}: must be a number in [0, ∞].")
    if epsilon == math.inf:
        return 0.0

    def at(log_gap: float) -> float:
        alpha = 1 + math.exp(log_gap)
        return delta_at_order(alpha, divergence(alpha), epsilon)

    grid = _LOG_GAPS
    values = [at(point) for point in grid]
    best = min(range(len(grid)), key=values.__getitem__)
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    golden = (math.sqrt(5) - 1) / 2
    smallest = values[best]
    for _ in range(60):
        left, right = high - golden * (high - low), low + golden * (high - low)
        at_left, at_right = at(left), at(right)
        smallest = min(smallest, at_left, at_right)
        low, high = (low, right) if at_left <= at_right else (left, high)
    return smallest


def table_to_delta(divergences: Sequence[float], epsilon: float) -> float:
    """``to_delta`` for divergences known at ``ORDERS`` only."""
    if not epsilon >= 0:
        raise DeclarationError(f"epsilon={epsilon}: must be a number in [0, ∞].")
    if epsilon == math.inf:
        return 0.0
    return min(
        delta_at_order(alpha, divergence, epsilon)
        for alpha, divergence in zip(ORDERS, divergences, strict=True)
    )


Array = NDArray[np.float64]

PAIRS = ("add_remove", "replace_one", "fixed")
_MOST_POINTS = 200_000
_SMALLEST = 1e-100  # below it the squares of losses leave the normal numbers


def check_pair(pair: str, rate: float, ratio: float) -> None:
    """Raise ``DeclarationError`` unless the pair is known, ``0 < q ≤ 1`` and ``r ≥ 0``."""
    if pair not in PAIRS:
        raise DeclarationError(f"pair={pair!r}: choose one of {', '.join(PAIRS)}.")
    if not (0 < rate <= 1 and 0 <= ratio < math.inf):
        raise DeclarationError(f"rate={rate}, ratio={ratio}: need 0 < q ≤ 1 and a finite r ≥ 0.")


@lru_cache(maxsize=4096)
def renyi(pair: str, rate: float, ratio: float, alpha: float) -> float:
    """Rényi divergence of order ``alpha`` of one step, the larger of both orders, rounded up.

    Never above the un-amplified value ``α r²/2`` (``α (2r)²/2`` for the other two pairs), which is
    returned where the quadrature would need too many points.
    """
    check_pair(pair, rate, ratio)
    check_order(alpha)
    whole = ratio if pair == "add_remove" else 2 * ratio
    unamplified = product_up(alpha, whole, whole, 0.5)
    if ratio < _SMALLEST or rate == 1:
        return unamplified
    if pair == "fixed":
        return min(unamplified, _from_profile(rate, whole, alpha))
    if pair == "replace_one":
        return min(unamplified, _two_mixtures(rate, ratio, -ratio, alpha))
    return max(poisson_orders(rate, ratio, alpha))


@lru_cache(maxsize=4096)
def poisson_orders(rate: float, ratio: float, alpha: float) -> tuple[float, float]:
    """``D_α`` of ``(1−q)N(0)+qN(r)`` against ``N(0)``, and in the other order, rounded up."""
    unamplified = product_up(check_order(alpha), ratio, ratio, 0.5)
    if ratio < _SMALLEST or rate == 1:
        return unamplified, unamplified
    removed = _two_mixtures(rate, ratio, 0.0, alpha)
    added = _two_mixtures(rate, 0.0, ratio, alpha)
    return min(unamplified, removed), min(unamplified, added)


def _two_mixtures(rate: float, upper: float, lower: float, alpha: float) -> float:
    """``D_α`` of ``(1−q)N(0)+qN(upper)`` against ``(1−q)N(0)+qN(lower)`` by the trapezoid rule.

    The integrand is analytic for ``|Im x| < π/r`` and grows by at most ``e³`` in the strip of half
    width ``a`` below, so with spacing ``2πa/40`` the relative error is below ``1e-14``. Integrated
    is ``E_Q[e^{αL} − 1 − α(e^L − 1)] ≥ 0``, which keeps its digits when the divergence is tiny.
    """
    shift = max(abs(upper), abs(lower))
    half_width = min(2.0, 1.0 / (shift * math.sqrt(alpha)))
    spacing = 2 * math.pi * half_width / 40
    low, high = -(14.0 + shift), 14.0 + shift + alpha * max(upper, 0.0)
    while True:
        if not high - low < _MOST_POINTS * spacing:
            return math.inf
        x = np.arange(low, high + spacing, spacing)
        base = -0.5 * x**2 - 0.5 * math.log(2 * math.pi) + _log_weight(x, rate, lower)
        loss = _log_weight(x, rate, upper) - _log_weight(x, rate, lower)
        values = base + np.maximum(alpha * loss, 0.0)
        peak = float(np.max(values))
        if values[0] < peak - 45 and values[-1] < peak - 45:
            break
        low, high = low - 5.0, high + 5.0
    if float(np.max(alpha * loss)) < 300:
        moment = float(np.sum(np.exp(base) * _excess(alpha, loss))) * spacing
        return math.log1p(moment * (1 + 1e-9)) / (alpha - 1)
    log_integral = peak + math.log(float(np.sum(np.exp(base + alpha * loss - peak))) * spacing)
    return max(0.0, log_integral + 1e-12 * (1 + abs(peak))) / (alpha - 1)


def _excess(alpha: float, loss: Array) -> Array:
    """``e^{αL} − 1 − α(e^L − 1) ≥ 0``, rounded up: by its power series where the difference would cancel."""
    steep, flat = np.expm1(alpha * loss), np.expm1(loss)
    direct = np.maximum(steep - alpha * flat, 0.0) + 2.0**-49 * (np.abs(steep) + alpha * np.abs(flat))
    small = np.abs(alpha * loss) < 0.5
    scaled = np.where(small, alpha * loss, 0.0)
    # Σ_{k≥2} (α^k − α) L^k/k! = Σ (αL)^k/k! · (1 − α^{1−k})
    series, term = np.zeros_like(scaled), scaled
    for k in range(2, 22):
        term = term * scaled / k
        series = series - term * math.expm1((1 - k) * math.log(alpha))
    return np.asarray(np.where(small, series, direct), dtype=np.float64)


def _log_weight(x: Array, rate: float, centre: float) -> Array:
    """Log density of ``(1−q)N(0) + qN(centre)`` relative to ``N(0)``."""
    if centre == 0:
        return np.zeros(x.shape)
    # log(1 + q(e^t − 1)), without cancellation for small t.
    tilt = centre * x - centre**2 / 2
    small = np.log1p(rate * np.expm1(np.minimum(tilt, 30.0)))
    large = np.logaddexp(math.log1p(-rate), math.log(rate) + tilt)
    return np.asarray(np.where(tilt > 30, large, small), dtype=np.float64)


def log_gaussian_profile(m: float, epsilon: Array) -> Array:
    """``log δ(ε)`` of ``m``-GDP for an array of ``ε ≥ 0``, without overflow."""
    low, high = epsilon / m - m / 2, epsilon / m + m / 2
    near, far = np.maximum(low, -1.0), np.minimum(low, -1.0)
    lower_tail = erfcx(high / math.sqrt(2))
    with np.errstate(divide="ignore"):
        scaled = np.log(np.maximum(erfcx(near / math.sqrt(2)) - lower_tail, 0.0) / 2) - near**2 / 2
        direct = np.log(np.maximum(ndtr(-far) - np.exp(-(far**2) / 2) * lower_tail / 2, 0.0))
    return np.asarray(np.where(low > -1, scaled, direct), dtype=np.float64)


def fixed_profile(rate: float, whole: float, epsilon: ArrayLike) -> Array:
    """``δ(ε)`` of one step without replacement at any real ``ε``; ``whole`` is ``2r/σ``.

    ``q δ_{whole}(log(1 + (e^ε − 1)/q))`` for ``ε ≥ 0`` and ``1 − e^{−ε} + e^{−ε}δ(ε)`` at ``−ε``.

    Source: Balle, Barthe, Gaboardi 2018 (subsampling without replacement, substitution).
    """
    at = np.abs(np.asarray(epsilon, dtype=np.float64))
    positive = np.exp(math.log(rate) + log_gaussian_profile(whole, _inner(rate, at)))
    negative = -np.expm1(-at) + np.exp(-at) * positive
    return np.minimum(1.0, np.where(np.asarray(epsilon) >= 0, positive, negative))


def _inner(rate: float, epsilon: Array) -> Array:
    """``log(1 + (e^ε − 1)/q)`` for ``ε ≥ 0``."""
    # Of a rate so small that the quotient overflows, a larger one's: δ grows as this gets smaller.
    odds = np.expm1(np.minimum(epsilon, 30.0)) / max(rate, 1e-290)
    return np.where(epsilon > 30, epsilon - math.log(rate), np.log1p(odds))


def _from_profile(rate: float, whole: float, alpha: float) -> float:
    """``D_α`` from ``δ(ε)``: ``1 + α(α−1) ∫_0^∞ (e^{(α−1)ε} + e^{−αε}) δ(ε) dε = e^{(α−1)D_α}``."""
    top = whole * whole * alpha + whole * 12 + 12.0 / alpha
    while True:
        # Of steps that are all but free the orders reach too far for panels of such a width.
        if not top * 16 < _MOST_POINTS * whole / 4:
            return math.inf
        edges = _panels(rate, whole / 4, top)
        if not len(edges) * 16 < _MOST_POINTS:
            return math.inf
        x, log_weights = _nodes(edges)
        values = (
            math.log(rate)
            + log_gaussian_profile(whole, _inner(rate, x))
            + np.logaddexp((alpha - 1) * x, -alpha * x)
            + log_weights
        )
        peak = float(np.max(values))
        if values[-1] < peak - 45:
            break
        top *= 1.5
    scale = math.log(alpha) + math.log(alpha - 1) + peak + math.log(float(np.sum(np.exp(values - peak))))
    log_moment = math.log1p(math.exp(scale)) if scale < 30 else scale + math.exp(-scale)
    return log_moment * (1 + 1e-8) / (alpha - 1)


def _panels(rate: float, widest: float, top: float) -> Array:
    """Panel edges on ``[0, top]``, graded towards 0: the integrand is singular at ``log(1 − q) < 0``."""
    first = min(rate, widest) / 4
    graded = first * 1.5 ** np.arange(max(0, math.ceil(math.log(widest / first) / math.log(1.5))) + 1)
    begin = float(graded[-1])
    rest = begin + widest * np.arange(1, max(1, math.ceil((top - begin) / widest)) + 1)
    return np.concatenate([[0.0], graded, rest])


def _nodes(edges: Array) -> tuple[Array, Array]:
    """Gauss–Legendre nodes of all panels and the logarithms of their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    widths = np.diff(edges)
    x = edges[:-1, None] + widths[:, None] * (nodes + 1) / 2
    return x.ravel(), np.log(widths[:, None] * weights / 2).ravel()
