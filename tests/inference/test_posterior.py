"""The posterior given what was released: closed forms, its two limits, and that nothing else enters it.

How far a parameter is from where a path was, as the rows' mean score tells it.
"""

import functools
from dataclasses import replace

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import gelman_rubin

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.inference.expected_score import expected_score, mixes_latents
from private_mcmc.inference.posterior import Astray, Chains, GivenReleases, cut_of_a_row, posterior_of
from private_mcmc.model import read
from private_mcmc.models import network, network_rows
from private_mcmc.planning import CompletedStage, Conclusion, PathStage, Prediction
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.general import Policy, _travels
from private_mcmc.planning.simulate import simulate
from private_mcmc.schedule import Schedule
from tests.examples_of_models import logistic, observed, outcomes, outcomes_by, two_normals
from tests.inference.test_plan_runs import Fixed, path

N, STEPS = 400, 40


mean_of_people = outcomes(lambda: dist.Normal(0.5, 1.0), lambda mu: dist.Normal(mu, 2.0))


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


def exact(history):
    """The path's exact likelihood of the sample mean, its law given ``μ``, and the prior: all Normal."""
    stage, states = history[0].stage, history[0].value[:, 0]
    metric, weight = stage.schedule.preconditioner[0][0], stage.schedule.temper * N / 4
    at = np.concatenate([stage.start, states])
    seen = -(at[1:] - at[:-1]) / metric / stage.schedule.step_size - (at[:-1] - 0.5)
    precision = STEPS * weight**2 * stage.schedule.step_size * metric / 2
    spread = 1 / precision + 4 / N
    own = 1.0 + 1 / spread
    return (0.5 + np.mean(at[:-1] - seen / weight) / spread) / own, own**-0.5


FEW = Chains(2, 200, 400)


def drawn(history, curvature=N / 4, bias=0.0, of=None, asked=FEW):
    """Draws given paths, where this curvature was released without noise."""
    known = np.full((64, 1, 1), curvature)
    told = Conclusion(np.zeros((4, 1)), Prediction(1.0, bias, 1.0, 0.0), curvatures=known)
    return posterior_of(of or reading(), history, told, asked=asked)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("time", "near", "temper"),
    [(1e-12, 0.2, 1.0), (5.0, 0.6, 1.0), (80.0, 0.2, 1.0), (1e4, 0.2, 1.0), (80.0, 0.3, 0.25)],
)
def test_draws_have_the_mean_and_sd_of_the_exact_posterior(time, near, temper):
    """Its ends are the prior and the ordinary posterior. Between them the share that a clip leaves is not
    known, nor how soon the path arrived.
    """
    history = released(min(time, 80.0), 1.2, temper=temper)
    if time > 100:
        # No noise: the last states stay where the sample's mean and the prior lead.
        schedule = replace(history[0].stage.schedule, step_size=time / STEPS)
        mode = (0.5 + N / 4 * 1.2) / (1 + N / 4)
        history = (CompletedStage(PathStage("run", schedule, np.array([mode])), np.full((STEPS, 1), mode)),)
    draws = drawn(history).draws
    mean, sd = exact(history)
    if time < 1e-6:
        assert (mean, sd) == pytest.approx((0.5, 1.0), abs=1e-5)
    if time > 100:
        assert sd == pytest.approx((1 + N / 4) ** -0.5, rel=1e-3)
    assert float(gelman_rubin(draws)[0]) < 1.05
    assert draws.mean() == pytest.approx(mean, abs=near * sd)
    assert draws.std() == pytest.approx(sd, rel=max(near / 2, 0.15))


def test_what_a_bound_on_influence_errs_by_is_in_the_width():
    history = released(80.0, 1.2)
    assert drawn(history, bias=2.0).draws.std() > 2 * drawn(history).draws.std()


def test_curvatures_that_a_release_allows_count_alike():
    """Weighted by how likely they make the path, draws were of the steep one alone: sd 0.11 for 0.34."""
    history, curvatures = released(20.0, 1.2, seed=2), (N / 4, N / 40)
    steep, flat = (drawn(history, curvature).draws for curvature in curvatures)
    both = drawn(history, np.repeat(curvatures, 32)[:, None, None]).draws
    assert both.std() == pytest.approx(np.concatenate([steep, flat]).std(), rel=0.25)


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
    told = Conclusion(np.zeros((4, 1)), Prediction(1.0, 0.0, 1.0, 0.0))
    history = (CompletedStage(stage, np.array(states[1:])[:, None]),)
    draws = posterior_of(known, history, told).draws
    assert abs(np.mean(states) - mean) > 5 * curvature**-0.5
    assert abs(draws.mean() - mean) < 2 * draws.std()
    assert 1.5 * curvature**-0.5 < draws.std() < widest


