"""The posterior given what was released: closed forms, its two limits, and that nothing else enters it."""

import functools
from dataclasses import replace
from functools import partial

import arviz
import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size, gelman_rubin

import private_mcmc as pmc
from private_mcmc.accounting.curves import gdp
from private_mcmc.inference.posterior.covariates import Fitted, Released, fitted
from private_mcmc.inference.posterior.given_releases import GivenReleases, posterior_given
from private_mcmc.inference.posterior.outcomes import law
from private_mcmc.inference.posterior.people import with_outcomes
from private_mcmc.inference.posterior.sample import Chains
from private_mcmc.kernels.synthetic import SyntheticChain
from private_mcmc.model import read
from private_mcmc.planning import CompletedStage, MomentsStage, PathStage
from private_mcmc.planning.affine import affine_policy
from private_mcmc.planning.simulate import second_moments, simulate, synthetic_data
from private_mcmc.release import SecondMoments, plan_second_moments
from private_mcmc.schedule import Schedule
from tests.examples_of_models import logistic
from tests.inference.test_plan_runs import Fixed, path

N, STEPS = 400, 40


def mean_of_people(y=None):
    mu = numpyro.sample("mu", dist.Normal(0.5, 1.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 2.0), obs=y)


@functools.cache
def reading():
    return read(mean_of_people, pmc.Rows(y=pmc.Box(-12.0, 12.0)), n=N)


def released(time, sample_mean, seed=0, temper=1.0):
    """The path of plain Langevin steps over ``N`` rows with this mean, clipped where no row reaches."""
    curvature = 1.0 + temper * N / 4
    metric = 1 / curvature
    step = time / STEPS
    random, state, states = np.random.default_rng(seed), 0.3, []
    for _ in range(STEPS):
        slope = state - 0.5 + temper * N / 4 * (state - sample_mean)
        state = state - step * metric * slope + np.sqrt(2 * step * metric) * random.normal()
        states.append([state])
    schedule = Schedule(
        adjacency="replace_one", num_rows=N, dim=1, step_size=step, num_steps=STEPS, clip=100.0,
        temper=temper, preconditioner=((metric,),), release="path",
    )  # fmt: skip
    return (CompletedStage(PathStage("run", schedule, np.array([0.3])), np.array(states)),)


def exact(histories):
    """Each path's exact likelihood of the sample mean, its law given ``μ``, and the prior: all Normal."""
    precision, total = 0.0, 0.0
    for ((completed),) in histories:
        stage, states = completed.stage, completed.value[:, 0]
        metric, weight = stage.schedule.preconditioner[0][0], stage.schedule.temper * N / 4
        at = np.concatenate([stage.start, states])
        seen = -(at[1:] - at[:-1]) / metric / stage.schedule.step_size - (at[:-1] - 0.5)
        each = weight**2 * stage.schedule.step_size * metric / 2
        precision += STEPS * each
        total += each * np.sum(at[:-1] - seen / weight)
    spread = 1 / precision + 4 / N
    own = 1.0 + 1 / spread
    return (0.5 + total / precision / spread) / own, own**-0.5


@pytest.mark.long
@pytest.mark.parametrize("time", [1e-12, 0.5, 5.0, 1e4])
def test_draws_have_the_mean_and_sd_of_the_exact_posterior(time):
    """Its ends are the prior and the ordinary posterior. Five standard errors: fails once in a million."""
    history = released(time if time < 100 else 5.0, 1.2)
    if time > 100:
        # No noise: the last states stay where the sample's mean and the prior lead.
        schedule = replace(history[0].stage.schedule, step_size=1.0)
        mode = (0.5 + N / 4 * 1.2) / (1 + N / 4)
        stage = PathStage("run", replace(schedule, step_size=time / STEPS), np.array([mode]))
        history = (CompletedStage(stage, np.full((STEPS, 1), mode)),)
    draws = posterior_given(reading(), [history], N).draws
    mean, sd = exact([history])
    if time < 1e-6:
        assert (mean, sd) == pytest.approx((0.5, 1.0), abs=1e-5)
    if time > 100:
        assert sd == pytest.approx((1 + N / 4) ** -0.5, rel=1e-3)
    assert float(gelman_rubin(draws)[0]) < 1.05
    size = float(effective_sample_size(draws)[0])
    assert size > 150
    assert draws.mean() == pytest.approx(mean, abs=5 * sd / np.sqrt(size))
    assert draws.std() == pytest.approx(sd, rel=5 * np.sqrt(1 / size))


