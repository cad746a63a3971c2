"""One posterior draw of a one-dimensional regression, behind propose–test–release (Heller, Fetaya)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.papers.propose_test_release import LowerBound
from private_mcmc.domains.columns import numeric_column
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.release.noise import FloatArray, StateGrid, laplace_noise, opendp, power_of_two_below
from private_mcmc.target import Adjacency, check_adjacency, is_number

_UNIT = 2.0**-53
# No data set has so many.
_MOST_ROWS = 1e30
# Posteriors so many sds apart share nothing.
_TOO_FAR = 1e100
# Within these no power of them that is needed overflows or vanishes.
_RANGES = {
    "epsilon": (1e-9, 1e6),
    "delta": (1e-300, 0.5),
    "x_low": (1e-12, 1e12),
    "x_high": (1e-12, 1e12),
    "prior_precision": (1e-30, 1e30),
    "noise_precision": (1e-30, 1e30),
    "rho1": (1.0, 1.5),
    "rho2": (0.0, 0.5),
    "gamma1": (0.0, 0.5),
}
_UP = 1 + 1e-9


@dataclass(frozen=True)
class ProposeTestSample:
    """``y = θx + N(0, 1/β)``, ``θ ~ N(0, 1/α)``; rows with a far-out ``y/x`` are set aside, privately.

    Rows are clipped to ``x_l ≤ x ≤ x_h``, ``y ≥ 0``. A noised number of rows ``n̆_1`` bounds the ratios that
    enter a noised slope ``m̆``; rows within ``n_2^{ρ2}`` of it form ``W``; if a noised ``|W|`` reaches
    ``n_min(n_2, m̆)`` one draw of the posterior given ``W`` is released.

    **Guarantee**: ``(5ε, 2δ)``-DP for adding, removing, emptying or replacing a row. ``n_min`` is
    ``certified_size``, at which the two Gaussian posteriors are ``(ε, δ)``-close by a bound on their privacy
    loss. The paper's own ``n_min``, whose proof covers replaced rows and takes ``n − 1 ≈ n``, is larger;
    with ``paper_size`` the larger of both is asked for.
    **Assumptions**: the numbers here are public.
    **Cost**: in rows. At ``ε = 1``, ``δ = 1e-5``, ``β = 3`` and the default exponents some 30,000 rows pass
    with ``x_l = 0.9 x_h``, millions with ``x_l = 0.5 x_h``.
    Source: Heller, Fetaya 2023, Algorithm 1 and (33), with ``n_2`` for the private ``n_1`` in (33), as in its
    proof; ``m̆`` is floored at 0, and ``n̆_1 ≤ 0`` refuses.

    Attributes:
        epsilon, delta: of one of the five steps; ``δ < 1/2``.
        x_low, x_high: bounds of the regressor, ``0 < x_l < x_h``.
        prior_precision, noise_precision: ``α > 0`` and ``β ≥ 3/x_h²``.
        rho1, rho2, gamma1: ``ρ1 ∈ (1, 3/2)``, ``ρ2 ∈ (0, 1/2)``, ``γ1 ∈ (ρ2, 1/2)``.
        paper_size: ask for the paper's ``n_min`` too, which alone uses ``γ1``.
    """

    epsilon: float
    delta: float
    x_low: float
    x_high: float
    prior_precision: float
    noise_precision: float
    rho1: float = 1.001
    rho2: float = 0.15
    gamma1: float = 0.2
    paper_size: bool = False
    adjacency: Adjacency = "replace_one"

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if not (is_number(value) and least <= value <= most):
                raise DeclarationError(
                    f"ProposeTestSample needs a number in [{least:g}, {most:g}] for {name}, not {value!r}; "
                    "choose units in which it is."
                )
            object.__setattr__(self, name, float(value))
        conditions = {
            "delta < 1/2": self.delta < 0.5,
            "x_low < x_high": self.x_low < self.x_high,
            "noise_precision >= 3/x_high²": 3 / self.x_high**2 <= self.noise_precision,
            "1 < rho1 < 3/2": 1 < self.rho1 < 1.5,
            "0 < rho2 < gamma1 < 1/2": 0 < self.rho2 < self.gamma1 < 0.5,
        }
        broken = [name for name, holds in conditions.items() if not holds]
        if broken:
            raise DeclarationError(f"ProposeTestSample needs {', '.join(broken)}.")

    @property
    def price(self) -> tuple[float, float]:
        """``(5ε, 2δ)``, of a refusal too: five steps, two of which may fail (Claim IV.8)."""
        return 5 * self.epsilon, 2 * self.delta

    def release(self, x: npt.ArrayLike, y: npt.ArrayLike) -> float | None:
        """A posterior draw, or ``None`` for a refusal. ``x, y`` of shape ``(n,)`` are curator-side.

        Raises:
            DataSchemaError: for wrong shapes or types, or masks; never about values.
        """
        xs, ys = self._clipped(x, y)
        bound = LowerBound(self.epsilon, self.delta)
        rows = bound.release(len(xs))
        if not rows > 0:
            return None
        largest_ratio = rows**self.rho1
        inside = ys <= largest_ratio * xs
        count = bound.release(int(inside.sum()))
        if not count > 1:
            return None
        slope = self._slope(xs[inside], ys[inside], largest_ratio, count)
        near = np.abs(ys - slope * xs) <= count**self.rho2 * xs
        if not bound.release(int(near.sum())) >= self.smallest_size(count, slope):
            return None
        return self._draw(xs[near], ys[near], count)

    def smallest_size(self, count: float, slope: float) -> float:
        """``n_min`` at the released ``n_2`` and ``m̆``."""
        certified = self.certified_size(count, slope)
        return max(self.size_of_paper(count, slope), certified) if self.paper_size else certified

    def size_of_paper(self, count: float, slope: float) -> float:
        """``n_min`` of (33), with ``n_2^{ρ2/γ1}``."""
        spread = self.x_high**2 / self.x_low**2
        order = 2 * math.log(1 / self.delta) / self.epsilon + 1
        a, b, g, e = self.prior_precision, self.noise_precision, self.gamma1, self.epsilon
        precision = a + self.x_high**2 * b
        fourth = 32 * order / e * self.x_high**4 * precision / (0.9 * self.x_low**4)
        sixth = order / e * self.x_high**4 * precision**2 / (0.9 * self.x_low**6 * b)
        bounds = (
            1 + spread * 8 / e,
            1 + order * spread * (1 + 8 * (order - 1) / e),
            _power(16 * order * b * self.x_high**4 / (0.9 * e * self.x_low**2), 1 / (1 - 2 * g)),
            (fourth * slope) ** (1 / (2 - g)),
            fourth ** (1 / (2 - 2 * g)),
            (4 * sixth) ** (1 / 3) * (2 * slope) ** (2 / 3),
            (16 * sixth) ** (1 / (3 - 2 * g)),
            1 + spread * 10 * order / b,
            1 + order * spread,
            _power(count, self.rho2 / g),
        )
        return float(max(bounds))

    def certified_size(self, count: float, slope: float) -> float:
        """Least power-of-two multiple found at which ``posterior_loss`` is at most ``ε``."""
        size = max(2.0, self.prior_precision / (self.noise_precision * self.x_low**2))
        high = size
        while not self.posterior_loss(high, count, slope) <= self.epsilon:
            size, high = high, 2 * high
            if high > _MOST_ROWS:
                return math.inf
        for _ in range(60):
            middle = (size + high) / 2
            enough = self.posterior_loss(middle, count, slope) <= self.epsilon
            size, high = (size, middle) if enough else (middle, high)
        return high

    def posterior_loss(self, size: float, count: float, slope: float) -> float:
        """Bound, exceeded with probability at most ``δ``, on the privacy loss between the two posteriors.

        ``W, W'`` differ in one row that is replaced or missing, the larger one has ``size`` rows or more,
        each with ``|y/x − m̆| ≤ r``. With precisions ``P, P' ≥ P_0 = α + β(n−1)x_l²``,
        ``κ = βx_h²/P_0 ≥ |P'/P − 1|`` and ``t = √P|μ − μ'|``, the loss at ``μ + z/√P`` is at most
        ``½|log(1−κ)| + ½κz² + (1+κ)(t|z| + t²/2)``.
        It decreases in ``size ≥ max(2, α/(βx_l²))``.
        """
        from scipy.special import ndtri

        a, b, top = self.prior_precision, self.noise_precision, self.x_high**2
        radius = count**self.rho2
        least = a + b * (size - 1) * self.x_low**2
        kappa = b * top / least
        if not kappa < 0.5:
            return math.inf
        moved = slope * a * b * top / least**2 + 3 * b * radius * top / least
        rounding = 64 * _UNIT * (slope + radius)
        shift = math.sqrt(a + b * size * top) * (moved + rounding) * _UP
        if not shift < _TOO_FAR:
            return math.inf
        tail = -float(ndtri(self.delta / 2)) * _UP
        spread = 0.5 * -math.log1p(-kappa) + 0.5 * kappa * tail**2
        return float(spread + (1 + kappa) * (shift * tail + shift**2 / 2)) * _UP

    def _clipped(self, x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        xs, ys = (numeric_column(name, column).astype(np.float64) for name, column in (("x", x), ("y", y)))
        if xs.ndim != 1 or xs.shape != ys.shape:
            raise DataSchemaError("x and y: two columns of the same length are needed.")
        xs = np.clip(np.where(np.isnan(xs), self.x_low, xs), self.x_low, self.x_high)
        return xs, np.maximum(np.where(np.isnan(ys), 0.0, ys), 0.0)

    def _slope(self, x: FloatArray, y: FloatArray, largest_ratio: float, count: float) -> float:
        """``m̆``: the least-squares slope through the origin with Laplace noise, floored at 0."""
        low, high = self.x_low**2, self.x_high**2
        change = (2 * (count - 1) * high * low + high**2) / (count * (count - 1) * low**2)
        # Exactly rounded sums of non-negative terms: the slope is off by a few roundings of itself.
        sensitivity = largest_ratio * (change * _UP + 32 * _UNIT)
        total = math.fsum((x * x).tolist())
        slope = math.fsum((x * y).tolist()) / total if total > 0 else 0.0
        return max(0.0, float(laplace_noise(self.epsilon, sensitivity).release(slope)[0]))

    def _draw(self, x: FloatArray, y: FloatArray, count: float) -> float:
        """A Gaussian draw in exact arithmetic, rounded to a grid that depends on released numbers only."""
        precision = self.prior_precision + self.noise_precision * math.fsum((x * x).tolist())
        mean = self.noise_precision * math.fsum((x * y).tolist()) / precision
        dp = opendp()
        space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
        draw = dp.m.make_gaussian(*space, scale=1 / math.sqrt(precision))(mean)
        typical = 1 / math.sqrt(self.prior_precision + self.noise_precision * count * self.x_high**2)
        return float(StateGrid(power_of_two_below(typical) * 2.0**-24).round(draw))


def _power(base: float, exponent: float) -> float:
    """``base ** exponent`` for a base that is not negative, ``inf`` where it overflows."""
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf
