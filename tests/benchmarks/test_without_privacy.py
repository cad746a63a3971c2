"""What benchmarks compare with: a formula's answer without privacy."""

import numpy as np
import pytest
from scipy.special import logit

from benchmarks.without_privacy import without_privacy
from private_mcmc import Schema
from private_mcmc.inference.question import question
from private_mcmc.report import json_types
from tests.dossier.studies import study_of


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
