"""The model that is read is the one that was written; parametrisations are told apart, mistakes refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import potential_energy

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Real, Rows
from private_mcmc.errors import NotYetSupported
from private_mcmc.model import prior, read
from private_mcmc.model.agreement import Claim, broken_claim
from private_mcmc.model.ir.dependence import affinity
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.likelihoods import terms as site_terms
from private_mcmc.model.likelihoods.family import Entry
from private_mcmc.model.likelihoods.terms import find_link
from private_mcmc.model.refusals import synthetic_rows

X = Ball(1.0, 3)
CLASSES = Rows(X=X, y=Categories(4))
COUNTS = Rows(X=X, y=Counts(9))
THREE = Rows(X=X, a=Counts(3), b=Counts(3), c=Counts(3))
YES = Rows(X=X, y=Binary())
REAL = Rows(X=X, y=Box(-1, 1))
SHARES = Rows(X=X, y=Box(0.05, 0.95))


def weights(*shape):
    return numpyro.sample("w", dist.Normal(0, 1).expand(list(shape)).to_event(len(shape)))


def classes(likelihood, shape=(3, 4)):
    def model(X, y=None):
        w = weights(*shape)
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", likelihood(X @ w), obs=y)

    return model


def multinomial(parameter):
    def model(X, a, b, c):
        w = weights(3, 3)
        with numpyro.plate("rows", X.shape[0]):
            likelihood = dist.Multinomial(a + b + c, **parameter(X @ w))
            numpyro.sample("y", likelihood, obs=jnp.stack([a, b, c], -1))

    return model


def differs(row_model, model, rows, seed=0):
    """The largest gap to NumPyro's potential over random parameters, a constant left out."""
    data = {name: jnp.asarray(column) for name, column in synthetic_rows(rows, 5).items()}
    draws = np.random.default_rng(seed).normal(size=(6, row_model.dim)) * 1.5
    with jax.enable_x64(True):

        def gap(theta):
            free = {s.name: theta[s.slice].reshape(s.unconstrained_shape) for s in row_model.sites}
            own = potential_energy(model, (), data, free)
            losses = jax.vmap(row_model.row_loss, (None, 0))(theta, data)
            return own - row_model.neg_log_prior(theta) - jnp.sum(losses)

        return float(np.ptp(np.asarray(jax.jit(jax.vmap(gap))(jnp.asarray(draws)))))


READ = {
    "logits": (classes(lambda eta: dist.Categorical(logits=eta)), CLASSES, "Categorical"),
    "probabilities": (
        classes(lambda eta: dist.Categorical(probs=jax.nn.softmax(eta))),
        CLASSES,
        "Categorical",
    ),
    "normalised logits": (
        classes(lambda eta: dist.Categorical(logits=jax.nn.log_softmax(eta))),
        CLASSES,
        "Categorical",
    ),
    "multinomial logits": (
        multinomial(lambda eta: {"logits": eta}),
        THREE,
        "Multinomial",
    ),
    "multinomial normalised logits": (
        multinomial(lambda eta: {"logits": jax.nn.log_softmax(eta)}),
        THREE,
        "Multinomial",
    ),
    "multinomial probabilities": (
        multinomial(lambda eta: {"probs": jax.nn.softmax(eta)}),
        THREE,
        "Multinomial",
    ),
    "geometric probabilities": (
        classes(lambda eta: dist.Geometric(probs=jax.nn.sigmoid(eta)), (3,)),
        COUNTS,
        "Geometric",
    ),
    "negative binomial probabilities": (
        classes(lambda eta: dist.NegativeBinomialProbs(2.0, jax.nn.sigmoid(eta)), (3,)),
        COUNTS,
        "unknown",
    ),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("name", READ)
def test_either_parametrisation_is_read_as_what_it_is(name):
    model, rows, family = READ[name]
    row_model = read(model, rows, n=10)
    predictor = row_model.predictor or row_model.predictors
    assert (predictor.family.name if predictor else "unknown") == family
    assert differs(row_model, model, rows) <= 1e-9


@pytest.mark.parametrize(
    ("times", "family"), [(1.0, "BetaProportion"), (0.5, "unknown"), (1 - 1e-6, "unknown")]
)
def test_a_share_s_mean_is_the_logistic_function_itself(times, family):
    """Constants are proved of ``Beta(κσ, κ(1 − σ))``, not of a multiple of its mean."""
    model = classes(lambda eta: dist.BetaProportion(times * jax.nn.sigmoid(eta), 6.0), (3,))
    predictor = read(model, SHARES, n=10).predictor
    assert (predictor.family.name if predictor else "unknown") == family


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "parameter",
    [
        lambda eta: {"logits": eta},
        lambda eta: {"logits": jax.nn.log_softmax(eta)},
        lambda eta: {"probs": jax.nn.softmax(eta)},
    ],
)
def test_counts_that_do_not_sum_to_the_trials_tell_the_multinomials_apart(parameter):
    """Where NumPyro does not check them: ``N log Σ e^η`` of logits, ``Σ y log Σ e^η`` of probabilities."""

    def model(X, a, b, c):
        w = weights(3, 3)
        with numpyro.plate("rows", X.shape[0]):
            likelihood = dist.Multinomial(6, **parameter(X @ w))
            numpyro.sample("y", likelihood, obs=jnp.stack([a, b, c], -1))

    with numpyro.validation_enabled(False):
        row_model = read(model, THREE, n=10)
        assert row_model.predictors.family.name == "Multinomial"
        assert differs(row_model, model, THREE) <= 1e-9


