"""Effects and averages of a study, whatever the fields are called."""

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.cli.study import people_of
from private_mcmc.data.answers import Answers
from private_mcmc.data.design import design
from private_mcmc.data.families import family
from private_mcmc.data.formula import read_formula
from tests.data.fields import levels, number, schema

SCHEMA = schema(
    number("since", "2015-01-01", "2023-12-31", "date", title="Admitted"),
    number("body mass", 30, 200, unit="kg"),
    levels("ward", "a/b", "c"),
    levels("vote", "no", "maybe", "yes"),
)


@pytest.fixture
def answers():
    formula = read_formula("vote ~ since + `body mass` + ward", SCHEMA)
    shown = design(formula, SCHEMA, family("categorical"))
    rng = np.random.default_rng(0)
    sites = {"Intercept": (2,), "since": (2,), "body mass": (2,), "ward": (2,)}
    draws = {name: rng.normal(size=(200, *shape)) for name, shape in sites.items()}
    return Answers(shown, draws)


def test_every_level_of_an_outcome_has_a_name_and_a_prediction(answers):
    posterior = answers.to_arviz().posterior
    assert {"ward[c, maybe]", "ward[c, yes]", "Intercept[yes]"} <= {
        str(name).replace("\u2215", "/") for name in posterior
    }
    found = answers.predictions([{"ward": "c"}])
    assert found.level.to_list() == ["no", "maybe", "yes"] and found.estimate.sum() == pytest.approx(1)
    assert list(found.iloc[0][:3]) == ["2019-07-02", "115", "c"]
    said = answers.whom([{"ward": "c"}])
    assert said.startswith("At since 2019-07-02, body mass 115, ward c (not stated: since, body mass in the")


@pytest.mark.parametrize(
    ("shown", "until", "words"),
    [
        ("response", None, "difference in median of time in care (days)"),
        ("ratio", None, "ratio of median of time in care (days)"),
        ("link", None, "log hazard ratio of dead = yes"),
        ("slope", 90.0, "slope of probability of no event until 90 days"),
    ],
)
def test_a_title_says_what_is_shown_and_in_which_unit(shown, until, words):
    """Contrasts of the link stood under "median time of …"."""
    declared = schema(number("days", 1, 900, title="time in care", unit="days"), levels("dead", "no", "yes"))
    shape = design(read_formula("surv(days, dead) ~ 1", declared), declared, family("weibull"))
    assert Answers(shape, {"Intercept": np.zeros(2)}, until=until).title(shown) == words


@pytest.mark.parametrize("until", [None, 30.0])
def test_times_beyond_the_longest_declared_one_are_said_to_be_extrapolated(until):
    declared = schema(number("years", 1, 15, unit="years"), levels("dead", "no", "yes"))
    formula = read_formula("surv(years, dead, cuts=[5]) ~ 1", declared)
    shape = design(formula, declared, family("cox"))
    for log_hazard, later in ((-9.0, True), (0.0, False)):
        draws = {"Intercept": np.full(5, log_hazard), "steps": np.zeros((5, 1))}
        answers = Answers(shape, draws, until=until)
        said = answers.beyond(answers.predictions([{}]).to_dict("records"))
        assert bool(said) == (later or until is not None)
        assert all("Beyond 15 years, the longest declared time" in words for words in said)
    # One of those who are averaged may be later.
    assert Answers(shape, draws).beyond([{"contrast": "prediction", "conf_high": 0.1}])


def test_averages_over_public_margins_are_weighted_means_of_what_is_said_of_each_profile(answers, tmp_path):
    margins = tmp_path / "margins.csv"
    margins.write_text("ward,body mass,since,weight\na/b,60,2020-01-01,3\nc,90,2016-01-01,1\n")
    people = [{"ward": "a/b", "body mass": 60, "since": "2020-01-01"}]
    people += [{"ward": "c", "body mass": 90, "since": "2016-01-01"}]
    alone = answers.predictions(people).query("level == 'yes'").estimate.to_list()
    people, weights = people_of(answers, margins)
    averages = answers.predictions_by(people, (), weights).set_index("level").estimate
    assert list(averages.index) == ["no", "maybe", "yes"] and averages.sum() == pytest.approx(1)
    assert averages.yes == pytest.approx(0.75 * alone[0] + 0.25 * alone[1])
    # What margins leave out is not these people's.
    margins.write_text("ward,weight\na/b,3\nc,1\n")
    said = answers.whom(people_of(answers, margins)[0])
    assert "2 profiles (not stated: since, body mass in the middle of the declared range)" in said


@pytest.mark.parametrize("text", ["ward,weight\nc,-1\n", "ward,weight\n", "ward,wealth\nc,3\n", "ward\nd\n"])
def test_margins_that_are_none_are_refused(answers, tmp_path, text):
    (tmp_path / "margins.csv").write_text(text)
    with pytest.raises(pmc.PrivateMCMCError):
        people, weights = people_of(answers, tmp_path / "margins.csv")
        answers.predictions_by(people, (), weights)