@pytest.mark.long
@pytest.mark.parametrize(("time", "widest"), [(0.5, 1.0), (3.0, 0.8)])
def test_persons_are_told_from_a_path_that_never_left_its_start(time, widest):
    """It began 20 sds away. How many rows persons have nothing tells but the path: of half a unit of Langevin
    time draws are nearly as wide as the prior, of three units less so: the curvature on the way from a path
    to a parameter so far away may be another than that along the path.
    """
    persons, rows, mean = 300, 4, 1.5
    domain = pmc.Rows(y=pmc.Box(-12.0, 12.0), who=pmc.Person(at_most=rows))
    known = read(mean_of_people, domain, n=persons)
    curvature = 1.0 + persons * rows / 4
    start, random = mean + 20 * curvature**-0.5, np.random.default_rng(3)
    states = [start]
    for _ in range(STEPS):
        slope = states[-1] - 0.5 + (curvature - 1.0) * (states[-1] - mean)
        noise = np.sqrt(2 * time / STEPS / curvature) * random.normal()
        states.append(states[-1] - time / STEPS / curvature * slope + noise)
    schedule = Schedule(
        adjacency="replace_one", num_rows=persons, dim=1, step_size=time / STEPS, num_steps=STEPS, clip=100.0,
        preconditioner=((1 / curvature,),), release="path", unit=known.unit,
    )  # fmt: skip
    stage = PathStage("run", schedule, np.array([start]))
    drawn = posterior_given(known, [(CompletedStage(stage, np.array(states[1:])[:, None]),)], persons).draws
    assert abs(np.mean(states) - mean) > 5 * curvature**-0.5
    assert abs(drawn.mean() - mean) < 2 * drawn.std()
    assert 1.5 * curvature**-0.5 < drawn.std() < widest


@pytest.mark.slow
def test_runs_on_one_data_set_are_one_likelihood():
    """Each alone is twice as uncertain of the sample's mean; they share the sample's deviation."""
    histories = [released(0.5, 1.2, seed) for seed in (1, 2)]
    draws = posterior_given(reading(), histories, N, asked=Chains(2, 60, 200)).draws
    mean, sd = exact(histories)
    assert sd < 0.9 * exact(histories[:1])[1]
    assert draws.mean() == pytest.approx(mean, abs=0.2 * sd)
    assert draws.std() == pytest.approx(sd, rel=0.15)


@pytest.mark.long
def test_a_weight_of_the_likelihood_changes_what_is_known_and_not_what_is_asked():
    history = released(5.0, 1.2, temper=0.25)
    draws = posterior_given(reading(), [history], N).draws
    mean, sd = exact([history])
    assert draws.mean() == pytest.approx(mean, abs=0.2 * sd)
    assert draws.std() == pytest.approx(sd, rel=0.15)


def test_the_error_to_expect_is_what_the_width_has_beyond_that_without_privacy():
    normal = np.random.default_rng(0).standard_normal((2, 4000, 2))
    assert GivenReleases(normal * [3.0, 0.5], np.array([1.0, 0.5])).error == pytest.approx(2.0, rel=0.05)
    assert GivenReleases(normal / 2, np.ones(2)).error == 0.0
    # People who vary five times as much are √5 sds without privacy from the parameter in any case.
    assert GivenReleases(3 * normal, np.ones(2), 5.0).error == pytest.approx(2.0, rel=0.05)


def test_warm_ups_that_look_for_another_place_move_no_interval():
    """At a tighter clip, and 30 sds away: what the run says of the parameter is what counts."""
    ((run,),) = (released(0.5, 1.2, seed=1),)
    tight = replace(run.stage.schedule, clip=80.0)
    warm_up = CompletedStage(PathStage("warm-up", tight, np.array([5.0])), run.value + 5.0)
    drawn, alone = (posterior_given(reading(), [history], N).draws for history in ((warm_up, run), (run,)))
    assert abs(drawn.mean() - alone.mean()) < 0.25 * alone.std()
    assert drawn.std() == pytest.approx(alone.std(), rel=0.2)


def test_without_a_path_nothing_is_claimed():
    with pytest.raises(pmc.NotYetSupported, match="no path"):
        posterior_given(reading(), [()], N)


