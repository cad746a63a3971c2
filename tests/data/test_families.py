"""Every family's model has the density that its words say, in the user's units; SciPy is the reference."""

import math
from dataclasses import replace

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import statsmodels.api as sm
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import expit, gamma, softmax

import private_mcmc as pmc
from private_mcmc.data.answers import Answers
from private_mcmc.data.design import design
from private_mcmc.data.families import family, read_priors
from private_mcmc.data.formula import read_formula
from private_mcmc.data.source import compile_model, model_source
from private_mcmc.inference.question import question
from tests.data.fields import flag, levels, number, schema

SCHEMA = schema(
    flag("died"),
    number("visits", 0, 20, "integer"),
    number("n.seen", 0, 25, "integer"),
    number("stay", 1, 90, "integer"),
    number("score", -50, 150),
    number("bmi", 10, 60, own={"missing": "indicator"}),
    number("cost", 1, 500),
    number("share", 0.01, 0.99),
    number("age", 0, 120, unit="years"),
    number("lambda", 0.5, 8),
    levels("sex", "m", "f"),
    levels("region", "n", "s", "e"),
    levels("vote", "Y", "N", "A", "U"),
)
N = 30
RNG = np.random.default_rng(0)
PEOPLE = {
    "age": RNG.uniform(0, 120, N),
    "lambda_": RNG.uniform(0.5, 8, N),
    "sex": RNG.integers(0, 2, N),
    "region": RNG.integers(0, 3, N),
    "died": RNG.integers(0, 2, N),
    "visits": RNG.integers(0, 20, N),
    "n_seen": RNG.integers(20, 26, N),
    "score": RNG.uniform(-50, 150, N),
    "cost": RNG.uniform(1, 500, N),
    "share": RNG.uniform(0.01, 0.99, N),
    "vote": RNG.integers(0, 4, N),
}
AGE, SEX, LAMBDA = PEOPLE["age"], PEOPLE["sex"], PEOPLE["lambda_"]


def linear(user):
    """``age + sex`` in the user's units."""
    return user["Intercept"] + user["age"] * AGE + user["sex"][0] * (SEX == 1)


def negative_binomial(user, y):
    mean = np.exp(linear(user) + np.log(LAMBDA))
    return stats.nbinom.logpmf(y, user["alpha"], user["alpha"] / (user["alpha"] + mean))


def beta(user, y):
    mean = expit(linear(user))
    return stats.beta.logpdf(y, 10 * mean, 10 * (1 - mean))


def categorical(user, y):
    eta = user["Intercept"] + AGE[:, None] * user["age"] + (SEX == 1)[:, None] * user["sex"][0]
    return np.log(softmax(np.pad(eta, ((0, 0), (1, 0))), axis=1)[np.arange(N), y])


def cumulative(user, y):
    eta = user["age"] * AGE + user["sex"][0] * (SEX == 1)
    below = np.pad(
        expit(user["thresholds"] - eta[:, None]), ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1))
    )
    return np.log(np.diff(below, axis=1)[np.arange(N), y])


def grouped(user, y):
    region = PEOPLE["region"]
    eta = user["Intercept"] + user["1 | region"][region] + user["lambda | region"][region] * LAMBDA
    return stats.bernoulli.logpmf(y, expit(eta))


def inflated(law):
    """A share ``zi`` of counts is zero, whatever the law says."""

    def logpmf(user, y):
        whole = np.exp(law(user, y)) * (1 - user["zi"])
        return np.log(whole + (y == 0) * user["zi"])

    return logpmf


def cut_off(law):
    """Times whose event was seen have the law's density, others its survival."""

    def logpdf(user, y):
        frozen = law(user)
        return np.where(PEOPLE["died"] == 1, frozen.logpdf(y), frozen.logsf(y))

    return logpdf


def exponential(user):
    """Effects of times that may be cut off are on the log hazard."""
    return stats.expon(scale=np.exp(-linear(user)))


def weibull(user):
    """Of the cumulative hazard until the longest time that is declared."""
    return stats.weibull_min(user["alpha"], scale=500 * np.exp(-linear(user) / user["alpha"]))


