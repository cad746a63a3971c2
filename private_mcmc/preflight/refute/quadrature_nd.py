"""Violations in two or three dimensions: tensor quadrature cell by cell, the event a union of boxes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

from private_mcmc.preflight.refute.quadrature_1d import Array, Box, Violation, rounding_of, runs

# For each of two rules, the terms at its nodes and the log weights of the nodes.
Tables = tuple[tuple[Array, Array], ...]

# Panels on each axis and the nodes of the two rules on each panel, by dimension.
_PANELS = {1: 96, 2: 56, 3: 15}
_NODES = {1: (8, 12), 2: (5, 8), 3: (3, 4)}
# The ends of frames, the smallest that holds the mass first.
FRAME_ENDS = (3.0, 3.8, 5.0, 7.0)
_SAFETY = 3.0
_EDGE = 1e-7


@dataclass(frozen=True)
class Frame:
    """Where the mass is: ``θ = center + scale·sinh(t)`` on every axis, ``|t| ≤ end``."""

    center: Array
    scale: Array
    end: float

    @property
    def dim(self) -> int:
        """Number of axes."""
        return len(self.center)

    @property
    def edges(self) -> Array:
        """Ends of the panels in ``t``, the same on every axis."""
        return np.asarray(np.linspace(-self.end, self.end, _PANELS[self.dim] + 1), dtype=np.float64)

    def nodes(self, count: int) -> tuple[Array, Array]:
        """All tensor nodes ``(k, dim)`` and the logs of their weights, Jacobian included."""
        nodes, weights = leggauss(count)
        half = 0.5 * np.diff(self.edges)[0]
        t = (0.5 * (self.edges[1:] + self.edges[:-1])[:, None] + half * nodes[None, :]).ravel()
        log_weight = np.tile(np.log(half * weights), _PANELS[self.dim]) + np.log(np.cosh(t))
        grids = np.meshgrid(*([np.arange(len(t))] * self.dim), indexing="ij")
        points = np.stack(
            [self.center[i] + self.scale[i] * np.sinh(t[grids[i].ravel()]) for i in range(self.dim)], axis=1
        )
        logs = sum(log_weight[grid.ravel()] + math.log(s) for grid, s in zip(grids, self.scale, strict=True))
        return points, np.asarray(logs)

    def masses(self, logs: Array, count: int) -> Array:
        """Sums of ``exp(logs)`` over the cells, an array with one axis for each of ``dim``."""
        shape = (_PANELS[self.dim], count) * self.dim
        total: Array = np.exp(logs).reshape(shape).sum(axis=tuple(range(1, 2 * self.dim, 2)))
        return total


@dataclass(frozen=True)
class Masses:
    """Probabilities of the cells under one law, bounds of their errors, and the rounding of the density."""

    values: Array
    errors: Array
    outside: float
    rounding: float


Terms = Callable[[Array], Array]


def tabulate(frame: Frame, terms: Terms) -> Tables:
    """``terms`` (``(k, dim) -> (m, k)``) at the nodes of both rules, with the log weights."""
    tables = []
    for count in _NODES[frame.dim]:
        points, logs = frame.nodes(count)
        tables.append((terms(points), logs))
    return tuple(tables)


def cell_masses(frame: Frame, tables: Tables, weights: Array) -> Masses | None:
    """Cell probabilities of the law with potential ``weights @ terms``; ``None`` if the frame misses mass."""
    used = np.flatnonzero(weights)
    top: float | None = None
    both: list[Array] = []
    for (terms, log_weight), count in zip(tables, _NODES[frame.dim], strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            logs = log_weight - weights[used] @ terms[used]
        logs = np.where(np.isnan(logs), -np.inf, logs)
        top = float(np.max(logs)) if top is None else top
        if not (math.isfinite(top) and np.max(logs) < top + 600):
            return None
        both.append(frame.masses(logs - top, count))
    coarse, fine = both
    total = float(fine.sum())
    errors = _SAFETY * np.abs(fine - coarse) / total + 1e-13 * fine / total
    values = fine / total
    inner = values[(slice(1, -1),) * values.ndim]
    outside = 10 * max(float(values.sum() - inner.sum()), 0.0)
    # The largest sum of absolute terms at a node where the density matters.
    terms = tables[-1][0][used]
    with np.errstate(invalid="ignore", over="ignore"):
        logs = -(weights[used] @ terms)
    within = np.flatnonzero(logs > np.nanmax(logs) - 60)
    rounding = rounding_of(float(np.max(weights[used] @ np.abs(terms[:, within]))))
    if not (outside + float(errors.sum()) < 0.05 and rounding < 0.01):
        return None
    return Masses(values, errors, outside, rounding)


def compare(frame: Frame, p: Masses, q: Masses, epsilon: float, delta: float) -> Violation | None:
    """The event of all cells that help to refute ``P[A] ≤ e^ε Q[A] + δ``, if it does refute it."""
    scale, off = math.exp(min(epsilon, 700.0)), max(p.rounding, q.rounding)
    low, high = p.values * (1 - off) - p.errors, q.values * (1 + off) + q.errors
    chosen = low - scale * high > 0
    if not chosen.any():
        return None
    # Mass outside the frame and errors of the totals can only have inflated P and deflated Q.
    slack_p, slack_q = p.outside + float(p.errors.sum()), q.outside + float(q.errors.sum())
    p_low = float(low[chosen].sum()) * (1 - slack_p)
    q_high = float(high[chosen].sum()) * (1 + 2 * slack_q)
    if not p_low - scale * q_high - delta > 0:
        return None
    values = float(p.values[chosen].sum()), float(q.values[chosen].sum())
    return Violation(_boxes(frame, chosen), *values, p_low, q_high)


def holds_the_mass(masses: Masses | None) -> bool:
    """Whether next to nothing lies outside the frame and the rules agree."""
    return masses is not None and masses.outside < 10 * _EDGE and float(masses.errors.sum()) < 1e-4


def _boxes(frame: Frame, chosen: NDArray[np.bool_]) -> tuple[Box, ...]:
    """The chosen cells, runs along the last axis joined."""
    theta = [c + s * np.sinh(frame.edges) for c, s in zip(frame.center, frame.scale, strict=True)]
    boxes = []
    for cell in product(*(range(size) for size in chosen.shape[:-1])):
        for start, stop in runs(chosen[cell]):
            sides = zip(theta, (*cell, start), (*cell, stop), strict=True)
            boxes.append(tuple((float(axis[low]), float(axis[high + 1])) for axis, low, high in sides))
    return tuple(boxes)