NOT_KNOWN = {
    "softmax of logits": (classes(lambda eta: dist.Categorical(logits=jax.nn.softmax(eta))), CLASSES),
    "affine probabilities": (classes(lambda eta: dist.Categorical(probs=5 + eta)), CLASSES),
    "log-softmax as probabilities": (
        classes(lambda eta: dist.Categorical(probs=-jax.nn.log_softmax(eta))),
        CLASSES,
    ),
    "multinomial softmax of logits": (
        multinomial(lambda eta: {"logits": jax.nn.softmax(eta)}),
        THREE,
    ),
    "multinomial affine probabilities": (multinomial(lambda eta: {"probs": 5 + eta}), THREE),
    # Two softmaxes of two, not one of four.
    "halves": (
        classes(
            lambda eta: dist.Categorical(
                probs=jax.nn.softmax(eta.reshape((-1, 2, 2))).reshape((-1, 4)) / 2,
            )
        ),
        CLASSES,
    ),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("name", NOT_KNOWN)
def test_what_is_no_softmax_regression_is_not_read_as_one(name):
    model, rows = NOT_KNOWN[name]
    row_model = read(model, rows, n=10)
    assert not row_model.constants.convex and row_model.constants.gradient_bound == np.inf
    assert differs(row_model, model, rows) <= 1e-9


def test_a_predictor_that_is_rounded_is_no_link():
    for narrow, expected in ((jnp.float16, None), (jnp.float64, "identity")):

        def parameter(theta, x, narrow=narrow):
            return {"p": (x @ theta).astype(narrow).astype(jnp.float64)}

        with jax.enable_x64(True):
            vector = abstract((3,), np.float64)
            program = trace(parameter, theta=vector, x=vector)
            link = find_link(program, affinity(program, "theta"), program.outputs["p"])
        assert (link and link.name) == expected


def scaled(X, y=None):
    t, w = numpyro.sample("t", dist.HalfNormal(1.0)), weights(3)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=t * (X @ w)), obs=y)


def non_centred(X, y=None):
    mu, tau = numpyro.sample("mu", dist.Normal(0, 1)), numpyro.sample("tau", dist.HalfCauchy(1.0))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ (mu + tau * z)), obs=y)


def robust(X, y=None):
    scale, df = numpyro.sample("scale", dist.HalfCauchy(1.0)), numpyro.sample("df", dist.Gamma(2.0, 0.1))
    w = weights(3)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.StudentT(df, X @ w, scale), obs=y)


