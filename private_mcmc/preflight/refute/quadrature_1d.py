"""Events that tell two laws on a line apart, their probabilities integrated with an error estimate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

Array = NDArray[np.float64]
LogDensity = Callable[[Array], Array]

NEGLIGIBLE = 60.0
_FARTHEST = 1e12
_MOST_PEAKS = 6


@dataclass(frozen=True)
class Peak:
    """A local maximum at ``at`` whose log density falls by 0.5 within ``width``."""

    at: float
    width: float


@dataclass(frozen=True)
class Axis:
    """``θ = center + scale·sinh(t)``, ``|t| ≤ end``: heavy tails and narrow peaks on one axis."""

    center: float
    scale: float
    end: float
    peaks: tuple[Peak, ...]

    def theta(self, t: Array) -> Array:
        """The parameter at ``t``."""
        return self.center + self.scale * np.sinh(t)

    def t(self, theta: Array) -> Array:
        """The inverse of ``theta``, clipped to the axis."""
        return np.clip(np.arcsinh((theta - self.center) / self.scale), -self.end, self.end)

    def log_jacobian(self, t: Array) -> Array:
        """``log dθ/dt``."""
        return math.log(self.scale) + np.logaddexp(t, -t) - math.log(2.0)

    def grid(self) -> Array:
        """Points in ``t``: evenly over the axis and densely over every peak."""
        parts = [np.linspace(-self.end, self.end, 4001)]
        for peak in self.peaks:
            parts.append(self.t(np.linspace(peak.at - 12 * peak.width, peak.at + 12 * peak.width, 1201)))
        return np.unique(np.concatenate(parts))

    def panels(self) -> Array:
        """Ends of panels in ``t``, graded around every peak, so that no peak hides between nodes."""
        parts = [np.linspace(-self.end, self.end, max(3, math.ceil(2 * self.end / 0.2) + 1))]
        for peak in self.peaks:
            steps = peak.width * np.concatenate([np.arange(1, 17) / 2, 2.0 ** np.arange(4, 44)])
            parts.append(self.t(peak.at + np.concatenate([-steps, [0.0], steps])))
        return np.unique(np.concatenate(parts))


def integrand(density: LogDensity, axis: Axis, t: Array) -> Array:
    """Log density with respect to ``t``; what is not a number counts as no mass."""
    values = np.asarray(density(axis.theta(t)), dtype=np.float64) + axis.log_jacobian(t)
    return np.where(np.isnan(values), -np.inf, values)


def axis(densities: tuple[LogDensity, ...]) -> Axis | None:
    """One axis for several densities; ``None`` if one of them does not decay or has no peak."""
    peaks: list[Peak] = []
    for density in densities:
        found = _peaks(density)
        if not found:
            return None
        peaks += found
    places = [peak.at for peak in peaks]
    center = 0.5 * (min(places) + max(places))
    scale = max(peak.width for peak in peaks) + 0.5 * (max(places) - min(places))
    for end in (6.0, 8.0, 12.0, 20.0, 40.0, 80.0, 160.0, 320.0):
        on = Axis(center, scale, end, tuple(peaks))
        tail = np.array([-2.0, -1.5, -1.0, 1.0, 1.5, 2.0]) * end
        if all(
            np.all(integrand(density, on, tail) < np.max(integrand(density, on, on.grid())) - NEGLIGIBLE)
            for density in densities
        ):
            return on
    return None


def _peaks(density: LogDensity) -> list[Peak]:
    """Every local maximum found on a grid over all scales, refined, highest first."""
    positive = np.geomspace(1e-8, _FARTHEST, 1600)
    grid = np.concatenate([-positive[::-1], [0.0], positive])
    values = _values(density, grid)
    inner = (
        np.flatnonzero(
            (values[1:-1] >= values[:-2]) & (values[1:-1] >= values[2:]) & np.isfinite(values[1:-1])
        )
        + 1
    )
    if len(inner) == 0 or not values[inner].max() > max(values[0], values[-1]):
        return []
    highest = inner[np.argsort(-values[inner], kind="stable")]
    kept = [index for index in highest if values[index] > values[highest[0]] - NEGLIGIBLE][:_MOST_PEAKS]
    found = [_refined(density, float(grid[index - 1]), float(grid[index + 1])) for index in kept]
    peaks = [peak for peak in found if peak is not None]
    # Nothing is integrated where a density overflows.
    return peaks if all(math.isfinite(peak.width) for peak in peaks) else []


def _refined(density: LogDensity, low: float, high: float) -> Peak | None:
    at, top = low, -math.inf
    for _ in range(3):
        grid = np.linspace(low, high, 401)
        values = _values(density, grid)
        best = int(np.argmax(values))
        at, top = float(grid[best]), float(values[best])
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 400)])
    if not math.isfinite(top):
        return Peak(at, math.inf)
    steps = np.geomspace(1e-9, _FARTHEST, 1800)
    widths = []
    for sign in (-1.0, 1.0):
        far = np.flatnonzero(~(top - _values(density, at + sign * steps) < 0.5))
        if len(far) == 0:
            return None
        widths.append(float(steps[far[0]]))
    return Peak(at, max(widths))


def _values(density: LogDensity, theta: Array) -> Array:
    values = np.asarray(density(theta), dtype=np.float64)
    return np.where(np.isnan(values), -np.inf, values)


Intervals = tuple[tuple[float, float], ...]

# Two Gauss–Legendre rules on the same panels; their difference, enlarged, stands for the error.
_COARSE = leggauss(10)
_FINE = leggauss(16)
_SAFETY = 10.0
_ROUNDING = 1e-12
_MOST_PANELS = 4000


@dataclass(frozen=True)
class Violation:
    """An event under which two laws differ by more than (ε, δ): ``p_low > e^ε q_high + δ``.

    Attributes:
        intervals: the event, a union of intervals.
        p: its probability under the first law; ``p_low`` the same less the quadrature error.
        q: its probability under the second law; ``q_high`` the same plus the quadrature error.
    """

    intervals: Intervals
    p: float
    q: float
    p_low: float
    q_high: float


def rounding_of(magnitude: float) -> float:
    """Relative error of a density whose logarithm is a float64 sum of terms of this magnitude, generously."""
    return 1e-9 + 2.0**-47 * magnitude


def violation(
    log_p: LogDensity,
    log_q: LogDensity,
    epsilon: float,
    delta: float,
    *,
    sizes: tuple[LogDensity, LogDensity] | None = None,
) -> Violation | None:
    """An event refuting ``P[A] ≤ e^ε Q[A] + δ`` for the laws with these unnormalised log densities on ℝ.

    The candidate event is where the log ratio of the densities exceeds ε on a grid. Every event would
    do: the answer is sound because both probabilities are then integrated adaptively, and the error
    estimate counts against the refutation, as does the rounding of log densities that are sums of terms
    of the magnitudes ``sizes``. ``None`` if no event violates, if a density does not decay, or if the
    integrals do not settle.
    """
    shared = axis((log_p, log_q))
    if shared is None:
        return None
    intervals = _event(log_p, log_q, shared, epsilon)
    if not intervals:
        return None
    p = probability(log_p, shared, intervals)
    q = probability(log_q, shared, intervals)
    if p is None or q is None:
        return None
    own = (log_p, log_q) if sizes is None else sizes
    off = max(rounding_of(_largest(size, log, shared)) for size, log in zip(own, (log_p, log_q), strict=True))
    if not off < 0.01:
        return None
    p_low, q_high = max(p[0] * (1 - off) - p[1], 0.0), min(q[0] * (1 + off) + q[1], 1.0)
    if not p_low - math.exp(min(epsilon, 700.0)) * q_high - delta > 0:
        return None
    return Violation(intervals, p[0], q[0], p_low, q_high)


def probability(log_density: LogDensity, on: Axis, intervals: Intervals) -> tuple[float, float] | None:
    """Probability of a union of intervals and an error bound; ``None`` if the integral does not settle."""
    ends = on.t(np.array([end for pair in intervals for end in pair]))
    edges = np.unique(np.concatenate([on.panels(), ends]))
    top = float(np.max(integrand(log_density, on, on.grid())))
    left, right, values, errors = _integrate(log_density, on, edges, top)
    middle = 0.5 * (left + right)
    chosen = np.zeros(middle.shape, dtype=bool)
    for low, high in ends.reshape(-1, 2):
        chosen |= (middle > low) & (middle < high)
    total, error = float(values.sum()), float(errors.sum())
    if not error < 1e-3 * total:
        return None
    share = float(values[chosen].sum()) / total
    return share, (float(errors[chosen].sum()) + share * error) / (total - error) + _ROUNDING


def _largest(size: LogDensity, log_density: LogDensity, on: Axis) -> float:
    """The largest magnitude where the law has its mass."""
    t = on.grid()
    logs = integrand(log_density, on, t)
    within = t[logs > np.max(logs) - NEGLIGIBLE]
    return float(np.max(np.abs(size(on.theta(within)))))


def _event(log_p: LogDensity, log_q: LogDensity, on: Axis, epsilon: float) -> Intervals:
    """Where the log ratio exceeds ε; an interval that reaches the end of the mass becomes a half line."""
    t = on.grid()
    theta = on.theta(t)
    p, q = _normalised(log_p, on, t), _normalised(log_q, on, t)
    matters = np.maximum(p, q) > -NEGLIGIBLE
    if not matters.any():
        return ()
    with np.errstate(invalid="ignore"):
        inside = (p - q > epsilon) & matters
    first, last = np.flatnonzero(matters)[[0, -1]]
    found = []
    for start, stop in runs(inside):
        low = -math.inf if start <= first else float(theta[start])
        high = math.inf if stop >= last else float(theta[stop])
        if high > low:
            found.append((low, high))
    return tuple(found)


def _normalised(log_density: LogDensity, on: Axis, t: Array) -> Array:
    """Log density in ``t`` less its log integral by the trapezoid rule: good enough to choose an event."""
    values = integrand(log_density, on, t)
    values = values - np.max(values)
    weights = np.exp(values)
    return values - math.log(float(np.sum(0.5 * (weights[1:] + weights[:-1]) * np.diff(t))))


def _integrate(
    log_density: LogDensity, on: Axis, edges: Array, top: float
) -> tuple[Array, Array, Array, Array]:
    """Integrals over panels, bisecting the worst until the estimate of the total error is small."""
    left, right = edges[:-1], edges[1:]
    values, errors = _panel_integrals(log_density, on, left, right, top)
    for _ in range(30):
        total = values.sum()
        bad = errors > 1e-11 * total / len(left)
        if not bad.any() or errors.sum() < 1e-10 * total or len(left) + bad.sum() > _MOST_PANELS:
            break
        middle = 0.5 * (left[bad] + right[bad])
        halves = np.concatenate([left[bad], middle]), np.concatenate([middle, right[bad]])
        new_values, new_errors = _panel_integrals(log_density, on, *halves, top)
        left, right = np.concatenate([left[~bad], halves[0]]), np.concatenate([right[~bad], halves[1]])
        values = np.concatenate([values[~bad], new_values])
        errors = np.concatenate([errors[~bad], new_errors])
    return left, right, values, errors


def _panel_integrals(
    log_density: LogDensity, on: Axis, left: Array, right: Array, top: float
) -> tuple[Array, Array]:
    half = 0.5 * (right - left)
    middle = 0.5 * (right + left)
    nodes = np.concatenate([_COARSE[0], _FINE[0]])
    t = middle[:, None] + half[:, None] * nodes[None, :]
    values = np.exp(np.minimum(integrand(log_density, on, t.ravel()).reshape(t.shape) - top, 700.0))
    split = len(_COARSE[0])
    coarse = half * (values[:, :split] @ _COARSE[1])
    fine = half * (values[:, split:] @ _FINE[1])
    return fine, _SAFETY * np.abs(fine - coarse) + _ROUNDING * fine


def runs(inside: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last index of every run of true values."""
    padded = np.concatenate([[False], inside, [False]])
    changes = np.flatnonzero(padded[1:] != padded[:-1])
    return [(int(a), int(b) - 1) for a, b in zip(changes[::2], changes[1::2], strict=True)]
