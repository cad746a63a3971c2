"""A model file in place of a formula, and the demonstration: from a codebook to a verified dossier."""

import json

import numpy as np
import pytest

from private_mcmc import Study
from private_mcmc.cli.before import demo
from private_mcmc.data import load_adult
from private_mcmc.dossier import verify_dossier
from tests.cli.test_fit import command

SCHEMA = """\
fields:
- {name: ssn, type: string, private_mcmc: {role: ROLE}}
- {name: age, type: integer, unit: years, constraints: {minimum: 18, maximum: 95}}
- {name: sex, type: string, constraints: {enum: [f, m]}}
- {name: visits, type: integer, constraints: {minimum: 0, maximum: 40}}
"""
PERSONS = "private_mcmc: {person: {field: ssn, at_most: 4}}\n"
FORMULA = "--formula", "visits ~ age + sex", "--family", "negativebinomial", "--prior", "alpha = 1.5"
ROWS, PEOPLE = 1500, 600


@pytest.mark.long
@pytest.mark.parametrize("several", [False, True], ids=["rows", "persons"])
def test_what_a_formula_shows_is_edited_and_fitted_as_a_model_of_ones_own(tmp_path, several):
    rng = np.random.default_rng(3)
    age, male = rng.integers(18, 90, ROWS), rng.integers(0, 2, ROWS)
    mean = np.exp(0.3 + 0.015 * (age - 50) + 0.3 * male)
    visits = rng.negative_binomial(1.5, 1.5 / (1.5 + mean))
    rows = zip(rng.integers(0, PEOPLE, ROWS), age, np.array(["f", "m"])[male], visits, strict=True)
    (tmp_path / "people.csv").write_text(
        "ssn,age,sex,visits\n" + "\n".join(",".join(map(str, row)) for row in rows)
    )
    role = ("person", PERSONS) if several else ("ignored", "")
    (tmp_path / "schema.yaml").write_text(SCHEMA.replace("ROLE", role[0]) + role[1])
    asked = ("fit", "people.csv", "--schema", "schema.yaml")
    shown = command(tmp_path, *asked, *FORMULA, "--show-model").stdout
    assert "alpha = 1.5" in shown
    # Years in tens, and a name that the formula would not give.
    edited = shown.replace("'age'", "'decade'").replace("/ 38.5", "/ 10")
    (tmp_path / "model.py").write_text(edited)
    own = (*asked, "--model", "model.py:model")
    assert command(tmp_path, *own, "--show-model").stdout == edited != shown
    persons = ("--n", str(PEOPLE)) if several else ()
    asked = (*own, *persons, "--epsilon", "3", "--out", "study", "--yes", "--json")
    found = json.loads(command(tmp_path, *asked).stdout)
    assert found["n"] == (PEOPLE if several else ROWS)
    study = Study.load(tmp_path / "study")
    decade = study.arrays["decade"]
    assert abs(decade.mean() - 0.15) < 5 * decade.std() < 0.6
    assert study.model == edited == (tmp_path / "study" / "model.py").read_text()
    page = (tmp_path / "study" / "dossier.html").read_text()
    assert "in the units that it gives them" in page and "decade" in page
    checked = json.loads(command(tmp_path, "verify", "study", "--json").stdout)
    assert checked["ok"]
    assert "decade" in command(tmp_path, "summary", "study").stdout


@pytest.mark.long
def test_the_demonstration_tells_the_whole_story(tmp_path, capsys):
    demo(1.0, tmp_path / "story", as_json=True)
    captured = capsys.readouterr()
    folder = tmp_path / "story"
    assert {"table", "study", "check", "schema.yaml"} <= set(json.loads(captured.out)["files"])
    for words in (
        "$ private-mcmc init",
        "Misfit found",
        "male - female",
        "CONSISTENT; COMPARED WITH: THE LEDGER",
        "dossier.html",
    ):
        assert words in captured.err, words
    assert verify_dossier(folder / "study")
    study = Study.load(folder / "study")
    assert study.n == 48_842 and study.ledger["left"] != study.ledger["budget"]
    by_name = {one.name: one for one in study.answers().summary()}
    # Maximum likelihood has 1.046 a year and 3.11.
    assert by_name["age"].ratio == pytest.approx(1.0456, abs=0.01)
    assert by_name["sex[male]"].ratio == pytest.approx(3.11, rel=0.25)


@pytest.mark.long
def test_the_shipped_people_fit_their_declared_domain():
    X, y = load_adult()
    assert X.shape == (32_561, 9) and int(y.sum()) == 7841
    assert np.linalg.norm(X, axis=1).max() <= 1.0
    assert len(load_adult("all")[1]) == 48_842