def not_a_number(posterior):
    """Names of ArviZ's plots and columns of its summary in which a number is missing."""
    matplotlib.use("Agg")
    table = arviz.summary(posterior, round_to="none")
    found = [name for name in table if table[name].isna().any()]
    of_density = ("posterior", "density") if arviz.__version__[0] == "0" else ("dist",)
    for name in ("trace", "forest", "rank", "ess", "mcse", "autocorr", "pair", *of_density):
        getattr(arviz, f"plot_{name}")(posterior)
        axes = [one for number in plt.get_fignums() for one in plt.figure(number).axes]
        drawn = [line.get_ydata() for one in axes for line in one.get_lines()]
        heights = [bar.get_height() for one in axes for bar in one.patches if hasattr(bar, "get_height")]
        finite = axes and all(np.isfinite(np.asarray(ys, dtype=float)).all() for ys in (*drawn, heights))
        found += [] if finite else [f"plot_{name}"]
        plt.close("all")
    return found


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::matplotlib.MatplotlibDeprecationWarning")  # of ArviZ's own calls
def test_the_posterior_is_a_function_of_what_was_released():
    """Two drivers with other rows and one history say the same; a driver says it again and again."""
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary())
    plan = pmc.plan(logistic, rows, pmc.Target(3.0, 1e-6), n=N, guarantee="run")
    plan, drivers = replace(plan, policy=Fixed((path(),))), []
    for seed in range(2):
        random = np.random.default_rng(seed)
        driver = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
        driver.run(X=random.uniform(-0.5, 0.5, (N, 3)), y=random.integers(0, 2, N))
        drivers.append(driver)
    one, other = drivers
    mine = one.get_samples(group_by_chain=True)["w"]
    assert mine.shape == (4, 1000, 3)
    assert not np.array_equal(mine, other.get_samples(group_by_chain=True)["w"])
    other._keep(replace(other._outcome, history=one.history))
    np.testing.assert_array_equal(other.posterior(rng_key=jax.random.key(0)).samples["w"], mine)
    known = one._known  # sampled once
    np.testing.assert_array_equal(one.posterior().samples["w"], mine)
    assert known is not None and one._known is known
    assert not np.array_equal(one.posterior(rng_key=jax.random.key(5)).samples["w"], mine)
    posterior = one.to_arviz()
    assert "posterior given what was released" in posterior.attrs["randomness"]
    assert not_a_number(posterior) == []
    assert np.all(gelman_rubin(mine) < 1.1)
    both = one.posterior(also=[drivers[1]])
    assert both.statement.gdp == pytest.approx(np.sqrt(2) * plan.budget)
    with pytest.raises(pmc.ReleaseError, match="given twice"):
        one.posterior(also=[one])
    other._charge, one._charge = {"dataset": "people"}, {"dataset": "others"}
    with pytest.raises(pmc.ReleaseError, match="ledger has two"):
        one.posterior(also=[other])
    for others in ({"n": N + 1}, {"reading": reading()}):
        elsewhere = pmc.PrivateMCMC.from_plan(replace(plan, **others))
        elsewhere._keep(other._outcome)
        with pytest.raises(pmc.ReleaseError, match="the same model and as many rows"):
            one.posterior(also=[elsewhere])


