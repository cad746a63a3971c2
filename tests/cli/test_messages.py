"""Whatever stops a command is a sentence and an exit code; nothing that may be a person's is in it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from private_mcmc import Ledger, release
from private_mcmc.cli import common
from private_mcmc.system import visible
from tests.cli.test_commands import call
from tests.dossier.studies import study_of

MODEL = """
import numpyro, numpyro.distributions as dist
def model(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 1), obs=y)
"""
# Takes away the place of the result while the run goes on.
THIEF = "import os\n" + MODEL.replace(
    "    mu =",
    "    if not os.path.isdir('out/study.json'):\n        os.unlink('out/study.json')\n"
    "        os.mkdir('out/study.json')\n    mu =",
)
SCHEMA = "fields:\n- {name: y, type: number, constraints: {minimum: -1, maximum: 1}}\n"
# A person in a file without a header.
SECRETS = ("Rosalind", "73501", "8.125")
PERSON = "Rosalind,73501,8.125\nAda,1,2\n"

TARGET = ("--epsilon", "2", "--delta", "1e-6")
COMMON = ("--schema", "schema.yaml", "--model", "model.py:model", *TARGET)
FIT = ("fit", "people.csv", *COMMON, "--yes", "--ledger", "l.db", "--dataset", "people", "--out")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "thief.py").write_text(THIEF)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "people.csv").write_text("y\n" + "".join(f"{i / 60}\n" for i in range(60)))
    (tmp_path / "person.csv").write_text(PERSON)
    (tmp_path / "folder").mkdir()
    return tmp_path


def told(monkeypatch, capsys, *arguments):
    """What a command that must fail says on both streams."""
    assert call(monkeypatch, *arguments) == 3
    captured = capsys.readouterr()
    assert captured.err.strip() or "error" in captured.out
    assert "Traceback" not in captured.err and "Errno" not in captured.err
    return captured.out + captured.err


def test_the_place_of_the_result_is_tried_before_anything_is_charged(folder, monkeypatch, capsys):
    (folder / "old").write_text("mine")
    assert call(monkeypatch, "ledger", "init", "l.db", "--dataset", "people", *TARGET) == 0
    (folder / "folder" / "dossier.html").write_text("mine")
    for output in ("n" * 300, "new/" + "n" * 300, "folder", "old/out", "old"):
        assert output[:100] in told(monkeypatch, capsys, *FIT, output).replace("\n", "")
    assert (folder / "old").read_text() == (folder / "folder" / "dossier.html").read_text() == "mine"
    assert not (folder / "new").exists()
    assert Ledger(folder / "l.db").history() == ()


@pytest.mark.long
def test_a_charged_release_that_loses_its_place_is_not_lost(folder, monkeypatch, capsys):
    assert call(monkeypatch, "ledger", "init", "l.db", "--dataset", "people", *TARGET) == 0
    words = told(monkeypatch, capsys, *[word.replace("model.py", "thief.py") for word in FIT], "out")
    kept = folder / words.split("Nothing is lost: the release is in ")[1].strip()
    assert json.loads(kept.read_text())["stages"]
    assert [charge.outcome for charge in Ledger(folder / "l.db").history()] == ["released"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "person.csv", *COMMON, "--out", "out"),
        ("preflight", "--schema", "person.csv", *COMMON[2:], "--n", "60"),
        ("plan", *COMMON[:3], "person.csv:model", *TARGET, "--n", "60"),
        ("ledger", "show", "person.csv"),
        ("ledger", "show", "person.csv", "--json"),
        ("ledger", "init", "person.csv", "--dataset", "people", *TARGET),
    ],
)
def test_a_file_of_people_in_the_wrong_place_is_never_quoted(folder, monkeypatch, capsys, arguments):
    words = told(monkeypatch, capsys, *arguments)
    assert not [secret for secret in SECRETS if secret in words]


@pytest.mark.parametrize(
    "arguments",
    [
        ("preflight", *COMMON, "--n", "60", "--html", "nowhere/page.html"),
        ("demo", "--out", "model.py"),
        ("ledger", "show", "n" * 300),
        ("ledger", "init", "nowhere/l.db", "--dataset", "people", *TARGET),
        ("ledger", "init", "n" * 300, "--dataset", "people", *TARGET),
        ("ledger", "verify", "folder"),
    ],
)
def test_files_that_cannot_be_written_or_read_are_told_before_work(folder, monkeypatch, capsys, arguments):
    before = sorted(folder.rglob("*"))
    told(monkeypatch, capsys, *arguments)
    assert sorted(folder.rglob("*")) == before


def test_errors_name_options_as_they_are_typed(folder, monkeypatch, capsys):
    """A message said n=… to whoever types --n; a field is no option where they have one name."""
    call(monkeypatch, "ledger", "init", "l.db", "--dataset", "people", *TARGET)
    (folder / "s.yaml").write_text(SCHEMA.replace("name: y", "name: bins"))
    for line, words in (
        (
            (*FIT, "o", "--n", "61"),
            "--n 61: the table has 60 rows, which replace_one makes public: leave --n …",
        ),
        ((*FIT, "o", "--adjacency", "add_remove"), "--adjacency add_remove hides"),
        (("describe", "people.csv", *COMMON[:2], "--out", "o"), "give --epsilon … or --share …,"),
        (("describe", "people.csv", "--schema", "s.yaml", "--by", "bins", "--out", "o"), "in bins=-1,0,1"),
    ):
        assert words in told(monkeypatch, capsys, *line)


@pytest.mark.parametrize("command", [("preflight", "--n", "60"), ("plan", "--n", "60"), FIT[:2]])
def test_an_interruption_is_a_sentence(folder, monkeypatch, capsys, command):
    (folder / "model.py").write_text("raise KeyboardInterrupt")
    common = (*FIT[2:], "out") if command == FIT[:2] else COMMON
    assert call(monkeypatch, *command, *common) == 130
    captured = capsys.readouterr().err
    assert captured.startswith("Interrupted") and "Traceback" not in captured
    assert not (folder / "out").exists()


def test_an_unforeseen_error_is_one_line_with_its_type_and_place(folder, monkeypatch, capsys):
    """Whatever a library raised for a file ended in a traceback, some with what the file held."""

    def broken(*_, **__):
        raise RuntimeError(f"of {SECRETS[0]}\nand others")

    monkeypatch.setattr(release, "Ledger", broken)
    assert call(monkeypatch, "verify", ".", "--ledger", "people.csv") == 4
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and "RuntimeError at " in said and "test_messages.py:" in said
    assert call(monkeypatch, "--debug", "verify", ".", "--ledger", "people.csv") == 4
    more = capsys.readouterr().err
    assert "test_messages.py" in more and "cli/study.py" in more and "in verify" in more
    assert not [secret for secret in SECRETS if secret in said + more]


SIGNS = ("\x1b[2J", "\x9b31m", "\x07", "\u202e", "\u2066", "\u061c", "\U000e0041")


def test_nothing_that_steers_a_terminal_reaches_it(folder, monkeypatch, capsys):
    """Escapes and marks of direction came from records, purposes and names of columns."""
    all_signs = "".join(SIGNS)
    told = {"table": f"t{all_signs}", "warnings": (f"w{all_signs}",), "arguments": {f"a{all_signs}": 1}}
    study_of(**told, formula="", draws={"s": [[0.5, 1.0]] * 40}, predicted=None).save("s")
    for line in (["ledger", "show", f"no{all_signs}"], ["report", "s"], ["report", f"no{all_signs}"]):
        for options in ((), ("--json",)):
            call(monkeypatch, *line, *options)
            said = capsys.readouterr()
            assert not [sign for sign in SIGNS if sign in said.out + said.err]
            assert "\\u" in said.out + said.err
    page = Path("s/dossier.html").read_text()
    assert not [sign for sign in SIGNS if sign in page]


def test_every_command_speaks_through_the_one_filter():
    files = Path(common.__file__).parent.glob("*.py")
    speaking = {
        file.name for file in files if "typer.echo" in file.read_text() or "print(" in file.read_text()
    }
    assert speaking == {"common.py"}


def test_a_name_of_a_column_is_filtered(folder, monkeypatch, capsys):
    (folder / "t.csv").write_text("a\x1b[2Jb,c\u202ed\n1,2\n")
    call(monkeypatch, "init", "t.csv", "--out", "s.yaml")
    said = capsys.readouterr()
    assert said.err and "\x1b" not in said.out + said.err and "\u202e" not in said.out + said.err


def test_words_of_languages_that_need_joiners_are_shown_as_they_are():
    for words in ("می‌خواهم", "naïve – ε ≤ 1, µg/m³", "क्‍ष", "日本"):
        assert visible(words) == words


@pytest.mark.slow
def test_a_full_standard_output_is_a_sentence(folder):
    line = ["ledger", "init", "l.db", "--dataset", "people", *TARGET, "--json"]
    program = [sys.executable, "-c", "from private_mcmc.cli import main; main()", *line]
    with open("/dev/full", "w") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "OSError: reading or writing failed (No space left on device).\n"
