"""Any model that can be read has a plan: what it spends is declared, what it draws is public."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.model import read
from private_mcmc.model.synthetic import outcome_columns
from private_mcmc.planning.estimates import too_noisy
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.general import AFTERWARDS, FIRST, RUN, SECOND, WARM_UP, Policy
from private_mcmc.planning.influence import _cell_of, centred_model, weighted_model
from private_mcmc.planning.outcomes import CENTRE, Likelihood, candidates, likelihood_of
from private_mcmc.planning.policy import without_prediction
from private_mcmc.planning.prediction import burn_in, widened
from private_mcmc.planning.stages import CompletedStage, PathStage
from private_mcmc.schedule import Schedule
from tests.examples_of_models import bent
from tests.zoo.models import groups_centred, groups_noncentred, latent_scale, network, softmax

N = 1000
TARGET = pmc.Target(epsilon=12.0, delta=1e-6)
X = pmc.Ball(1.0, dim=2)
MODELS = {
    "multinomial": (softmax, pmc.Rows(X=X, y=pmc.Categories(3))),
    "unknown scale": (latent_scale, pmc.Rows(X=X, y=pmc.Box(-3.0, 3.0))),
    "centred groups": (groups_centred, pmc.Rows(group=pmc.Categories(4), y=pmc.Binary())),
    "non-centred groups": (groups_noncentred, pmc.Rows(group=pmc.Categories(4), y=pmc.Binary())),
    "network": (network, pmc.Rows(X=X, y=pmc.Binary())),
    "through tanh": (bent, pmc.Rows(X=X, y=pmc.Box(-1.0, 1.0))),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_execution_of_a_general_plan_meets_its_statement(name):
    plan = without_prediction(*MODELS[name], TARGET, N, "run", {})
    mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
    with jax.enable_x64(True):
        data = plan.rows.project(plan.rows.synthetic(1, N))
    mcmc.run(**{column: np.asarray(value) for column, value in data.items()})
    assert mcmc.statement.gdp == plan.budget
    assert mcmc.statement.delta(TARGET.epsilon) <= TARGET.delta
    assert mcmc.statement.verify()
    spent = sum(part.gdp**2 for part in mcmc.statement.parts)
    assert 0.9 * plan.budget**2 < spent <= plan.budget**2
    names = [completed.stage.name for completed in mcmc.history]
    again = names.count(FIRST)
    rest = names[again:]
    assert set(names[:again]) == {FIRST} and rest[:2] == [WARM_UP, SECOND] and rest[-2:] == [RUN, AFTERWARDS]
    # It is bought again where, and as often as, its noise is larger than a typical eigenvalue.
    assert all(too_noisy(completed.value) for completed in mcmc.history[: again - 1])
    run = mcmc.history[-2].stage
    assert isinstance(run, PathStage)
    assert len(mcmc.conclusion.draws) == run.schedule.num_steps - burn_in(run)
    for site in plan.reading.sites:
        assert np.all(np.isfinite(mcmc.get_samples()[site.name]))


@pytest.mark.long
def test_information_is_the_expected_one_of_the_family():
    """Softmax at θ: ``E[∇v ∇vᵀ] = (diag p − ppᵀ) ⊗ xxᵀ``; Normal: ``xxᵀ/s²``, up to the quantiles used."""
    model, rows = MODELS["multinomial"]
    reading = read(model, rows, n=N)
    likelihood = Likelihood(reading, candidates(rows, outcome_columns(reading)))
    theta, x = np.linspace(-1, 1, 6), np.array([0.3, -0.8])
    with jax.enable_x64(True):
        vectors = likelihood.information(theta[None], np.eye(6), {"X": jnp.asarray(x), "y": jnp.asarray(0)})
    p = np.exp(x @ theta.reshape(2, 3))
    p = p / p.sum()
    found = np.asarray(vectors).T @ np.asarray(vectors)
    np.testing.assert_allclose(found, np.kron(np.outer(x, x), np.diag(p) - np.outer(p, p)), atol=1e-12)

    model, rows = MODELS["unknown scale"]
    reading = read(model, rows, n=N)
    likelihood = Likelihood(reading, candidates(rows, outcome_columns(reading)))
    assert outcome_columns(reading) == ("y",)
    with jax.enable_x64(True):
        row = {"X": jnp.asarray(x), "y": jnp.asarray(2.9)}
        vectors = likelihood.information(np.array([[0.1, 0.2, -1.0]]), np.eye(3), row)
    found = np.asarray(vectors).T @ np.asarray(vectors)
    np.testing.assert_allclose(found[:2, :2], np.outer(x, x) * np.exp(2.0), rtol=0.1)
    assert found[2, 2] == pytest.approx(2.0, rel=0.3)


@pytest.mark.long
def test_more_budget_promises_less_error_in_a_product_of_latents():
    model, rows = MODELS["non-centred groups"]
    # At ε = 3 a path is as long as any, and no row is clipped: more buys nothing.
    targets = [pmc.Target(epsilon, 1e-6) for epsilon in (0.5, 1.0, 3.0)]
    errors = [pmc.plan(model, rows, each, n=20_000, guarantee="run").prediction.rms for each in targets]
    assert 1 > errors[0] > errors[1] > errors[2] > 0


@pytest.mark.long
def test_weights_bound_a_row_and_leave_its_expected_score_at_zero():
    model, rows = MODELS["network"]
    reading = read(model, rows, n=N)
    outcomes = candidates(rows, outcome_columns(reading))
    likelihood = Likelihood(reading, outcomes)
    root, clip = np.diag(np.linspace(0.5, 2.0, 9)), 0.1
    with jax.enable_x64(True):
        theta = jax.random.normal(jax.random.key(0), (9,))
        row = {"X": jnp.asarray([0.5, -0.4]), "y": jnp.asarray(0)}
        held = weighted_model(reading, outcomes, root, clip)
        scores = jax.vmap(lambda outcome: jax.grad(held.row_loss)(theta, row | outcome))(outcomes)
        losses = jax.vmap(lambda outcome: reading.row_loss(theta, row | outcome))(outcomes)
        scores, losses = np.asarray(scores), np.asarray(losses)
    assert likelihood.few
    np.testing.assert_allclose(np.exp(-losses) @ scores, 0.0, atol=1e-14)
    assert np.max(np.linalg.norm(scores @ root, axis=1)) == pytest.approx(clip, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("log_sd", [-0.9, -4.0])
def test_clipped_gradients_have_the_mean_zero_under_the_model_around_their_centre(log_sd):
    """Outcomes on an even grid of ±9 sds, which knows nothing of how the centre is computed.

    Around zero the log sd's clipped score has a mean of over a tenth of its sd, whatever the sd: at n = 5000
    a bias of ten posterior sds.
    """
    model, rows = MODELS["unknown scale"]
    likelihood = likelihood_of(read(model, rows, n=N), 1.0)
    theta, row = np.array([0.5, -0.4, log_sd]), {"X": jnp.asarray([0.4, 0.3]), "y": jnp.asarray(0.1)}
    root, outcomes = np.diag([np.exp(log_sd), np.exp(log_sd), 1.0]), np.linspace(-9.0, 9.0, 4001)
    shares = np.exp(-(outcomes**2) / 2) / np.exp(-(outcomes**2) / 2).sum()
    with jax.enable_x64(True):
        centre = np.asarray(likelihood.centre(theta, root, 1.5, row)[CENTRE])
        values = row["X"] @ theta[:2] + np.exp(log_sd) * outcomes
        score = jax.grad(likelihood.reading.row_loss)
        scores = np.asarray(jax.jit(jax.vmap(lambda y: score(jnp.asarray(theta), row | {"y": y})))(values))

    def mean(around: np.ndarray) -> float:
        white = (scores - around) @ root
        held = white * np.minimum(1.0, 1.5 / np.linalg.norm(white, axis=1))[:, None]
        return float(np.linalg.norm(shares @ held))

    assert likelihood.has_centre
    assert mean(centre) < 2e-3 < 0.1 < mean(np.zeros(3))


@pytest.mark.long
def test_a_tempered_likelihood_has_a_wider_metric_and_costs_as_much():
    """Weight 0.2: sds of differences between classes are √5 times as wide; their sum is the prior's."""
    model, rows = MODELS["multinomial"]
    reading, n, budget = read(model, rows, n=20_000), 20_000, accounting.gdp.budget(3.0, 1e-6)
    contrast, sds = np.kron(np.eye(2), [1.0, -1.0, 0.0]), []
    for temper in (1.0, 0.2):
        facts = facts_of(reading, n, TARGET.adjacency, budget, temper)
        sds.append(np.linalg.norm(contrast @ facts.metric.root, axis=1))
        first = Policy(facts).next(())
        # So many rows need the least share of the squared budget.
        assert first.statement.gdp == pytest.approx(budget * 0.01**0.5, rel=1e-6)
    np.testing.assert_allclose(sds[1] / sds[0], np.sqrt(5), rtol=0.15)


