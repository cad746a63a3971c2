"""Constants that preflight proves hold for the Hessians and gradients of real potentials."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.model import read
from private_mcmc.potential.potential import curvature, largest_eigenvalue
from tests import schedules
from tests.examples_of_models import flat_prior, logistic
from tests.preflight import zoo_small as small

N = 6
METRICS = {
    "identity": None,
    "diagonal": (0.3, 2.0, 1.0),
    "matrix": ((1.0, 0.4, 0.0), (0.4, 0.5, 0.1), (0.0, 0.1, 2.0)),
}


schedule = partial(schedules.schedule, num_rows=N, dim=3, step_size=0.1, num_steps=10)


def root(metric):
    if metric is None:
        return np.eye(3)
    full = np.diag(metric) if np.ndim(metric) == 1 else np.asarray(metric)
    values, vectors = np.linalg.eigh(full)
    return vectors @ np.diag(np.sqrt(values)) @ vectors.T


@pytest.mark.some(1)
@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_hessian_and_gradient_stay_within_the_constants(metric) -> None:
    model = read(logistic, small.LOGISTIC_ROWS, n=N)
    known = curvature(model, schedule(preconditioner=metric, temper=0.7, clip=50.0))
    half = root(metric)
    with jax.enable_x64(True):

        def data_term(theta, data):
            return 0.7 * jnp.sum(jax.vmap(lambda row: model.row_loss(theta, row))(data))

        hessian = jax.jit(jax.hessian(lambda t, d: model.neg_log_prior(t) + data_term(t, d)))
        for seed in range(5):
            data = model.rows.synthetic(seed, N)
            theta = 3 * jax.random.normal(jax.random.key(seed + 100), (3,))
            values = np.linalg.eigvalsh(half @ np.asarray(hessian(theta, data)) @ half)
            assert values[0] >= known.strong_convexity * (1 - 1e-9)
            assert values[-1] <= known.smoothness
    # Rows along the stiffest axis at the steepest point reach the bound.
    assert known.smoothness == pytest.approx(
        largest_eigenvalue(metric) * (0.25 + 0.7 * N * 0.25), rel=0.2 if metric else 1e-8
    )


@pytest.mark.slow
def test_unbounded_curvature_is_infinite_without_convexity_or_clip() -> None:
    model = read(small.poisson, small.POISSON_ROWS, n=N)
    free = curvature(model, schedule(dim=2, clip=1e9))
    assert free.smoothness > 1e9
    assert curvature(read(logistic, small.UNBOUNDED_ROWS, n=N), schedule(dim=9)).smoothness == math.inf


def test_a_flat_prior_has_no_strong_convexity() -> None:
    known = curvature(read(flat_prior, small.LOGISTIC_ROWS, n=N), schedule())
    assert known.strong_convexity == 0


@pytest.mark.parametrize(("rate", "factor"), [(None, N), (0.5, N / 0.5)], ids=str)
def test_minibatches_count_every_row_that_a_step_can_sum(rate, factor: float) -> None:
    model = read(logistic, small.LOGISTIC_ROWS, n=N)
    known = curvature(model, schedule(rate=rate))
    assert known.smoothness == pytest.approx(0.25 + factor * 0.25)
