"""A formula's model is what formulaic's own columns and the coefficients in the users' units say it is.

``(1 | person)`` is an effect of each person, integrated out of the person's rows.
"""

import jax
import numpy as np
import numpyro
import pytest
from scipy.special import expit

import private_mcmc as pmc
from private_mcmc.data.answers import Answers
from private_mcmc.data.design import design
from private_mcmc.data.families import family
from private_mcmc.data.formula import read_formula
from private_mcmc.data.source import compile_model, model_source
from private_mcmc.inference.question import question
from private_mcmc.report import between
from tests.data.fields import flag, levels, number, schema

SCHEMA = schema(
    *(flag("died"), number("visits", 0, 20, "integer"), number("score", -50, 150)),
    *(number("age", 0, 120, unit="years"), number("dose", 0.5, 8)),
    *(levels("sex", "m", "f"), levels("region", "n", "s", "e")),
    number("bmi", 10, 60, own={"missing": "indicator"}),
)


def made(formula, kind, priors=()):
    stated = [] if kind != "gaussian" or "sigma" in str(priors) else ["sigma = 3"]
    return design(read_formula(formula, SCHEMA), SCHEMA, family(kind), [*priors, *stated])


def people(n=40):
    rng = np.random.default_rng(0)
    return {
        "age": rng.uniform(0, 120, n),
        "dose": rng.uniform(0.5, 8, n),
        "bmi": rng.uniform(10, 60, n),
        "bmi_missing": rng.integers(0, 2, n),
        "sex": rng.integers(0, 2, n),
        "region": rng.integers(0, 3, n),
        "died": rng.integers(0, 2, n),
        "visits": rng.integers(0, 20, n),
        "score": rng.uniform(-50, 150, n),
    }


def draws_of(shown, count=3):
    rng = np.random.default_rng(1)
    found = {
        effect.name: rng.normal(size=(count, *((int(np.prod(effect.shape)),) if effect.shape else ())))
        for effect in shown.effects
    }
    return found | ({"Intercept": rng.normal(size=count)} if shown.intercept else {})


