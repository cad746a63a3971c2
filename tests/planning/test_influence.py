"""How a row's influence is bounded: by weights or by a clip, as its outcome and the releases say."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.accounting import gdp
from private_mcmc.model import read
from private_mcmc.planning.affine import affine_policy
from private_mcmc.planning.influence import CELLS, CLIPS, InfluenceCounts, cell_of, counts_of_influence
from private_mcmc.planning.simulate import simulate
from private_mcmc.release import Contribution, Sums
from tests.planning.exact import posterior_mode


def influence_of(outcome, domain):
    """Of a model whose outcome has the law ``outcome(eta)`` and the values of ``domain``."""

    def model(X, y=None):
        w = numpyro.sample("w", dist.Normal(0, 10).expand([2]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", outcome(X @ w), obs=y)

    reading = read(model, pmc.Rows(X=pmc.Ball(1.0, dim=2), y=domain), n=100)
    return affine_policy(reading, 100, "replace_one", 1.0).influence


BOUNDS = {
    "few": (lambda eta: dist.Bernoulli(logits=eta), pmc.Binary(), ("weights",)),
    "symmetric": (lambda eta: dist.Normal(eta, 0.5), pmc.Box(-1.0, 3.0), ("clip", "weights")),
    "symmetric, near": (lambda eta: dist.Normal(eta, 0.5), pmc.Box(0.0, 1.0), ("weights", "clip")),
    "symmetric, heavy tails": (
        lambda eta: dist.StudentT(4.0, eta, 0.5),
        pmc.Box(-1.0, 3.0),
        ("weights", "clip"),
    ),
    "counts": (lambda eta: dist.Poisson(jnp.exp(eta)), pmc.Counts(30), ("clip", "weights")),
    "skewed": (lambda eta: dist.Gamma(2.0, 2.0 * jnp.exp(-eta)), pmc.Box(0.01, 9.0), ("clip", "weights")),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("name", BOUNDS)
def test_how_influence_is_bounded_follows_from_the_outcome(name):
    outcome, domain, bounds = BOUNDS[name]
    assert influence_of(outcome, domain).bounds == bounds


def test_whole_numbers_are_symmetric_where_their_law_is():
    assert influence_of(lambda eta: dist.Normal(eta, 4.0), pmc.Counts(60)).symmetric
    assert not influence_of(lambda eta: dist.Poisson(jnp.exp(eta)), pmc.Counts(60)).symmetric


@pytest.mark.long
@pytest.mark.parametrize("eta", [-2.0, 0.3, 2.5])
def test_weights_of_counts_ask_for_the_worst_declared_count(eta):
    """|e^η − y| over y = 0, …, 30, from its two ends; expected weighted slopes are zero under any law
    of this mean."""
    influence = influence_of(*BOUNDS["counts"][:2])
    loss, mean, cap = influence.weighted.predictor.loss, math.exp(eta), 0.7
    with jax.enable_x64(True):
        row = {"X": jnp.zeros(2), "y": jnp.asarray(0), "_slope_cap": jnp.asarray(cap)}
        assert float(influence.largest_slope(jnp.asarray(eta), row)) == pytest.approx(max(mean, 30 - mean))
        slopes = [float(jax.grad(loss)(jnp.asarray(eta), {**row, "y": jnp.asarray(y)})) for y in range(31)]
    assert len(influence._extreme) == 2
    assert max(map(abs, slopes)) <= cap * (1 + 1e-12)
    np.testing.assert_allclose(slopes, cap * (mean - np.arange(31)) / max(mean, 30 - mean), rtol=1e-9)


def test_of_equally_good_clips_the_largest_is_taken():
    """All rows lose weight below the smallest influence: time and speed cancel."""
    cells = np.full(5000, 20)
    mechanism = counts_of_influence(50.0, 6000, "replace_one")
    influence = InfluenceCounts(
        mechanism.release((Contribution(cells),), np.ones(len(cells)))[0], len(cells), 0.0
    )
    smallest = 0.25 * 64 ** (19 / 18)
    assert 0.8 * smallest < influence.best_clip(lambda clip: 100 / clip**2) <= 64 ** (1 / 18) * smallest
    assert influence.error(smallest, 12.0, distance=50.0) > influence.error(smallest, 12.0)


def test_a_tail_below_the_noise_of_its_cells_is_not_taken_for_none():
    """A clip that a few rows in a hundred exceed is not free because no cell of theirs stands out."""
    mechanism = counts_of_influence(50.0, 6000, "replace_one")
    values = np.zeros(CELLS)
    values[6:12], values[12:19] = 1000.0, 2 * mechanism.noise.sd
    counts = Sums(values[None], mechanism.noise.sd)
    short, whole = (InfluenceCounts(counts, 6000, 0.4, cells=cells).bias(8.0) for cells in (16, 19))
    assert short == pytest.approx(0.0, abs=1e-6)
    assert whole > 0.005 * mechanism.noise.sd


def test_the_noise_of_outer_cells_does_not_choose_the_clip():
    """4,000 skewed slopes, three in a hundred of them long, at ε = 3: 100 draws of the counts' noise.

    A standard error of either ratio is below a tenth of it.
    """
    slopes = np.random.default_rng(0).lognormal(-0.4, 0.9, 4000)
    values = np.bincount(np.asarray(cell_of(slopes)), minlength=CELLS).astype(float)
    mechanism = counts_of_influence(0.1 * 0.648, 4000, "replace_one")
    sd, random = mechanism.noise.sd, np.random.default_rng(1)

    def time(clip):
        return 106 / clip**2

    def influence(values, sd):
        return InfluenceCounts(Sums(values[None], sd), 4000, 0.56, cells=27)

    exact = influence(values, 1e-9)
    noisy = [influence(values + sd * random.normal(size=CELLS), sd) for _ in range(100)]
    clips = [one.best_clip(time) for one in noisy]
    seen = np.sqrt(np.mean([exact.error(clip, time(clip)) ** 2 for clip in clips]))
    told = np.sqrt(
        np.mean([one.error(clip, time(clip)) ** 2 for one, clip in zip(noisy, clips, strict=True)])
    )
    best = exact.best_clip(time)
    assert seen < 1.8 * exact.error(best, time(best))
    assert 1 / 1.6 < told / seen < 1.6


@pytest.mark.long
def test_overdispersed_counts_are_weighted_instead_of_clipped():
    """Negative binomial counts under a Poisson model: a clip leads the mean tens of sds astray."""
    n, p = 20_000, 3
    random = np.random.default_rng(3)
    X = np.column_stack([np.ones(2048), random.uniform(size=(2048, p - 1))]) / math.sqrt(p)
    means = np.exp(X @ np.array([1.4, 0.5, -0.4]) * math.sqrt(p) / 1.5)
    y = np.minimum(random.poisson(means * random.gamma(0.8, 1 / 0.8, size=2048)), 20)

    def model(X, y=None):
        w = numpyro.sample("w", dist.Normal(0, 10).expand([p]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Poisson(jnp.exp(X @ w)), obs=y)

    reading = read(model, pmc.Rows(X=pmc.Ball(1.0, dim=p), y=pmc.Counts(20)), n=n)
    poisson = affine_policy(reading, n, "replace_one", gdp.budget(3.0, 1e-6))
    weights = np.full(2048, n / 2048)
    with jax.enable_x64(True):
        columns = {"X": jnp.asarray(X), "y": jnp.asarray(y)}
    mode, covariance = posterior_mode(poisson, columns, weights)
    sd, concluded = np.sqrt(np.diag(covariance)), poisson.conclude(simulate(poisson, columns, weights, 0))
    error = (concluded.draws.mean(axis=0) - mode) / sd
    assert np.sqrt(np.mean(error**2)) < 4
    assert np.all(np.abs(error) < 3 * concluded.draws.std(axis=0) / sd)


def test_a_slightly_wrong_model_is_worth_a_wider_clip():
    """The clip that errs least if the model is right is narrower, for a gain of a tenth at most."""
    values = np.zeros(CELLS)
    values[6:16] = np.geomspace(3000.0, 50.0, 10)
    influence = InfluenceCounts(Sums(values[None], 1.0), int(values.sum()), 0.0)

    def right(clip: float) -> float:
        return math.hypot(math.sqrt(influence._inequality(clip)), math.sqrt(2 * clip**2 / 1e3))

    narrow, wide = min(CLIPS, key=right), influence.best_clip(lambda clip: 1e3 / clip**2)
    assert 1.1 * narrow < wide < 2 * narrow
    assert influence.bias(wide) < influence.bias(narrow)
    assert right(wide) < 1.1 * right(narrow)
