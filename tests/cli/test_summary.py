"""Effects and figures of a study, in words, JSON and PNG, whatever the fields are called."""

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.cli.study import draw, people_of
from private_mcmc.data.answers import Answers
from private_mcmc.data.design import design
from private_mcmc.data.families import family
from private_mcmc.data.formula import read_formula

SCHEMA = pmc.Schema.from_dict(
    {
        "fields": [
            {
                "name": "since",
                "title": "Admitted",
                "type": "date",
                "constraints": {"minimum": "2015-01-01", "maximum": "2023-12-31"},
            },
            {
                "name": "body mass",
                "type": "number",
                "unit": "kg",
                "constraints": {"minimum": "30", "maximum": "200"},
            },
            {"name": "ward", "constraints": {"enum": ["a/b", "c"]}},
            {"name": "vote", "constraints": {"enum": ["no", "maybe", "yes"]}},
        ]
    }
)


@pytest.fixture
def answers():
    formula = read_formula("vote ~ since + `body mass` + ward", SCHEMA)
    shown = design(formula, SCHEMA, family("categorical"))
    rng = np.random.default_rng(0)
    sites = {"Intercept": (2,), "since": (2,), "body mass": (2,), "ward": (2,)}
    draws = {name: rng.normal(size=(200, *shape)) for name, shape in sites.items()}
    return Answers(shown, draws)


@pytest.mark.slow
def test_every_field_gets_a_figure_of_its_own(answers, tmp_path):
    draw(answers, {}, tmp_path / "figures")
    found = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert set(found) == {"forest.png", *(f"effect-{name}.png" for name in ("since", "body_mass", "ward"))}
    assert all(image.startswith(b"\x89PNG") for image in found.values())
    ticks = [label for _, label in answers.effect_plot("since").x_ticks]
    assert ticks[0] == "2015-01-01" and ticks[-1] == "2023-12-31"


@pytest.mark.slow
def test_names_of_levels_are_coordinates_and_every_level_has_a_prediction(answers):
    posterior = answers.to_arviz().posterior
    assert list(posterior["ward"].coords["vote"].values) == ["maybe", "yes"]
    assert posterior["ward"].shape == (1, 200, 1, 2) and posterior["Intercept"].shape == (1, 200, 2)
    table = answers.predictions([{"ward": "c"}])
    assert [row[3] for row in table.rows] == ["no", "maybe", "yes"]
    assert sum(row[4] for row in table.rows) == pytest.approx(1)
    assert "*" in table.title and table.rows[0][:3] == ("2019-07-02*", "115*", "c")
    with pytest.raises(pmc.DeclarationError, match="level='never'"):
        answers.predict({}, "never")


def test_averages_over_public_margins_are_weighted_means_of_what_is_said_of_each_profile(answers, tmp_path):
    margins = tmp_path / "margins.csv"
    margins.write_text("ward,body mass,since,weight\na/b,60,2020-01-01,3\nc,90,2016-01-01,1\n")
    people = [{"ward": "a/b", "body mass": 60, "since": "2020-01-01"}]
    people += [{"ward": "c", "body mass": 90, "since": "2016-01-01"}]
    alone = [answers.predict(each, "yes").mean for each in people]
    people, weights = people_of(answers, margins)
    averages = answers.predictions_by(people, (), weights).set_index("level").estimate
    assert list(averages.index) == ["no", "maybe", "yes"] and averages.sum() == pytest.approx(1)
    assert averages.yes == pytest.approx(0.75 * alone[0] + 0.25 * alone[1])
    # What margins leave out is not these people's.
    margins.write_text("ward,weight\na/b,3\nc,1\n")
    said = answers.whom(people_of(answers, margins)[0])
    assert "2 stated profiles (since, body mass not stated: the middle of the declared range" in said


@pytest.mark.parametrize("text", ["ward,weight\nc,-1\n", "ward,weight\n", "ward,wealth\nc,3\n", "ward\nd\n"])
def test_margins_that_are_none_are_refused(answers, tmp_path, text):
    (tmp_path / "margins.csv").write_text(text)
    with pytest.raises(pmc.PrivateMCMCError):
        people, weights = people_of(answers, tmp_path / "margins.csv")
        answers.predictions_by(people, (), weights)
