"""Models whose rows call LAPACK are planned, run and drawn, and no plan of theirs waits for itself."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from threadpoolctl import threadpool_info

import private_mcmc as pmc
from private_mcmc.model import read
from private_mcmc.planning.outcomes import likelihood_of
from private_mcmc.planning.prediction import Known
from private_mcmc.system import blas_of_one_thread

ROWS = pmc.Rows(y=pmc.Box(np.full(2, -5.0), np.full(2, 5.0)))


def pairs(y):
    mean = numpyro.sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
    sds = numpyro.sample("sds", dist.HalfNormal(2.0).expand([2]).to_event(1))
    root = numpyro.sample("root", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.MultivariateNormal(mean, scale_tril=sds[:, None] * root), obs=y)


def test_the_blas_is_left_as_it_was():
    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    with blas_of_one_thread():
        assert before and set(threads()) == {1}
    assert threads() == before


@pytest.mark.long
def test_pairs_are_planned_run_and_drawn_where_xla_has_one_thread():
    """It stood still before: each program waited for the thread that the other was on."""
    program = """
import numpy as np, private_mcmc as pmc
from tests.planning.test_linear_algebra import pairs, ROWS
plan = pmc.plan(pairs, ROWS, pmc.Target(3.0, 1e-6), n=5000, guarantee="run")
mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
y = np.random.default_rng(0).multivariate_normal([1.0, -1.0], [[1.0, 0.5], [0.5, 1.0]], 5000)
mcmc.run(y=np.clip(y, -5, 5))
print(*np.asarray(mcmc.get_samples()["mean"]).mean(axis=0))
"""
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    # Sds without privacy are 0.014.
    np.testing.assert_allclose([float(each) for each in done.stdout.split()], [1.0, -1.0], atol=0.1)


def counted(x, y=None):
    shape = numpyro.sample("shape", dist.Gamma(0.01, 0.01))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(x), shape), obs=y)


def test_rows_that_tell_nothing_or_no_number_leave_a_finite_prediction():
    """At most draws of such a shape all counts are 0, and curvature was rounded to less than nothing."""
    nothing = Known(np.zeros(2), np.eye(2), -1e-17 * np.eye(2)[None], 1.0, 0.0, np.eye(2), 0.0)
    np.testing.assert_allclose(next(nothing.of_each()), [np.eye(2), np.zeros((2, 2))], atol=1e-9)
    reading = read(counted, pmc.Rows(x=pmc.Box(-1.0, 1.0), y=pmc.Counts(60)), n=2000)
    with jax.enable_x64(True):
        slopes = jnp.asarray([[[1.0], [np.nan], [np.inf], [1e200]]])
        found = likelihood_of(reading, 1.0)._in_metric(slopes, np.eye(1), 1)
    np.testing.assert_array_equal(found[:, 0], [1.0, 0.0, 0.0, 0.0])