def logistic_of(prior_sd):
    def model(X, y=None):
        w = numpyro.sample("w", dist.Normal(0, prior_sd).expand([X.shape[1]]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    return model


@pytest.mark.long
@pytest.mark.parametrize(("prior_sd", "least"), [(10.0, 80), (2.0, 70)])
def test_intervals_of_simulated_plans_hold_the_parameter_as_often_as_they_say(prior_sd, least):
    """Logistic, synthetic covariates, rare outcomes among them, ε = 1; effects are from 0 to 17.

    Of 90 intervals at 90 % at least 80 hold where the prior is as wide as the effects, and 70 where they are
    up to eight of its sds away, which no amount of knowledge of the covariates mends. Seeds are fixed.
    """
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary())
    base = affine_policy(
        read(logistic_of(prior_sd), rows, n=5000), 5000, "replace_one", gdp.budget(1.0, 1e-6)
    )
    held, chains = [], {}

    def chain(stage):
        followed = stage.reading or base.reading
        return chains.setdefault(id(followed), SyntheticChain(lambda root, clip: followed))

    for seed in range(30):
        data = synthetic_data(base, seed)
        history = simulate(base, chain, data.rows, data.weights, seed)
        draws = posterior_given(base.reading, [history], 5000, asked=Chains(2, 100, 200)).draws.reshape(-1, 3)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        held += ((low <= data.mean) & (data.mean <= high)).tolist()
    assert sum(held) >= least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "domain", "at", "fine"),
    [
        (dist.Normal, pmc.Box(0.0, 1.0), 0.1, True),
        (dist.Laplace, pmc.Box(0.0, 1.0), 0.1, False),
        (dist.Normal, pmc.Counts(3), 0.1, True),
        (dist.Normal, pmc.Counts(3), 4.0, True),
    ],
)
def test_an_outcome_whose_law_would_be_cut_off_moves_nothing_or_is_refused(noise, domain, at, fine):
    """A cut would move the mean, and with it the place at which the score vanishes: of whole numbers too."""

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", noise(mu, 0.8), obs=y)

    many = 100_000
    narrow = read(model, pmc.Rows(y=domain), n=many)
    with jax.enable_x64(True):
        nothing = np.zeros((2, 0))
        everyone = Fitted({"y": np.array([0.0, 1.0])}, np.full(2, many / 2), nothing, nothing)
        near = with_outcomes(narrow, everyone, np.array([at]))
        far = with_outcomes(narrow, everyone, np.array([[at + 8.0], [at]]))
        off = [people.off_centre(narrow, np.array([at])) for people in (near, far)]
    # A whole number's law is summed at whole numbers, which lie further apart than the sd.
    assert max(off) < (0.01 if isinstance(domain, pmc.Box) else 0.05) if fine else min(off) > 0.2


