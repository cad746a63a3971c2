"""``check`` and ``compare`` from a study and a table to a dossier that is verified."""

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import private_mcmc as pmc
from private_mcmc.dossier import load_record, new_dossier, verify_dossier
from private_mcmc.inference.describe import studied
from tests.dossier.studies import SCHEMA, study_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def table():
    random = np.random.default_rng(0)
    sex = np.where(random.random(1000) < 0.5, "f", "m")
    return {"age": random.uniform(20, 90, 1000), "sex": sex, "died": random.random(1000) < 0.7}


def saved(found, folder):
    with new_dossier(folder) as dossier:
        dossier.write(found)
    return folder


def test_a_check_is_charged_verified_and_read_back_with_its_study(table, books, tmp_path):
    study = study_of()
    found = pmc.check(study, table, by=["sex"], share=0.1, ledger=books, dataset="people")
    folder = saved(found, tmp_path / "check")
    assert verify_dossier(folder, books)
    again = load_record(folder)
    assert again.lines() == found.lines()
    assert again.question["study"]["fingerprint"] == study.fingerprint
    frame = again.answers()
    assert list(frame) == ["group", "what", "at", "value", "low", "high", "p"]
    assert {"everyone", "sex female", "sex male"} <= set(frame.group)
    page = (folder / "dossier.html").read_text()
    assert "Calibration" in page and "intervals of a model that is chosen after this check" in page.lower()


def test_a_comparison_is_charged_and_verified(table, books, tmp_path):
    one, other = study_of(), study_of()
    draws = {name: (np.asarray(values) * 1.3).tolist() for name, values in other.draws.items()}
    other = study_of(draws=draws)
    found = pmc.compare(one, other, table, share=0.1, ledger=books, dataset="people")
    folder = saved(found, tmp_path / "compare")
    assert verify_dossier(folder, books)
    whole = found.lines()[0]
    assert whole["low"] <= whole["value"] <= whole["high"]


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_frames_are_described_checked_and_compared_as_columns_are(table, frame):
    given, asked = frame(table), {"epsilon": 1e3, "delta": 1e-6}
    found = pmc.describe(given, SCHEMA, fields=["sex"], **asked).lines()
    counted = {
        line["level"]: line["value"] for line in found if line["statistic"] == "count" and line["level"]
    }
    assert counted["male"] == pytest.approx((table["sex"] == "m").sum(), abs=2)
    assert len(pmc.check(study_of(), given, by=["sex"], **asked).lines()) > 3
    (whole, *_) = pmc.compare(study_of(), study_of(), given, **asked).lines()
    assert whole["value"] == pytest.approx(0.0, abs=0.01)


def test_a_study_of_ones_own_model_is_refused_by_name():
    with pytest.raises(pmc.NotYetSupported, match="studies of a formula"):
        studied(study_of(formula="", family=""))
