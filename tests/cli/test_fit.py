"""From a codebook and a table to answers in the table's units: commands only, and the same in Python."""

import gzip
import io
import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pandas
import pytest
import statsmodels.api as sm

import private_mcmc as pmc
from private_mcmc.dossier.folder import Study
from private_mcmc.dossier.record import warnings_of
from private_mcmc.inference.fitting import plan_fit
from private_mcmc.inference.question import question
from tests.cli import test_commands

CODEBOOK = Path(__file__).parent.parent / "cases" / "adult.codebook.json"
FORMULA = "income ~ age + education_num + hours_per_week + sex"
PACKED = resources.files("private_mcmc.data").joinpath("adult.csv.gz").read_bytes()
PEOPLE = gzip.decompress(PACKED).decode().splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All 48,842 people with the codebook; a copy with 2,000 of them."""
    place = tmp_path_factory.mktemp("adult")
    (place / "codebook.json").write_text(CODEBOOK.read_text())
    (place / "people.csv").write_text("\n".join(PEOPLE))
    (place / "few.csv").write_text("\n".join(PEOPLE[:2001]))
    return place


def command(folder, *arguments, told="", code=0):
    """Run ``private-mcmc`` in a process of its own."""
    program = [sys.executable, "-c", "from private_mcmc.cli import main; main()", *arguments]
    done = subprocess.run(program, cwd=folder, input=told, capture_output=True, text=True, timeout=500)
    assert done.returncode == code, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def schema(folder):
    command(folder, "init", "people.csv", "--codebook", "codebook.json", "--out", "schema.yaml")
    return pmc.Schema.load(folder / "schema.yaml")


@pytest.fixture(scope="module")
def study(folder, schema):
    """Commands two and three: a ledger, and the fit that it is charged with."""
    budget = ("--dataset", "adult", "--epsilon", "1.01", "--delta", "1e-6")
    command(folder, "ledger", "init", "ledger.db", *budget)
    books = ("--ledger", "ledger.db", "--dataset", "adult", "--purpose", "a test")
    asked = ("--schema", "schema.yaml", "--formula", FORMULA, "--epsilon", "1", "--out", "study")
    command(folder, "fit", "people.csv", *asked, *books, told="y\n")
    return Study.load(folder / "study")


def without_privacy():
    """Maximum likelihood in the users' units: coefficients and standard errors."""
    people = pandas.read_csv(io.StringIO("\n".join(PEOPLE)))
    columns = [people["age"], people["education_num"], people["hours_per_week"], people["sex"] == "Male"]
    X = sm.add_constant(np.column_stack(columns).astype(float))
    fit = sm.Logit(people["income"].str.startswith(">50K").astype(float), X).fit(disp=0)
    return np.asarray(fit.params), np.asarray(fit.bse)


@pytest.mark.long
def test_five_commands_lead_from_a_codebook_to_odds_ratios_in_the_tables_units(folder, study):
    asked = ("--profile", "age=40,education_num=13,hours_per_week=40,sex=female", "--json")
    found = json.loads(command(folder, "summary", "study", *asked).stdout)
    exact, errors = without_privacy()
    by_name = {one["name"]: one for one in found["coefficients"]}
    names = ["Intercept", "age", "education_num", "hours_per_week", "sex[male]"]
    assert list(by_name) == names
    assert by_name["hours_per_week"]["per"] == "hours a week" and by_name["sex[male]"]["per"] == "vs female"
    for name, value, error in zip(names, exact, errors, strict=True):
        # Four of the private posterior's own sds, which are wider than the errors of maximum likelihood.
        assert abs(by_name[name]["mean"] - value) < 4 * by_name[name]["sd"] + error, name
        assert by_name[name]["sd"] < 0.25 * abs(value), name
    assert by_name["age"]["ratio"] == pytest.approx(np.exp(exact[1]), rel=0.03)
    assert by_name["sex[male]"]["ratio"] == pytest.approx(np.exp(exact[4]), rel=0.35)
    rate = 1 / (1 + np.exp(-np.array([1, 40, 13, 40, 0]) @ exact))
    assert found["predictions"][0]["estimate"] == pytest.approx(rate, abs=0.06)
    assert found["warnings"] == []


@pytest.mark.long
def test_the_study_keeps_everything_that_a_reader_needs(folder, study, schema):
    assert (study.n, study.epsilon, study.delta, study.adjacency) == (48_842, 1.0, 1e-6, "replace_one")
    statement = pmc.Statement.from_dict(study.statement)
    assert statement.verify() and statement.delta(1.0) <= 1e-6
    assert pmc.Schema.load(folder / "study" / "schema.yaml") == schema
    assert (folder / "study" / "model.py").read_text() == study.model
    assert study.ledger["purpose"] == "a test" and study.predicted["rms"] > 0
    assert study.to_arviz().posterior["age"].size > 500


@pytest.mark.long
def test_commands_four_and_five_check_and_show_the_dossier(folder, study, monkeypatch, capsys):
    found = json.loads(command(folder, "verify", "study", "--ledger", "ledger.db", "--json").stdout)
    assert found["ok"] and {check["result"] for check in found["checks"]} == {"agrees", "not checked"}
    shown = command(folder, "report", "study").stdout
    assert "guess right at most" in " ".join(shown.split()) and "sex[male]" in shown
    assert call(monkeypatch, folder, "ledger", "show", "ledger.db", "--json") == 0
    assert '"adult"' in capsys.readouterr().out
    (folder / "forged").mkdir()
    forged = json.loads((folder / "study" / "study.json").read_text()) | {"epsilon": 0.5}
    (folder / "forged" / "study.json").write_text(json.dumps(forged))
    assert call(monkeypatch, folder, "verify", "forged") == 1
    assert "does not meet" in " ".join(capsys.readouterr().out.split())
    assert call(monkeypatch, folder, "report", "people.csv") == 3
    assert "not the record of a study" in capsys.readouterr().err


