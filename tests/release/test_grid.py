"""Released states: multiples of a public power of two, whatever the chain did."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from private_mcmc.errors import DeclarationError
from private_mcmc.release import StateGrid, state_grid
from private_mcmc.schedule import Schedule


def schedule(**changes):
    base = {
        "adjacency": "replace_one",
        "num_rows": 10,
        "dim": 2,
        "step_size": 0.02,
        "num_steps": 5,
        "clip": 1.0,
    }
    return Schedule(**(base | changes))


@given(arrays(np.float64, 6), st.integers(-60, 10))
def test_rounding_gives_finite_multiples_and_is_idempotent(states, exponent):
    grid = StateGrid(2.0**exponent)
    rounded = grid.round(states)
    assert np.isfinite(rounded).all()
    np.testing.assert_array_equal(rounded / grid.step, np.rint(rounded / grid.step))
    np.testing.assert_array_equal(grid.round(rounded), rounded)
    assert not np.signbit(rounded[rounded == 0]).any()


@given(st.floats(-1e3, 1e3))
def test_rounding_moves_a_state_by_at_most_half_a_step(state):
    assert abs(StateGrid(2.0**-10).round(state) - state) <= 2.0**-11


def test_the_grid_is_far_below_the_noise_of_the_smallest_step():
    for changes, noise in [
        ({}, math.sqrt(0.04)),
        ({"step_size": (0.02, 0.5, 0.02, 0.02, 0.02)}, math.sqrt(0.04)),
        ({"preconditioner": (4.0, 9.0)}, math.sqrt(0.04 * 4)),
        ({"preconditioner": ((2.0, 1.0), (1.0, 2.0))}, math.sqrt(0.04)),
        ({"preconditioner": (4.0, 9.0), "noise": (0.25, 1.0)}, math.sqrt(0.04 * 0.25)),
    ]:
        step = state_grid(schedule(**changes)).step
        assert noise * 2.0**-25 < step <= noise * 2.0**-24


def test_a_schedule_without_noise_in_some_direction_has_no_grid():
    with pytest.raises(DeclarationError, match="no noise"):
        state_grid(schedule(preconditioner=(1.0, 1.0), noise=(1.0, 0.0)))


@pytest.mark.parametrize("step", [0.0, -1.0, 3.0, 0.1, math.inf, math.nan])
def test_only_powers_of_two_are_grids(step):
    with pytest.raises(DeclarationError, match="power of two"):
        StateGrid(step)
