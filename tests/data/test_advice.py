"""What users hand over and what they are told: frames as profiles, notes of a question, defaults."""

import numpy as np
import pandas
import pyarrow
import pytest

import private_mcmc as pmc
from private_mcmc.inference.question import question

SCHEMA = pmc.Schema.from_dict(
    {
        "fields": [
            {"name": "age", "type": "number", "constraints": {"minimum": "18", "maximum": "90"}},
            {"name": "time", "type": "integer", "constraints": {"minimum": "1", "maximum": "12"}},
            {"name": "sbp", "type": "number", "constraints": {"minimum": "-30", "maximum": "330"}},
            {"name": "visits", "type": "integer", "constraints": {"minimum": "0", "maximum": "20"}},
            {"name": "sex", "constraints": {"enum": ["male", "female"]}},
            {"name": "died", "type": "boolean"},
        ]
    }
)
COLUMNS = {"age": [40, 50], "sex": ["male", "female"]}
PEOPLE = [{"age": 40, "sex": "male"}, {"age": 50, "sex": "female"}]


@pytest.fixture
def answers():
    made = question(SCHEMA, "died ~ age + sex").design
    return pmc.Answers(made, {"Intercept": np.zeros(9), "age": np.full(9, 2.0), "sex": np.ones((9, 1))})


@pytest.mark.parametrize("form", [dict, pandas.DataFrame, pyarrow.table])
def test_a_frame_of_profiles_is_what_a_list_of_them_is(answers, form):
    people = form(COLUMNS)
    assert answers.predictions(people).rows == answers.predictions(PEOPLE).rows
    assert answers.predictions_by(people).equals(answers.predictions_by(PEOPLE))


def test_several_profiles_where_one_is_asked_for_are_refused_in_a_line(answers):
    with pytest.raises(pmc.DeclarationError, match="predictions and average"):
        answers.predict(PEOPLE)


def test_sigma_is_estimated_on_the_outcomes_scale_unless_it_is_stated():
    asked = question(SCHEMA, "sbp ~ age", family="gaussian")
    assert str(asked.design.parameters["sigma"]) == "halfnormal(90)"
    assert not any("sigma" in note for note in asked.notes)
    stated = question(SCHEMA, "sbp ~ age", family="gaussian", priors=["sigma = 12"])
    assert stated.design.parameters["sigma"].is_stated


@pytest.mark.parametrize(("offset", "told"), [("time", True), ("log(time)", False)])
def test_an_exposure_without_its_logarithm_is_told(offset, told):
    asked = question(SCHEMA, f"visits ~ age + offset({offset})", family="poisson")
    assert told == any("offset(log(time))" in note for note in asked.notes)


def test_alpha_is_told_in_the_words_of_other_packages():
    notes = question(SCHEMA, "visits ~ age", family="negativebinomial").notes
    assert any("theta in R" in note for note in notes)


def test_numbers_whose_codes_of_missing_values_would_count_are_named():
    notes = " ".join(question(SCHEMA, "sbp ~ age", family="gaussian").notes)
    assert "Of ['sbp'] no codes of missing values" in notes  # 99 is no age from 18 to 90, and is refused
