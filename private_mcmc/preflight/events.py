"""Events that tell two laws on a line apart, their probabilities integrated with an error estimate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

Array = NDArray[np.float64]
# Values at points of a line: ``(k,) -> (…, k)``.
Curve = Callable[[Array], Array]
Intervals = tuple[tuple[float, float], ...]

_NEGLIGIBLE = 60.0
_T = np.linspace(-3.5, 3.5, 801)

# Two Gauss–Legendre rules on the same panels; their difference, enlarged, stands for the error.
_COARSE, _FINE = leggauss(10), leggauss(16)
_ORDER = np.argsort(np.concatenate([_COARSE[0], _FINE[0]]))
_NODES = np.concatenate([_COARSE[0], _FINE[0]])[_ORDER]
_RULES = np.stack(
    [np.concatenate([_COARSE[1], np.zeros(16)])[_ORDER], np.concatenate([np.zeros(10), _FINE[1]])[_ORDER]]
)
_SAFETY, _ROUNDING = 10.0, 1e-12
_MIDDLE = len(_NODES) // 2
_MOST_PANELS, _ROUNDS, _AT_CROSSINGS = 8000, 60, 24


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


@dataclass(frozen=True)
class Axis:
    """``θ = center + scale·sinh(t)``, ``|t| ≤ end``: heavy tails and narrow peaks on one axis."""

    center: float
    scale: float
    end: float = 3.5

    def edges(self) -> Array:
        """Ends of panels to begin with."""
        return np.linspace(-self.end, self.end, math.ceil(2 * self.end / 0.2) + 1)

    def theta(self, t: Array) -> Array:
        """The point at ``t``."""
        return self.center + self.scale * np.sinh(t)

    def logs(self, laws: Curve, t: Array) -> Array:
        """Log densities with respect to ``t``; what is not a number counts as no mass."""
        values = (
            laws(self.theta(t.ravel())) + math.log(self.scale) + np.logaddexp(t, -t).ravel() - math.log(2)
        )
        return np.where(np.isnan(values), -np.inf, values).reshape(-1, *t.shape)


def log_laws(laws: Curve, axis: Axis) -> Array:
    """Log probabilities of cells of an axis under every law; ``−∞`` where a density is not a number."""
    with np.errstate(invalid="ignore", over="ignore"):
        logs = axis.logs(laws, _T)
        top = logs.max(axis=1, keepdims=True)
        total: Array = logs - top - np.log(np.exp(logs - top).sum(axis=1, keepdims=True))
    return total


def mass_at(laws: Curve) -> tuple[float, float] | None:
    """Mean and spread of the even mixture of some laws, by sums over a grid that follows the mass."""
    center, scale = 0.0, 3.0
    for _ in range(40):
        axis = Axis(center, scale)
        points, logs = axis.theta(_T), log_laws(laws, axis)
        if not np.all(np.isfinite(logs.max(axis=1))):
            return None
        mass = np.exp(logs).mean(axis=0)
        if mass[0] + mass[-1] > 1e-3:
            scale *= 8
            continue
        mean = float(mass @ points)
        spread = math.sqrt(max(float(mass @ (points - mean) ** 2), (0.02 * scale) ** 2))
        settled = abs(mean - center) < 0.05 * scale and abs(spread / scale - 1) < 0.05
        center, scale = mean, spread
        if settled:
            return center, scale
    return None


@np.errstate(all="ignore")
def violation(laws: Curve, epsilon: float, delta: float, *, sizes: Curve | None = None) -> Violation | None:
    """An event refuting ``P[A] ≤ e^ε Q[A] + δ`` for two laws on ℝ, ``laws`` their log densities ``(2, k)``.

    The event is a union of panels on which the log ratio of the densities exceeds ε. Every event would do:
    the answer is sound because both probabilities are integrated adaptively, and the error estimate counts
    against the refutation, as does the rounding of log densities that are sums of terms of the magnitudes
    ``sizes``. ``None`` if no event violates, if a density does not decay, or if the integrals do not settle.
    """
    place = mass_at(laws)
    axis = None if place is None else _axis(laws, *place)
    on = None if axis is None else _panels(laws, axis, epsilon)
    if axis is None or on is None:
        return None
    total, error = on.mass.sum(axis=1), on.errors.sum(axis=1)
    if not np.all(error < 1e-3 * total):
        return None
    logs = on.logs - np.log(total)[:, None, None]
    near = logs.max(axis=(0, 2)) > -_NEGLIGIBLE
    chosen = near & (logs[0, :, _MIDDLE] - logs[1, :, _MIDDLE] > epsilon)
    if not chosen.any():
        return None
    share = on.mass[:, chosen].sum(axis=1) / total
    off = (on.errors[:, chosen].sum(axis=1) + share * error) / (total - error) + _ROUNDING
    size = np.abs((laws if sizes is None else sizes)(axis.theta(_nodes(on.edges)).ravel()))
    rounded = 1e-9 + 2.0**-47 * float(np.max(size.reshape(logs.shape)[on.logs > -_NEGLIGIBLE]))
    p_low = float(max(share[0] * (1 - rounded) - off[0], 0.0))
    q_high = float(min(share[1] * (1 + rounded) + off[1], 1.0))
    if not (rounded < 0.01 and p_low - math.exp(min(epsilon, 700.0)) * q_high - delta > 0):
        return None
    ends, (first, last) = axis.theta(on.edges), np.flatnonzero(near)[[0, -1]]
    changes = np.flatnonzero(np.diff(chosen, prepend=False, append=False)).reshape(-1, 2)
    intervals = tuple(
        (-math.inf if start <= first else float(ends[start]), math.inf if stop > last else float(ends[stop]))
        for start, stop in changes.tolist()
    )
    return Violation(intervals, float(share[0]), float(share[1]), p_low, q_high)


def _axis(laws: Curve, center: float, scale: float) -> Axis | None:
    """One axis for both laws; ``None`` if one of them does not decay."""
    for end in (6.0, 8.0, 12.0, 20.0, 40.0, 80.0, 160.0, 320.0):
        axis = Axis(center, scale, end)
        top = axis.logs(laws, _nodes(axis.edges())).max(axis=(1, 2))
        tail = axis.logs(laws, np.array([-2.0, -1.5, -1.0, 1.0, 1.5, 2.0]) * end)
        if np.all(tail.max(axis=1) < top - _NEGLIGIBLE):
            return axis
    return None


@dataclass(frozen=True, eq=False)
class _Panels:
    """Panels ``edges`` of an axis: log densities at their nodes less the highest, integrals, error bounds."""

    edges: Array
    logs: Array
    mass: Array
    errors: Array


def _panels(laws: Curve, axis: Axis, epsilon: float) -> _Panels | None:
    """Panels bisected until every peak is seen, errors are small, and the event's ends are met."""
    edges = axis.edges()
    logs = axis.logs(laws, _nodes(edges))
    for round_ in range(_ROUNDS):
        tops = logs.max(axis=(1, 2))
        if not np.all(np.isfinite(tops)):
            return None
        below = logs - tops[:, None, None]
        both = 0.5 * np.diff(edges)[:, None] * (np.exp(below) @ _RULES.T)
        mass = both[..., 1]
        errors = _SAFETY * np.abs(mass - both[..., 0]) + _ROUNDING * mass
        total = mass.sum(axis=1, keepdims=True)
        rough = (errors > 1e-11 * total / len(edges)) & (errors.sum(axis=1, keepdims=True) > 1e-10 * total)
        hidden = _hidden(below)
        bad = rough.any(axis=0) | hidden
        if round_ < _AT_CROSSINGS:
            ratio = np.nan_to_num(below[0] - below[1] - np.log(total[0] / total[1]) - epsilon)
            bad |= (ratio.min(axis=1) < 0) & (ratio.max(axis=1) > 0) & (mass[0] > 1e-10 * total[0])
        if not bad.any() or len(edges) + bad.sum() > _MOST_PANELS:
            return None if hidden.any() else _Panels(edges, below, mass, errors)
        halved = np.repeat(bad, 1 + bad)
        edges = np.insert(edges, np.flatnonzero(bad) + 1, 0.5 * (edges[1:] + edges[:-1])[bad])
        old, logs = logs, np.empty((2, len(halved), len(_NODES)))
        logs[:, ~halved] = old[:, ~bad]
        logs[:, halved] = axis.logs(laws, _nodes(edges)[halved])
    return None


