"""One-dimensional projected chains as transition matrices on a grid: laws, Rényi divergence, exact ε."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Cells of an interval of the given width around 0; what leaves it is projected to its ends."""

    width: float
    cells: int

    @cached_property
    def centres(self) -> Array:
        """Midpoints of the cells."""
        return np.linspace(-self.width / 2, self.width / 2, self.cells)

    def points(self, at: float) -> Array:
        """All mass in the cell of ``at``."""
        law = np.zeros(self.cells)
        law[int(np.argmin(np.abs(self.centres - at)))] = 1.0
        return law

    def run(self, move: Callable[[Array], Array], noise: float, law: Array, steps: int) -> Array:
        """The law after ``steps`` steps ``x' = Π(move(x) + N(0, noise²))``, from the masses ``law``."""
        edges = (self.centres[1:] + self.centres[:-1]) / 2
        below = ndtr((edges[:, None] - move(self.centres)[None, :]) / noise)
        whole = np.vstack([np.zeros(self.cells), below, np.ones(self.cells)])
        matrix = np.diff(whole, axis=0)
        for _ in range(steps):
            law = matrix @ law
        return law


def renyi(first: Array, second: Array, order: float) -> float:
    """Rényi divergence of two vectors of masses."""
    both = (first > 0) & (second > 0)
    logs = order * np.log(first[both]) + (1 - order) * np.log(second[both])
    top = float(logs.max())
    return (top + math.log(float(np.exp(logs - top).sum()))) / (order - 1)


def delta_at(first: Array, second: Array, epsilon: float) -> float:
    """``δ(ε)`` of two vectors of masses, the larger of both orders."""
    scale = math.exp(epsilon)
    one = np.maximum(first - scale * second, 0).sum()
    two = np.maximum(second - scale * first, 0).sum()
    return float(max(one, two))
