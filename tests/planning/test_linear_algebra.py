"""Models whose rows call LAPACK are planned, run and drawn, and no plan of theirs waits for itself."""

import math
import os
import subprocess
import sys
from functools import partial

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from threadpoolctl import threadpool_info

import private_mcmc as pmc
from private_mcmc.inference.expected_score import Outcomes, jacobian
from private_mcmc.kernels import langevin_program, run_keys
from private_mcmc.model import read
from private_mcmc.model.integrated import eigh
from private_mcmc.planning.estimates import _constrained
from private_mcmc.planning.outcomes import Likelihood, likelihood_of
from private_mcmc.planning.prediction import Known
from private_mcmc.potential.rowwise import mapped
from private_mcmc.system import blas_of_one_thread
from tests.examples_of_models import observed
from tests.schedules import schedule

ROWS = pmc.Rows(y=pmc.Box(np.full(2, -5.0), np.full(2, 5.0)))


def pairs(y):
    mean = numpyro.sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
    sds = numpyro.sample("sds", dist.HalfNormal(2.0).expand([2]).to_event(1))
    root = numpyro.sample("root", dist.LKJCholesky(2, 2.0))
    observed(y, dist.MultivariateNormal(mean, scale_tril=sds[:, None] * root), y)


def test_the_blas_is_left_as_it_was():
    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    with blas_of_one_thread():
        assert before and set(threads()) == {1}
    assert threads() == before


def equations(program, *arguments):
    def inside(jaxpr):
        for each in getattr(jaxpr, "jaxpr", jaxpr).eqns:
            yield each
            for inner in jex.jaxprs_in_params(each.params):
                yield from inside(inner)

    return list(inside(jax.make_jaxpr(program)(*arguments)))


LAPACK = {one for one in vars(jax.lax.linalg).values() if isinstance(one, jex.Primitive)}


@pytest.mark.parametrize("size", [1, 2, 5, 9])
@jax.enable_x64(True)
def test_axes_are_lapacks(size):
    made = jnp.asarray(np.random.default_rng(size).normal(size=(7, size, size)))
    values, axes = jax.vmap(eigh)(made + made.mT)
    np.testing.assert_allclose(jnp.sort(values), jnp.linalg.eigvalsh(made + made.mT), atol=1e-12)
    np.testing.assert_allclose((axes * values[:, None]) @ axes.mT, made + made.mT, atol=1e-12)


def test_no_call_of_lapack_on_many_rows_divides_them_among_threads():
    """Two such calls at once wait for ever on two threads; jaxlib divides 200,000 operations."""
    reading = read(pairs, ROWS, n=5000)
    with jax.enable_x64(True):
        slope = partial(reading.row_slope, jnp.zeros(reading.dim))
        slopes = equations(partial(mapped, slope), reading.rows.synthetic(0, 5000))
        rows = {"y": jnp.zeros((5000, 8, 8))}
        found = equations(partial(mapped, lambda row: jnp.linalg.eigh(row["y"])), rows)
    for made in (slopes, found):
        solved = [each.invars[0].aval.shape for each in made if each.primitive in LAPACK]
        assert solved
        assert all(math.prod(shape) * shape[-1] * 5 < 200_000 for shape in solved)


def turned(y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    matrix = 3 * jnp.eye(30) + jnp.cos(jnp.outer(jnp.arange(30) * w[0], jnp.arange(30) + w[1]))
    numpyro.deterministic("size", jnp.linalg.slogdet(matrix)[1])
    with numpyro.plate("rows", y.shape[0]):
        size = jnp.linalg.slogdet(matrix + y[:, None, None])[1]
        numpyro.sample("y", dist.Normal(size, 1.0), obs=y)


@pytest.mark.parametrize("person, rate", [(None, None), (None, 0.3), (None, 0.01), (9, None)])
def test_chains_persons_and_draws_divide_no_call_of_lapack_either(person, rate):
    """Eight chains of such rows waited for ever, after their charge."""
    unit = {} if person is None else {"who": pmc.Person(at_most=person)}
    reading = read(turned, pmc.Rows(y=pmc.Box(-5, 5), **unit), n=50)
    run = schedule(num_rows=50, num_chains=8, rate=rate, unit=reading.unit)
    program = langevin_program(reading, run)
    with jax.enable_x64(True):
        rows = program.prepare(reading.rows.synthetic(0, 50), jnp.ones(50, dtype=bool))
        found = equations(program.step, jnp.zeros((8, 2)), 0, run_keys()[0], rows)
        found += equations(partial(_constrained, reading), jnp.zeros((8, 2)))
        if rate is None:  # what plans ask of rows, with every outcome that may be
            asked, people = likelihood_of(reading, 1.0), reading.rows.synthetic(0, 50)
            row = jax.tree.map(lambda one: one[0], people)
            found += equations(partial(asked.information, jnp.zeros((3, 2)), np.eye(2)), row)
            given = Outcomes(people, {"y": jnp.stack([people["y"]] * 3, axis=1)}, jnp.zeros(3))
            slopes = partial(jacobian, lambda at: given.each(partial(reading.row_slope, at)))
            found += equations(slopes, jnp.ones(2))
    solved = [max(each.invars, key=lambda atom: atom.aval.size) for each in found if each.primitive in LAPACK]
    assert len(solved) > 3 and all(largest.aval.size == 900 for largest in solved)


@pytest.mark.long
def test_pairs_are_planned_run_and_drawn_where_xla_has_one_thread():
    """It stood still before: two calls of LAPACK held the threads that both waited for."""
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
    observed(x, dist.NegativeBinomial2(jnp.exp(x), shape), y)


class Slopes(Likelihood):
    """Of rows that tell a number, none, or one that has no square."""

    def _vectors(self, theta, row):
        return jnp.asarray([[1.0], [np.nan], [np.inf], [1e200]])


def test_rows_that_tell_nothing_or_no_number_leave_a_finite_prediction():
    """At most draws of such a shape all counts are 0, and curvature was rounded to less than nothing."""
    nothing = Known(np.zeros(2), np.eye(2), -1e-17 * np.eye(2)[None], 1.0, 0.0, np.eye(2), 0.0)
    np.testing.assert_allclose(next(nothing.of_each()), [np.eye(2), np.zeros((2, 2))], atol=1e-9)
    reading = read(counted, pmc.Rows(x=pmc.Box(-1.0, 1.0), y=pmc.Counts(60)), n=2000)
    with jax.enable_x64(True):
        found = Slopes(reading, {}).information(np.zeros((1, 1)), np.eye(1), {})
    np.testing.assert_array_equal(found[:, 0], [1.0, 0.0, 0.0, 0.0])
