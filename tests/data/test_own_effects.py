"""``(1 | person)`` in a formula: an effect of each person, integrated out of the person's rows."""

import numpy as np
import pytest
from scipy.special import expit

import private_mcmc as pmc
from private_mcmc.data.answers import Answers
from private_mcmc.data.source import compile_model
from private_mcmc.inference.question import question
from tests.data.fields import flag, levels, number, schema

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
    draws = {
        "Intercept": np.zeros(3),
        "age": np.full(3, 8.0),
        "cor(1 | kid no, age | kid no)": np.full(3, 0.7),
    }
    draws |= {"sd(1 | kid no)": np.full(3, 1.5), "sd(age | kid no)": np.full(3, 2.0)}
    answers = Answers(asked.design, draws)
    found = {name: value[0] for name, value in answers.by_name.items()}
    # A half range is four years.
    assert found == pytest.approx(
        {
            "Intercept": -18.0,
            "age": 2.0,
            "sd(1 | kid no)": 1.5,
            "sd(age | kid no)": 0.5,
            "cor(1 | kid no, age | kid no)": 0.4,
        }
    )
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
