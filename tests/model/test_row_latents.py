"""Latents of single rows are summed out of the row's term; what cannot be is refused by name."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats

import private_mcmc as pmc
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model import read
from private_mcmc.model.integrated import Summed
from private_mcmc.model.synthetic import outcome_columns

ROWS = pmc.Rows(x=pmc.Box(-2, 2), seen=pmc.Binary(), y=pmc.Box(-3, 3))
COUNTS = pmc.Rows(x=pmc.Box(-1, 1), y=pmc.Counts(9))


def imputed(x, seen, y=None):
    """A covariate that may be missing, from a distribution whose mean is modelled."""
    w, mean = numpyro.sample("w", dist.Normal(0, 1)), numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        x = numpyro.sample("x", dist.Normal(mean, 0.7), obs=x, obs_mask=seen == 1)
        numpyro.sample("y", dist.Normal(w * x, 0.5), obs=y)


def inflated(x, y=None):
    w, share = numpyro.sample("w", dist.Normal(0, 1)), numpyro.sample("share", dist.Beta(2, 2))
    with numpyro.plate("rows", x.shape[0]):
        never = numpyro.sample("never", dist.Bernoulli(share))
        numpyro.sample("y", dist.Poisson((1 - never) * jnp.exp(w * x) + 1e-12), obs=y)


@functools.cache
def reading(model, rows):
    return read(model, rows, n=40)


def loss(model, rows, theta, **row):
    with jax.enable_x64(True):
        return float(jax.jit(reading(model, rows).row_loss)(jnp.asarray(theta), row))


def normal(y, mean, sd):
    return -stats.norm.logpdf(y, mean, sd)


@pytest.mark.slow
def test_a_missing_number_is_integrated_over_its_distribution():
    w, mean, y = 0.8, -0.3, 1.1
    missing = loss(imputed, ROWS, [w, mean], x=0.0, seen=0, y=y)
    assert reading(imputed, ROWS).names == ("w", "mean")
    exact = normal(y, w * mean, np.hypot(0.5, 0.7 * w))
    assert missing == pytest.approx(exact, abs=2e-6)
    there = loss(imputed, ROWS, [w, mean], x=0.4, seen=1, y=y)
    assert there == pytest.approx(normal(y, w * 0.4, 0.5) + normal(0.4, mean, 0.7), abs=1e-9)
    assert loss(imputed, ROWS, [w, mean], x=2.0, seen=0, y=y) == missing


@pytest.mark.slow
def test_zero_inflation_is_that_of_numpyro():
    w, share = 0.4, 0.35
    theta = [w, float(np.log(share / (1 - share)))]
    assert reading(inflated, COUNTS).names == ("w", "share")
    for y in (0, 3):
        exact = -float(dist.ZeroInflatedPoisson(share, jnp.exp(w * 0.5)).log_prob(y))
        assert loss(inflated, COUNTS, theta, x=0.5, y=y) == pytest.approx(exact, abs=1e-6)
    assert outcome_columns(reading(inflated, COUNTS)) == ("y",)


def test_rows_of_several_numbers_and_coupled_rows_are_refused():
    def several(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            e = numpyro.sample("e", dist.Normal(0, 1).expand([2]).to_event(1))
            numpyro.sample("y", dist.Poisson(jnp.exp(w * x + e.sum(-1))), obs=y)

    def neighbours(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            e = numpyro.sample("e", dist.Bernoulli(0.5))
            numpyro.sample("y", dist.Poisson(jnp.exp(w * x + jnp.roll(e, 1))), obs=y)

    with pytest.raises(DoThisInstead, match="2 numbers for every row"):
        read(several, COUNTS, n=40)
    with pytest.raises(DoThisInstead, match="differs from that of the whole model"):
        read(neighbours, COUNTS, n=40)


@pytest.mark.parametrize(
    "around", [handlers.scale(scale=0.5), handlers.mask(mask=False)], ids=["scale", "mask"]
)
def test_a_rows_latent_whose_density_does_not_integrate_to_one_is_refused(around):
    """Its weights on the grid would be divided by a sum that depends on the latents of all."""

    def model(x, y=None):
        sd = numpyro.sample("sd", dist.HalfNormal(1))
        with numpyro.plate("rows", x.shape[0]):
            with around:
                e = numpyro.sample("e", dist.Normal(0, sd))
            numpyro.sample("y", dist.Poisson(jnp.exp(x + e)), obs=y)

    with pytest.raises(NotYetSupported, match=r"'e'.*scale or mask"):
        read(model, COUNTS, n=10)


def test_a_sum_is_traced_once_and_once_with_more_points(monkeypatch):
    traced, near = [], Summed.near
    monkeypatch.setattr(Summed, "near", lambda *given: traced.append(given[0].finer) or near(*given))
    assert read(imputed, ROWS, n=40).work > 0 and sorted(traced) == [0, 2]


def test_a_flat_prior_elsewhere_hides_no_latent_of_a_row_and_a_flat_one_is_no_distribution():
    def model(x, y=None):
        flat = dist.ImproperUniform(dist.constraints.real, (), ())
        w = numpyro.sample("w", flat if flat_one == "w" else dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            e = numpyro.sample("e", flat if flat_one == "e" else dist.Normal(0, 1))
            numpyro.sample("y", dist.Poisson(jnp.exp(w * x + e)), obs=y)

    flat_one = "w"
    assert read(model, COUNTS, n=10).names == ("w",)
    flat_one = "e"
    with pytest.raises(DoThisInstead, match=r"'e'.*proper distribution"):
        read(model, COUNTS, n=10)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_plan_with_latents_of_rows_finds_what_numpyro_s_own_mixture_finds():
    random = np.random.default_rng(0)
    x, never = random.uniform(-1, 1, 4000), random.random(4000) < 0.3
    y = np.minimum(random.poisson(np.exp(0.8 * x)) * ~never, 9)
    plan = pmc.plan(inflated, COUNTS, pmc.Target(8.0, 1e-6), n=4000, guarantee="run")
    mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
    mcmc.run(x=x, y=y)
    # A posterior sd is about 0.03 of the slope and 0.015 of the share.
    found = {name: float(draws.mean()) for name, draws in mcmc.get_samples().items()}
    room = 4 * max(plan.prediction.rms, 1.0)
    assert abs(found["w"] - 0.8) < 0.03 * room and abs(found["share"] - 0.3) < 0.015 * room


MEASURED = pmc.Rows(y=pmc.Box(-6, 6), se=pmc.Box(0.01, 2))


def measured(y, se):
    mu, tau = numpyro.sample("mu", dist.Normal(0, 1)), numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("rows", y.shape[0]):
        true = numpyro.sample("true", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(true, se), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize("se", [0.01, 0.05, 0.3, 2.0])
def test_a_likelihood_far_narrower_than_the_latent_is_summed_exactly(se):
    for y, mu, log_tau in ((1.234, 0.1, 0.0), (-5.9, 0.3, 0.7), (0.0, -0.5, -1.5)):
        exact = normal(y, mu, np.hypot(np.exp(log_tau), se))
        assert loss(measured, MEASURED, [mu, log_tau], y=y, se=se) == pytest.approx(exact, abs=1e-5)


@pytest.mark.slow
def test_trials_of_a_row_of_its_own_are_summed_as_by_quadrature():
    def model(r):
        mu, sd = numpyro.sample("mu", dist.Normal(0, 2)), numpyro.sample("sd", dist.HalfNormal(2))
        with numpyro.plate("rows", r.shape[0]):
            b = numpyro.sample("b", dist.Normal(mu, sd))
            numpyro.sample("r", dist.Binomial(800, logits=b), obs=r)

    grid = np.linspace(-9, 9, 40_001)
    for r in (0, 3, 400, 800):
        parts = stats.norm.pdf(grid, -1, 1) * stats.binom.pmf(r, 800, 1 / (1 + np.exp(-grid)))
        found = loss(model, pmc.Rows(r=pmc.Counts(800)), [-1.0, 0.0], r=r)
        assert found == pytest.approx(-np.log(np.trapezoid(parts, grid)), abs=1e-6)


@pytest.mark.some(1)
@pytest.mark.parametrize("shape", [0.4, 2.0, 60.0])
def test_a_share_of_a_row_is_summed_far_into_its_tails(shape):
    def model(trials, y):
        size = numpyro.sample("size", dist.Exponential(1.0))
        with numpyro.plate("rows", y.shape[0]):
            share = numpyro.sample("share", dist.Beta(size, size))
            numpyro.sample("y", dist.Binomial(trials, probs=share), obs=y)

    rows = pmc.Rows(trials=pmc.Counts(45), y=pmc.Counts(45))
    for y in (0, 1, 20, 45):
        exact = -stats.betabinom.logpmf(y, 45, shape, shape)
        found = loss(model, rows, [np.log(shape)], trials=45, y=y)
        assert found == pytest.approx(exact, abs=1e-4)


@pytest.mark.slow
def test_a_sum_that_no_grid_is_fine_enough_for_is_refused():
    """The likelihood is a comb over the latent."""

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        with numpyro.plate("rows", y.shape[0]):
            x = numpyro.sample("x", dist.Normal(mu, 1.0))
            numpyro.sample("y", dist.Normal(jnp.sin(60 * x), 0.01), obs=y)

    with pytest.raises(NotYetSupported, match=r"\['x'\] of each row: the sum over their values is off by"):
        read(model, pmc.Rows(y=pmc.Box(-1, 1)), n=10)


ANSWERS, SAID = ("y0", "y1", "y2"), (0, 2, 0)


def dawid_skene(y0, y1, y2):
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("annotators", 3, dim=-2), numpyro.plate("classes", 3):
        says = numpyro.sample("says", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("items", y0.shape[0]):
        c = numpyro.sample("c", dist.Categorical(share))
        for j, y in enumerate((y0, y1, y2)):
            numpyro.sample(f"y{j}", dist.Categorical(says[j, c]), obs=y)


def mace(y0, y1, y2):
    """Annotators who do not guess say what is true: of the others' answers most rows are impossible."""
    with numpyro.plate("annotators", 3):
        guess = numpyro.sample("guess", dist.Dirichlet(jnp.full(3, 10.0)))
        knows = numpyro.sample("knows", dist.Beta(0.5, 0.5))
    with numpyro.plate("items", y0.shape[0]):
        c = numpyro.sample("c", dist.Categorical(jnp.ones(3) / 3))
        for j, y in enumerate((y0, y1, y2)):
            guesses = numpyro.sample(f"guesses{j}", dist.Bernoulli(1 - knows[j]))
            law = jnp.where(guesses[:, None] == 1, guess[j], jax.nn.one_hot(c, 3))
            numpyro.sample(f"y{j}", dist.Categorical(law), obs=y)


def chance_of_dawid_skene(share, says):
    return sum(share[c] * np.prod([says[j, c, y] for j, y in enumerate(SAID)]) for c in range(3))


def chance_of_mace(guess, knows):
    each = [
        [knows[j] * (y == c) + (1 - knows[j]) * guess[j, y] for j, y in enumerate(SAID)] for c in range(3)
    ]
    return np.prod(each, axis=1).sum() / 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "chance"),
    [(dawid_skene, chance_of_dawid_skene), (mace, chance_of_mace)],
    ids=["classes", "mace"],
)
def test_annotators_are_summed_over_all_that_a_row_may_be(model, chance):
    found = read(model, pmc.Rows(**dict.fromkeys(ANSWERS, pmc.Categories(3))), n=50)
    theta = 0.4 * np.random.default_rng(0).normal(size=found.dim)
    with jax.enable_x64(True):
        values = {name: np.asarray(value) for name, value in found.constrain(jnp.asarray(theta)).items()}
        loss = float(jax.jit(found.row_loss)(jnp.asarray(theta), dict(zip(ANSWERS, SAID, strict=True))))
    assert loss == pytest.approx(-np.log(chance(**values)), rel=1e-9)