def cox(user, y):
    """The hazard added up with steps of a thousandth of the longest time."""
    times = (np.arange(500_000) + 0.5) / 1000
    steps = np.append(0.0, user["steps"])
    hazard = np.exp(steps[np.searchsorted([40.0, 200.0], times)])
    whole = np.append(0.0, np.cumsum(hazard) / 1000)
    now = np.log(hazard[np.searchsorted(times, y) - 1]) + linear(user)
    return PEOPLE["died"] * now - np.exp(linear(user)) * np.interp(y, np.append(0.0, times + 0.0005), whole)


def hurdle(user, y):
    """A share ``hu`` is zero, and the others are counts that are not."""
    law = stats.poisson(np.exp(linear(user)))
    positive = np.log1p(-user["hu"]) + law.logpmf(np.maximum(y, 1)) - law.logsf(0)
    return np.where(y == 0, np.log(user["hu"]), positive)


AGE_SEX, LONG = "visits ~ age + sex", "surv(cost, died) ~ age + sex"
ALPHA, SHAPE = "alpha ~ exponential(0.5)", ["alpha ~ gamma(4, 2)"]
EXPOSED = f"{AGE_SEX} + offset(log(lambda))"
HIERARCHY = ["sd(1 | region) ~ halfnormal(1)", "sd(lambda | region) ~ exponential(2)"]


def poisson(user, y):
    return stats.poisson.logpmf(y, np.exp(linear(user)))


def lognormal(user):
    return stats.lognorm(1.3, scale=np.exp(linear(user)))


def binomial(user, y):
    return stats.binom.logpmf(y, PEOPLE["n_seen"], expit(linear(user)))


def mean_weibull(user, y):
    scale = np.exp(linear(user)) / gamma(1 + 1 / user["alpha"])
    return stats.weibull_min.logpdf(y, user["alpha"], scale=scale)


CASES = {
    "hurdle_poisson": (AGE_SEX, [], hurdle),
    "zi_poisson": (AGE_SEX, [], inflated(poisson)),
    "zi_negativebinomial": (EXPOSED, [ALPHA, "zi ~ beta(2, 5)"], inflated(negative_binomial)),
    "exponential cut off": (LONG, [], cut_off(exponential)),
    "weibull cut off": (LONG, SHAPE, cut_off(weibull)),
    "lognormal cut off": (LONG, ["sigma = 1.3"], cut_off(lognormal)),
    "cox": ("surv(cost, died, cuts=[40, 200]) ~ age + sex", [], cox),
    "bernoulli": ("died ~ age + sex", [], lambda u, y: stats.bernoulli.logpmf(y, expit(linear(u)))),
    "binomial": ("visits | trials(n.seen) ~ age + sex", [], binomial),
    "poisson": (EXPOSED, [], lambda u, y: stats.poisson.logpmf(y, LAMBDA * np.exp(linear(u)))),
    "negativebinomial": (EXPOSED, [ALPHA], negative_binomial),
    "gaussian": (
        "score ~ age + sex",
        ["sigma ~ halfnormal(20)"],
        lambda u, y: stats.norm.logpdf(y, linear(u), u["sigma"]),
    ),
    "t": (
        "score ~ age + sex + offset(lambda)",
        ["sigma = 12", "nu = 5"],
        lambda u, y: stats.t.logpdf(y, 5, linear(u) + LAMBDA, 12),
    ),
    "gamma": (
        "cost ~ age + sex",
        ["alpha = 2"],
        lambda u, y: stats.gamma.logpdf(y, 2, scale=np.exp(linear(u)) / 2),
    ),
    "exponential": ("cost ~ age + sex", [], lambda u, y: stats.expon.logpdf(y, scale=np.exp(linear(u)))),
    "weibull": ("cost ~ age + sex", SHAPE, mean_weibull),
    "lognormal": ("cost ~ age + sex", ["sigma = 1.3"], lambda u, y: lognormal(u).logpdf(y)),
    "beta": ("share ~ age + sex", [], beta),
    "categorical": ("vote ~ age + sex", [], categorical),
    "cumulative": ("vote ~ age + sex", [], cumulative),
    "a hierarchy": ("died ~ (lambda | region)", HIERARCHY, grouped),
}


def made(name):
    formula, priors, _ = CASES[name]
    chosen = family("bernoulli" if name == "a hierarchy" else name.split()[0])
    return design(read_formula(formula, SCHEMA), SCHEMA, chosen, priors)