def test_the_error_to_expect_is_what_the_width_has_beyond_that_without_privacy():
    normal = np.random.default_rng(0).standard_normal((2, 4000, 2))
    assert GivenReleases(normal * [3.0, 0.5], np.array([1.0, 0.5])).error == pytest.approx(2.0, rel=0.05)
    assert GivenReleases(normal / 2, np.ones(2)).error == 0.0


def planned(model, rows, columns, epsilon=3.0, seed=0):
    """The reading, what a plan's stages release of these columns, and what it concludes."""
    n = len(columns["y"])
    known = read(model, rows, n=n)
    policy = Policy(facts_of(known, n, "replace_one", accounting.gdp.budget(epsilon, 1e-6)))
    with jax.enable_x64(True):
        inside = {name: jnp.asarray(each) for name, each in rows.project(columns).items()}
    history = simulate(policy, inside, np.ones(n), seed)
    return known, history, policy.conclude(history)


@pytest.mark.long
def test_where_outcomes_of_draws_are_unlike_those_at_the_path_releases_tell_nothing():
    """A few sds from the path of a network, where NUTS went, predictions were 6 to 9 sds off."""
    random = np.random.default_rng(0)
    X = np.column_stack([np.ones(3_000), random.uniform(-1, 1, (3_000, 2))]) / 3**0.5
    y = random.binomial(1, 1 / (1 + np.exp(-3 * np.sin(3 * X[:, 1]) * X[:, 2])))
    with pytest.raises(Astray, match="far from the path"):
        posterior_of(*planned(network, network_rows(3), {"X": X, "y": y}), asked=FEW)


@pytest.mark.long
@pytest.mark.parametrize("n", [4_000, 20_000])
def test_along_the_ridge_of_a_scale_and_its_effects_draws_go_as_far_as_without_privacy(n):
    """Outcomes there are the path's; draws were refused, and of a Gaussian process its own were 8 sds off."""
    # Of many rows the second warm-up is on its way still, and the run went away from there.
    means, random = np.array([0.9, -0.7, 1.2, -1.1]), np.random.default_rng(1)

    def scaled(g, y=None):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
        observed(g, dist.Normal(scale * effect[g], 0.5), y)

    g = random.integers(0, 4, n)
    people = {"g": g, "y": random.normal(means[g], 0.5)}
    rows = pmc.Rows(g=pmc.Categories(4), y=pmc.Box(-5.0, 5.0))
    draws = posterior_of(*planned(scaled, rows, people, seed=1), asked=FEW).draws.reshape(-1, 5)
    # Given the products, which rows tell, the scale's logarithm has this law.
    logs = np.linspace(-4.0, 2.0, 2_001)
    law = np.exp(-3 * logs - np.exp(2 * logs) / 2 - np.sum(means**2) / 2 * np.exp(-2 * logs))
    mean = law @ logs / law.sum()
    sd = np.sqrt(law @ (logs - mean) ** 2 / law.sum())
    assert draws[:, 0].mean() == pytest.approx(mean, abs=sd / 2)
    assert 0.7 * sd < draws[:, 0].std() < 1.5 * sd


@pytest.mark.long
def test_a_path_that_leaves_what_its_warm_up_found_is_astray():
    """Of two Normals one component took the other's place: 90 % intervals were 5 to 12 of their sds off."""
    random = np.random.default_rng(1)
    first = random.uniform(size=4_000) < 0.3
    y = np.where(first, random.normal(-2.0, 0.7, 4_000), random.normal(1.5, 1.0, 4_000))
    with pytest.raises(Astray, match="far from where"):
        posterior_of(*planned(two_normals, pmc.Rows(y=pmc.Box(-8.0, 8.0)), {"y": y}, seed=1), asked=FEW)


def test_a_warm_up_travels_where_its_second_half_goes_further_than_noise():
    (settled,) = released(8.0, 1.2)
    way = np.linspace(0.0, 3.0, STEPS)[:, None]
    assert not _travels(settled) and _travels(replace(settled, value=settled.value + way))


def test_warm_ups_that_look_for_another_place_move_no_interval():
    """At a tighter clip, and 30 sds away: what the run says of the parameter is what counts."""
    ((run,),) = (released(0.5, 1.2, seed=1),)
    tight = replace(run.stage.schedule, clip=80.0)
    warm_up = CompletedStage(PathStage("warm-up", tight, np.array([5.0])), run.value + 5.0)
    both, alone = (drawn(history).draws for history in ((warm_up, run), (run,)))
    np.testing.assert_array_equal(both, alone)


def clipped(history, clip):
    """The same release of stages that clip rows at ``clip``, which reach 0.3."""
    stages = [(replace(one.stage, schedule=replace(one.stage.schedule, clip=clip)), one) for one in history]
    return tuple(CompletedStage(stage, one.value) for stage, one in stages)


