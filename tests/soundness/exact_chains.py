"""Exact laws of one-dimensional chains on batches, by quadrature: NumPy alone, nothing of the accountant.

A law is a finite set of points with masses, the nodes of a quadrature rule. What is released is told apart
on cells, so that every divergence computed here is one of coarser laws: at most the exact one, up to the
quadrature (far below 1e-10 for the noises used).
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Law = tuple[Array, Array]
Row = float | None  # a row's value; None is an empty slot
Mixture = list[tuple[float, tuple[float, ...]]]  # probabilities of batches, as the values of their rows

_CELLS = 240
_MOST_ROWS = 3  # that bend: the points must be those of every data set
_ERFC = np.vectorize(math.erfc, otypes=[float])
# Φ on a fine grid with its derivatives: one Taylor step from the nearest node is exact to 1e-15.
_KNOTS = np.arange(-40, 40.0005, 1 / 256)
_AT_KNOTS = 0.5 * _ERFC(-_KNOTS / math.sqrt(2))


def cdf(x: Array) -> Array:
    """``Φ(x)``."""
    x = np.clip(x, -39.9, 39.9)
    near = np.rint((x + 40) * 256).astype(int)
    at = _KNOTS[near]
    d = x - at
    slope = np.exp(-0.5 * at * at) / math.sqrt(2 * math.pi)
    series = 1 - at * d / 2 + (at**2 - 1) * d**2 / 6 - (at**3 - 3 * at) * d**3 / 24
    return _AT_KNOTS[near] + slope * d * (series + (at**4 - 6 * at**2 + 3) * d**4 / 120)


@dataclass(frozen=True)
class Family:
    """``U = K + Σ v_i`` by gradients, with constants that hold for every row.

    ``prior`` and ``row`` are ``K'`` and ``(x, value) ↦ v'``; ``low ≤ K'' ≤ high``, ``|v'| ≤ clip``,
    ``|v''| ≤ bend``, ``v'' ≥ 0`` where ``convex``.
    """

    name: str
    prior: Callable[[Array], Array]
    low: float
    high: float
    row: Callable[[Array, float], Array]
    values: tuple[float, ...]
    clip: float
    bend: float
    convex: bool

    def steepest(self, step: float, rows: float) -> float:
        """``max |1 − γU''|`` of at most so many rows."""
        return max(1.0, step * (max(-self.low, self.high) + rows * self.bend) + 1.0)


def batches(rows: Sequence[Row], rate: float) -> Mixture:
    """The batches of one step and their probabilities, by enumeration; only present rows count."""
    present = [row for row in rows if row is not None]
    merged: dict[tuple[float, ...], float] = {}
    for drawn in itertools.product((False, True), repeat=len(present)):
        chance = math.prod(rate if used else 1 - rate for used in drawn)
        taken = tuple(sorted(row for row, used in zip(present, drawn, strict=True) if used))
        merged[taken] = merged.get(taken, 0.0) + chance
    return [(chance, taken) for taken, chance in merged.items() if chance > 0]


@dataclass(frozen=True)
class Chain:
    """``x' = x − γ_k(K'(x) + Σ_{i in batch} v_i'(x)/q) + N(0, 2γ_k)``, ``q`` the rate of batches."""

    family: Family
    rows: tuple[Row, ...]
    steps: tuple[float, ...]
    rate: float = 1.0
    start: float = 0.0
    finer: int = 1

    def nodes(self) -> Law:
        """Points and weights for integrals over states."""
        # Gaussians are integrated to 1e-13 by points 0.58 of their sd apart, even where a step stretches.
        sd = math.sqrt(2 * min(self.steps))
        apart = 0.58 / self.finer * sd / self.family.steepest(max(self.steps), _MOST_ROWS / self.rate)
        count = 2 * math.ceil(self.reach / apart) + 1
        at = np.linspace(-self.reach, self.reach, count)
        return at, np.full(count, at[1] - at[0])

    @property
    def reach(self) -> float:
        """States further out have no mass to speak of: the maps move at most as far as their gradients."""
        return 3.0 + 7.2 * math.sqrt(2 * math.fsum(self.steps))

    def means(self, points: Array, step: int) -> list[tuple[float, Array]]:
        """Where every batch sends the points."""
        family, size = self.family, self.steps[step]
        base = points - size * family.prior(points)
        push = {
            value: size / self.rate * family.row(points, value) for value in self.rows if value is not None
        }
        return [
            (chance, base - sum((push[value] for value in taken), np.zeros_like(points)))
            for chance, taken in batches(self.rows, self.rate)
        ]

    def transition(self, points: Array, step: int) -> tuple[Array, Array]:
        """The points after a step, and the masses that reach them from every point before it."""
        at, weights = self.nodes()
        sd = math.sqrt(2 * self.steps[step])
        found = np.zeros((len(at), len(points)))
        for chance, means in self.means(points, step):
            gaps = (at[:, None] - means[None, :]) / sd
            density = np.exp(-0.5 * gaps * gaps) / (sd * math.sqrt(2 * math.pi))
            found += chance * weights[:, None] * density
        return at, found

    def to_cells(self, points: Array, step: int) -> Array:
        """Probabilities of cells after a step, from every point: ``(cells, points)``."""
        edges = np.linspace(-self.reach, self.reach, _CELLS + 1)
        sd = math.sqrt(2 * self.steps[step])
        found = np.zeros((_CELLS + 2, len(points)))
        for chance, means in self.means(points, step):
            gaps = (edges[:, None] - means[None, :]) / sd
            none, all_of_it = np.zeros((1, len(points))), np.ones((1, len(points)))
            below = np.diff(np.concatenate([none, cdf(gaps), all_of_it]), axis=0)
            above = -np.diff(np.concatenate([all_of_it, cdf(-gaps), none]), axis=0)
            # Far out in a tail only the differences of that tail's probabilities have any digits.
            found += chance * np.where(np.concatenate([gaps, all_of_it]) <= 0, below, above)
        return found

    def before(self, last: int) -> Law:
        """The law after ``last`` steps."""
        points, masses = np.array([self.start]), np.ones(1)
        for step in range(last):
            points, moved = self.transition(points, step)
            masses = moved @ masses
        return points, masses

    def last(self) -> Array:
        """Probabilities of cells for the last state."""
        points, masses = self.before(len(self.steps) - 1)
        return self.to_cells(points, len(self.steps) - 1) @ masses

    def two_states(self, first: int) -> Array:
        """Of the state after ``first`` steps (at the nodes) and the last one (in cells)."""
        points, masses = self.before(first)
        moved, between = np.eye(len(points)), points
        for step in range(first, len(self.steps) - 1):
            between, once = self.transition(between, step)
            moved = once @ moved
        return (self.to_cells(between, len(self.steps) - 1) @ moved) * masses[None, :]


def hockey_sticks(p: Array, q: Array, levels: Array) -> Array:
    """``Σ max(p − e^ε q, 0)`` for every level."""
    left, right = p.ravel(), q.ravel()
    return np.array([np.maximum(left - math.exp(level) * right, 0.0).sum() for level in levels])