def traced(shown):
    """The model's sites at a draw of their priors, in float64, and its trace."""
    model = compile_model(model_source(shown))
    given = {name: PEOPLE[name] for name in model.__code__.co_varnames[: model.__code__.co_argcount]}
    with jax.enable_x64(True):
        seeded = numpyro.handlers.seed(model, jax.random.key(3))
        trace = numpyro.handlers.trace(seeded).get_trace(**given)
        small = {
            name: np.sort(0.3 * np.asarray(site["value"]))
            if name == "thresholds"
            else np.asarray(site["value"]) * (1.0 if site["fn"].support is dist.constraints.positive else 0.3)
            for name, site in trace.items()
            if site["type"] == "sample" and not site["is_observed"]
        }
        trace = numpyro.handlers.trace(numpyro.handlers.substitute(model, small)).get_trace(**given)
    return small, trace


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_the_model_that_is_shown_has_the_familys_density_in_the_users_units(name):
    shown = made(name)
    sites, trace = traced(shown)
    user = {key: value[0] for key, value in shown.to_user({k: v[None] for k, v in sites.items()}).items()}
    observed = trace[shown.formula.outcome]
    with jax.enable_x64(True):
        found = np.asarray(observed["fn"].log_prob(observed["value"]))
    y = PEOPLE[shown.formula.outcome.replace(".", "_")]
    np.testing.assert_allclose(found * np.ones(N), CASES[name][2](user, y), rtol=1e-6, atol=2e-6)


PERSON = {"age": repr(float(AGE[0])), "sex": ["m", "f"][SEX[0]]}


def answers_at(shown, sites):
    """As of two equal draws."""
    return Answers(shown, {key: np.repeat(value[None], 2, axis=0) for key, value in sites.items()})


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "name", ["binomial", "zi_poisson", "hurdle_poisson", "gamma", "weibull", "categorical", "cumulative"]
)
def test_a_prediction_is_the_mean_of_the_density_that_is_shown(name):
    shown = made(name)
    sites, trace = traced(shown)
    law, answers = trace[shown.formula.outcome]["fn"], answers_at(shown, sites)
    with jax.enable_x64(True):
        several = name in ("categorical", "cumulative")
        expected = np.asarray(law.probs if several else law.mean)[0]
    if several:
        means = answers.predictions(PERSON).set_index("level").estimate[["Y", "N", "A", "U"]].to_list()
        np.testing.assert_allclose(means, expected, rtol=1e-5)
    else:
        trials = PEOPLE["n_seen"][0] if name == "binomial" else 1
        assert answers.predictions(PERSON).estimate[0] == pytest.approx(expected / trials, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("age ~ normal(0.1, 0.05)", stats.norm(0.1, 0.05)),
        ("age ~ student_t(3, 0.1, 0.05)", stats.t(3, 0.1, 0.05)),
        ("age ~ cauchy(0, 0.2)", stats.cauchy(0, 0.2)),
        ("age ~ Laplace(mu=0.1, b=0.2)", stats.laplace(0.1, 0.2)),
        ("sd(age | sex) ~ halfnormal(0.5)", stats.halfnorm(0, 0.5)),
        ("sd(age | sex) ~ half_cauchy(0.5)", stats.halfcauchy(0, 0.5)),
        ("sd(age | sex) ~ exponential(4)", stats.expon(0, 1 / 4)),
        ("sd(age | sex) ~ gamma(2, 3)", stats.gamma(2, 0, 1 / 3)),
        ("sd(age | sex) ~ lognormal(-1, 0.5)", stats.lognorm(0.5, 0, math.exp(-1))),
    ],
)
def test_a_prior_is_that_of_the_users_coefficient_whatever_the_models_scale(text, reference):
    (prior,) = read_priors([text]).values()
    scale = 60.0
    law = eval(prior.in_units(scale).source(), {"dist": dist})
    value = 0.137
    density = float(law.log_prob(value * scale)) + math.log(scale)
    assert density == pytest.approx(reference.logpdf(value), abs=1e-4)