def test_a_row_that_the_clip_would_hide_is_in_the_width():
    history = clipped(released(80.0, 1.2), 0.05)
    stage, y = history[0].stage, np.asarray(reading().rows.synthetic(13, 512)["y"])
    with jax.enable_x64(True):
        cut = cut_of_a_row(reading(), stage, np.full(1, 1.2), np.full((1, 1), N / 4), np.ones(1, bool))
    taken = np.maximum(abs(1.2 - y) / 4 - 0.05 * (1 + N / 4) ** 0.5, 0.0) / (1 + 1 / N)
    assert cut == pytest.approx(np.mean(taken**2) / 2, rel=1e-3) and taken.max() > 1
    wide = read(mean_of_people, pmc.Rows(y=pmc.Box(-12e3, 12e3)), n=N)
    far, near = drawn(history, of=wide), drawn(history)
    assert far.draws.std() > 5 * near.draws.std() and far.remarks and not near.remarks


def test_paths_that_clip_rows_and_disagree_widen_it():
    (run,), (same,), (other,) = released(80.0, 1.2), released(20.0, 1.2, seed=3), released(20.0, 3.2, seed=3)
    histories = (run,), (same, run), (other, run)
    alone, agree, disagree = (drawn(clipped(history, 0.05)).draws for history in histories)
    assert agree == pytest.approx(alone) and disagree.std() > 5 * alone.std()


def test_without_a_path_nothing_is_claimed():
    with pytest.raises(pmc.NotYetSupported, match="no path"):
        drawn(())


@pytest.mark.long
def test_the_posterior_is_a_function_of_what_was_released():
    """Two drivers with other rows and one history say the same; a driver says it again and again."""
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary())
    plan = pmc.plan(logistic, rows, pmc.Target(3.0, 1e-6), n=N, guarantee="run")
    plan, drivers = replace(plan, policy=Fixed((path(),), draws=np.zeros((1, 3)))), []
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
    other._known = None
    np.testing.assert_array_equal(other.posterior().samples["w"], mine)
    known = one._known  # sampled once
    np.testing.assert_array_equal(one.posterior().samples["w"], mine)
    assert known is not None and one._known is known
    posterior = one.to_arviz()
    assert "posterior given what was released" in posterior.attrs["randomness"]
    assert not arviz.summary(posterior, round_to="none").isna().any(axis=None)
    assert np.all(gelman_rubin(mine) < 1.1)


def normals():
    return dist.Normal(0, 1).expand([2]).to_event(1)


def at(reading, centre, *thetas):
    """``T`` at each parameter, in ``c``'s neighbourhood."""
    with jax.enable_x64(True):
        found = expected_score(reading, np.asarray(centre, dtype=float))
        linear = jax.jit(lambda theta: found.linear(reading, theta))
        return np.stack([linear(np.asarray(theta, dtype=float)) for theta in thetas])


def test_it_is_the_parameter_itself_near_by_and_levels_off_with_outcomes():
    reading = read(logistic, pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary()), n=100)
    near, far, further = at(reading, np.zeros(3), [0.1, -0.1, 0.05], [40.0, 0, 0], [80.0, 0, 0])
    assert near == pytest.approx([0.1, -0.1, 0.05], abs=0.005)
    assert far[0] < 20 and further[0] < 1.1 * far[0]


@pytest.mark.some(1)
@pytest.mark.parametrize("domain", [pmc.Box(-9.0, 9.0), pmc.Counts(40)])
def test_outcomes_of_many_values_are_summed_finely(domain):
    counts = isinstance(domain, pmc.Counts)

    def law(b, x):
        eta = b[0] + b[1] * x
        return dist.Poisson(jnp.exp(1 + eta)) if counts else dist.Normal(eta, 1.0)

    reading = read(outcomes_by(normals, law), pmc.Rows(x=pmc.Box(0.0, 1.0), y=domain), n=100)
    (near,) = at(reading, [0.2, 0.3], [0.25, 0.2])
    assert near == pytest.approx([0.25, 0.2], abs=0.02)


def test_of_an_sd_of_groups_and_its_effects_the_product_counts():
    """Linear in both, an sd twice as large with effects half as large would be another parameter."""

    def model(group, y=None):
        sd = numpyro.sample("sd", dist.LogNormal(0, 1))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([3]).to_event(1))
        observed(group, dist.Bernoulli(logits=sd * z[group]), y)

    reading = read(model, pmc.Rows(group=pmc.Categories(3), y=pmc.Binary()), n=100)
    z = np.array([0.5, -1.0, 1.5])
    one, other, elsewhere = at(
        reading, [0.0, *z], [0.0, *(1.2 * z)], [np.log(2.0), *(0.6 * z)], [np.log(2.0), *(1.2 * z)]
    )
    assert one == pytest.approx(other, abs=1e-9)
    assert np.abs(one - elsewhere).max() > 0.2