@pytest.mark.some(2)
@pytest.mark.parametrize("high", [60.0, 200.0, 2000.0])
@pytest.mark.parametrize("at", [(0.0, 0.0), (2.0, 0.5), (-2.0, -0.5)])
def test_heavy_tails_are_summed_finely_whatever_range_is_declared(high, at):
    def model(x, y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        sigma = numpyro.sample("sigma", dist.LogNormal(2.3, 1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.StudentT(4.0, 40.0 + mu + x, sigma), obs=y)

    reading = read(model, pmc.Rows(x=pmc.Box(-5.0, 5.0), y=pmc.Box(0.0, high)), n=12_000)
    theta = np.array([at[0], 2.3 + at[1]])
    with jax.enable_x64(True):
        nothing = np.zeros((2, 0))
        covariates = {"x": np.array([-5.0, 5.0]), "y": np.zeros(2)}
        everyone = Fitted(covariates, np.full(2, 6000.0), nothing, nothing)
        around = np.array([theta, theta + 1.0, theta - 1.0])
        people = with_outcomes(reading, everyone, around)
        assert people.off_centre(reading, theta) < 0.02


@pytest.mark.some(2)
@pytest.mark.parametrize("concentration", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("high", [12, 100])
def test_counts_that_few_people_have_most_of_are_summed_finely(concentration, high):
    """Much of their mean is beyond the declared range, where the law is cut off."""

    def model(x, y):
        u = numpyro.sample("u", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(u + x), concentration), obs=y)

    reading = read(model, pmc.Rows(x=pmc.Box(-1.0, 1.0), y=pmc.Counts(high)), n=3000)
    theta = np.array([np.log(0.3 * high)])
    with jax.enable_x64(True):
        nothing = np.zeros((3, 0))
        covariates = {"x": np.array([-1.0, 0.0, 1.0]), "y": np.zeros(3)}
        everyone = Fitted(covariates, np.full(3, 1000.0), nothing, nothing)
        around = np.array([theta, theta + 0.5, theta - 0.5])
        assert with_outcomes(reading, everyone, around).off_centre(reading, theta) < 0.03


SKEWED = {
    "Gamma": (lambda u: dist.Gamma(jnp.exp(u), jnp.exp(u - 5)), pmc.Box(1.0, 5e4)),
    "Exponential": (lambda u: dist.Exponential(jnp.exp(u - 5)), pmc.Box(0.01, 5e4)),
    "LogNormal": (lambda u: dist.LogNormal(5 + u, 1.0), pmc.Box(0.01, 5e4)),
    "Beta": (lambda u: dist.Beta(2 * jnp.exp(u), 2.0), pmc.Box(0.001, 0.999)),
    "Logistic": (lambda u: dist.Logistic(90 * u, 20.0), pmc.Box(0.0, 100.0)),
    "Gumbel": (lambda u: dist.Gumbel(90 * u, 2.0), pmc.Box(0.0, 100.0)),
    "truncated Normal": (
        lambda u: dist.TruncatedNormal(90 * u, 20.0, low=0.0, high=100.0),
        pmc.Box(0.0, 100.0),
    ),
    "Poisson with more zeros": (lambda u: dist.ZeroInflatedPoisson(0.3, 5 * jnp.exp(u)), pmc.Counts(20)),
    "Geometric": (lambda u: dist.Geometric(logits=-2 * u), pmc.Counts(30)),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("family", SKEWED)
@pytest.mark.parametrize("at", [0.0, 1.0])
def test_outcomes_are_summed_finely(family, at):
    law, domain = SKEWED[family]

    def model(y):
        u = numpyro.sample("u", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", law(u), obs=y)

    reading = read(model, pmc.Rows(y=domain), n=3000)
    with jax.enable_x64(True):
        nothing = np.zeros((2, 0))
        everyone = Fitted({"y": np.array([0.2, 0.7])}, np.full(2, 1500.0), nothing, nothing)
        assert with_outcomes(reading, everyone, np.array([at])).off_centre(reading, np.array([at])) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("declared", [5, 20, 200])
def test_counts_far_beyond_what_is_declared_are_summed(declared):
    """Means of negative binomial laws with long tails; few counts are gone through alike for all rows."""

    def model(x, y):
        u = numpyro.sample("u", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(u + x), 0.5), obs=y)

    reading = read(model, pmc.Rows(x=pmc.Box(0.0, 1.0), y=pmc.Counts(declared)), n=3000)
    at, x = np.array([1.0]), np.array([0.0, 1.0])
    with jax.enable_x64(True):
        nothing = np.zeros((2, 0))
        everyone = Fitted({"x": x, "y": np.zeros(2, dtype=np.int32)}, np.full(2, 1500.0), nothing, nothing)
        people = with_outcomes(reading, everyone, at)
        means = (people.shares(reading, at) * people.outcomes).sum(axis=1)
    assert people.told.log_base.ndim == 1
    assert np.allclose(means, np.exp(1.0 + x), rtol=5e-3)


@pytest.mark.long
def test_synthetic_rows_have_the_released_moments_of_categories_and_numbers():
    """A rare category, an uneven one, a number that goes with it: fitted within four sds of small noise."""

    def model(x, region, sick, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([4]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=b[region] + sick * b[3] + x), obs=y)

    def design(row):
        parts = [row["region"] == level for level in range(3)]
        return jnp.stack([*(1.0 * part for part in parts), 1.0 * row["sick"], row["x"]])

    rows = pmc.Rows(x=pmc.Box(0.0, 1.0), region=pmc.Categories(3), sick=pmc.Binary(), y=pmc.Binary())
    random = np.random.default_rng(0)
    region = random.choice(3, size=N, p=[0.7, 0.27, 0.03])
    made = {"region": region, "sick": random.random(N) < 0.1, "x": random.beta(2, 4 + 3 * region)}
    made = {name: jnp.asarray(column) for name, column in made.items()} | {"y": jnp.zeros(N, int)}
    noise = N / 200
    with jax.enable_x64(True):
        exact = np.asarray(second_moments(design, (), 3.0, made, jnp.ones(N)))
        mechanism = plan_second_moments(1.0, radius=3.0, dim=5, num_rows=N, adjacency="replace_one")
        released = SecondMoments(exact, noise, mechanism.statement)
        one = Released(MomentsStage("designs", mechanism, design), released)
        found = fitted(read(model, rows, n=N), [one], N, np.zeros(4))
        again = one.predicted(found.rows, found.weights)
    assert found.weights.sum() == pytest.approx(N)
    assert np.abs(again - exact).max() < 4 * noise


@pytest.mark.long
def test_a_curvature_that_reads_outcomes_is_that_of_the_models_outcomes():
    """Few visits, negative binomial: outcomes spread over their domain would give several times as much."""

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(b[0] + b[1] * x), 1.0), obs=y)

    domain = pmc.Rows(x=pmc.Box(0.0, 1.0), y=pmc.Counts(15))
    read_model, theta, random = read(model, domain, n=N), np.array([-1.2, 0.3]), np.random.default_rng(0)
    many = 50 * N
    x = random.beta(2, 3, size=many)
    y = random.negative_binomial(1, 1 / (1 + np.exp(theta[0] + theta[1] * x)))
    noise, root = N / 500, np.eye(2)
    with jax.enable_x64(True):
        influence = affine_policy(read_model, N, "replace_one", 1.0).influence
        query = partial(influence.curvature, 1.0, theta, root)
        people = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
        exact = np.asarray(second_moments(query, (), 9.0, people, jnp.full(many, N / many)))
        mechanism = plan_second_moments(1.0, radius=9.0, dim=2, num_rows=N, adjacency="replace_one")
        one = Released(
            MomentsStage("curvature", mechanism, query), SecondMoments(exact, noise, mechanism.statement)
        )
        found = fitted(read_model, [one], N, theta)
        any_outcome = one.predicted(found.rows, found.weights)
        of_the_model = one.predicted(*law(read_model, theta).of(read_model, found.rows, found.weights))
    assert np.abs(of_the_model - exact).max() < 4 * noise
    assert any_outcome[0, 0] > 2 * exact[0, 0]
    # No covariate had to be moved to explain outcomes.
    assert float(found.weights @ np.asarray(found.rows["x"])) / N == pytest.approx(x.mean(), abs=0.1)


@pytest.mark.long
def test_a_curvature_that_is_cut_off_at_zero_tells_of_covariates():
    """Shares' own curvature is negative at some outcomes, where its root has no derivative."""

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            mean = jax.nn.sigmoid(b[0] + b[1] * x)
            numpyro.sample("y", dist.Beta(4 * mean, 4 * (1 - mean)), obs=y)

    known = read(model, pmc.Rows(x=pmc.Box(0.0, 1.0), y=pmc.Box(0.001, 0.999)), n=N)
    random, theta = np.random.default_rng(0), np.array([0.5, 1.0])
    x = random.beta(2, 8, size=20 * N)
    mean = 1 / (1 + np.exp(-theta[0] - theta[1] * x))
    people = {"x": jnp.asarray(x), "y": jnp.asarray(random.beta(4 * mean, 4 * (1 - mean)))}
    with jax.enable_x64(True):
        query = partial(
            affine_policy(known, N, "replace_one", 1.0).influence.curvature, 1.0, theta, np.eye(2)
        )
        exact = np.asarray(second_moments(query, (), 9.0, people, jnp.full(20 * N, 1 / 20)))
        mechanism = plan_second_moments(1.0, radius=9.0, dim=2, num_rows=N, adjacency="replace_one")
        stage = MomentsStage("curvature", mechanism, query)
        one = Released(stage, SecondMoments(exact, N / 500, mechanism.statement))
        found = fitted(known, [one], N, theta)
        again = one.predicted(*law(known, theta).of(known, found.rows, found.weights))
    assert np.abs(again - exact).max() < 0.05 * exact[0, 0]
    assert float(found.weights @ np.asarray(found.rows["x"])) / N == pytest.approx(0.2, abs=0.04)


@pytest.mark.long
def test_scores_of_a_rare_indicator_level_off_as_uncertainly_as_is_said():
    """Nobody with the indicator has the outcome: smooth columns of its mean and variance go on for ever."""
    random, many = np.random.default_rng(1), 5000
    X = np.column_stack([np.ones(many), random.beta(2, 6, many), random.random(many) < 0.08]) / np.sqrt(3)
    model = read(logistic, pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary()), n=many)
    root = np.linalg.inv(np.linalg.cholesky(X.T @ X)).T
    theta = np.array([-3.0, 1.8, -12.0])
    with jax.enable_x64(True):
        made = {"X": jnp.asarray(X), "y": jnp.zeros(many, int)}
        query = partial(affine_policy(model, many, "replace_one", 1.0).influence.design, root)
        exact = np.asarray(second_moments(query, (), 9.0, made, jnp.ones(many)))
        mechanism = plan_second_moments(1.0, radius=9.0, dim=3, num_rows=many, adjacency="replace_one")
        one = Released(
            MomentsStage("designs", mechanism, query), SecondMoments(exact, 0.05, mechanism.statement)
        )
        found = fitted(model, [one], many, theta)
    x = np.asarray(found.rows["X"])
    scores = found.weights[:, None] * (x / (1 + np.exp(-x @ theta))[:, None]) @ root
    truth = (X / (1 + np.exp(-X @ theta))[:, None]).sum(axis=0) @ root
    sd = np.linalg.norm(found.deviations.T @ scores, axis=0)
    # Of three Normal numbers one is further off in one table of 700.
    assert np.all(np.abs(scores.sum(axis=0) - truth) < 3.5 * sd)
    assert np.linalg.norm(sd) < 0.5 * np.linalg.norm(truth)