@pytest.mark.parametrize(
    ("formula", "kind", "message"),
    [
        ("region ~ age", "bernoulli", "two levels"),
        ("age ~ sex", "bernoulli", "two levels"),
        ("age ~ sex", "poisson", "type integer"),
        ("stay ~ sex", "zi_poisson", "of 0 for zi_"),
        ("stay ~ sex", "hurdle_poisson", "of 0 for zi_"),
        ("sex ~ age", "gaussian", "type number"),
        ("bmi ~ age", "gaussian", "indicator"),
        ("cost ~ age", "beta", "below 1"),
        ("score ~ age", "gamma", "above 0"),
        ("sex ~ age", "categorical", "three levels"),
        ("died ~ age", "cumulative", "three levels"),
        ("vote ~ 0 + age", "cumulative", "leave out the 0"),
        ("visits ~ age", "binomial", "trials"),
        ("visits | trials(n.seen) ~ age", "poisson", "trials are for family"),
        ("visits | trials(score) ~ age", "binomial", "type integer"),
        ("visits ~ age + offset(log(score))", "poisson", "no finite value"),
        ("surv(cost, died) ~ age", "gamma", "weibull, lognormal, cox"),
        ("surv(cost, died) ~ age", "cox", "with cuts"),
        ("surv(cost, died, cuts=[9, 4]) ~ age", "cox", "cuts rise"),
        ("surv(cost, vote) ~ age", "weibull", "two levels"),
        ("surv(cost, died) | weights(visits) ~ age", "weibull", "has one at most"),
        ("cost ~ age", "cox", "with cuts"),
        ("visits | weights(score) ~ age", "poisson", "range from 0 or more"),
        ("visits | weights(cost, deff=0) ~ age", "poisson", "deff is a number above 0"),
        ("visits ~ age + weights(cost)", "poisson", "beside the outcome"),
        ("visits ~ age + offset(sex)", "poisson", "no range|not a field that is a number"),
        ("visits ~ age", "frailty", r"surv\(time, event\)"),
    ],
)
def test_what_does_not_fit_a_family_is_refused_with_what_would(formula, kind, message):
    with pytest.raises(pmc.DeclarationError, match=message):
        design(read_formula(formula, SCHEMA), SCHEMA, family(kind))


@pytest.mark.parametrize("kind", ["poisson", "negativebinomial"])
def test_a_count_of_which_none_is_zero_has_the_range_of_its_distribution(kind):
    asked = question(SCHEMA, "stay ~ age", family=kind)
    assert asked.rows == pmc.Rows(stay=pmc.Counts(90), age=pmc.Box(0.0, 120.0))
    np.testing.assert_array_equal(SCHEMA.rows(["stay"]).columns["stay"].interval(), (1, 90))


def test_sigma_is_estimated_on_the_outcomes_scale_unless_it_is_stated():
    asked = question(SCHEMA, "score ~ age", family="gaussian")
    assert str(asked.design.parameters["sigma"]) == "halfnormal(50)"
    assert not any("sigma" in note for note in asked.notes)
    stated = question(SCHEMA, "score ~ age", family="gaussian", priors=["sigma = 12"])
    assert stated.design.parameters["sigma"].is_stated


def test_an_sd_of_times_that_may_be_cut_off_is_stated():
    formula = read_formula("surv(cost, died) ~ age", SCHEMA)
    with pytest.raises(pmc.DeclarationError, match=r"it is stated, as sigma = 1\.2.*family='weibull'"):
        design(formula, SCHEMA, family("lognormal"), ["sigma ~ halfnormal(1)"])
    assert design(formula, SCHEMA, family("lognormal")).unsaid == ("sigma",)


def test_an_event_may_be_an_integer_with_two_levels():
    """Its range was asked for, which levels have none of."""
    words = [{"value": 0, "label": "alive"}, {"value": 1, "label": "dead"}]
    declared = schema(number("days", 1, 90), {"name": "dead", "type": "integer", "categories": words})
    assert read_formula("surv(days, dead) ~ 1", declared).event == "dead"


