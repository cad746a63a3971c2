"""Every command answers in JSON, alone on standard output, and says how it ended by its exit code."""

import json
from pathlib import Path

import pytest

from tests.cli.test_commands import COMMON, MODEL, call
from tests.cli.test_commands import SCHEMA as ROWS
from tests.dossier.studies import SCHEMA, books_in, study_of
from tests.golden.commands import leaves

# Arguments, and the exit code; `None` where its own tests read its JSON, of a run or of more than a line.
CASES = {
    "init": ("people.csv", 0),
    "describe": ("rows.csv --schema schema.yaml --by sex --epsilon 1 --out table --yes", 0),
    "check": ("study rows.csv --by sex --epsilon 1 --out check --yes", 0),
    "compare": ("study study rows.csv --epsilon 1 --out compare --yes", 0),
    "summary": ("study --profile age=60", 0),
    "verify": ("study --ledger books.db", 0),
    "report": ("study", 0),
    "preflight": ("--schema rows.yaml --model model.py:model --n 800 --epsilon 2 --delta 1e-6", 1),
    "ledger init": ("new.db --dataset others --epsilon 1 --delta 1e-6", 0),
    "ledger show": ("books.db", 0),
    "ledger history": ("books.db", 0),
    "ledger verify": ("books.db", 0),
    "plan": ("", None),
    "sign": ("", None),
    "fit": ("", None),
    "resume": ("", None),
    "demo": ("", None),
}


LEAVES = leaves()


def test_every_command_takes_json_and_is_tried_here_or_where_it_runs():
    assert set(LEAVES) == set(CASES)
    for name, command in LEAVES.items():
        assert "--json" in {word for option in command.params for word in option.opts}, name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("json")
    (place / "model.py").write_text(MODEL)
    (place / "rows.yaml").write_text(ROWS)
    (place / "people.csv").write_text("age,sex,died,remarks\n")
    cells = "".join(f"{20 + k % 60},{'fm'[k % 2]},{'true' if k % 3 else 'false'},\n" for k in range(300))
    (place / "rows.csv").write_text("age,sex,died,remarks\n" + cells)
    (place / "schema.yaml").write_text(SCHEMA.to_yaml())
    study_of(books_in(place)).save(place / "study")
    return place


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, code) in CASES.items() if code is not None])
def test_what_is_printed_is_json_and_nothing_else(folder, monkeypatch, capsys, name):
    monkeypatch.chdir(folder)
    arguments, code = CASES[name]
    assert call(monkeypatch, *name.split(), *arguments.split(), "--json") == code
    assert json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_what_summary_shows_goes_to_standard_output_as_csv(folder, monkeypatch, capsys):
    """It went to a file whose name is a dash."""
    monkeypatch.chdir(folder)
    assert call(monkeypatch, *["summary", "study", "--contrast", "sex", "--csv", "-"]) == 0
    assert capsys.readouterr().out.startswith("term,contrast,estimate") and not (folder / "-").exists()


@pytest.mark.slow
def test_init_tells_as_json_what_a_person_has_to_declare(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    arguments = ("people.csv", "--codebook", "schema.yaml", "--out", "made.yaml")
    assert call(monkeypatch, "init", *arguments, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ignored"] == ["remarks"] and told["output"] == "made.yaml"
    assert [field["name"] for field in told["schema"]["fields"]] == ["age", "sex", "died", "remarks"]
    assert Path("made.yaml").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("verify changed", 1),
        ("verify nowhere", 3),
        ("report nowhere", 3),
        ("summary study --profile age=old", 3),
        ("summary study --prob 2", 3),
        ("ledger show nowhere.db", 3),
        ("fit people.csv --schema nowhere.yaml --formula y~x --epsilon 1 --out s", 3),
        (f"plan {' '.join(COMMON)} --n 0", 3),
        ("preflight --schema rows.yaml --model nowhere.py:model --n 8 --epsilon 1 --delta 1e-6", 3),
        ("nonsense", 3),
        ("fit", 3),
        ("--help", 0),
    ],
)
def test_exit_codes_are_those_that_are_documented(folder, monkeypatch, capsys, line, code):
    monkeypatch.chdir(folder)
    if not Path("changed").exists():
        study_of().save("changed")
        Path("changed/model.py").write_text("def model(): ...")
    assert call(monkeypatch, *line.split()) == code
    told = capsys.readouterr()
    assert code != 3 or (told.err and not told.out)