@pytest.mark.long
def test_a_plan_made_without_the_table_is_the_one_that_runs(folder, schema):
    about = ("--schema", "schema.yaml", "--formula", "income ~ age", "--epsilon", "2")
    made = json.loads(command(folder, "plan", *about, "--n", "2000", "--json").stdout)
    asked = ("few.csv", *about, "--out", "planned")
    assert "not confirmed" in command(folder, "fit", *asked, code=3).stderr
    assert not (folder / "planned").exists()
    found = json.loads(command(folder, "fit", *asked, "--yes", "--json").stdout)
    assert found["predicted"] == made["prediction"] and found["epsilon"] == 2.0
    assert Study.load(folder / "planned").statement["curves"] == made["statement"]["curves"]


def call(monkeypatch, folder, *arguments):
    """The command in this process; its exit code."""
    monkeypatch.chdir(folder)
    return test_commands.call(monkeypatch, *arguments)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--epsilon", "1", "--out", "o"), "private-mcmc init few.csv"),
        (("--schema", "schema.yaml", "--epsilon", "1"), "give --out FOLDER"),
        (("--schema", "schema.yaml", "--out", "o"), "and --epsilon"),
    ],
)
def test_what_a_fit_lacks_is_named(folder, schema, monkeypatch, capsys, words, message):
    assert call(monkeypatch, folder, "fit", "few.csv", "--formula", "income ~ age", *words) == 3
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("line", [("plan", "--n", "2000"), ("fit", "few.csv", "--out", "limited")])
def test_a_limit_on_passes_is_one_of_the_plan(folder, schema, monkeypatch, capsys, line):
    asked = ("--schema", "schema.yaml", "--formula", "income ~ age", "--epsilon", "1", "--max-passes", "0")
    assert call(monkeypatch, folder, *line, *asked) == 3
    assert "--max-passes 0" in capsys.readouterr().err and not (folder / "limited").exists()


@pytest.fixture(scope="module")
def planned(folder, schema):
    asked = question(schema, "income ~ 1")
    return plan_fit(folder / "few.csv", asked, epsilon=1.0)


@pytest.mark.slow
def test_nothing_is_spent_before_it_is_confirmed(folder, planned, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("private_mcmc.inference.fitting.plan_fit", lambda *_, **__: planned)
    for answer in ("", "perhaps\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        asked = ("--schema", "schema.yaml", "--formula", "income ~ 1", "--epsilon", "1")
        assert call(monkeypatch, folder, "fit", "few.csv", *asked, "--out", str(tmp_path / "study")) == 3
        shown = capsys.readouterr()
        assert "predicted error" in shown.out and re.search(r"Intercept +at 0 and", shown.out)
        assert "Nothing keeps count" in shown.err and "nothing was spent" in shown.err
    assert not list(tmp_path.iterdir())


def test_weak_targets_are_named_in_plain_words():
    said = " ".join(warnings_of(pmc.Target(100.0, 0.5), 2000, None))
    for words in ("not below 1/n", "next to nothing", "Nothing keeps count"):
        assert words in said
    assert len(warnings_of(pmc.Target(3.0, 1e-6), 2000, None)) == 1


def test_persons_of_a_codebook_stay_persons(tmp_path, monkeypatch, capsys):
    (tmp_path / "t.csv").write_text("id,visits,remarks\n")
    fields = "fields:\n- {name: id, private_mcmc: {role: person}}\n- {name: visits, type: boolean}\n"
    book = f"{fields}private_mcmc: {{person: {{field: id, at_most: 24}}, encoding: cp1252}}\n"
    for text, rows, words in ((book, 24, ""), (fields, 1, "one enters")):
        (tmp_path / "book.yaml").write_text(text)
        assert call(monkeypatch, tmp_path, "init", "t.csv", "--codebook", "book.yaml") == 0
        said = capsys.readouterr()
        (tmp_path / "s.yaml").write_text(said.out)
        found = pmc.Schema.load(tmp_path / "s.yaml")
        assert (found.person, found.at_most, found.encoding) == ("id", rows, "cp1252" * (rows > 1))
        assert words in said.err
        assert words in "".join(question(found, "visits ~ 1").notes)


def test_columns_that_are_declared_nowhere_are_ignored(tmp_path, monkeypatch, capsys):
    (tmp_path / "t.csv").write_text("age,patient_id\n1,2\n")
    # Named by a codebook, without levels or a range, they are declared as little.
    (tmp_path / "book.csv").write_text("name,label,type,max\nage,Age,string,\npatient_id,,string,9\n")
    for book in ((), ("--codebook", "book.csv")):
        assert call(monkeypatch, tmp_path, "init", "t.csv", "--out", "s.yaml", *book) == 0
        said = " ".join(capsys.readouterr().err.split())
        assert "declared, as the schema's first lines show: ['age', 'patient_id']" in said
        assert "['patient_id'] may tell persons" in said
    with pytest.raises(pmc.DeclarationError, match="role 'ignored'"):
        pmc.Schema.load(tmp_path / "s.yaml").rows(["age"])
