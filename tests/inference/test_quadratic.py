"""Where no matrix tells of the covariates, the posterior allows for every curvature that the path allows."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

import private_mcmc as pmc
from private_mcmc.inference.posterior import given_releases, quadratic
from private_mcmc.inference.posterior.covariates import conditioned
from private_mcmc.inference.posterior.observations import used_paths
from private_mcmc.inference.posterior.sample import Chains
from private_mcmc.model import read
from private_mcmc.planning import CompletedStage, PathStage
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


def exact(path, *others):
    """Mean and sd of ``b`` by the density of all steps, summed over grids of it and of the curvature.

    The curvature between path and parameter is that along the path times a log-Normal factor. Of other
    paths of the same rows the mean step is taken: curvature is read off one path alone.
    """
    grid, values, factors = np.linspace(-7, 7, 281), np.geomspace(1e-4, 4, 60), np.linspace(-4, 4, 41)
    means = np.array([[part.mean() for part in _steps(each)] for each in (path, *others)])
    along, noise = [part - part.mean() for part in _steps(path)], 2 / (STEP * METRIC * TEMPER**2)
    said = []
    for value in values:
        hessian = value / (TEMPER * METRIC)
        of_path = norm(np.log(0.1), 1.5).logpdf(np.log(value))
        of_path -= np.square(along[1] - hessian * along[0]).sum() / (2 * noise)
        for factor in factors:
            there = hessian * np.exp(1.2 * factor)
            # The sample's deviation is one for all steps; noise is each path's own.
            law = multivariate_normal(np.zeros(len(means)), there + np.eye(len(means)) * noise / STEPS)
            off = means[:, 1, None] - there * (means[:, :1] - grid)
            said.append(law.logpdf(off.T) + of_path - factor**2 / 2)
    logs = norm(0, PRIOR_SD).logpdf(grid) + logsumexp(said, axis=0)
    shares = np.exp(logs - logs.max())
    mean = (shares / shares.sum()) @ grid
    return mean, np.sqrt((shares / shares.sum()) @ (grid - mean) ** 2)


def _steps(path):
    """Where steps were taken, and what they say of the rows' gradient."""
    at = np.concatenate([np.zeros(1), path.value[:, 0]])
    return at[:-1], (-np.diff(at) / (STEP * METRIC) - at[:-1] / PRIOR_SD**2) / TEMPER


@pytest.mark.parametrize(("curvature", "seed"), [(0.5, 3), (8.0, 5), (60.0, 3), (150.0, 7)])
def test_draws_are_of_the_density_of_all_steps_summed_over_curvatures(curvature, seed):
    path = ran("run", seed, curvature)
    found = given_releases.posterior_given(read(line, pmc.Rows(**ROWS), n=N), [(path,)], N)
    mean, sd = exact(path)
    assert found.draws.mean() == pytest.approx(mean, abs=0.1 * sd)
    assert found.draws.std() == pytest.approx(sd, rel=0.1)


def test_a_second_run_on_the_same_rows_is_not_twice_as_many_rows():
    paths = [ran("run", 3, 60.0), ran("run", 4, 60.0)]
    reading = read(line, pmc.Rows(**ROWS), n=N)
    found = given_releases.posterior_given(reading, [(path,) for path in paths], N)
    one = given_releases.posterior_given(reading, [(paths[1],)], N)
    mean, sd = exact(paths[1], paths[0])
    assert found.draws.mean() == pytest.approx(mean, abs=0.1 * sd)
    assert found.draws.std() == pytest.approx(sd, rel=0.1)
    assert found.draws.std() < one.draws.std()


def test_little_more_than_the_prior_is_known_where_rows_add_no_curvature():
    """A path that only diffuses says nothing, and far states of it are no evidence."""
    reading = read(line, pmc.Rows(**ROWS), n=N)
    found = given_releases.posterior_given(reading, [(ran("run", 5, 0.0),)], N)
    assert found.draws.std() > 0.5 * PRIOR_SD


