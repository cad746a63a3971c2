"""Release noise: the right distribution and price; no way for a private value to raise. Grids of states.

OpenDP takes no seed; every statistical test here fails a correct library with probability at most 1e-6.
"""

import math
from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from private_mcmc.accounting import gdp
from private_mcmc.errors import DeclarationError
from private_mcmc.release import StateGrid, state_grid
from private_mcmc.release.noise import (
    GaussianNoise,
    LaplaceNoise,
    gaussian_noise,
    laplace_noise,
    power_of_two_below,
)
from tests import schedules

FAILURE = 1e-6
levels = st.floats(1e-3, 1e3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "log_weight"),
    [
        (LaplaceNoise(2e4, 1.0, 20_000, 2.0, 1.0), lambda k: -abs(k) / 2.0),
        (GaussianNoise(2e4, 1.0, 20_000, 2.0, 1.0), lambda k: -(k**2) / 8.0),
    ],
)
def test_on_a_coarse_grid_the_frequencies_are_the_exact_discrete_ones(noise, log_weight):
    draws = noise.release(np.full(20_000, 5.25)) - 5.0  # 5.25 is rounded to 5
    support = np.arange(-60, 61)
    mass = np.exp([log_weight(k) for k in support])
    mass /= mass.sum()
    inside = np.abs(support) <= 5
    expected = np.append(mass[inside], mass[~inside].sum()) * 20_000
    observed = np.append([(draws == k).sum() for k in support[inside]], (np.abs(draws) > 5).sum())
    assert stats.chisquare(observed, expected).pvalue > FAILURE


@settings(deadline=None, max_examples=50)
@given(levels, levels, st.integers(1, 40))
def test_opendp_certifies_what_is_charged(level, sensitivity, size):
    laplace = laplace_noise(level, sensitivity, size)
    assert laplace._measurement()[0].map(sensitivity) <= level
    assert sensitivity + laplace.grid * size <= laplace.scale * level
    assert laplace.scale <= sensitivity / level * (1 + 1e-6)
    gaussian = gaussian_noise(level, sensitivity, size)
    assert gaussian._measurement()[0].map(sensitivity) <= level**2 / 2
    assert gaussian.charged_sensitivity / gaussian.gaussian_scale <= level
    assert gaussian.scale <= sensitivity / level * (1 + 1e-6)


@pytest.mark.some(1)
@pytest.mark.parametrize(("sd", "shift"), [(8, 3), (5, 7), (20, 1), (4.5, 2)])
@pytest.mark.parametrize("centre", [0.0, 0.37])
def test_discrete_gaussian_noise_is_no_worse_than_the_continuous_one_it_is_charged_as(sd, shift, centre):
    """Exact hockey-stick divergences of two discrete Gaussians on the integers against the GDP curve."""
    mpmath.mp.dps = 60
    support = range(-40 * math.ceil(sd), 40 * math.ceil(sd) + 1)

    def law(at):
        weights = [mpmath.exp(-((k - mpmath.mpf(at)) ** 2) / (2 * mpmath.mpf(sd) ** 2)) for k in support]
        return [w / mpmath.fsum(weights) for w in weights]

    first, second = law(centre), law(centre + shift)
    m = GaussianNoise(1.0, shift, 1, sd, 1.0)
    charged = shift / m.gaussian_scale
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0):
        exact = mpmath.fsum(
            max(p - mpmath.e**epsilon * q, mpmath.mpf(0)) for p, q in zip(first, second, strict=True)
        )
        assert exact <= gdp.delta(charged, epsilon)


@pytest.mark.parametrize("make", [laplace_noise, gaussian_noise])
def test_outputs_lie_on_the_declared_grid(make):
    noise = make(1.0, 1.0, 50)
    multiples = noise.release(np.linspace(-1, 1, 50)) / noise.grid
    np.testing.assert_array_equal(multiples, np.rint(multiples))


@pytest.mark.parametrize("make", [laplace_noise, gaussian_noise])
@pytest.mark.parametrize("private", [math.nan, math.inf, -math.inf, 1e308, -0.0, 5e-324])
def test_no_private_value_raises_or_comes_out_unusable(make, private):
    out = make(1.0, 1.0, 2).release([private, 1.0])
    assert np.isfinite(out).all()
    assert abs(out[1] - 1.0) < 100


@pytest.mark.parametrize("make", [laplace_noise, gaussian_noise])
def test_narrow_types_scalars_and_wrong_shapes(make):
    assert make(1.0, 1.0).release(np.float32(2.0)).shape == (1,)
    assert make(1.0, 1.0, 3).release(np.arange(3, dtype=np.int32)).shape == (3,)
    for wrong in ([1.0, 2.0], [[1.0, 2.0, 3.0]], 1.0):
        with pytest.raises(DeclarationError, match="shape"):
            make(1.0, 1.0, 3).release(wrong)


@pytest.mark.parametrize("make", [laplace_noise, gaussian_noise])
@pytest.mark.parametrize(
    ("level", "sensitivity"),
    [(0.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), (1.0, 0.0), (1.0, math.nan), (1.0, math.inf)],
)
def test_impossible_noise_is_refused(make, level, sensitivity):
    with pytest.raises(DeclarationError, match="positive, finite"):
        make(level, sensitivity)


@given(st.floats(1e-300, 1e300))
def test_power_of_two_below_is_one_and_is_below(value):
    power = power_of_two_below(value)
    assert math.frexp(power)[0] == 0.5
    assert power <= value < 2 * power


schedule = partial(schedules.schedule, num_rows=10, step_size=0.02, num_steps=5)


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
    with pytest.raises(DeclarationError, match="no noise"):
        state_grid(schedule(preconditioner=(1.0, 0.0)))


@pytest.mark.parametrize("step", [0.0, -1.0, 3.0, 0.1, math.inf, math.nan])
def test_only_powers_of_two_are_grids(step):
    with pytest.raises(DeclarationError, match="power of two"):
        StateGrid(step)
