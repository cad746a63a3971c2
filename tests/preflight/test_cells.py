"""Unions of boxes in two and three dimensions: their probabilities are right and never overstated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from private_mcmc.accounting.curves import gdp
from private_mcmc.preflight.refute.quadrature_nd import (
    Frame,
    cell_masses,
    compare,
    holds_the_mass,
    tabulate,
)
from private_mcmc.preflight.refute.search import Reduction, densities


def shifted(dim: int, shift: float):
    """Potentials of N(0, I), and what must be added to move the mean by ``shift`` on every axis."""

    def terms(points: np.ndarray) -> np.ndarray:
        return np.stack([np.sum(points**2, axis=1) / 2, -shift * np.sum(points, axis=1)])

    return terms


@pytest.mark.parametrize(("dim", "loss"), [(1, 0.02), (2, 0.05), (3, 0.3)])
def test_shift_of_a_normal_is_found_with_little_loss(dim: int, loss: float) -> None:
    shift, epsilon = 1.0, 1.0
    exact = gdp.delta(shift * math.sqrt(dim), epsilon)
    frame = Frame(np.zeros(dim), np.full(dim, 1.5), 3.0)
    tables = tabulate(frame, shifted(dim, shift))
    q, p = (cell_masses(frame, tables, np.array(weights)) for weights in ([1.0, 0.0], [1.0, 1.0]))
    found = compare(frame, p, q, epsilon, 0.0)
    assert (1 - loss) * exact <= found.p_low - math.exp(epsilon) * found.q_high <= exact
    assert compare(frame, p, q, epsilon, exact) is None


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_bounds_enclose_the_exact_probability_of_the_boxes(dim: int) -> None:
    frame = Frame(np.zeros(dim), np.full(dim, 1.5), 3.0)
    tables = tabulate(frame, shifted(dim, 0.8))
    q, p = (cell_masses(frame, tables, np.array(weights)) for weights in ([1.0, 0.0], [1.0, 1.0]))
    found = compare(frame, p, q, 0.5, 0.0)

    def exact(mean: float) -> float:
        return sum(
            math.prod(ndtr(high - mean) - ndtr(low - mean) for low, high in box) for box in found.boxes
        )

    assert found.p_low <= exact(0.8)
    assert exact(0.0) <= found.q_high
    assert found.p == pytest.approx(exact(0.8), rel=1e-4)
    assert found.q == pytest.approx(exact(0.0), rel=1e-3)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_plotted_densities_are_those_of_the_coordinate_that_tells_the_laws_apart(dim: int) -> None:
    def terms(points: np.ndarray) -> np.ndarray:
        return np.stack([np.sum(points**2, axis=1) / 2, -1.5 * points[:, -1]])

    names = ("a", "b", "c")[:dim]
    shown = densities(Reduction(names, np.eye(dim), (), terms), np.array([[1.0, 1.0], [1.0, 0.0]]))
    assert shown.coordinate == dim - 1
    for values, mean in ((shown.p, 1.5), (shown.q, 0.0)):
        assert np.max(np.abs(values - norm.pdf(shown.x, mean))) < {1: 1e-4, 2: 2e-3, 3: 0.02}[dim]
        assert np.trapezoid(values, shown.x) == pytest.approx(1, abs=2e-3)


def test_boxes_do_not_overlap() -> None:
    frame = Frame(np.zeros(2), np.full(2, 1.5), 3.0)
    tables = tabulate(frame, shifted(2, 0.8))
    q, p = (cell_masses(frame, tables, np.array(weights)) for weights in ([1.0, 0.0], [1.0, 1.0]))
    boxes = compare(frame, p, q, 0.5, 0.0).boxes
    for i, one in enumerate(boxes):
        for other in boxes[i + 1 :]:
            shared = [min(a[1], b[1]) - max(a[0], b[0]) for a, b in zip(one, other, strict=True)]
            assert min(shared) <= 1e-12


@pytest.mark.parametrize("dim", [2, 3])
def test_a_frame_that_misses_mass_is_not_trusted(dim: int) -> None:
    frame = Frame(np.full(dim, 4.0), np.full(dim, 0.3), 3.0)
    masses = cell_masses(frame, tabulate(frame, shifted(dim, 0.0)), np.array([1.0, 0.0]))
    assert not holds_the_mass(masses)


def test_a_law_that_does_not_integrate_is_not_trusted() -> None:
    frame = Frame(np.zeros(2), np.ones(2), 3.0)
    masses = cell_masses(frame, tabulate(frame, lambda points: np.zeros((1, len(points)))), np.array([1.0]))
    assert not holds_the_mass(masses)
    nothing = tabulate(frame, lambda points: np.full((1, len(points)), np.nan))
    assert cell_masses(frame, nothing, np.array([1.0])) is None
