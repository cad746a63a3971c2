"""The demonstration: from a codebook to a dossier, by commands, on a census's people."""

import csv
import gzip
import io
import json
from importlib import resources

import numpy as np
import pytest
from scipy.special import logit

from private_mcmc import Schema, Study, preflight
from private_mcmc.accounting.curves import gdp
from private_mcmc.cli.demo import demo, without_privacy
from private_mcmc.data import load_adult
from private_mcmc.data.codebook import read_codebook
from private_mcmc.dossier import verify_dossier
from private_mcmc.inference.question import question
from private_mcmc.models import logistic, logistic_rows
from private_mcmc.report import json_types
from private_mcmc.target import Target
from tests.dossier.studies import study_of


@pytest.mark.long
def test_the_demonstration_tells_the_whole_story(tmp_path, capsys):
    demo(1.0, tmp_path / "story", compare=True, as_json=True)
    captured = capsys.readouterr()
    folder = tmp_path / "story"
    assert {"study", "comparison.html", "schema.yaml"} <= set(json.loads(captured.out)["files"])
    for words in (
        "$ private-mcmc init",
        "VERIFIED",
        "NOT VERIFIED",
        "epsilon 1 becomes 0.5",
        "and δ = 0",
        "dossier.html",
    ):
        assert words in captured.err, words
    assert verify_dossier(folder / "study") and not verify_dossier(folder / "changed")
    study = Study.load(folder / "study")
    assert study.n == 48_842 and study.ledger["left"] != study.ledger["budget"]
    by_name = {one.name: one for one in study.answers().summary()}
    # Maximum likelihood has 1.046 a year and 3.11.
    assert by_name["age"].ratio == pytest.approx(1.0456, abs=0.01)
    assert by_name["sex[male]"].ratio == pytest.approx(3.11, rel=0.25)


@pytest.mark.long
def test_the_answer_without_privacy_is_the_mode_where_the_search_begins_at_a_predictor_of_zero(tmp_path):
    """Shares of .1 and .15; the derivative of NumPyro's density at logits of 0 is no slope."""
    schema = Schema.from_dict(
        {
            "fields": [
                {"name": "ill", "type": "integer", "constraints": {"minimum": 0, "maximum": 20}},
                {"name": "beds", "type": "integer", "constraints": {"minimum": 1, "maximum": 30}},
                {"name": "late", "type": "boolean"},
                {"name": "ward", "constraints": {"enum": ["a", "b"]}},
            ]
        }
    )
    rows = [f"{ill},20,{late},{ward}" for ward in "ab" for late, ill in (("false", 2), ("true", 3)) * 250]
    (tmp_path / "table.csv").write_text("\n".join(["ill,beds,late,ward", *rows]) + "\n")
    formula, priors = "ill | trials(beds) ~ late + (1 | ward)", ("sd(1 | ward) ~ halfnormal(1)",)
    study = _unrun(schema, formula, "binomial", priors)
    found = {one.name: one.mean for one in without_privacy(study, tmp_path / "table.csv").summary()}
    assert found["late[true]"] == pytest.approx(logit(0.15) - logit(0.1), abs=0.02)


@pytest.mark.long
def test_the_answer_without_privacy_is_that_of_its_density_where_an_sd_of_groups_is_estimated(tmp_path):
    """Eight wards of ten, of outcomes with sd 1; the mode of sd and effects together is another answer."""
    random, wards = np.random.default_rng(6), "abcdefgh"
    fields = [
        {"name": "mark", "type": "number", "constraints": {"minimum": -10, "maximum": 10}},
        {"name": "ward", "constraints": {"enum": list(wards)}},
    ]
    marks = {ward: random.normal(random.normal(0, 0.4), 1.0, 10).round(3) for ward in wards}
    rows = [f"{mark},{ward}" for ward in wards for mark in marks[ward]]
    (tmp_path / "table.csv").write_text("\n".join(["mark,ward", *rows]) + "\n")
    priors = ("sd(1 | ward) ~ halfnormal(1)", "sigma = 1", "Intercept ~ normal(0, 10)")
    study = _unrun(Schema.from_dict({"fields": fields}), "mark ~ 1 + (1 | ward)", "gaussian", priors)
    (found,) = (one for one in without_privacy(study, tmp_path / "table.csv").summary() if "sd(" in one.name)
    # Given the sd, means of wards are Normal around the intercept, whose prior is next to flat.
    means, sds = np.array([marks[ward].mean() for ward in wards]), np.linspace(1e-3, 4, 4000)
    variances = sds**2 + 0.1
    logs = -(sds**2) / 2 - 7 / 2 * np.log(variances) - 8 * means.var() / variances / 2
    shares = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    mean = shares @ sds
    assert found.mean == pytest.approx(mean, abs=0.03)
    assert found.sd == pytest.approx(np.sqrt(shares @ (sds - mean) ** 2), rel=0.12)


def _unrun(schema, formula, family, priors):
    """A study that says what was asked, whatever its draws."""
    asked = question(schema, formula, family=family, priors=priors)
    return study_of(
        schema=schema.to_dict(),
        rows=json_types(asked.rows.to_dict()),
        formula=formula,
        family=family,
        priors=asked.priors,
        model=asked.source,
        norm=asked.norm,
    )


@pytest.mark.long
def test_every_cell_of_the_shipped_table_is_what_its_codebook_declares():
    packed = resources.files("private_mcmc.data")
    with resources.as_file(packed.joinpath("adult.codebook.json")) as place:
        schema = read_codebook(place)
    text = gzip.decompress(packed.joinpath("adult.csv.gz").read_bytes()).decode()
    people = list(csv.DictReader(io.StringIO(text)))
    assert list(people[0]) == list(schema.by_name) and len(people) == 48_842
    for field in schema.fields:
        cells = {person[field.name] for person in people}
        if field.is_used and field.is_category:
            levels = {level.value for level in field.levels}
            assert cells <= levels | set(field.missing_values) and levels <= cells
        elif field.is_used:
            low, high = field.range
            assert all(low <= float(cell) <= high for cell in cells)


@pytest.mark.long
def test_the_shipped_people_fit_their_declared_domain():
    X, y = load_adult()
    assert X.shape == (32_561, 9) and int(y.sum()) == 7841
    assert np.linalg.norm(X, axis=1).max() <= 1.0
    assert len(load_adult("all")[1]) == 48_842


@pytest.mark.slow
def test_the_posterior_of_a_logistic_regression_is_four_gdp():
    report = preflight(logistic, logistic_rows(9), Target(3.0, 1e-6), n=32_561)
    assert report.verdict == "not private"
    assert report.certificates[0].gdp == 4.0 or abs(report.certificates[0].gdp - 4.0) < 1e-9
    assert abs(report.epsilon - gdp.epsilon(4.0, 1e-6)) < 1e-6