@pytest.mark.some(1)
@pytest.mark.parametrize(("model", "rows"), [(scaled, YES), (non_centred, YES), (robust, REAL)])
def test_products_of_latents_are_read_without_claims(model, rows):
    """Their scores have no bound, which a clip gives; the potential is the model's."""
    row_model = read(model, rows, n=10)
    assert row_model.predictors is None and row_model.constants.gradient_bound == np.inf
    assert "clip" in row_model.constants.why and row_model.prior.proper
    assert differs(row_model, model, rows) <= 1e-9


@pytest.mark.slow
def test_a_student_t_regression_of_known_scale_and_a_softplus_rate_are_bounded():
    student = read(classes(lambda eta: dist.StudentT(4.0, eta, 0.5), (3,)), REAL, n=10).constants
    assert student.gradient_bound == pytest.approx(5 / (2 * 0.5 * 2)) and not student.convex
    counts = read(classes(lambda eta: dist.Poisson(jax.nn.softplus(eta)), (3,)), COUNTS, n=10).constants
    assert counts.convex and counts.gradient_bound == pytest.approx(9.0)


BERNOULLI = classes(lambda eta: dist.Bernoulli(logits=eta), (3,))
SOFTMAX = ("CategoricalLogits", "logits")


def planted(monkeypatch, key, **changes):
    """A family whose recorded facts are changed."""
    entry = site_terms.FAMILIES[key]

    def rule(link, observed, others):
        found = entry.rule(link, observed, others)
        return found and replace(found, family=replace(found.family, **changes))

    monkeypatch.setitem(site_terms.FAMILIES, key, replace(entry, rule=rule))


@pytest.mark.slow
def test_a_link_taken_for_another_is_found(monkeypatch):
    entry = site_terms.FAMILIES[SOFTMAX]
    monkeypatch.setitem(
        site_terms.FAMILIES, SOFTMAX, Entry(lambda link, *rest: entry.rule("identity", *rest))
    )
    with pytest.raises(NotYetSupported, match=r"likelihood of site 'y'.*differs from NumPyro's"):
        read(NOT_KNOWN["softmax of logits"][0], CLASSES, n=10)


@pytest.mark.slow
def test_a_wrong_formula_is_found(monkeypatch):
    key = ("BernoulliLogits", "logits")
    entry = site_terms.FAMILIES[key]

    def rule(*given):
        found = entry.rule(*given)
        return replace(found, loss=lambda eta, y, others: found.loss(eta, y, others) + 0.001 * eta)

    monkeypatch.setitem(site_terms.FAMILIES, key, replace(entry, rule=rule))
    with pytest.raises(NotYetSupported, match="differs from NumPyro's"):
        read(BERNOULLI, YES, n=10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"score_bound": 0.7}, "'| ≤ 0.7"),
        ({"curvature_bound": 0.1}, "'' ≤ 0.1"),
        ({"range_bound": 5.0}, "sup"),
    ],
)
def test_a_bound_that_is_too_small_is_found(monkeypatch, changes, word):
    planted(monkeypatch, ("BernoulliLogits", "logits"), **changes)
    with pytest.raises(NotYetSupported) as error:
        read(BERNOULLI, YES, n=10)
    assert word in str(error.value)


@pytest.mark.slow
def test_a_false_convexity_is_found(monkeypatch):
    planted(monkeypatch, ("StudentT", "loc"), convex=True)
    with pytest.raises(NotYetSupported, match="'' ≥ 0"):
        read(classes(lambda eta: dist.StudentT(4.0, eta, 0.5), (3,)), REAL, n=10)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["lower", "upper"])
