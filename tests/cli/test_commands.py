"""The command line on files: a model, row domains, a CSV; errors in one line and exit code 3."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest

from private_mcmc import Statement
from private_mcmc.cli.main import COMMANDS, main
from private_mcmc.cli.table import read_columns
from private_mcmc.domains import Rows

MODEL = """
import numpyro, numpyro.distributions as dist
def model(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)
"""
ROWS = 'X = {ball = {radius = 1.0, dim = 2}}\ny = "binary"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "rows.toml").write_text(ROWS)
    rng = np.random.default_rng(0)
    rows = [f"{a},{b},{int(a > 0)}" for a, b in rng.uniform(-0.7, 0.7, (800, 2))]
    (tmp_path / "people.csv").write_text("age,income,y\n" + "\n".join(rows))
    return tmp_path


def call(monkeypatch, *arguments):
    """Run the command; returns its exit code."""
    monkeypatch.setattr("sys.argv", ["private-mcmc", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


COMMON = ("model.py:model", "--rows", "rows.toml", "--epsilon", "2", "--delta", "1e-6")
DATA = ("--data", "people.csv", "--column", "X=age,income")


@pytest.mark.slow
def test_every_command_explains_itself(monkeypatch, capsys):
    for name in COMMANDS:
        assert call(monkeypatch, name, "--help") == 0
        assert "Usage" in capsys.readouterr().out


def test_the_version_is_that_of_the_installed_package(monkeypatch, capsys):
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == version("private-mcmc")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "count", "wanted"),
    [
        ("private-mcmc ver", 1, "verify"),
        ("private-mcmc fit --eps", 2, "--epsilon"),
        ("private-mcmc ledger h", 2, "history"),
    ],
)
def test_shells_complete_commands_and_options(words, count, wanted):
    asked = {"_PRIVATE_MCMC_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    command = [sys.executable, "-c", "from private_mcmc.cli import main; main()"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [wanted]


@pytest.mark.slow
def test_help_waits_for_no_numerical_library_and_tells_the_exit_codes():
    code = (
        "import sys\nfrom private_mcmc.cli import main\nsys.argv[1:] = ['--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "raise SystemExit(bool({'jax', 'numpyro', 'scipy', 'numpy', 'matplotlib'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "Usage: private-mcmc" in shown and "Exit codes: 0 done; 1 a claim fails" in " ".join(shown.split())


@pytest.mark.long
def test_run_releases_draws_and_charges_the_ledger(folder, monkeypatch, capsys):
    (folder / "owner.key").write_text("a secret of the owner")
    key = ("--key", "owner.key")
    assert (
        call(
            monkeypatch,
            "ledger",
            "init",
            "l.db",
            "--dataset",
            "people",
            "--epsilon",
            "2.4",
            "--delta",
            "1e-6",
            *key,
        )
        == 0
    )
    charged = ("--ledger", "l.db", "--dataset", "people", *key)
    assert call(monkeypatch, "run", *COMMON, *DATA, *charged, "--yes", "--out", "out") == 0
    released = json.loads((folder / "out" / "study.json").read_text())
    assert not list(folder.rglob("*.part"))
    assert np.shape(released["draws"]["w"])[1] == 2
    assert Statement.from_dict(released["statement"]).verify()
    capsys.readouterr()
    assert call(monkeypatch, "run", *COMMON, *DATA, *charged, "--yes", "--out", "again") == 3
    assert "BudgetExceeded" in capsys.readouterr().err
    assert not (folder / "again").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("preflight", "model.py:model"), "Missing option"),
        (("nonsense",), "nonsense"),
        (("plan", "nowhere.py:model", *COMMON[1:], "--n", "800"), "nowhere.py"),
        (("plan", *COMMON, "--n", "0"), "n=0"),
        (("plan", "model.py:model", "--rows", "no.toml", *COMMON[3:], "--n", "8"), "no.toml"),
        (("run", *COMMON, *DATA[:2], "--out", "o"), "X"),
        (("run", *COMMON, *DATA, "--out", "model.py/o"), "folder"),
        (("run", *COMMON, "--data", "no.csv", *DATA[2:], "--out", "o"), "no.csv"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_3(folder, monkeypatch, capsys, arguments, words):
    assert call(monkeypatch, *arguments) == 3
    error = capsys.readouterr().err
    assert words in error and "Traceback" not in error


HOLES = ("--adjacency", "zero_out", "--n", "800", "--present", "there")


@pytest.mark.long
def test_the_field_of_presence_tells_which_slots_are_empty(folder, monkeypatch, capsys):
    people = (folder / "people.csv").read_text().splitlines()
    flags = ["there", *(str(i % 3) for i in range(800))]
    people[3] = "missing,,"
    (folder / "people.csv").write_text("\n".join(map(",".join, zip(people, flags, strict=True))))
    assert call(monkeypatch, "run", *COMMON, *DATA, *HOLES, "--yes", "--out", "out") == 0
    statement = Statement.from_dict(json.loads((folder / "out" / "study.json").read_text())["statement"])
    assert statement.adjacency == "zero_out" and statement.delta(2.0) <= 1e-6
    declared = Rows.from_toml(folder / "rows.toml")
    columns = read_columns(folder / "people.csv", declared, ["X=age,income"], present="there")
    np.testing.assert_array_equal(columns["present"][:7], [0, 1, 2, 0, 1, 2, 0])


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("--n", "800", "--present", "there"), "zero_out only"),
        ((*HOLES[:-1], "nobody"), "['nobody'] are not there"),
        (("--adjacency", "zero_out", "--n", "801"), "801 public slots"),
    ],
)
def test_holes_that_make_no_sense_are_refused(folder, monkeypatch, capsys, changes, words):
    assert call(monkeypatch, "run", *COMMON, *DATA, *changes, "--yes", "--out", "out") == 3
    assert words in capsys.readouterr().err.replace("\n", " ")
