"""Joint sensitivities bound every direction, and are attained where a direction attains them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_mcmc.errors import DeclarationError
from private_mcmc.release.averages import movement, together
from private_mcmc.release.site_functions import Slopes
from private_mcmc.schedule import Schedule

NO_RANGE = math.inf


def schedule(preconditioner, dim=4):
    return Schedule(
        adjacency="replace_one",
        num_rows=10,
        dim=dim,
        step_size=0.1,
        num_steps=5,
        clip=1.0,
        preconditioner=preconditioner,
    )


def as_tuple(matrix):
    return tuple(tuple(row) for row in matrix.tolist())


def random_metric(random, dim=4):
    root = random.normal(size=(dim, dim))
    matrix = root @ root.T + 0.1 * np.eye(dim)
    return (matrix + matrix.T) / 2


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 3.0))
def test_no_move_of_the_chain_exceeds_the_bounds(seed, distance):
    random = np.random.default_rng(seed)
    metric = random_metric(random)
    where, slopes = (2, 0, 3), tuple(random.uniform(0.1, 5.0, 3))
    ranges = np.asarray([NO_RANGE, random.uniform(0.01, 2.0), NO_RANGE])
    jacobian = random.normal(size=(3, 4))
    record = schedule(as_tuple(metric))
    parts = (
        movement(record, distance, Slopes(np.eye(4)[list(where)] * np.asarray(slopes)[:, None]), ranges),
        movement(record, distance, Slopes(jacobian), np.full(3, NO_RANGE)),
        movement(record, distance, None, np.full(3, 0.3)),
    )
    bound = together(parts)
    directions = random.normal(size=(200, 4))
    directions *= distance / np.linalg.norm(directions, axis=1, keepdims=True)
    moves = directions @ np.linalg.cholesky(metric).T
    changes = np.concatenate(
        [
            np.clip(moves[:, where] * slopes, -ranges, ranges),
            moves @ jacobian.T,
            np.clip(moves @ jacobian.T, -0.15, 0.15),
        ],
        axis=1,
    )
    scaled = np.abs(changes) / bound.units
    assert scaled.max() <= 1
    assert scaled.sum(axis=1).max() <= bound.l1
    assert np.sqrt((scaled**2).sum(axis=1)).max() <= bound.l2


def test_independent_coordinates_cost_the_square_root_of_their_number():
    moved = movement(schedule((1.0, 4.0, 9.0, 1.0)), 0.5, Slopes(np.eye(4)[:3]), np.full(3, NO_RANGE))
    np.testing.assert_allclose(moved.units, [0.5, 1.0, 1.5], rtol=1e-8)
    assert moved.l1 == pytest.approx(math.sqrt(3), rel=1e-8)
    assert moved.l2 == pytest.approx(1.0, rel=1e-8)


def test_values_capped_by_their_range_move_freely_within_it():
    moved = movement(schedule(None), math.inf, Slopes(np.eye(4)[:2]), np.asarray([2.0, 3.0]))
    np.testing.assert_allclose(moved.units, [2.0, 3.0])
    assert moved.l1 == pytest.approx(2.0, rel=1e-8)
    assert moved.l2 == pytest.approx(math.sqrt(2), rel=1e-8)


@pytest.mark.parametrize("distance", [math.inf, math.nan])
@pytest.mark.parametrize("part", [Slopes(np.eye(4)[:1]), None])
def test_without_any_bound_there_is_a_refusal(distance, part):
    with pytest.raises(DeclarationError, match="nothing bounds"):
        movement(schedule(None), distance, part, np.asarray([NO_RANGE]))


def test_a_value_that_no_parameter_enters_moves_by_nothing():
    matrix = np.zeros((2, 4))
    matrix[1, 2] = 3.0
    moved = movement(schedule(None), 0.5, Slopes(matrix), np.full(2, NO_RANGE))
    assert moved.l1 == pytest.approx(1.0, rel=1e-8)
    assert moved.units[1] == pytest.approx(1.5, rel=1e-8)


def test_a_slope_that_is_no_number_bounds_nothing():
    """As a slope of 1 it once set the noise."""
    matrix = np.array([[np.nan, 0, 0, 0], [1.0, 0, 0, 0]])
    with pytest.raises(DeclarationError, match="nothing bounds"):
        movement(schedule(None), 0.5, Slopes(matrix), np.full(2, NO_RANGE))
    moved = movement(schedule(None), 0.5, Slopes(matrix), np.array([7.0, NO_RANGE]))
    assert moved.units[0] == 7.0 and moved.units[1] == pytest.approx(0.5) and moved.l1 >= 2