@pytest.mark.slow
def test_what_no_public_person_varies_in_is_told_linearly():
    """Public rows of a ball have an intercept, beside which cuts of an ordinal outcome say the same.

    As if no rows could tell the two apart, their posterior was that of the prior: 23 times too wide.
    """

    def model(X, y=None):
        w = numpyro.sample("w", normals())
        ordered = dist.TransformedDistribution(
            dist.Normal(0, 1).expand([2]).to_event(1), dist.transforms.OrderedTransform()
        )
        cuts = numpyro.sample("cuts", ordered)
        observed(X, dist.OrderedLogistic(X @ w, cuts), y)

    reading = read(model, pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Categories(3)), n=100)
    # An intercept of √½, taken off by all cuts.
    alike = np.zeros(4)
    for site in reading.sites:
        alike[site.slice.start] = {"w": 1.0, "cuts": np.sqrt(0.5)}[site.name]
    (moved,) = at(reading, np.zeros(4), 0.7 * alike)
    assert moved == pytest.approx(0.7 * alike, abs=1e-3)


def test_outcomes_of_two_numbers_are_left_alone():
    pair = outcomes_by(normals, lambda b, x: dist.Normal(x[:, None] * b, jnp.ones(2)).to_event(1))
    domain = pmc.Rows(x=pmc.Box(0.0, 1.0), y=pmc.Box(np.full(2, -9.0), np.full(2, 9.0)))
    assert expected_score(read(pair, domain, n=100), np.zeros(2)) is None


def many_zeros(x, y=None):
    b = numpyro.sample("b", normals())
    zero = numpyro.sample("zero", dist.Beta(1, 1))
    observed(x, dist.ZeroInflatedPoisson(zero, jnp.exp(b[0] + b[1] * x)), y)


def two_effects(x, y=None):
    a, b = (numpyro.sample(name, dist.Normal(0, 1)) for name in "ab")
    observed(x, dist.Poisson(jnp.exp(a + b * x)), y)


def scaled_effect(x, y=None):
    sd, z = numpyro.sample("sd", dist.LogNormal(0, 1)), numpyro.sample("z", dist.Normal(0, 1))
    observed(x, dist.Poisson(jnp.exp(sd * z * x)), y)


def by_a_factor(x, y):
    a, b = (numpyro.sample(name, dist.Normal(0, 1)) for name in "ab")
    with numpyro.plate("rows", x.shape[0]):
        numpyro.factor("y", dist.Poisson(jnp.exp(a + b * x)).log_prob(y))


@pytest.mark.parametrize(
    ("model", "mixed"),
    [(many_zeros, False), (two_effects, False), (scaled_effect, True), (by_a_factor, True)],
)
def test_it_is_used_where_latents_multiply_or_nobody_can_tell(model, mixed):
    """Of counts with many zeros other parameters had the same mean score: sds were five times too large."""
    reading = read(model, pmc.Rows(x=pmc.Box(0.0, 1.0), y=pmc.Counts(9)), n=100)
    with jax.enable_x64(True):
        assert mixes_latents(reading) == mixed


def test_a_rare_level_whose_rows_all_are_clipped_is_not_off_by_what_its_outcomes_have_of_another_shape():
    """Outcomes at the two ends, whose sign about the mean is no fair coin: 5 to 10 released sds off once."""
    rows, n = pmc.Rows(x=pmc.Ball(2**0.5, dim=2), y=pmc.Box(0.0, 1.0)), 400_000
    prior = dist.Normal(0, 10).expand([2]).to_event(1)
    linear = read(outcomes_by(lambda: prior, lambda w, x: dist.Normal(x @ w, 0.5)), rows, n=n)
    X, y = np.array([[1, 0], [1, 0], [1, 1], [1, 1]]), np.array([0.0, 1.0, 0.0, 1.0])
    weights = n * np.array([0.95 * 0.4, 0.95 * 0.6, 0.05 * 0.25, 0.05 * 0.75])
    policy = Policy(facts_of(linear, n, "replace_one", accounting.gdp.budget(0.1, 1e-6)))
    off = []
    for seed in range(3):
        history = simulate(policy, {"x": jnp.asarray(X, float), "y": jnp.asarray(y)}, weights, seed)
        found = posterior_of(linear, history, policy.conclude(history), asked=FEW).draws.reshape(-1, 2)
        off.append((found.mean(axis=0) - [0.6, 0.15]) / found.std(axis=0))
    assert np.abs(off).max() < 3, off
