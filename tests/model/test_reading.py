"""Reading a model: what it gives, whatever way the model is written in."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.reparam import LocScaleReparam

from private_mcmc.domains import Ball, Binary, Box, Categories, Real, Rows
from private_mcmc.errors import DeclarationError, DoThisInstead, NotYetSupported, UnsupportedModel
from private_mcmc.model import read
from tests.examples_of_models import observed, outcomes_by

ROWS = Rows(X=Ball(1.0, dim=3), y=Binary())
GROUPED = Rows(X=Ball(1.0, dim=3), g=Categories(4), y=Binary())


def weights(size=3):
    return numpyro.sample("w", dist.Normal(0, 2).expand([size]).to_event(1))


def plate(X, **options):
    return numpyro.plate("rows", X.shape[0], **options)


def answers(X, y, shift=None, w=None):
    logits = X @ (weights() if w is None else w)
    observed(X, dist.Bernoulli(logits=logits if shift is None else logits + shift), y)


def in_a_plate(X, y=None):
    answers(X, y)


def with_a_latent_plate(X, y=None):
    with numpyro.plate("columns", 3):
        w = numpyro.sample("w", dist.Normal(0, 2))
    observed(X, dist.Bernoulli(logits=jnp.dot(X, w)), y)


def with_a_column_plate(X, y=None):
    w = weights()
    with plate(X, dim=-2):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w[:, None]), obs=y[:, None])


def subsampled(X, y=None):
    w = weights()
    with plate(X, subsample_size=20) as index:
        numpyro.sample("y", dist.Bernoulli(logits=X[index] @ w), obs=y[index])


def reparametrised(X, y=None):
    with handlers.reparam(config={"w": LocScaleReparam(0)}):
        w = numpyro.sample("w", dist.Normal(0, 2).expand([3]).to_event(1))
    answers(X, y, w=w)


def whitened(X, y=None):
    answers(X, y, w=2 * numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1)))


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "model",
    [
        lambda X, y=None: numpyro.sample("y", dist.Bernoulli(logits=X @ weights()), obs=y),
        lambda X, y=None: numpyro.sample("y", dist.Bernoulli(logits=X @ weights()).to_event(1), obs=y),
        lambda X, y=None: observed(X, dist.Bernoulli(logits=(weights() * X).sum(-1)), y),
        lambda X, y=None: observed(X, dist.Bernoulli(probs=jax.nn.sigmoid(X @ weights())), y),
        *(in_a_plate, with_a_latent_plate, with_a_column_plate, subsampled),
    ],
)
def test_the_same_model_written_differently_gives_the_same_reading(model):
    found, plain = read(model, ROWS, n=50), read(in_a_plate, ROWS, n=50)
    assert found.predictor.radius == plain.predictor.radius == 1.0
    assert found.predictor.family == plain.predictor.family
    assert found.constants == plain.constants
    np.testing.assert_array_equal(found.prior.hessian, plain.prior.hessian)
    with jax.enable_x64(True):
        theta, row = jnp.array([0.4, -1.0, 2.0]), {"X": jnp.array([0.1, 0.2, -0.3]), "y": 1}
        np.testing.assert_allclose(found.row_loss(theta, row), plain.row_loss(theta, row), rtol=1e-12)
        np.testing.assert_allclose(found.predictor.designs(row), plain.predictor.designs(row), rtol=1e-12)
        np.testing.assert_allclose(found.neg_log_prior(theta), plain.neg_log_prior(theta), rtol=1e-12)


def test_a_plate_that_is_read_whole_is_said_to_be():
    with pytest.warns(UserWarning, match=r"\['rows'\]: subsample_size is not followed.*PrivateSGLD"):
        found = read(subsampled, ROWS, n=50)
    assert found.constants == read(in_a_plate, ROWS, n=50).constants


@pytest.mark.parametrize("model", [reparametrised, whitened])
def test_a_change_of_scale_moves_from_the_prior_to_the_rows(model):
    found = read(model, ROWS, n=50)
    assert found.predictor.radius == pytest.approx(2.0) and found.predictor.family.name == "Bernoulli"
    np.testing.assert_allclose(found.prior.hessian, np.ones(3))


@pytest.mark.slow
def test_constrained_values_and_deterministics_that_read_no_row():
    def model(X, y=None):
        w = weights()
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.deterministic("odds", jnp.exp(w))
        numpyro.deterministic("fitted", X @ w)
        observed(X, dist.Bernoulli(logits=X @ w * scale), y)

    row_model = read(model, ROWS, n=5)
    with jax.enable_x64(True):
        values = jax.vmap(row_model.constrain)(jnp.array([[0.0, 1.0, 2.0, -1.0], [0.0, 0.0, 0.0, 0.0]]))
    assert values.keys() == {"w", "scale", "odds"}
    np.testing.assert_allclose(values["scale"], np.exp([-1.0, 0.0]))
    np.testing.assert_allclose(values["odds"][0], np.exp([0.0, 1.0, 2.0]))
    assert row_model.predictor is None and not row_model.constants.convex


def test_unbounded_columns_have_no_radius():
    rows = Rows(X=Real(3), y=Binary())
    row_model = read(in_a_plate, rows, n=5)
    assert row_model.predictor.radius == np.inf and row_model.constants.gradient_bound == np.inf
    assert row_model.predictor.family.convex


REFUSALS = {}


def refusal(kind, *words, rows=ROWS):
    def register(model):
        REFUSALS[model.__name__] = (model, rows, kind, words)
        return model

    return register


@refusal(DoThisInstead, "'total'", "not inside a plate")
def outside_the_plate(X, y=None):
    numpyro.sample("total", dist.Normal((X @ weights()).sum(), 1.0), obs=1.0 * y.sum())


@refusal(DoThisInstead, "'pilot'", "number of rows")
def stated_by_the_number_of_rows(X, y=None):
    w = weights()
    numpyro.sample("pilot", dist.Normal(0.0, 1.0), obs=0.0 if X.shape[0] < 20 else 1.0)
    answers(X, y, w=w)


@refusal(DoThisInstead, "'y'", "column")
def public_on_one_row_alone(X, y=None):
    w = weights()
    level = 0.0 if X.shape[0] == 1 else X.mean()
    numpyro.sample("y", dist.Normal(level, 1.0), obs=0.0)
    with plate(X):
        numpyro.sample("z", dist.Bernoulli(logits=X @ w), obs=y)


@refusal(DoThisInstead, "'y'", "positive outcome: Box(0.001", rows=Rows(y=Box(0.0, 10.0)))
def an_outcome_that_is_impossible(y=None):
    observed(y, dist.Gamma(2.0, numpyro.sample("rate", dist.LogNormal(0, 1))), y)


@refusal(DoThisInstead, "prior of site 'm'", "X")
def prior_on_data(X, y=None):
    answers(X, y, numpyro.sample("m", dist.Normal(X.mean(), 1)))


@refusal(DoThisInstead, "support of site 'm'", "X")
def support_on_data(X, y=None):
    answers(X, y, numpyro.sample("m", dist.Uniform(-5, 5 + X.max())))


@refusal(DoThisInstead, "prior of site 'm'", "number of rows")
def prior_on_count(X, y=None):
    answers(X, y, numpyro.sample("m", dist.Normal(0, X.shape[0])))


@refusal(DoThisInstead, "'y'", "number of rows")
def loss_on_count(X, y=None):
    observed(X, dist.Normal(X @ weights(), 1.0 * X.shape[0]), 1.0 * y)


@refusal(DoThisInstead, "'k'", "discrete")
def discrete_latent(X, y=None):
    answers(X, y, numpyro.sample("k", dist.Bernoulli(0.5)))


@refusal(DoThisInstead, "'y'", "Rows", rows=Rows(X=Ball(1.0, 3)))
def forgotten_column(X, y=None):
    answers(X, y)


@refusal(DoThisInstead, "no observed site", rows=Rows(X=Ball(1.0, 3)))
def nothing_observed(X):
    weights()


@refusal(DoThisInstead, "no latent site")
def nothing_latent(X, y=None):
    observed(X, dist.Bernoulli(logits=X.sum(-1)), y)


@refusal(NotYetSupported, "'w'", "scale or mask")
def tempered_prior(X, y=None):
    with handlers.scale(scale=0.5):
        w = weights()
    answers(X, y, w=w)


@refusal(DoThisInstead, "'d'", "Delta")
def fixed_latent(X, y=None):
    answers(X, y, numpyro.sample("d", dist.Delta(1.0)))


@refusal(DoThisInstead, "cannot be run", "same shape")
def broken(X, y=None):
    answers(X, y, w=weights(5))


@pytest.mark.some(3)
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_the_site_and_the_reason(name):
    model, rows, kind, words = REFUSALS[name]
    with pytest.raises(UnsupportedModel) as error:
        read(model, rows, n=50)
    assert type(error.value) is kind
    for word in words:
        assert word in str(error.value), str(error.value)


@pytest.mark.parametrize(
    ("rows", "options", "word"),
    [
        (ROWS, {"n": 0}, "n=0"),
        (ROWS, {"n": float("nan")}, "n=nan"),
        (Rows(X=Ball(1.0, 3), z=Binary()), {"n": 5}, "z"),
        (ROWS, {"n": 5, "model_args": {"extra": 1}}, "extra"),
        (ROWS, {"n": 5, "model_args": {"y": 1}}, "y"),
    ],
)
def test_arguments_that_do_not_fit_are_named(rows, options, word):
    with pytest.raises(DeclarationError, match=word):
        read(in_a_plate, rows, **options)


def test_a_latent_that_condition_fixes_is_a_public_number():
    def model(X, y=None, spread=None):
        m = numpyro.sample("m", dist.Normal(0, 1))
        s = numpyro.sample("s", dist.HalfNormal(1.0)) if spread is None else spread
        w = numpyro.sample("w", dist.Normal(m, s).expand([3]).to_event(1))
        observed(X, dist.Bernoulli(logits=X @ w), y)

    fixed = read(handlers.condition(model, {"s": 0.5}), ROWS, n=5)
    written = read(model, ROWS, n=5, model_args={"spread": 0.5})
    assert fixed.names == written.names
    assert [site.name for site in fixed.observations] == ["y"]
    np.testing.assert_allclose(fixed.prior.hessian, written.prior.hessian)
    row = {"X": jnp.array([0.1, -0.2, 0.3]), "y": jnp.array(1)}
    theta = jnp.array([0.3, 1.0, -2.0, 0.5])
    with jax.enable_x64(True):
        assert fixed.row_loss(theta, row) == written.row_loss(theta, row)


def test_public_arguments_reach_the_model():
    def model(X, prior_sd, features, y=None):
        w = numpyro.sample("w", dist.Normal(0, prior_sd).expand([2]).to_event(1))
        observed(X, dist.Bernoulli(logits=X @ features @ w), y)

    features = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    row_model = read(model, ROWS, n=5, model_args={"prior_sd": 0.5, "features": features})
    assert row_model.predictor.radius == pytest.approx(3.0)
    np.testing.assert_allclose(row_model.prior.hessian, [4.0, 4.0])


def test_a_cumulated_design_is_as_long_as_its_sums():
    cumulated = outcomes_by(
        lambda: dist.Normal(0, 1).expand([2]).to_event(1),
        lambda b, x: dist.Bernoulli(logits=jnp.cumsum(x, -1) @ b),
    )
    found = read(cumulated, Rows(x=Box([0.0] * 2, [3.0, 1.0]), y=Binary()), n=50)
    assert found.predictor.radius == pytest.approx(5.0)