def test_draws_of_a_plan_are_wider_by_the_error_that_it_expects_of_their_mean():
    """Where no posterior given the releases is to be had, intervals allow for it.

    Of a path that is too short to have the metric's sds, three times its own here, those of the metric count.
    """
    states = np.random.default_rng(0).normal(size=(40, 2))
    for spread, metric, wider in ((9.0, 0.5, 2.0), (1.3, 0.5, 1.3), (9.0, 3.0, 6.0)):
        variances = (metric * states.std(axis=0)) ** 2
        schedule = Schedule(
            adjacency="replace_one", num_rows=N, dim=2, step_size=1e9, num_steps=40, clip=1.0,
            release="path", preconditioner=tuple(tuple(row) for row in np.diag(variances).tolist()),
        )  # fmt: skip
        run = CompletedStage(PathStage(RUN, schedule, np.zeros(2)), states)
        prior = SimpleNamespace(centre=states.mean(axis=0), scale=spread * states.std(0))
        draws = widened(run, SimpleNamespace(prior=prior, temper=1.0), np.sqrt(3.0))
        np.testing.assert_allclose(draws.mean(axis=0), states.mean(axis=0))
        np.testing.assert_allclose(draws.std(axis=0), wider * states.std(axis=0))


@pytest.mark.parametrize("law", ["Bernoulli", "Poisson", "factor"])
def test_the_derivative_that_a_model_brings_is_asked_before_any_row_is_read(law):
    asked = []
    same = jax.custom_vjp(lambda x: 1.0 * x)
    same.defvjp(lambda x: (1.0 * x, None), lambda _, slope: asked.append(1) or (slope,))

    def model(X, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            if law == "factor":
                numpyro.factor("loss", -((y - jnp.tanh(same(X @ w))) ** 2))
            else:
                of = {"Bernoulli": lambda eta: dist.Bernoulli(logits=eta), "Poisson": dist.Poisson}[law]
                numpyro.sample("y", of(jnp.exp(jnp.tanh(same(X @ w)))), obs=y)

    rows = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary() if law == "Bernoulli" else pmc.Counts(20))
    made = read(model, rows, n=40)
    likelihood = likelihood_of(made, 1.0)
    assert asked
    asked.clear()
    with jax.enable_x64(True):
        (theta, row), root = made.types, jnp.eye(2)
        jax.eval_shape(likelihood.information, jnp.zeros((1, 2)), root, row)
        jax.eval_shape(_cell_of(made, likelihood), theta, root, row)
        if likelihood.few:
            jax.eval_shape(weighted_model(made, likelihood.outcomes, root, 1.0).row_slope, theta, row)
        elif likelihood.has_centre:
            centre = jax.eval_shape(likelihood.centre, theta, root, 1.0, row)
            jax.eval_shape(centred_model(made).row_slope, theta, row | centre)
    assert asked == []
