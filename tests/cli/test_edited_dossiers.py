"""Dossiers that are edited by hand and made anew around what was edited, against the ledger, by commands."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest

from private_mcmc import Ledger, Study, Target, accounting
from private_mcmc.cli.main import main
from private_mcmc.dossier.claims import checked
from private_mcmc.dossier.folder import finish
from private_mcmc.dossier.record import StudyRecord
from private_mcmc.dossier.verify import _charge
from tests.dossier.studies import books_in, study_of

SCHEMA = (
    "fields:\n- {name: wage, type: number, constraints: {minimum: 0, maximum: 1000}, "
    "private_mcmc: {bounds: private}}\n- {name: died, type: boolean}\n"
)


def call(capsys, *line):
    """What a command answers as JSON, and its exit code."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr("sys.argv", ["private-mcmc", *line, "--json"])
        main()
    return ended.value.code, json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture
def people(tmp_path, monkeypatch):
    """A table whose bounds are bought, and a ledger with a budget for three fits."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = (
        f"{wage:.2f},{int(died)}"
        for wage, died in zip(rng.normal(16, 4, 4000), rng.random(4000) < 0.3, strict=True)
    )
    (tmp_path / "people.csv").write_text("\n".join(["wage,died", *rows]))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    Ledger.create("books.db").declare("people", Target(3.0, 1e-6))
    return tmp_path


def fit(capsys, out, *books):
    line = f"fit people.csv --schema schema.yaml --epsilon 1 --out {out} --yes --formula"
    assert call(capsys, *line.split(), "died ~ wage", *books)[0] == 0


def found(capsys, folder):
    """What is not as it should be, by `private-mcmc verify --ledger`."""
    code, said = call(capsys, "verify", folder, "--ledger", "books.db")
    wrong = {one["what"] for one in said["checks"] if one["result"] == "differs"}
    assert code == (1 if wrong else 0)
    return wrong


@pytest.mark.long
def test_dossiers_of_bought_bounds_and_of_uncharged_runs_are_those_of_their_charge(people, capsys):
    """An invented certificate was verified, and an uncharged second run that named the first's charge."""
    fit(capsys, "study", "--ledger", "books.db", "--dataset", "people")
    study = Study.load("study")
    assert study.stages[0]["name"] == "bought before the plan" and found(capsys, "study") == set()
    (charge,) = Ledger("books.db").history()
    assert charge.dossiers == (study.fingerprint,)
    invented = accounting.capped(
        accounting.posterior_strongly_log_concave(1e-6, 1.0, "replace_one", 4000), 4000
    )
    edits = (
        {"certificate": invented.to_dict(), "guarantee": "posterior"},
        {"draws": study.draws | {"wage": [0.0] * len(study.draws["wage"])}},
        {"predicted": study.predicted | {"rms": 0.01}},
        {"table": "others.csv"},
    )
    for edit in edits:
        finish(people / "study", replace(study, **edit))
        # What is proved of the formula's posterior is known without the ledger.
        proved = {"the posterior's certificate"} if "certificate" in edit else set()
        assert found(capsys, "study") == {"the charge in the ledger"} | proved, edit
    finish(people / "study", study)
    assert found(capsys, "study") == set()
    fit(capsys, "second")
    assert found(capsys, "second") == {"the charge in the ledger"}
    finish(people / "second", replace(Study.load("second"), ledger=study.ledger, warnings=study.warnings))
    assert "the charge in the ledger" in found(capsys, "second")


def test_every_field_of_a_record_is_bound_to_its_charge(tmp_path):
    books = books_in(tmp_path)
    study = study_of(books)
    assert checked("", lambda: _charge(study, books)).result == "agrees"
    names = [field.name for field in dataclasses.fields(StudyRecord)]
    for name in names:
        value = getattr(study, name)
        edited = replace(
            study, **{name: 2 * value if isinstance(value, int | float | str) and value else [0.5]}
        )
        assert edited.fingerprint != study.fingerprint, name
        assert checked("", lambda: _charge(edited, books)).result == "differs", name  # noqa: B023
