"""A refusal's advice fits the habit it meets, and the model that follows it is read."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.module import _update_params

from private_mcmc.domains import Binary, Box, Categories, Counts, Rows
from private_mcmc.errors import DoThisInstead, UnsupportedModel
from private_mcmc.model import read
from tests.examples_of_models import observed, outcomes, outcomes_by

X_Y = Rows(x=Box(-1, 1), y=Binary())
normal = partial(dist.Normal, 0, 1)


def slope():
    return numpyro.sample("b", dist.Normal(0, 1))


of_columns = outcomes_by(normal, lambda b, x: dist.Bernoulli(logits=b * x))
folded = outcomes(normal, lambda b: dist.FoldedDistribution(dist.StudentT(4.0, b, 1.0)))
proportion = outcomes_by(normal, lambda b, x: dist.BetaProportion(1 / (1 + jnp.exp(-b * x)), 5.0))
shifted = outcomes_by(normal, lambda b, x: dist.Bernoulli(logits=b * jnp.concatenate([x[1:], x[:1]])))
optimised = outcomes_by(normal, lambda b, x: dist.Bernoulli(logits=numpyro.param("a", 0.0) + b * x))
below_its_end = outcomes(normal, lambda b: dist.TruncatedNormal(b, 1.0, high=1.2))
multinomial = outcomes(
    lambda: dist.Normal(0, 1).expand([3]).to_event(1), lambda a: dist.Multinomial(5, logits=a)
)
logarithms = outcomes(normal, lambda b: dist.LogNormal(b, 1.0))


def exposures(g, y, exposure, tables):
    rate = jnp.exp(slope()) * exposure[g] * tables["level"][g, 1]
    observed(y, dist.Poisson(rate), y)


def test_public_arrays_of_numpy_are_indexed_by_rows():
    public = {"exposure": np.arange(1.0, 5.0), "tables": {"level": np.ones((4, 2))}}
    assert read(exposures, Rows(g=Categories(4), y=Counts(9)), n=50, model_args=public).dim == 1


def module(x, y):
    """As random_flax_module does: a param whose every entry is then a sample."""
    params = {"kernel": jnp.zeros(2), "inner": {"bias": jnp.zeros(1)}}
    numpyro.param("net$params", params)
    new = {"inner": {}}
    with numpyro.handlers.scope(prefix="net"):
        _update_params(params, new, dist.Normal(0, 1))
    observed(x, dist.Bernoulli(logits=x * new["kernel"].sum() + new["inner"]["bias"][0]), y)


def items(y):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([3]).to_event(1))
    observed(y, dist.Bernoulli(logits=jnp.zeros((len(y), 1)) - b).to_event(1), y)


def multinomial_of_its_sum(y0, y1, y2):
    y = jnp.stack([y0, y1, y2], -1)
    a = numpyro.sample("a", dist.Normal(0, 1).expand([3]).to_event(1))
    observed(y, dist.Multinomial(y.sum(-1), logits=a, total_count_max=15), y)


def of_a_dict(x, y):
    observed(x["x"], dist.Bernoulli(logits=slope() * x["x"]), y)


def levels_at_most(g, y):
    a = numpyro.sample("a", dist.Normal(0, 1).expand([int(g.max()) + 1]).to_event(1))
    observed(g, dist.Bernoulli(logits=a[g]), y)


def levels_known(g, y, number=4):
    a = numpyro.sample("a", dist.Normal(0, 1).expand([number]).to_event(1))
    observed(g, dist.Bernoulli(logits=a[g]), y)


def autoregression(y):
    a = slope()
    with numpyro.plate("rows", y.shape[0] - 1):
        numpyro.sample("y", dist.Normal(a * y[:-1], 1.0), obs=y[1:])


def autoregression_of_each(y):
    a = slope()
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(a * y[:, :-1], 1.0).to_event(1), obs=y[:, 1:])


def answers_in_the_last(y):
    b = slope()
    with numpyro.plate("rows", y.shape[0]):
        guess = numpyro.sample("guess", dist.Bernoulli(0.5).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(b * guess, 1.0).to_event(1), obs=y)


def answers_summed_by_hand(y):
    b = slope()
    parts = dist.Normal(jnp.stack([0.0 * b, b]), 1.0)
    with numpyro.plate("rows", y.shape[0]):
        each = dist.MixtureSameFamily(dist.Categorical(jnp.array([0.5, 0.5])), parts)
        numpyro.sample("y", each.expand([2]).to_event(1), obs=y)


def four_classes(y):
    b = slope()
    with numpyro.plate("rows", y.shape[0]):
        drawn = sum(numpyro.sample(f"z{k}", dist.Categorical(jnp.ones(8) / 8)) for k in range(4))
        numpyro.sample("y", dist.Normal((b * drawn)[:, None], jnp.ones(2)).to_event(1), obs=y)


def classes_in_another_dimension(y):
    b = slope()
    with numpyro.plate("rows", y.shape[0], dim=-2):
        c = numpyro.sample("c", dist.Bernoulli(0.5))
        with numpyro.plate("answers", 2):
            numpyro.sample("y", dist.Normal(b * c, 1.0), obs=y)


def classes_in_the_last(y):
    b = slope()
    with numpyro.plate("rows", y.shape[0]):
        c = numpyro.sample("c", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal((b * c)[:, None], jnp.ones(2)).to_event(1), obs=y)


def imputed(y):
    a = slope()
    with numpyro.plate("rows", y.shape[0]):
        x = numpyro.sample("x", dist.Normal(a, 1.0).mask(False))
        numpyro.sample("y", dist.Bernoulli(logits=x), obs=y)


TRIALS = Rows(x=Box(-1, 1), trials=Counts(5), y=Counts(5))
THREE = Rows(y=Box([0.0] * 3, [1.0] * 3))
SERIES, JOINED = Rows(y=Box([-1.0] * 2, [1.0] * 2)), Rows(y0=Binary(), y1=Binary(), y2=Binary())
GROUPED = Rows(g=Categories(4), y=Binary())


@pytest.mark.parametrize(
    ("model", "rows", "advice"),
    [
        (
            lambda x, trials, y: observed(x, dist.Binomial(logits=slope() * x), y),
            TRIALS,
            "number of trials (total_count, 1 by default)",
        ),
        (items, THREE, "several outcomes of a row: one column for each, joined by jnp.stack"),
        (multinomial, Rows(y=Box([0.0] * 3, [5.0] * 3)), "total_count=counts.sum(-1)"),
        (proportion, Rows(x=Box(-1, 1), y=Box(0, 1)), "Box(0.001, 0.999)"),
        (below_its_end, Rows(y=Box(-3, 1.3)), "a Box may not reach an end that is not possible"),
        (logarithms, Rows(y=Box(0, 5)), "a positive outcome: Box(0.001"),
        (of_a_dict, X_Y, "an argument for each column"),
        (levels_at_most, GROUPED, "A number of groups or levels is public"),
        (autoregression, Rows(y=Box(-1, 1)), "a whole series"),
        (shifted, X_Y, "mixes rows"),
        (optimised, X_Y, "Give it a prior"),
        (answers_in_the_last, SERIES, "probabilities are those that it chooses between, each times its own"),
        (four_classes, SERIES, "the forward algorithm by jax.lax.scan, in a numpyro.factor of the row"),
        (classes_in_another_dimension, SERIES, "Put that plate at dim=-1"),
        (imputed, Rows(y=Binary()), "obs_mask= of their own site"),
        (numpyro.handlers.block(of_columns, hide=["latent"]), X_Y, "Leave the block out"),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_what_is_said_is_what_to_write(model, rows, advice):
    with pytest.raises(UnsupportedModel) as refusal:
        read(model, rows, n=50)
    assert advice in str(refusal.value), str(refusal.value)


@pytest.mark.some(6)
@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (folded, Rows(y=Box(0, 5))),
        (module, X_Y),
        (lambda y: items(jnp.round(y)), THREE),
        (lambda y0, y1, y2: items(jnp.stack([y0, y1, y2], -1)), JOINED),
        (multinomial_of_its_sum, JOINED),
        (proportion, Rows(x=Box(-1, 1), y=Box(0.001, 0.999))),
        (below_its_end, Rows(y=Box(-3, 1.2))),
        (logarithms, Rows(y=Box(0.005, 5))),
        (answers_summed_by_hand, SERIES),
        (levels_known, GROUPED),
        (autoregression_of_each, SERIES),
        (classes_in_the_last, SERIES),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_what_follows_the_advice_is_read(model, rows):
    assert read(model, rows, n=50).dim >= 1


def test_rows_with_latents_of_their_own_are_not_called_persons():
    assert "clip each row" in read(classes_in_the_last, SERIES, n=50).argument


def closed_over(y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", 40):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.ones((40, 2)) @ w), obs=y)


def one_matrix(y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    numpyro.sample("y", dist.MultivariateNormal(a + 0.0 * y, jnp.eye(40)), obs=y)


def set_of_levels(y):
    a = numpyro.sample("a", dist.Normal(0, 1).expand([len(set(y))]))
    observed(y, dist.Bernoulli(logits=a[y]), y)


def chosen_rows(y):
    r = numpyro.sample("r", dist.Gamma(2, 1))
    numpyro.factor("positive", dist.Poisson(r).log_prob(y)[y > 0])


def counted_by_an_if(y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    if y.sum() > 3:
        a = 2 * a
    observed(y, dist.Bernoulli(logits=a), y)


def long_enough(y):
    assert len(y) > 10
    observed(y, dist.Bernoulli(logits=slope()), y)


def of_32_bits(y):
    level, _ = jax.lax.scan(lambda level, x: (level + x, x), jnp.zeros(1, jnp.int32), y[:, None])
    observed(y, dist.Bernoulli(logits=slope() * level), y)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (of_32_bits, "int32.*has type int64"),
        (
            lambda y: observed(y, dist.Poisson(y * 0.0 * jnp.exp(slope())), 1 + y),
            "not finite on rows of the declared domain, such as y = [01];",
        ),
        (long_enough, "checks of the number of rows"),
        (closed_over, "'y'.*a design that it closes over"),
        (one_matrix, "a matrix of all rows|numbers of rows"),
        (set_of_levels, r"test_remedies.py:\d+ in set_of_levels: .*is public: an argument, by model_args"),
        (chosen_rows, r"in chosen_rows: .*jnp.where"),
        (counted_by_an_if, r"in counted_by_an_if: "),
        (lambda y: observed(y, dist.Bernoulli(numpyro.sample("p", dist.Kumaraswamy(2, 3))), y), "2.0 for 2"),
    ],
)
def test_what_fails_on_one_row_is_refused_with_what_to_write(model, words):
    with pytest.raises(DoThisInstead, match=words):
        read(model, Rows(y=Binary()), n=40)