def _hidden(below: Array) -> NDArray[np.bool_]:
    """Panels in or beside which a peak, at a node or between some, may be higher than it looks.

    Between nodes a peak is higher than at the highest of them by no more than a small multiple of how much
    lower its neighbours are.
    """
    flat = below.reshape(len(below), -1)
    middle, before, after = flat[:, 1:-1], flat[:, :-2], flat[:, 2:]
    high = middle + 20 * np.maximum(middle - before, middle - after) > -_NEGLIGIBLE
    peak = np.zeros(flat.shape, dtype=bool)
    peak[:, 1:-1] = (middle > before) & (middle >= after) & high & np.isfinite(middle)
    steep = np.ptp(np.maximum(below, -1e300), axis=2) > 8
    found: NDArray[np.bool_] = (peak.reshape(below.shape).any(axis=2) & steep).any(axis=0)
    wide = np.pad(found, 1)
    beside: NDArray[np.bool_] = wide[:-2] | wide[1:-1] | wide[2:]
    return beside


def _nodes(edges: Array) -> Array:
    """The nodes of both rules in every panel, in order, ``(panels, nodes)``."""
    low, high = edges[:-1, None], edges[1:, None]
    nodes: Array = 0.5 * (low + high) + 0.5 * (high - low) * _NODES
    return nodes
