"""Plans are made without data, spend exactly their budget, and predict the error they make."""

import inspect
import math
import re

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.model import read
from private_mcmc.model.synthetic import outcome_columns
from private_mcmc.planning.outcomes import candidates
from private_mcmc.planning.simulate import simulate
from private_mcmc.planning.stages import passes
from tests.examples_of_models import flat_prior, logistic
from tests.zoo.models import softmax

ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary())
TARGET = pmc.Target(epsilon=3.0, delta=1e-6)
N = 20_000


@pytest.fixture(scope="module")
def planned():
    return pmc.plan(logistic, ROWS, TARGET, n=N, guarantee="run")


@pytest.fixture(scope="module")
def people():
    """Synthetic rows whose posterior is far from the start: logits of root mean square 3."""
    rng = np.random.default_rng(11)
    X = np.column_stack([np.ones(N), rng.integers(0, 2, N), rng.uniform(size=N)]) / np.sqrt(3)
    w = np.array([-4.0, 3.0, 2.0])
    y = rng.uniform(size=N) < 1 / (1 + np.exp(-X @ w))
    return {"X": X, "y": y.astype(int)}


def test_a_plan_is_short_where_it_is_typed(planned):
    assert len(repr(planned)) < 1000 and "epsilon=3.0" in repr(planned)


def test_a_plan_takes_no_private_data():
    assert set(inspect.signature(pmc.plan).parameters) == {
        "model",
        "rows",
        "target",
        "n",
        "guarantee",
        "model_args",
        "max_error",
        "max_passes",
        "coefficients",
        "people",
        "release",
        "progress_bar",
    }


@pytest.mark.long
def test_the_predicted_error_falls_with_epsilon_and_with_rows(planned):
    asked = [(0.3, N), (3.0, N), (30.0, N), (3.0, 20 * N)]
    least, middle, most, many = (planned.predict(*each).rms for each in asked)
    assert least > middle > most and middle > many


@pytest.mark.long
def test_too_little_of_either_says_how_much_would_do(planned):
    wanted = planned.prediction.rms / 2
    with pytest.raises(pmc.NotPrivate, match=r"about [\d,]+ rows at ε = 3, or about ε = ") as refusal:
        pmc.plan(logistic, ROWS, TARGET, n=N, guarantee="run", max_error=wanted)
    rows = int(re.search(r"about ([\d,]+) rows", str(refusal.value)).group(1).replace(",", ""))
    assert planned.predict(3.0, rows).rms <= wanted


@pytest.mark.long
def test_the_posteriors_guarantee_weights_the_likelihood_until_a_certificate_meets_the_target():
    plan = pmc.plan(logistic, ROWS, TARGET, n=N)
    assert plan.guarantee == "posterior" and 0 < plan.temper < 1
    assert plan.certificate.delta(TARGET.epsilon) <= TARGET.delta
    assert plan.certificate.verify() and plan.statement.delta(TARGET.epsilon) <= TARGET.delta
    assert pmc.preflight(logistic, ROWS, TARGET, n=N, temper=plan.temper).verdict == "private"
    run = plan.policy.next(())
    assert run is not None and plan.report().to_html()