def test_a_false_curvature_of_a_prior_is_found(monkeypatch, end):
    key = ("Logistic", "real")
    rule = prior.SEPARABLE[key]
    wrong = {"lower": 0.1, "upper": 0.3}[end]

    def planted_rule(program, site):
        found = rule(program, site)
        return replace(found, **{end: np.full_like(getattr(found, end), wrong)})

    def model(X, y=None):
        w = numpyro.sample("w", dist.Logistic(0, 1).expand([3]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    read(model, YES, n=10)
    monkeypatch.setitem(prior.SEPARABLE, key, planted_rule)
    with pytest.raises(NotYetSupported, match=r"site 'w'.*breaks the claim that K''"):
        read(model, YES, n=10)


@pytest.mark.slow
def test_numpyros_clamps_are_not_taken_for_mistakes():
    """Far out NumPyro's probabilities are flat, and its unit intervals rounded."""

    def model(X, y=None):
        w = numpyro.sample("w", dist.Beta(2.0, 3.0).expand([3]).to_event(1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(probs=jax.nn.sigmoid(9 * (X @ w))), obs=y)

    assert read(model, YES, n=10).predictor is None
    link = classes(lambda eta: dist.Bernoulli(probs=jax.scipy.special.ndtr(eta)), (3,))
    assert read(link, YES, n=10).predictor.family.link == "probit"


def test_claims_along_a_line():
    steps = (-2.0, -0.5, 0.3, 1.0, 4.0)
    square = np.square(steps)
    every = np.ones(5, bool)
    assert broken_claim(Claim("f", 8.0, 2.0, 2.0, 16.0), steps, square, every, 1.0) is None
    # Twice as fast a line: the same values have a quarter of the curvature.
    assert broken_claim(Claim("f", 4.0, 0.5, 0.5, 16.0), steps, square, every, 2.0) is None
    for claim, word in [
        (Claim("f", 4.9, 2.0, 2.0, 16.0), "f'|"),
        (Claim("f", 8.0, 2.1, 2.1, 16.0), "f'' ≥"),
        (Claim("f", 8.0, 0.0, 1.9, 16.0), "f'' ≤"),
        (Claim("f", 8.0, 2.0, 2.0, 15.0), "sup f"),
    ]:
        assert word in broken_claim(claim, steps, square, every, 1.0)
        assert broken_claim(claim, steps, square, ~every, 1.0) is None


def test_a_clamp_of_numpyro_s_own_is_no_mistake_beside_many_latents():
    """Far out, its ``LKJCholesky`` is off by 48; beside the squares of twelve others that was not seen."""

    def model(group, y=None):
        factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([6, 2]).to_event(2))
        with numpyro.plate("rows", group.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=(z @ factor.T)[group, 0]), obs=y)

    rows = Rows(group=Categories(6), y=Binary())
    assert read(model, rows, n=10).dim == 13
    assert differs(read(model, rows, n=10), model, rows) < 1e-8


@pytest.mark.slow
def test_synthetic_rows_lie_in_their_domains_and_reach_the_ends():
    rows = Rows(
        X=Ball(2.0, 3), b=Box([-1.0, 0.0], [1.0, 5.0]), c=Counts(6), k=Categories(3), r=Real(2), y=Binary()
    )
    made = synthetic_rows(rows, 6)
    with jax.enable_x64(True):
        projected = rows.project(made)
    for name, column in made.items():
        np.testing.assert_allclose(column, projected[name], rtol=1e-12, err_msg=name)
        assert column.dtype == projected[name].dtype, name
    assert np.linalg.norm(made["X"], axis=1).max() == pytest.approx(2.0)
    for name in ("b", "c", "k", "y"):
        low, high = rows.columns[name].interval()
        assert np.all(made[name].min(0) == low) and np.all(made[name].max(0) == high), name


def test_a_value_counts_as_often_as_its_distribution_repeats_it():
    def nine_times(y=None):
        p = numpyro.sample("p", dist.Beta(30, 30))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Bernoulli(p).expand([y.shape[0], 9]).to_event(1), obs=y[:, None])

    model = read(nine_times, Rows(y=Binary()), n=20)
    with jax.enable_x64(True):
        at_zero, at_one = (float(model.row_loss(jnp.array([u]), {"y": jnp.asarray(1)})) for u in (0.0, 1.0))
    assert at_zero - at_one == pytest.approx(9 * (np.log(2) - np.log1p(np.exp(-1.0))))


def test_of_a_scale_whose_square_no_float_holds_nothing_is_proved():
    """It ended in an ``OverflowError``."""

    def model(X, y=None):
        mean = X @ weights(3)
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", dist.Gumbel(mean, 1e200), obs=y)

    assert read(model, REAL, n=10).predictor.family.curvature_bound == np.inf