@pytest.mark.parametrize("name", ["exponential cut off", "weibull cut off", "lognormal cut off", "cox"])
def test_survival_is_one_less_the_density_added_up_and_a_half_at_the_median(name):
    shown = made(name)
    sites, _ = traced(shown)
    answers = answers_at(shown, sites)
    median = answers.predictions(PERSON).estimate[0]
    assert replace(answers, until=median).predictions(PERSON).estimate[0] == pytest.approx(0.5)
    user = {key: value[0] for key, value in shown.to_user(answers.draws).items()}
    later = replace(answers, until=100.0).predictions(PERSON).estimate[0]
    if name == "cox":
        slope = linear(user)[0]
        assert later == pytest.approx(np.exp(-np.exp(slope) * (40 + 60 * np.exp(user["steps"][0]))), rel=1e-5)
        return
    law = {"weibull": weibull, "lognormal": lognormal, "exponential": exponential}[name.split()[0]]
    assert later == pytest.approx(law(user).sf(100.0)[0], rel=1e-5)


def test_a_weight_multiplies_its_rows_log_likelihood():
    def likelihood(formula, **more):
        shown = design(read_formula(formula, SCHEMA), SCHEMA, family("poisson"))
        model = compile_model(model_source(shown))
        given = {"age": AGE, "visits": PEOPLE["visits"], **more}
        at = {"Intercept": 0.3, "age": 0.2}
        return float(log_density(model, (), given, at)[0])

    with jax.enable_x64(True):
        single, double, weighted = (
            likelihood("visits | weights(cost, deff=1) ~ age", cost=np.full(N, w)) for w in (1.0, 2.0, 3.5)
        )
        assert single == pytest.approx(likelihood("visits ~ age"))
    assert weighted - single == pytest.approx(2.5 * (double - single))


def test_widths_of_a_weighted_fit_are_those_of_the_sandwich():
    """Of 4,000 weighted rows under a flat prior, against statsmodels' HC0; a range allows no less."""
    random, n = np.random.default_rng(0), 4000
    x, w = random.uniform(-1, 1, n), random.gamma(2.0, 0.5, n).clip(0, 5)
    y = random.poisson(np.exp(0.3 + 0.5 * x)).astype(float)
    weighted = schema(number("x", -1, 1), number("w", 0, 5), number("y", 0, 60, "integer"))

    def covariance(formula):
        flat = ["Intercept ~ normal(0, 100)", "x ~ normal(0, 100)"]
        shown = design(read_formula(formula, weighted), weighted, family("poisson"), flat)
        model = compile_model(model_source(shown))

        def loss(theta):
            sites = {"Intercept": theta[0], "x": theta[1]}
            return -log_density(model, (), {"x": x, "w": w, "y": y}, sites)[0]

        return np.linalg.inv(jax.hessian(loss)(np.asarray(fit.params)))

    fit = sm.GLM(y, sm.add_constant(x), sm.families.Poisson(), var_weights=w).fit(cov_type="HC0")
    with jax.enable_x64(True):
        stated = covariance(f"y | weights(w, deff={(w @ w) / w.sum()}) ~ x")
        most = covariance("y | weights(w) ~ x")
        none = covariance("y | weights(w, deff=1) ~ x")
    np.testing.assert_allclose(np.sqrt(np.diag(stated)), fit.bse, rtol=0.05)
    assert np.all(np.diag(most) > np.diag(stated)) and np.all(np.sqrt(np.diag(none)) < 0.9 * fit.bse)


def test_an_event_over_a_time_is_predicted_as_a_cumulative_hazard_and_counts_as_their_mean():
    """A prediction may be above 1, which neither a probability nor a count of one death is."""
    of = schema(flag("dead"), number("x", 1, 9), number("t", 1, 9), number("seen", 0, 9, "integer"))
    found = {
        text: design(read_formula(text, of), of, family("poisson")).mean
        for text in ("dead ~ x + offset(log(t))", "dead ~ x", "seen ~ x + offset(log(t))")
    }
    assert list(found.values()) == ["cumulative hazard", "mean count", "mean count"]


def test_an_offset_moves_the_usual_prior_of_the_intercept_out_of_its_way():
    usual = [
        design(read_formula(text, SCHEMA), SCHEMA, family("poisson")).intercept.numbers
        for text in ("visits ~ age", "visits ~ age + offset(log(n.seen + 1))")
    ]
    low, high = SCHEMA["n.seen"].range
    assert usual[0][0] == 0 and usual[1] == (pytest.approx(-np.log((low + high) / 2 + 1)), usual[0][1])
