"""Where a one-dimensional density has its mass: its peaks, their widths, and how far out it matters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LogDensity = Callable[[Array], Array]

NEGLIGIBLE = 60.0
_FARTHEST = 1e12
_MOST_PEAKS = 6


@dataclass(frozen=True)
class Peak:
    """A local maximum at ``at`` whose log density falls by 0.5 within ``width``; its height is ``top``."""

    at: float
    width: float
    top: float


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
        result = Axis(center, scale, end, tuple(peaks))
        if all(_decays(density, result) for density in densities):
            return result
    return None


def _decays(density: LogDensity, on: Axis) -> bool:
    top = np.max(integrand(density, on, on.grid()))
    tail = integrand(density, on, np.array([-2.0, -1.5, -1.0, 1.0, 1.5, 2.0]) * on.end)
    return bool(np.all(tail < top - NEGLIGIBLE))


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
    return [peak for peak in found if peak is not None]


def _refined(density: LogDensity, low: float, high: float) -> Peak | None:
    at, top = low, -math.inf
    for _ in range(3):
        grid = np.linspace(low, high, 401)
        values = _values(density, grid)
        best = int(np.argmax(values))
        at, top = float(grid[best]), float(values[best])
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 400)])
    steps = np.geomspace(1e-9, _FARTHEST, 1800)
    widths = []
    for sign in (-1.0, 1.0):
        far = np.flatnonzero(~(top - _values(density, at + sign * steps) < 0.5))
        if len(far) == 0:
            return None
        widths.append(float(steps[far[0]]))
    return Peak(at, max(widths), top)


def _values(density: LogDensity, theta: Array) -> Array:
    values = np.asarray(density(theta), dtype=np.float64)
    return np.where(np.isnan(values), -np.inf, values)
