"""What users hand over and what they are told: frames as profiles, notes of a question, defaults."""

import numpy as np
import pandas
import pyarrow
import pytest

import private_mcmc as pmc
from private_mcmc.inference.question import question
from tests.data.fields import flag, levels, number, schema

SCHEMA = schema(number("age", 18, 90), number("sbp", -30, 330), levels("sex", "male", "female"), flag("died"))
COLUMNS = {"age": [40, 50], "sex": ["male", "female"]}
PEOPLE = [{"age": 40, "sex": "male"}, {"age": 50, "sex": "female"}]


@pytest.fixture
def answers():
    made = question(SCHEMA, "died ~ age + sex").design
    return pmc.Answers(made, {"Intercept": np.zeros(9), "age": np.full(9, 2.0), "sex": np.ones((9, 1))})


@pytest.mark.parametrize("form", [dict, pandas.DataFrame, pyarrow.table])
def test_a_frame_of_profiles_is_what_a_list_of_them_is(answers, form):
    people = form(COLUMNS)
    assert answers.predictions(people).estimate.equals(answers.predictions(PEOPLE).estimate)
    assert answers.predictions_by(people).equals(answers.predictions_by(PEOPLE))


def test_sigma_is_estimated_on_the_outcomes_scale_unless_it_is_stated():
    asked = question(SCHEMA, "sbp ~ age", family="gaussian")
    assert str(asked.design.parameters["sigma"]) == "halfnormal(90)"
    assert not any("sigma" in note for note in asked.notes)
    stated = question(SCHEMA, "sbp ~ age", family="gaussian", priors=["sigma = 12"])
    assert stated.design.parameters["sigma"].is_stated