@pytest.mark.long
def test_a_run_of_the_plan_stays_near_its_prediction(planned, people):
    """Error of the private means against the exact mode, in posterior sds, within three predictions."""
    mcmc = pmc.PrivateMCMC.from_plan(planned, progress_bar=False)
    mcmc.run(**people)
    assert mcmc.statement.gdp == planned.statement.gdp
    assert mcmc.statement.verify()
    assert [part.gdp for part in mcmc.statement.parts] == [
        completed.stage.statement.gdp for completed in mcmc.history
    ]
    X, y = people["X"], people["y"]
    w = np.zeros(3)
    for _ in range(50):
        p = 1 / (1 + np.exp(-X @ w))
        hessian = (X.T * (p * (1 - p))) @ X + np.eye(3) / 4
        w = w - np.linalg.solve(hessian, X.T @ (p - y) + w / 4)
    sd = np.sqrt(np.diag(np.linalg.inv(hessian)))
    error = (mcmc.get_samples()["w"].mean(0) - w) / sd
    predicted = max(mcmc.conclusion.prediction.rms, planned.prediction.rms)
    assert np.sqrt(np.mean(error**2)) < 3 * predicted + 0.3


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["add_remove", pytest.param("zero_out", marks=pytest.mark.long)])
def test_each_stage_is_charged_under_the_targets_adjacency(people, adjacency):
    target = pmc.Target(3.0, 1e-6, adjacency=adjacency)
    # Slots are public under zero_out, all of them full here; the number of rows is private under the other.
    plan = pmc.plan(logistic, ROWS, target, n=N if adjacency == "zero_out" else N + 500, guarantee="run")
    mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
    mcmc.run(**people)
    assert {part.adjacency for part in mcmc.statement.parts} == {adjacency}
    assert mcmc.statement.delta(3.0) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "rows", "target", "error", "words"),
    [
        (flat_prior, ROWS, TARGET, pmc.NotYetSupported, "prior"),
        (logistic, ROWS, pmc.Target(3.0, 0.0), pmc.DeclarationError, "delta=0.*Laplace"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_a_way_out(model, rows, target, error, words):
    with pytest.raises(error, match=words):
        pmc.plan(model, rows, target, n=N, guarantee="run")


def two_outcomes(y=None, z=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=w), obs=y)
        numpyro.sample("z", dist.Bernoulli(logits=w), obs=z)


def in_fields(age, sex, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", age.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(w[0] * age + w[1] * sex)), obs=y)


def test_outcomes_are_the_declared_values_of_what_the_model_observes():
    rows = pmc.Rows(age=pmc.Box(-1, 1), sex=pmc.Binary(), y=pmc.Counts(10_000))
    counts = np.asarray(candidates(rows, outcome_columns(read(in_fields, rows, n=N)))["y"])
    assert counts[0] == 0 and counts[-1] == 10_000 and len(counts) == 257
    several = read(two_outcomes, pmc.Rows(y=pmc.Binary(), z=pmc.Binary()), n=N)
    assert outcome_columns(several) == ("y", "z")


def line(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 5).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)


def counts(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 5).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(X @ w)), obs=y)


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "outcome", "largest_error"), [(line, pmc.Box(-8.0, 8.0), 1.5), (counts, pmc.Counts(50), 8.0)]
)
def test_unbounded_scores_are_planned_for_with_a_clip(model, outcome, largest_error):
    """Linear and Poisson regression at ε = 1, without any tuning: errors in posterior sds."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(N), rng.uniform(-1, 1, (N, 2))]) / np.sqrt(3)
    w = np.array([1.5, 2.0, -1.0])
    y = X @ w + rng.normal(size=N) if model is line else rng.poisson(np.exp(X @ w))
    policy = pmc.plan(
        model, pmc.Rows(X=pmc.Ball(1.0, dim=3), y=outcome), pmc.Target(1.0, 1e-6), n=N, guarantee="run"
    )
    mcmc = pmc.PrivateMCMC.from_plan(policy, progress_bar=False)
    mcmc.run(X=X, y=y)
    weight = np.ones(N) if model is line else np.exp(X @ w)
    sd = np.sqrt(np.diag(np.linalg.inv((X.T * weight) @ X)))
    error = (mcmc.get_samples()["w"].mean(0) - w) / sd
    assert np.sqrt(np.mean(error**2)) < largest_error


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "more"), [(0.3, 1.2), (1.0, 1.2), (3.0, 1.3)])
def test_forty_passes_err_little_more_than_all_that_a_plan_would_take(epsilon, more, people):
    """As predicted."""
    target = pmc.Target(epsilon, 1e-6)
    free, short = (
        pmc.plan(logistic, ROWS, target, n=100_000, guarantee="run", max_passes=most) for most in (None, 40)
    )
    assert short.prediction.rms <= more * free.prediction.rms
    for seed in range(3):
        history = simulate(short.policy, people, np.full(N, 100_000 / N), seed)
        assert passes(history) <= 40
        assert math.hypot(*(one.stage.statement.gdp for one in history)) <= short.budget


@pytest.mark.long
def test_plans_of_any_model_keep_to_their_passes():
    rows, most = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Categories(3)), 2500
    plan = pmc.plan(softmax, rows, TARGET, n=N, guarantee="run", max_passes=most)
    drawn = plan.reading.rows.synthetic(0, 64)
    history = simulate(plan.policy, drawn, np.full(64, N / 64), 0)
    assert plan.policy.least_passes <= most and passes(history) <= most


def test_fewer_passes_than_any_plan_takes_are_refused():
    with pytest.raises(pmc.DeclarationError, match=r"max_passes=20: .* takes 31 passes over the rows"):
        pmc.plan(logistic, ROWS, TARGET, n=N, guarantee="run", max_passes=20)
    with pytest.raises(pmc.DeclarationError, match="only plans of a path"):
        pmc.plan(logistic, ROWS, TARGET, n=N, guarantee="run", max_passes=20, release="last")