@pytest.mark.long
def test_a_remark_says_that_no_matrix_was_bought():
    few, history = Chains(1, 20, 50), (ran("run", 0),)
    with_x = read(line, pmc.Rows(**ROWS), n=N)
    (remark,) = given_releases.posterior_given(with_x, [history], N, asked=few).remarks
    assert "no matrix of covariates" in remark
    # Without covariates there is none to buy.
    without = read(line, pmc.Rows(y=ROWS["y"]), n=N)
    assert "no matrix" not in "".join(
        given_releases.posterior_given(without, [history], N, asked=few).remarks
    )


def pair(x, y=None):
    """An outcome of two numbers, which the likelihood of matrices and paths does not take."""
    b = numpyro.sample("b", dist.Normal(0, PRIOR_SD).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x[:, None] * b, jnp.ones(2)).to_event(1), obs=y)


def test_any_outcome_will_do():
    reading = read(pair, pmc.Rows(x=ROWS["x"], y=pmc.Box(np.full(2, -9.0), np.full(2, 9.0))), n=N)
    found = given_releases.posterior_given(reading, [(ran("run", 6, 60.0, dim=2),)], N)
    assert found.draws.mean(axis=(0, 1)) == pytest.approx(np.ones(2), abs=1.0)


def apart(x, y=None):
    numpyro.sample("a", dist.Normal(0, PRIOR_SD))
    line(x, y)


def test_rows_say_nothing_of_a_parameter_that_they_do_not_read():
    """As the sd of effects in a centred hierarchy: where the path was is no evidence of it."""
    path = ran("run", 5, np.array([0.0, 60.0]), dim=2)
    found = given_releases.posterior_given(read(apart, pmc.Rows(**ROWS), n=N), [(path,)], N)
    a, b = found.draws.reshape(-1, 2).T
    assert (a.mean(), a.std()) == (pytest.approx(0, abs=0.2), pytest.approx(PRIOR_SD, rel=0.1))
    assert b.std() < 0.7 * PRIOR_SD


def wards(form):
    """Effects of four wards; ``sigma``, the sd of the outcome, comes first."""

    def model(ward, y=None):
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        if form == "stated":
            effects = numpyro.sample("effects", dist.Normal(0, 1.0).expand([4]).to_event(1))
        else:
            sd = numpyro.sample("sd", dist.HalfNormal(1.0))
            spread = 1.0 if form == "non-centred" else sd
            effects = numpyro.sample("effects", dist.Normal(0, spread).expand([4]).to_event(1))
            effects = effects * (sd if form == "non-centred" else 1.0)
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(effects[ward], sigma), obs=y)

    return read(model, pmc.Rows(ward=pmc.Categories(4), y=ROWS["y"]), n=N)


@pytest.mark.parametrize("form", ["stated", "centred", "non-centred"])
def test_an_sd_of_effects_is_told_from_that_of_an_outcome(form):
    reading = wards(form)
    scales = {site.name: site.slice.start for site in reading.sites if site.name != "effects"}
    found = {
        name: quadratic.scales_effects(reading, np.zeros(reading.dim), at) for name, at in scales.items()
    }
    assert found == {"sigma": False} | ({} if form == "stated" else {"sd": True})


@pytest.mark.long
@pytest.mark.parametrize("form", ["stated", "non-centred"])
def test_who_estimates_an_sd_of_groups_by_a_path_alone_is_warned(form):
    reading = wards(form)
    path = ran("run", 6, 60.0, dim=reading.dim)
    found = given_releases.posterior_given(reading, [(path,)], N, asked=Chains(2, 20, 50))
    assert any("sd of groups" in remark for remark in found.remarks) == (form != "stated")


def test_only_the_last_path_is_used():
    both = (ran("warm-up", 1), ran("run", 2))
    assert [path.stage.name for path in used_paths(both)] == ["run"]


def test_deviations_of_weights_are_those_that_matrices_leave():
    random = np.random.default_rng(2)
    weights, moving = np.ones(30), 0.1 * random.standard_normal((30, 4))
    _, deviations = conditioned(weights, moving, [], [])
    expected = np.column_stack([moving - moving.mean(axis=0), np.zeros(30)])
    assert deviations == pytest.approx(expected, abs=1e-12)
