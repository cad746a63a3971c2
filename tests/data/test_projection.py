"""What a term adds: projections of released draws are those of the closed forms and of statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from scipy.special import expit, xlogy

import private_mcmc as pmc
from private_mcmc.data.answers import Answers
from private_mcmc.data.design import design
from private_mcmc.data.families import family
from private_mcmc.data.formula import read_formula
from private_mcmc.data.projection import FAMILIES
from tests.data.test_comparisons import answers_of
from tests.data.test_families import SCHEMA

RANDOM = np.random.default_rng(0)
AGE, SEX = RANDOM.uniform(20, 80, 300), RANDOM.integers(0, 2, 300)
PEOPLE = {"age": AGE, "sex": np.where(SEX, "m", "f")}
Z = (AGE - 50) / 30


def lost(answers, people=PEOPLE):
    found = answers.nested(people)
    assert list(found) == ["term", "estimate", "conf_low", "conf_high"]
    return dict(zip(found.term, found.estimate, strict=True))


def divergence(p, columns):
    """The least mean divergence of Bernoulli outcomes, by a fit to their probabilities."""
    q = sm.GLM(p, np.column_stack(columns), sm.families.Binomial()).fit(tol=1e-14).fittedvalues
    return np.mean(xlogy(p, p / q) + xlogy(1 - p, (1 - p) / (1 - q)))


@pytest.mark.filterwarnings("ignore")
def test_a_term_of_a_logistic_regression_goes_with_the_products_that_contain_it():
    draws = {"Intercept": -0.5, "age": 1.4, "sex": [0.9], "age:sex": [-0.8]}
    answers = answers_of("y ~ age * sex", {name: np.array([value] * 2) for name, value in draws.items()})
    p = expit(-0.5 + 1.4 * Z + 0.9 * SEX - 0.8 * Z * SEX)
    one, found = np.ones(300), lost(answers)
    assert found["age:sex"] == pytest.approx(divergence(p, [one, Z, SEX]), rel=1e-6)
    assert found["age"] == pytest.approx(divergence(p, [one, SEX]), rel=1e-6)
    assert found["sex"] == pytest.approx(divergence(p, [one, Z]), rel=1e-6)
    assert found["age"] > found["age:sex"] > 0.001
    alike = lost(answers, {"age": AGE, "sex": ["m"] * 300})
    assert alike["sex"] == 0 == alike["age:sex"] < alike["age"]
    # Of a table that lacks a field its terms lost nothing.
    assert set(lost(answers, {"age": AGE})) == {"age"}


def test_a_groups_effects_lose_what_they_explain_and_a_smaller_sd_as_much_as_larger_effects():
    size, region = 3, np.array(["n", "s", "w"])[RANDOM.integers(0, 3, 300)]
    draws = {
        "Intercept": np.zeros(size),
        "age": np.full(size, 0.7),
        "1 | region": np.array([[1.0, -1, 0]] * size),
    }
    prior = ["sd(1 | region) ~ halfnormal(1)"]
    answers = answers_of(
        "y ~ age + (1 | region)", draws | {"sd(1 | region)": np.full(size, 0.8)}, priors=prior
    )
    effect = 0.8 * np.select([region == "n", region == "s"], [1.0, -1.0], 0.0)
    found = lost(answers, {"age": AGE, "region": region})
    assert found["1 | region"] == pytest.approx(
        divergence(expit(0.7 * Z + effect), [np.ones(300), Z]), rel=1e-6
    )
    assert set(lost(answers, {"age": AGE})) == {"age"}


# The law of a mean e^eta, or of eta; two means, and one between them that is right on average.
LAWS = {
    "poisson": ("visits", stats.poisson, {}),
    "negativebinomial": ("visits", lambda mu: stats.nbinom(2, 2 / (2 + mu)), {"alpha": 2.0}),
    "gaussian": ("score", lambda mu: stats.norm(mu, 12), {"sigma": 12.0}),
    "lognormal": ("cost", lambda mu: stats.lognorm(1.3, scale=mu), {"sigma": 1.3}),
    "gamma": ("cost", lambda mu: stats.gamma(3, scale=mu / 3), {"alpha": 3.0}),
    "exponential": ("cost", lambda mu: stats.expon(scale=mu), {}),
}


@pytest.mark.parametrize("name", LAWS)
def test_what_is_lost_is_the_divergence_of_the_familys_law_from_the_nearest_one_for_everyone(name):
    outcome, law, stated = LAWS[name]
    made = design(
        read_formula(f"{outcome} ~ sex", SCHEMA),
        SCHEMA,
        family(name),
        [f"{k} = {v}" for k, v in stated.items()],
    )
    (found,) = (
        Answers(made, {"Intercept": np.array([0.4] * 2), "sex": np.array([[0.9]] * 2)})
        .nested({"sex": ["m", "f"]})
        .estimate
    )
    eta = np.array([0.4, 1.3])
    means = 50 + 100 * eta if name == "gaussian" else np.exp(eta)
    at = np.exp(eta.mean()) if name == "lognormal" else means.mean()
    if name in ("poisson", "negativebinomial"):
        y = np.arange(400)
        each = [law(mu).pmf(y) @ (law(mu).logpmf(y) - law(at).logpmf(y)) for mu in means]
    else:
        chance = (np.arange(200_000) + 0.5) / 200_000
        each = [
            np.mean(law(mu).logpdf(y) - law(at).logpdf(y)) for mu in means if (y := law(mu).ppf(chance)).any()
        ]
    assert found == pytest.approx(np.mean(each), rel=2e-3)
    assert set(LAWS) | {"bernoulli", "binomial"} == set(FAMILIES)


def test_one_person_and_other_families_are_refused_with_what_to_do():
    draws = {"Intercept": np.zeros(2), "age": np.ones(2)}
    with pytest.raises(pmc.DeclarationError, match="several people"):
        answers_of("y ~ age", draws).nested([{}, {}])
    ordered = {"thresholds": np.array([[-1.0, 1.0]] * 2), "sex": np.array([[0.7]] * 2)}
    with pytest.raises(pmc.NotYetSupported, match="private-mcmc compare"):
        answers_of("grade ~ sex", ordered, "cumulative").nested(PEOPLE)
