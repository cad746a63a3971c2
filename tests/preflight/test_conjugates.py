"""Only models that are conjugate are called so, and their certificates are those of the family.

Of each that looks conjugate and is not a pair contradicts such a certificate.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc.accounting import conjugate
from private_mcmc.domains import Binary, Box, Categories, Counts, Rows
from private_mcmc.model import read
from private_mcmc.preflight import preflight
from private_mcmc.preflight.certificates import constants
from private_mcmc.preflight.conjugates import conjugate_certificate
from private_mcmc.target import Target
from tests.examples_of_models import observed, outcomes, outcomes_by

TARGET, WIDER = Target(0.5, 1e-3), Target(1.0, 1e-3)
N = 30


def dirichlet(*concentration):
    return dist.Dirichlet(jnp.array(concentration))


beta, rates = partial(dist.Beta, 2.0, 3.0), partial(dist.Gamma, 4.0, 2.0)
numbered, thirds = partial(dirichlet, 1.0, 2.0, 3.0), partial(dirichlet, 30.0, 30.0, 30.0)
normal, flat = partial(dist.Normal, 0, 1), partial(dist.ImproperUniform, dist.constraints.real, (), ())

coin = outcomes(beta, lambda p: dist.Bernoulli(probs=p))
turned_coin = outcomes(beta, lambda p: dist.Bernoulli(probs=0.9 * p))
die = outcomes(numbered, lambda p: dist.Categorical(probs=p))
die_of_numpy = outcomes(lambda: dist.Dirichlet(np.arange(1, 4)), lambda p: dist.Categorical(probs=p))
# In float32 its α − 1 is −1.
improper_die = outcomes(
    lambda: dist.Dirichlet(np.array([1e-9, 1.0, 1.0], np.float32)), lambda p: dist.Categorical(probs=p)
)
turned_die = outcomes(numbered, lambda p: dist.Categorical(probs=p[::-1]))
rate_by_row = outcomes_by(rates, lambda lam, x: dist.Poisson(x * lam))
mean = outcomes(normal, lambda mu: dist.Normal(2.0 * mu + 1.0, 0.5))
flat_mean = outcomes(flat, lambda mu: dist.Normal(mu, 0.5))
regression = outcomes_by(normal, lambda b, x: dist.Normal(b * x, 0.5))
offset_by_row = outcomes_by(normal, lambda mu, x: dist.Normal(mu + 100 * x, 10.0))
log_normal = outcomes(normal, lambda mu: dist.LogNormal(mu, 10.0))
inverse_rate = outcomes(partial(dist.Gamma, 50.0, 1e-9), lambda t: dist.Poisson(1 / t))
flat_prior = outcomes(flat, lambda t: dist.Bernoulli(probs=0.45 + 0.1 * jax.nn.sigmoid(t)))


def weighted_coin(weight, y=None):
    p = numpyro.sample("p", beta())
    with numpyro.plate("rows", y.shape[0]), numpyro.handlers.scale(scale=weight):
        numpyro.sample("y", dist.Bernoulli(probs=p), obs=y)


def two_coins(y=None, z=None):
    p = numpyro.sample("p", beta())
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=p), obs=y)
        numpyro.sample("z", dist.Bernoulli(probs=p), obs=z)


def rate(y=None, exposure=1.0):
    observed(y, dist.Poisson(exposure * numpyro.sample("lam", rates())), y)


def certificates(model, rows, target=TARGET, **args):
    known = constants(read(model, rows, n=N, model_args=args), None)
    if known.conjugate is None:
        return ()
    found = conjugate_certificate(known.conjugate, n=N, temper=0.5, target=target)
    return () if found is None else (found,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "domain", "args", "exact"),
    [
        (coin, Binary(), {}, partial(conjugate.beta_binomial, 2.0, 3.0, n=N)),
        (die, Categories(3), {}, partial(conjugate.dirichlet_categorical, (1.0, 2.0, 3.0), n=N)),
        (die_of_numpy, Categories(3), {}, partial(conjugate.dirichlet_categorical, (1.0, 2.0, 3.0), n=N)),
        (rate, Counts(4), {}, partial(conjugate.gamma_poisson, 4.0, largest=4)),
        (rate, Counts(4), {"exposure": 3.0}, partial(conjugate.gamma_poisson, 4.0, largest=4)),
    ],
    ids=["Beta-Bernoulli", "Dirichlet-categorical", "of NumPy", "Gamma-Poisson", "a common exposure"],
)
def test_a_conjugate_posterior_gets_its_exact_divergence(model, domain, args, exact) -> None:
    (found,) = certificates(model, Rows(y=domain), **args)
    assert found.delta(0.5) == exact(temper=0.5, epsilon=0.5)
    assert found.verify()


@pytest.mark.slow
def test_normal_mean_is_gaussian_with_the_precision_of_every_posterior() -> None:
    (found,) = certificates(mean, Rows(y=Box(0, 3)))
    # Slope 2, noise precision 4, temper ½: sensitivity ½·2·4·3, precision 1 + ½·30·4·4.
    assert found.gdp == pytest.approx(12 / 241**0.5)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (turned_coin, Rows(y=Binary())),
        (weighted_coin, Rows(weight=Box(0, 1), y=Binary())),
        (two_coins, Rows(y=Binary(), z=Binary())),
        (turned_die, Rows(y=Categories(3))),
        (improper_die, Rows(y=Categories(3))),
        (rate_by_row, Rows(x=Box(0.5, 2), y=Counts(4))),
        (regression, Rows(x=Box(-2, 1), y=Box(-1, 3))),
    ],
    ids=["another link", "weights", "two per row", "reordered", "improper", "exposures", "slopes"],
)
def test_what_only_looks_conjugate_is_not_called_so(model, rows) -> None:
    assert certificates(model, rows) == ()


@pytest.mark.slow
def test_rows_alone_certify_a_normal_mean_under_a_flat_prior() -> None:
    (found,) = certificates(flat_mean, Rows(y=Box(0, 3)))
    # Noise precision 4, temper ½: sensitivity ½·4·3, precision ½·30·4.
    assert found.gdp == pytest.approx(6 / 60**0.5)
    assert certificates(flat_mean, Rows(y=Box(0, 3)), Target(0.5, 1e-3, "zero_out")) == ()


def counted_nine_times(y=None):
    p = numpyro.sample("p", dist.Beta(30, 30))
    observed(y, dist.Bernoulli(p).expand([y.shape[0], 9]).to_event(1), y[:, None])


def nine_coins_at_once(y=None):
    p = numpyro.sample("p", dist.Beta(30, 30).expand([9]).to_event(1))
    observed(y, dist.Bernoulli(jnp.broadcast_to(p, (y.shape[0], 9))).to_event(1), y[:, None])


def divergence(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """Hockey-stick divergence of two log densities on one regular grid."""
    p, q = (np.exp(log - log.max()) for log in (first, second))
    return float(np.maximum(p / p.sum() - math.exp(epsilon) * q / q.sum(), 0).sum())


def normal_log(theta: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    return -(theta**2) / 2 - ((residuals[:, None] - theta) ** 2).sum(axis=0) / 200


THETA = np.linspace(-12, 12, 40_001)
LOGS = {
    "offset": [normal_log(THETA, np.array([0.0] * 19 + [end])) for end in (101.0, -101.0)],
    "log_normal": [normal_log(THETA, np.array([0.0] * 19 + [end])) for end in (math.log(1e-30), 0.0)],
    "nine": [
        (29 + 9 * k) * np.log(s) + (29 + 9 * (20 - k)) * np.log1p(-s)
        for s in [np.linspace(1e-4, 1 - 1e-4, 40_001)]
        for k in (10, 11)
    ],
    "inverse": [(50 - k) * u - 1e-9 * np.exp(u) - 60 * np.exp(-u) for u in [THETA * 4] for k in (49, 50)],
}
CASES = {
    "offset": (offset_by_row, Rows(x=Box(-1, 1), y=Box(-1, 1)), 20),
    "log_normal": (log_normal, Rows(y=Box(1e-30, 1.0)), 20),
    "nine": (counted_nine_times, Rows(y=Binary()), 20),
    "inverse": (inverse_rate, Rows(y=Counts(1)), 60),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("name", CASES)
def test_no_certificate_lies_below_the_divergence_of_an_explicit_pair(name):
    model, rows, n = CASES[name]
    report = preflight(model, rows, WIDER, n=n)
    for epsilon in (0.01, 0.1, 0.3, 1.0):
        exact = max(divergence(*LOGS[name], epsilon), divergence(*LOGS[name][::-1], epsilon))
        assert all(exact <= statement.delta(epsilon) + 1e-9 for statement in report.certificates)


@pytest.mark.some(1)
@pytest.mark.parametrize("model", [counted_nine_times, nine_coins_at_once])
def test_a_value_broadcast_against_its_distribution_is_not_one_observation(model):
    report = preflight(model, Rows(y=Binary()), WIDER, n=20)
    assert all(statement.argument.rule != "posterior.beta_binomial" for statement in report.certificates)


@pytest.mark.slow
def test_a_bounded_likelihood_certifies_nothing_without_a_proper_prior():
    report = preflight(flat_prior, Rows(y=Binary()), WIDER, n=20)
    assert report.verdict != "private" and report.certificates == ()


def own_logits(p, logits):
    """A law whose density reads logits of other probabilities than it shows."""
    law = dist.Categorical(probs=p)
    law.logits = logits
    return law


plain = outcomes(thirds, lambda p: dist.Categorical(probs=p))
kept_logits = outcomes(thirds, lambda p: own_logits(p, 8 * jnp.log(p)))
# The same, of rows in an interval that no comparison at points meets.
kept_logits_of_few_rows = outcomes_by(
    thirds,
    lambda p, x: own_logits(p, jnp.where((x > 0.4321) & (x < 0.4322), 200.0, 1.0)[:, None] * jnp.log(p)),
)


@pytest.mark.some(1)
@pytest.mark.parametrize("shape", [(3,), (1, 3)])
def test_rows_that_hold_logits_of_their_own_are_seen_wherever_they_lie(shape):
    of_shape = outcomes_by(thirds, lambda p, x: dist.Categorical(probs=jnp.broadcast_to(p, shape)))
    rows = Rows(x=Box(0, 1), y=Categories(3))
    assert "conjugate" in str(preflight(of_shape, rows, WIDER, n=50).certificates)
    assert "conjugate" not in str(preflight(kept_logits_of_few_rows, rows, WIDER, n=50).certificates)


class SteepFarOut(dist.Beta):
    def log_prob(self, value, intermediates=None):
        return super().log_prob(value) + 50 * jnp.maximum(value - 0.999, 0)


cubed_rate_far_out = outcomes(rates, lambda lam: dist.Poisson(jnp.where(lam > 50, lam**3, lam)))
bent_mean_far_out = outcomes(normal, lambda mu: dist.Normal(jnp.where(jnp.abs(mu) > 9, mu**3, mu), 0.5))
loaded_die_far_out = outcomes(
    thirds, lambda p: dist.Categorical(probs=jnp.where(p[0] > 0.99, p**3 / jnp.sum(p**3), p))
)
steep_coin = outcomes(partial(SteepFarOut, 2.0, 3.0), lambda p: dist.Bernoulli(probs=p))
cancelled_offset = outcomes_by(normal, lambda mu, x: dist.Normal(mu + 1e3 * ((x + 1e17) - 1e17), 10.0))
far_offset = outcomes_by(normal, lambda mu, x: dist.Normal(mu + (1e17 + x), 10.0))


def die_of_other_shapes(y=None):
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    observed(y, dist.Categorical(probs=jnp.broadcast_to(p, (1, 1, 3))).to_event(1), y[:, None])


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (cubed_rate_far_out, Rows(y=Counts(4))),
        (bent_mean_far_out, Rows(y=Box(0, 3))),
        (loaded_die_far_out, Rows(y=Categories(3))),
        (steep_coin, Rows(y=Binary())),
        (die_of_other_shapes, Rows(y=Categories(3))),
        # Only rounding makes these equal for all rows.
        *((cancelled_offset, Rows(x=x, y=Box(-1, 1))) for x in (Box(0, 20), Counts(2))),
        *((far_offset, Rows(x=x, y=Box(-1, 1))) for x in (Box(0, 20), Counts(2))),
    ],
)
def test_a_family_is_proved_of_the_program_and_not_at_points(model, rows) -> None:
    assert constants(read(model, rows, n=N), None).conjugate is None


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", [dist.Dirichlet, dist.CategoricalProbs])
def test_a_density_that_is_replaced_in_its_class_is_no_conjugate_one(kind, monkeypatch):
    rows = Rows(y=Categories(3))
    assert "conjugate" in str(preflight(plain, rows, WIDER, n=50).certificates)
    assert "conjugate" not in str(preflight(kept_logits, rows, WIDER, n=50).certificates)
    usual = kind.log_prob
    monkeypatch.setattr(kind, "log_prob", lambda self, value: 8 * usual(self, value))
    assert "conjugate" not in str(preflight(plain, rows, WIDER, n=50).certificates)