def test_groups_get_an_effect_for_every_level_and_missing_numbers_one_of_their_own():
    shown = made("died ~ bmi + (1 | region) + (0 + age | sex)", "bernoulli")
    shapes = {"bmi": (), "1 | region": (3,), "age | sex": (2,), "bmi missing": ()}
    assert [(effect.name, effect.shape) for effect in shown.effects] == list(shapes.items())
    columns, draws = people(), draws_of(shown)
    model = compile_model(model_source(shown))
    used = {name: columns[name] for name in model.__code__.co_varnames[: model.__code__.co_argcount]}
    with jax.enable_x64(True):
        sites = {name: each[0] for name, each in draws.items()}
        traced = numpyro.handlers.trace(numpyro.handlers.substitute(model, sites)).get_trace(**used)
    user = {name: values[0] for name, values in shown.to_user(draws).items()}
    expected = user["Intercept"] + user["1 | region"][columns["region"]]
    expected += user["bmi"] * columns["bmi"] + user["bmi missing"] * columns["bmi_missing"]
    expected += user["age | sex"][columns["sex"]] * columns["age"]
    np.testing.assert_allclose(traced["died"]["fn"].logits, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_a_prior_is_stated_on_the_users_scale():
    shown = made("died ~ age + sex", "bernoulli", ["age ~ normal(0.1, 0.05)", "b ~ normal(0, 2)"])
    model = compile_model(model_source(shown))
    trace = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(
        **{name: people()[name] for name in ("age", "sex", "died")}
    )
    assert (float(trace["age"]["fn"].loc), float(trace["age"]["fn"].scale)) == pytest.approx((6.0, 3.0))
    assert float(trace["sex"]["fn"].base_dist.variance[0]) == pytest.approx(4.0)


def test_every_row_of_the_summary_has_an_interval_of_its_ratio_or_of_the_estimate():
    answers = Answers(shown := made("died ~ age + (1 | region)", "bernoulli"), draws_of(shown, 500))
    rows = {row[0]: row[-2:] for row in answers.table().rows}
    intercept, age = (one for one in answers.summary() if one.name in ("Intercept", "age"))
    # In a column of ratios' intervals it is said to be none of a ratio.
    assert rows["Intercept"] == ("(mean)", between(intercept.low, intercept.high))
    assert rows["age"][1] == between(np.exp(age.low), np.exp(age.high)) and None not in rows["age"]


def test_ratios_are_exponentials_of_coefficients_and_arviz_knows_the_levels():
    shown = made("died ~ age + region", "bernoulli")
    answers = Answers(shown, draws_of(shown, 500))
    by_name = {one.name: one for one in answers.summary()}
    assert by_name["region[e]"].ratio_low == pytest.approx(np.exp(by_name["region[e]"].low))
    assert by_name["age"].per == "years" and by_name["region[s]"].per == "vs n"
    assert by_name["Intercept"].ratio is None
    posterior = answers.to_arviz().posterior
    assert {"region[s]", "region[e]"} <= set(posterior)
    np.testing.assert_allclose(posterior["age"].values[0], answers.coefficients["age"])
    assert len(answers.forest().y_ticks) == 3


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("died ~ wealth", "'wealth'"),
        ("died ~ log(age)", "no finite value"),
        ("died ~ bs(age)", "say how many columns"),
        ("died ~ ns(age, knots=[60, 30])", "inside the declared range, 0 to 120"),
        ("died ~ ns(age, df=4, knots=[60])", "say how many columns"),
        ("died ~ bs(age, 2)", "from 3 to"),
        ("died ~ poly(age, degree=age)", "numbers"),
        ("died ~ (1 | region) + (1 + age | region)", "there twice"),
        ("died ~ (1 + age + dose | region)", r"\|\| region"),
        ("died ~ region:sex", r"region \* sex"),
        ("died ~ (1 + sex | region)", r"\|\| region"),
        ("died ~ scale(age)", "estimated from the private rows"),
        ("died ~ C(age)", "no declared levels"),
        ("died ~ age + (1 | age)", "no category"),
        ("died ~ age | sex", "group effects"),
        ("died ~ age + I(age > 50)", "not taken|not a field"),
        ("died ~ age/10", r"I\(age / 10\)"),
        ("died ~ died", "also a term"),
        ("age + sex", "OUTCOME ~ TERMS"),
        ("died ~ age + (", "cannot be read"),
        ("died ~ I(__import__('os').getcwd())", "not|functions"),
        ("died ~ I(age.real)", "not taken"),
        ("died ~ I(age ** dose)", "powers"),
        ("died ~ log(sex)", "'sex'"),
        ("died ~ age + age ** 2", r"I\(age \*\* 2\)"),
        ("died ~ os.log(age)", "functions are"),
        ("died ~ C(sex, Treatment)", "not a field"),
        ("died ~ (1 | sex / region)", "not a field"),
        ("died ~ 'age'", "backticks"),
    ],
)
def test_what_is_not_declared_or_would_be_learnt_from_rows_is_refused(formula, message):
    with pytest.raises(pmc.DeclarationError, match=message):
        made(formula, "bernoulli")


@pytest.mark.parametrize(
    "prior",
    [
        *("age ~ flat()", "age ~ halfnormal(1)", "sigma = 3", "wealth ~ normal(0, 1)"),
        *("age ~ normal(0, 0)", "sd(region) ~ normal(0, 1)"),
    ],
)
def test_a_prior_that_is_not_stated_for_a_term_is_refused(prior):
    with pytest.raises(pmc.DeclarationError, match="prior"):
        made("died ~ age", "bernoulli", [prior])


def test_a_prior_finds_a_groups_term_however_its_bar_is_spaced():
    shown = made("died ~ age + (1 | region)", "bernoulli", ["1|region ~ normal(0, 0.3)"])
    assert shown.effects[-1].prior.numbers[1] == 0.3


FIELDS = [
    {"name": "kid no", "type": "string", "private_mcmc": {"role": "person"}},
    flag("ill"),
    number("age", 5, 13, "integer", unit="years"),
    levels("smoke", "no", "yes"),
]


