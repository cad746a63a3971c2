"""Plans are made without data, spend exactly their budget, and predict the error they make."""

import math
import re

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.planning.simulate import simulate
from private_mcmc.planning.stages import passes
from tests.examples_of_models import flat_prior, logistic
from tests.planning.exact import posterior_mode
from tests.zoo.models import softmax

ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary())
CLASSES = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Categories(3))
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


@pytest.mark.long
def test_errors_of_coefficients_are_the_plans_error_in_their_own_units(planned):
    found = planned.prediction
    assert [one.name for one in found.coefficients] == ["w[0]", "w[1]", "w[2]"]
    in_sds = [one.error / one.sd for one in found.coefficients]
    # Their sds are those of 500 draws.
    assert np.sqrt(np.mean(np.square(in_sds))) == pytest.approx(found.rms, rel=0.15)
    read = {"coefficients": lambda sites: {"per cent": 100 * sites["w"][:, 1]}}
    other = pmc.plan(logistic, ROWS, TARGET, n=N, guarantee="run", **read).prediction
    (one,) = other.coefficients
    assert one.name == "per cent" and other.rms == pytest.approx(in_sds[1], rel=1e-6)
    assert one.error == pytest.approx(100 * found.coefficients[1].error, rel=1e-6)
    assert pmc.Prediction.from_record(found.to_record()) == found and found.low < found.rms < found.high
    assert "of centred ones: Ball" in planned._repr_html_()


@pytest.mark.long
def test_the_predicted_error_falls_with_epsilon_and_with_rows(planned):
    asked = [(0.3, N), (3.0, N), (30.0, N), (3.0, 20 * N)]
    least, middle, most, many = (planned.predict(*each).rms for each in asked)
    assert least > middle > most and middle > many


@pytest.mark.long
def test_too_little_of_either_says_how_much_would_do(planned):
    wanted = 0.8 * planned.prediction.rms
    with pytest.raises(pmc.NotPrivate, match=r"about [\d,]+ rows at ε = 3, or about ε = ") as refusal:
        pmc.plan(logistic, ROWS, TARGET, n=N, guarantee="run", max_error=wanted)
    rows = int(re.search(r"about ([\d,]+) rows", str(refusal.value)).group(1).replace(",", ""))
    assert planned.predict(3.0, rows).rms <= wanted


@pytest.mark.long
@pytest.mark.parametrize(("model", "rows"), [(logistic, ROWS), (softmax, CLASSES)])
def test_the_posteriors_guarantee_weights_the_likelihood_until_a_certificate_meets_the_target(model, rows):
    plan = pmc.plan(model, rows, TARGET, n=N)
    assert plan.guarantee == "posterior" and 0 < plan.temper == plan.policy.facts.temper < 1
    assert plan.certificate.delta(TARGET.epsilon) <= TARGET.delta
    assert plan.certificate.verify() and plan.statement.delta(TARGET.epsilon) <= TARGET.delta
    assert plan.prediction.rms < 0.3
    assert pmc.preflight(model, rows, TARGET, n=N, temper=plan.temper).verdict == "private"
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
    mode, covariance = posterior_mode(planned.reading, people, np.ones(N))
    error = (mcmc.get_samples()["w"].mean(0) - mode) / np.sqrt(np.diag(covariance))
    predicted = max(mcmc.conclusion.prediction.rms, planned.prediction.rms)
    assert np.sqrt(np.mean(error**2)) < 3 * predicted + 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "asked", "error", "words"),
    [
        (flat_prior, {}, pmc.NotYetSupported, "prior"),
        (logistic, {"target": pmc.Target(3.0, 0.0)}, pmc.DeclarationError, "delta=0.*Laplace"),
        (logistic, {"max_passes": 20}, pmc.DeclarationError, "max_passes=20: .* takes 32 passes"),
        (logistic, {"max_passes": 20, "release": "last"}, pmc.DeclarationError, "only plans of a path"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_a_way_out(model, asked, error, words):
    with pytest.raises(error, match=words):
        pmc.plan(model, ROWS, n=N, guarantee="run", **{"target": TARGET} | asked)


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
    most = 2500
    plan = pmc.plan(softmax, CLASSES, TARGET, n=N, guarantee="run", max_passes=most)
    drawn = plan.reading.rows.synthetic(0, 64)
    history = simulate(plan.policy, drawn, np.full(64, N / 64), 0)
    assert plan.policy.least_passes <= most and passes(history) <= most
