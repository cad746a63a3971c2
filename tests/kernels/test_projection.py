"""Projections: nearest points in the metric of the noise, inside the declared diameter, an exact law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from private_mcmc import accounting
from private_mcmc.domains import Box, Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels import PrivateULA, Streams, chain_runner, langevin_program
from private_mcmc.kernels.gradient.clipping import whitening
from private_mcmc.kernels.step import projection
from private_mcmc.model import read
from private_mcmc.schedule import Schedule
from tests.examples_of_models import logistic, normal_mean

FULL = ((2.0, 0.6), (0.6, 0.5))


def schedule_of(dim=2, steps=40, adjacency="replace_one", release="last", **kernel):
    return PrivateULA(logistic, 0.1, 1.0, **kernel).schedule(
        adjacency=adjacency, num_rows=10, dim=dim, num_steps=steps, num_chains=1, release=release
    )


SETS = {
    "ball": dict(radius=1.5),
    "ball, diagonal": dict(radius=1.5, preconditioner=(2.0, 0.5)),
    "ball, full": dict(radius=1.5, preconditioner=FULL),
    "box": dict(box=(1.0, 0.3)),
    "box, diagonal": dict(box=0.7, preconditioner=(2.0, 0.5)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
@given(
    point=st.tuples(*[st.floats(allow_nan=True, allow_infinity=True)] * 2),
    other=st.tuples(*[st.floats(-9, 9)] * 2),
)
def test_states_stay_within_the_declared_diameter_and_never_move_apart(name, point, other):
    schedule = schedule_of(**SETS[name])
    project = projection(schedule)
    with jax.enable_x64(True):
        one, two = (np.asarray(project(jnp.asarray([p])))[0] for p in (point, other))
        far = np.linalg.norm(one - two)
        assert far <= schedule.diameter
        if np.isfinite(point).all() and np.abs(point).max() < 1e6:
            assert far <= np.linalg.norm(np.subtract(point, other)) * (1 + 1e-9) + 1e-9
        np.testing.assert_allclose(np.asarray(project(jnp.asarray([one])))[0], one, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_the_projection_is_the_nearest_point_of_the_set_in_the_metric(name):
    """Against a fine sample of the set: no point of it is nearer in ‖M^{-1/2}·‖."""
    schedule = schedule_of(**SETS[name])
    change = whitening(schedule.preconditioner, 2)
    grid = np.stack(np.meshgrid(np.linspace(-3, 3, 301), np.linspace(-3, 3, 301)), -1).reshape(-1, 2)
    matrix = np.eye(2) if schedule.preconditioner is None else np.asarray(schedule.preconditioner)
    inverse = np.linalg.inv(np.diag(matrix) if matrix.ndim == 1 else matrix)
    norm = lambda x: np.sqrt(np.einsum("...i,ij,...j", x, inverse, x))  # noqa: E731
    inside = norm(grid) <= 1.5 if schedule.box is None else (np.abs(grid) <= schedule.box).all(axis=1)
    point = np.array([2.5, -1.7])
    with jax.enable_x64(True):
        u = projection(schedule)(change.from_parameter(jnp.asarray([point])))
        found = np.asarray(change.to_parameter(u))[0]
    assert norm(point - found) <= norm(point - grid[inside]).min() * (1 + 1e-9)
    assert norm(found) <= 1.5 if schedule.box is None else (np.abs(found) <= schedule.box).all()


@pytest.mark.long
def test_a_projected_chain_has_its_stationary_law():
    """One dimension: the law of the projected Gaussian recursion, iterated on a grid; failure below 1e-6."""
    n, step, edge, chains = 9, 0.08, 0.35, 20_000
    y = np.linspace(-1.0, 1.0, n) + 0.3
    reading = read(normal_mean, Rows(y=Box(-5.0, 5.0)), n=n)
    schedule = PrivateULA(normal_mean, step, 1e3, radius=edge).schedule(
        adjacency="replace_one", num_rows=n, dim=1, num_steps=40, num_chains=chains, release="last"
    )
    with jax.enable_x64(True):
        columns = reading.rows.project({"y": y})
    runner = chain_runner(langevin_program(reading, schedule), schedule)
    streams = Streams(jax.random.key(0), jax.random.key(1))
    states = runner.run(np.zeros(1), columns, jnp.ones(n, bool), streams, lambda done: None).states[:, 0, 0]

    cells = np.linspace(-edge, edge, 401)
    middles = np.concatenate([[-edge], (cells[1:] + cells[:-1]) / 2, [edge]])
    mean = middles - step * ((1 + n) * middles - y.sum())
    below = ndtr((cells - mean[:, None]) / np.sqrt(2 * step))
    kernel = np.concatenate([below[:, :1], np.diff(below), 1 - below[:, -1:]], axis=1)
    law = np.linalg.matrix_power(kernel, 200)[0]
    assert np.abs(states).max() <= edge
    for at, wanted in ((states > edge - 1e-9, law[-1]), (states < 1e-9 - edge, law[0])):
        assert abs(at.mean() - wanted) < 5 * np.sqrt(wanted * (1 - wanted) / chains) + 2e-3
    variance = law @ middles**2 - (law @ middles) ** 2
    assert abs(states.mean() - law @ middles) < 5 * np.sqrt(variance / chains) + 1e-3


def test_the_diameter_reaches_the_statement():
    """A convex chain without strong convexity: the last state's price stops growing with the steps."""
    proved = accounting.Curvature(convex=True, smoothness=1.0)
    bounded, free = (
        accounting.langevin_statement(schedule_of(steps=4000, **extra), proved).gdp
        for extra in (dict(radius=0.5), {})
    )
    assert bounded < 0.5 * free


def test_sets_that_make_no_sense_are_refused():
    for options in (dict(radius=1.0, box=1.0), dict(radius=np.nan), dict(radius=0.0)):
        with pytest.raises(DeclarationError):
            PrivateULA(logistic, 0.1, 1.0, **options)
    for options in (dict(box=1.0, preconditioner=FULL), dict(box=(1.0,)), dict(box=-1.0), dict(box=np.nan)):
        with pytest.raises(DeclarationError):
            schedule_of(**options)
    with pytest.raises(DeclarationError, match="smaller"):
        Schedule(adjacency="replace_one", num_rows=9, dim=2, step_size=0.1, num_steps=2, clip=1.0,
                 box=(1.0, 1.0), diameter=2.0)  # fmt: skip