def of(at_most):
    return schema(*FIELDS, private_mcmc={"person": {"field": "kid no", "at_most": str(at_most)}})


def test_an_intercept_of_each_person_is_a_latent_in_a_plate_of_persons():
    asked = question(of(4), "ill ~ age + smoke + (1 | `kid no`)")
    assert "def model(age, smoke, kid_no, number_of_kid_no, ill=None):" in asked.source
    assert 'with numpyro.plate("kid_no", number_of_kid_no):' in asked.source and "[kid_no]" in asked.source
    assert asked.public(500) == {"number_of_kid_no": 500}
    # As in the other programs its sd is estimated, unless a prior of the effects states it.
    assert "numpyro.sample('sd(1 | kid no)', dist.HalfNormal(2.5))" in asked.source
    stated = question(of(4), "ill ~ age + (1 | `kid no`)", priors=["1 | kid no ~ normal(0, 2)"])
    assert "dist.Normal(0.0, 2.0))" in stated.source and "sd(" not in stated.source
    # What is shown may be edited, and takes the formula's place.
    again = question(of(4), model=compile_model(asked.source))
    assert again.rows == asked.rows and again.public(500) == asked.public(500)
    # Without one, rows count as independent, which is said.
    without = question(of(4), "ill ~ age")
    assert without.public(500) == {} and "(1 | kid no)" in without.notes[0] and not asked.notes


def test_answers_have_the_sds_of_effects_that_nobody_is_told():
    asked = question(of(4), "ill ~ age + (1 + age | `kid no`)")
    assert "1 | kid no" not in asked.units
    assert asked.units["sd(age | kid no)"] == "years"
    cor, sds = "cor(1 | kid no, age | kid no)", ("sd(1 | kid no)", "sd(age | kid no)")
    draws = {"Intercept": 0.0, "age": 8.0, cor: 0.7, sds[0]: 1.5, sds[1]: 2.0}
    draws = {name: np.full(3, value) for name, value in draws.items()}
    answers = Answers(asked.design, draws)
    found = {name: value[0] for name, value in answers.by_name.items()}
    # A half range is four years.
    wanted = {"Intercept": -18.0, "age": 2.0, sds[0]: 1.5, sds[1]: 0.5, cor: 0.4}
    assert found == pytest.approx(wanted)
    # Of somebody whose own effects are zero.
    assert answers.predictions({"age": 10}).estimate[0] == pytest.approx(expit(2.0))
    assert "own effects are zero" in answers.whom({"age": 10})
    assert set(answers.to_arviz().posterior) == set(found) and len(answers.forest().y_ticks) == 1


@pytest.mark.parametrize(
    "at_most, formula, words",
    [
        (1, "ill ~ age + (1 | `kid no`)", "how many rows a person may have"),
        (4, "ill ~ age + (smoke | `kid no`)", "no effect of levels"),
        (4, "ill ~ age + (1 | age)", "tells persons apart"),
        (4, "ill ~ age + (1 + age + I(age ** 2) | `kid no`)", "at most 2 effects"),
        (4, "ill ~ age + `kid no`", r"\(1 \| kid no\)"),
    ],
)
def test_what_is_no_effect_of_a_person_is_said(at_most, formula, words):
    with pytest.raises(pmc.DeclarationError, match=words):
        question(of(at_most), formula)


def test_a_field_may_not_have_the_name_of_the_number_of_persons():
    fields = [*FIELDS, flag("number of kid no")]
    with pytest.raises(pmc.DeclarationError, match="number_of_kid_no"):
        schema(*fields, private_mcmc={"person": {"field": "kid no", "at_most": "2"}})
    assert schema(*fields)


def test_a_slope_without_an_intercept_is_not_centred():
    # Centred, it would be another model: its effects would vanish in the middle of the range, not at zero.
    assert "b1[kid_no] * (age) / 13.0" in question(of(4), "ill ~ age + (0 + age | `kid no`)").source
