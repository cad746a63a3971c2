"""A ``numpyro.factor`` in the plate of the rows is a term of each row, one of latents alone a part of their
prior; anywhere else it is refused."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import statsmodels.api as statsmodels
from numpyro import handlers
from numpyro.infer.util import potential_energy
from scipy import stats

import private_mcmc as pmc
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model import read
from private_mcmc.model.synthetic import outcome_columns
from private_mcmc.models import hazards, hazards_rows, survival_rows
from tests.examples_of_models import observed

ROWS = survival_rows(2)


def model_of(term, plated=True):
    def model(X, **columns):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", X.shape[0]) if plated else contextlib.nullcontext():
            numpyro.factor("term", term(X @ w, *columns.values()))

    return model


def exponential(log_hazard, time, event):
    """Event times the log hazard, less the cumulative hazard."""
    return event * log_hazard - time * jnp.exp(log_hazard)


@pytest.fixture(scope="module")
def reading():
    return read(model_of(exponential), ROWS, n=50)


def test_nothing_is_proved_of_it_but_its_predictor(reading):
    assert reading.predictor is not None and reading.predictor.radius == pytest.approx(1.0)
    assert reading.constants.gradient_bound == np.inf
    report = pmc.preflight(model_of(exponential), ROWS, pmc.Target(3.0, 1e-6), n=50, clip=0.1)
    assert report.verdict != "private"


def test_its_outcomes_are_what_its_predictor_does_not_read(reading):
    assert outcome_columns(reading) == ("event",)


SIGNED = model_of(lambda eta, y: -jnp.logaddexp(0.0, -(2 * y - 1) * eta))
SQUARED = model_of(lambda eta, y: -0.5 * (y - eta) ** 2)


@pytest.mark.parametrize(
    ("model", "outcome"), [(SIGNED, pmc.Binary()), (SQUARED, pmc.Box(-3, 3))], ids=["product", "difference"]
)
def test_what_is_affine_in_the_latents_may_read_the_outcome(model, outcome):
    found = read(model, pmc.Rows(X=pmc.Ball(1.0, dim=2), y=outcome), n=50)
    assert outcome_columns(found) == ("y",)


@pytest.mark.long
def test_a_likelihood_by_hand_is_planned_as_numpyros_own():
    def own(X, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        observed(X, dist.Bernoulli(logits=X @ w), y)

    rows, target = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary()), pmc.Target(1.0, 1e-6)
    errors = [
        pmc.plan(model, rows, target, n=5000, guarantee="run").prediction.rms for model in (SIGNED, own)
    ]
    assert errors[0] == pytest.approx(errors[1], rel=0.5)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (model_of(lambda eta, t, d: exponential(eta, t, d).sum(), plated=False), "outside every plate"),
        (model_of(exponential, plated=False), "outside every plate"),
        (model_of(lambda eta, t, d: exponential(eta, t, d).sum()), "differs from that of the whole"),
        (model_of(lambda eta, t, d: d * (eta - jnp.log(jnp.cumsum(jnp.exp(eta))))), "mixes rows"),
    ],
    ids=["sum outside", "terms outside", "sum inside", "partial likelihood"],
)
def test_a_term_of_several_rows_is_refused(model, why):
    with pytest.raises(DoThisInstead, match=why):
        read(model, ROWS, n=50)


def test_a_hazard_by_steps_counts_time_at_risk_after_entry():
    """Cumulative hazards over intervals that are added up by hand."""
    found = read(hazards, hazards_rows(1), n=50)
    assert outcome_columns(found) == ("event",)
    base, w = np.array([-1.0, 0.2, -0.5, 0.4]), 0.7
    theta = jnp.array([w, *base] if found.names[0].startswith("w") else [*base, w])
    rate = np.exp(base + 0.5 * w)
    with jax.enable_x64(True):
        row = {"X": jnp.array([0.5]), "entry": 0.5, "time": 2.5, "event": 1}
        loss = jax.jit(found.row_loss)
        late, other = loss(theta, row), loss(theta, {**row, "event": 0})
        nobody = loss(theta, {**row, "time": 0.0, "event": 0})
    assert float(other) == pytest.approx(0.5 * rate[0] + 1.0 * rate[1] + 1.0 * rate[2], rel=1e-6)
    assert float(late) == pytest.approx(float(other) - np.log(rate[2]), rel=1e-6)
    assert float(nobody) == 0.0


def _between(width_of):
    def model(X, lower, upper):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            times, no = dist.Weibull(jnp.exp(X @ w), 1.5), jnp.zeros_like(lower)
            ends = jnp.stack([lower, width_of(lower, upper)], axis=-1)
            numpyro.sample("time", dist.IntervalCensoredDistribution(times, no, no), obs=ends)

    return model


def test_a_time_within_an_interval_is_declared_by_its_lower_end_and_its_width():
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=2), lower=pmc.Box(0.0, 5.0), upper=pmc.Box(0.25, 2.0))
    with pytest.raises(DoThisInstead, match="an interval: its lower end, and its width, above 0"):
        read(_between(lambda _, upper: upper), rows, n=50)
    found = read(_between(lambda lower, width: lower + width), rows, n=50)
    row, theta = {"X": np.array([0.6, -0.2]), "lower": 0.5, "upper": 0.75}, jnp.array([0.3, 1.1])
    survived = stats.weibull_min(1.5, scale=np.exp(0.3 * 0.6 - 1.1 * 0.2)).sf
    with jax.enable_x64(True):
        loss = float(jax.jit(found.row_loss)(theta, row))
    assert loss == pytest.approx(-np.log(survived(0.5) - survived(1.25)), rel=1e-6)


@pytest.mark.long
def test_hazards_by_steps_are_planned_and_run_near_coxs_own_estimate():
    random, n = np.random.default_rng(0), 4000
    X = random.uniform(-1, 1, (n, 1))
    died, left = random.exponential(np.exp(1.0 - X[:, 0])), random.exponential(6.0, n)
    entry = np.minimum(random.exponential(0.5, n), 5.0)
    there = np.minimum(died, left) > entry
    last = np.minimum(np.minimum(died, left), 10.0)
    data = {"X": X, "entry": entry, "time": np.maximum(last - entry, 0), "event": (died < left) & (died < 10)}
    kept = {name: np.asarray(column[there], float) for name, column in data.items()}
    kept["event"] = kept["event"].astype(int)
    cox = statsmodels.PHReg(last[there], X[there], status=kept["event"], entry=entry[there]).fit()
    count = int(there.sum())
    plan = pmc.plan(hazards, hazards_rows(1), pmc.Target(3.0, 1e-6), n=count, guarantee="run")
    driver = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
    driver.run(**kept)
    off = (driver.get_samples()["w"].mean() - cox.params[0]) / cox.bse[0]
    assert plan.prediction.rms < 3 and abs(off) < 3 * max(plan.prediction.rms, 1)


def test_a_plan_for_a_term_without_an_outcome_is_refused_in_words():
    model = model_of(lambda eta: -jnp.logaddexp(0.0, eta))
    with pytest.raises(NotYetSupported, match=r"\['term'\]: plans need an outcome"):
        pmc.plan(model, pmc.Rows(X=pmc.Ball(1.0, dim=2)), pmc.Target(3.0, 1e-6), n=500, guarantee="run")


def soft_zero(a, n):
    numpyro.factor("zero", dist.Normal(0, 0.1).log_prob(a.sum()))


def pseudo_datum(a, n):
    numpyro.sample("zero", dist.Normal(a.sum(), 0.1), obs=0.0)


def neighbours(a, n):
    with numpyro.plate("edges", 3):
        numpyro.sample("steps", dist.Normal(a[1:] - a[:-1], 0.3), obs=0.0)


def weighted(a, n):
    with handlers.scale(scale=3.0):
        numpyro.factor("zero", -((a - a.mean()) ** 2).sum())


def conditioned(a, n):
    with handlers.condition(data={"m": 0.3}):
        numpyro.sample("m", dist.Normal(a[0], jnp.exp(0.2)))


def quartic(a, n):
    numpyro.factor("tails", -(a**4).sum())


def areas(term):
    def model(g, y=None):
        a = numpyro.sample("a", dist.Normal(0, 1).expand([4]).to_event(1))
        term(a, g.shape[0])
        observed(g, dist.Normal(a[g], 1.0), y)

    return model


AREAS = pmc.Rows(g=pmc.Categories(4), y=pmc.Box(-5, 5))


@pytest.mark.some(2)
@pytest.mark.parametrize("term", [pseudo_datum, neighbours, weighted, conditioned, quartic, soft_zero])
def test_what_latents_alone_are_in_is_counted_once_as_numpyro_counts_it(term):
    found = read(areas(term), AREAS, n=50)
    assert [site.name for site in found.observations] == ["y"] and not found.prior.factorised
    random = np.random.default_rng(0)
    rows = {"g": jnp.array([0, 1, 3, 3, 2]), "y": jnp.array([0.1, -1.0, 2.0, 0.4, 5.0])}
    with jax.enable_x64(True):

        def ours(theta):
            terms = jax.vmap(found.row_loss, in_axes=(None, 0))(theta, rows)
            return found.neg_log_prior(theta) + jnp.sum(terms)

        def numpyros(theta):
            return potential_energy(areas(term), (), rows, {"a": theta})

        thetas = jnp.asarray(random.normal(size=(4, 4)))
        np.testing.assert_allclose(
            *(jax.jit(jax.vmap(jax.grad(each)))(thetas) for each in (ours, numpyros)), rtol=1e-9, atol=1e-9
        )
        hessians = np.asarray(jax.jit(jax.vmap(jax.hessian(found.neg_log_prior)))(thetas))
    for values in np.linalg.eigvalsh(hessians):
        assert found.prior.lower.min() <= values[0] + 1e-9 and found.prior.upper.max() >= values[-1] - 1e-9
    if term in (soft_zero, quartic):  # NumPyro's check of the support is no polynomial
        assert found.prior.hessian is None and not found.prior.convex
    else:
        known = found.prior.hessian
        np.testing.assert_allclose(np.diag(known) if known.ndim == 1 else known, hessians[0], atol=1e-9)


def in_every_row(a, n):
    with numpyro.plate("persons", n):
        numpyro.sample("zero", dist.Normal(a.sum(), 0.1), obs=0.0)


def test_what_follows_the_number_of_rows_is_no_part_of_the_prior():
    with pytest.raises(DoThisInstead, match="outside every plate"):
        read(areas(lambda a, n: numpyro.factor("zero", -n * (a.sum() ** 2))), AREAS, n=50)
    found = read(areas(in_every_row), AREAS, n=50)
    assert [site.name for site in found.observations] == ["zero", "y"] and not found.prior.terms


def test_a_datum_that_the_prior_holds_ends_what_is_known_of_a_conjugate_one():
    def model(y=None, term=False):
        p = numpyro.sample("p", dist.Beta(30.0, 30.0))
        if term:
            numpyro.factor("corner", 200 * jnp.log(p))
        observed(y, dist.Bernoulli(probs=p), y)

    rows, target = pmc.Rows(y=pmc.Binary()), pmc.Target(1.0, 1e-3)
    assert "conjugate" in str(pmc.preflight(model, rows, target, n=50).certificates)
    other = pmc.preflight(model, rows, target, n=50, model_args={"term": True})
    assert "conjugate" not in str(other.certificates)


def test_a_model_whose_outcome_is_no_column_is_told_to_declare_it():
    with pytest.raises(DoThisInstead, match="declare the observed column"):
        read(lambda y: soft_zero(numpyro.sample("a", dist.Normal(0, 1)), 1), pmc.Rows(y=pmc.Box(0, 1)), n=50)
