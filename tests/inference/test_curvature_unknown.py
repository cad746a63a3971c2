"""Where no matrix tells of the covariates, the posterior allows for every curvature that the path allows."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import private_mcmc as pmc
from private_mcmc.inference.posterior import posterior_of
from private_mcmc.model import read
from private_mcmc.planning import CompletedStage, Conclusion, PathStage, Prediction
from private_mcmc.schedule import Schedule

N, STEP, STEPS, TEMPER, METRIC, PRIOR_SD = 1500, 0.25, 60, 0.3, 0.02, 2.0


def line(x=None, y=None):
    b = numpyro.sample("b", dist.Normal(0, PRIOR_SD))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(b if x is None else b * x, 1.0), obs=y)


ROWS = {"x": pmc.Box(0.0, 1.0), "y": pmc.Box(-9.0, 9.0)}


def ran(name, seed, curvature=8.0, at=1.0, dim=1):
    """A Langevin path for a Normal prior and rows of this Hessian, whose mode is ``at``."""
    random, schedule = np.random.default_rng(seed), Schedule(
        adjacency="replace_one", num_rows=N, dim=dim, step_size=STEP, num_steps=STEPS, clip=9.0,
        release="path", temper=TEMPER, preconditioner=(METRIC,) * dim,
    )  # fmt: skip
    states = [np.zeros(dim)]
    for _ in range(STEPS):
        slope = states[-1] / PRIOR_SD**2 + TEMPER * curvature * (states[-1] - at)
        noise = np.sqrt(2 * STEP * METRIC) * random.standard_normal(dim)
        states.append(states[-1] - STEP * METRIC * slope + noise)
    return CompletedStage(PathStage(name, schedule, np.zeros(dim)), np.array(states[1:]))


def given(reading, path):
    told = Conclusion(np.zeros((4, reading.dim)), Prediction(1.0, 0.0, 1.0, 0.0))
    return posterior_of(reading, (path,), told)


def exact(path):
    """Mean and sd of ``b`` by the density of all steps, summed over grids of it and of the curvature.

    The curvature between path and parameter is that along the path times a log-Normal factor.
    """
    grid, values, factors = np.linspace(-7, 7, 281), np.geomspace(1e-4, 4, 60), np.linspace(-4, 4, 41)
    at, seen = (part.mean() for part in _steps(path))
    along, noise = [part - part.mean() for part in _steps(path)], 2 / (STEP * METRIC * TEMPER**2)
    said = []
    for value in values:
        hessian = value / (TEMPER * METRIC)
        of_path = norm(np.log(0.1), 1.5).logpdf(np.log(value))
        of_path -= np.square(along[1] - hessian * along[0]).sum() / (2 * noise)
        for factor in factors:
            there = hessian * np.exp(1.2 * factor)
            law = norm(0, np.sqrt(there + noise / STEPS))
            said.append(law.logpdf(seen - there * (at - grid)) + of_path - factor**2 / 2)
    logs = norm(0, PRIOR_SD).logpdf(grid) + logsumexp(said, axis=0)
    shares = np.exp(logs - logs.max())
    mean = (shares / shares.sum()) @ grid
    return mean, np.sqrt((shares / shares.sum()) @ (grid - mean) ** 2)


def _steps(path):
    """Where steps were taken, and what they say of the rows' gradient."""
    at = np.concatenate([np.zeros(1), path.value[:, 0]])
    return at[:-1], (-np.diff(at) / (STEP * METRIC) - at[:-1] / PRIOR_SD**2) / TEMPER


@pytest.mark.some(1)
@pytest.mark.parametrize(("curvature", "seed"), [(0.5, 3), (8.0, 5), (60.0, 3), (150.0, 7)])
def test_draws_are_of_the_density_of_all_steps_summed_over_curvatures(curvature, seed):
    path = ran("run", seed, curvature)
    found = given(read(line, pmc.Rows(**ROWS), n=N), path)
    mean, sd = exact(path)
    assert found.draws.mean() == pytest.approx(mean, abs=0.2 * sd)
    assert found.draws.std() == pytest.approx(sd, rel=0.15)


def test_little_more_than_the_prior_is_known_where_rows_add_no_curvature():
    """A path that only diffuses says nothing, and far states of it are no evidence."""
    found = given(read(line, pmc.Rows(**ROWS), n=N), ran("run", 5, 0.0))
    assert found.draws.std() > 0.5 * PRIOR_SD and "no matrix of covariates" in found.remarks[0]


def apart(x, y=None):
    numpyro.sample("a", dist.Normal(0, PRIOR_SD))
    line(x, y)


def test_rows_say_nothing_of_a_parameter_that_they_do_not_read():
    """As the sd of effects in a centred hierarchy: where the path was is no evidence of it."""
    path = ran("run", 5, np.array([0.0, 60.0]), dim=2)
    found = given(read(apart, pmc.Rows(**ROWS), n=N), path)
    a, b = found.draws.reshape(-1, 2).T
    assert (a.mean(), a.std()) == (pytest.approx(0, abs=0.2), pytest.approx(PRIOR_SD, rel=0.1))
    assert b.std() < 0.7 * PRIOR_SD
