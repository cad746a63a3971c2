"""The command line on files: a model, a schema, a CSV; errors in one line and exit code 3."""

import json
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest

from private_mcmc import Statement
from private_mcmc.cli import main

MODEL = """
import jax.numpy as jnp
import numpyro, numpyro.distributions as dist
def model(age, income, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("rows", age.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=age * w[0] + income * w[1]), obs=y)
"""
SCHEMA = """fields:
- {name: age, type: number, constraints: {minimum: -0.7, maximum: 0.7}}
- {name: income, type: number, constraints: {minimum: -0.7, maximum: 0.7}}
- {name: y, type: boolean}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
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


ASKED = ("--schema", "schema.yaml", "--model", "model.py:model")
COMMON = (*ASKED, "--epsilon", "2", "--delta", "1e-6")


def test_the_version_is_that_of_the_installed_package(monkeypatch, capsys):
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == version("private-mcmc")


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
def test_a_fit_of_a_model_releases_draws_and_charges_the_ledger(folder, monkeypatch, capsys):
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
        )
        == 0
    )
    charged = ("--ledger", "l.db", "--dataset", "people")
    assert call(monkeypatch, "fit", "people.csv", *COMMON, *charged, "--yes", "--out", "out") == 0
    released = json.loads((folder / "out" / "study.json").read_text())
    assert not list(folder.rglob("*.part"))
    assert np.shape(released["draws"]["w"])[1] == 2
    assert Statement.from_dict(released["statement"]).verify()
    capsys.readouterr()
    assert call(monkeypatch, "fit", "people.csv", *COMMON, *charged, "--yes", "--out", "again") == 3
    assert "BudgetExceeded" in capsys.readouterr().err
    assert not (folder / "again").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("preflight", "--schema", "schema.yaml"), "Missing option"),
        (("nonsense",), "nonsense"),
        (("plan", *COMMON[:3], "nowhere.py:model", *COMMON[4:], "--n", "800"), "nowhere.py"),
        (("plan", *COMMON, "--n", "0"), "n=0"),
        (("plan", "--schema", "no.yaml", *COMMON[2:], "--n", "8"), "no.yaml"),
        (("plan", *COMMON, "--formula", "y ~ age", "--n", "8"), "one of them"),
        (("fit", "people.csv", *COMMON, "--out", "model.py/o"), "folder"),
        (("fit", "no.csv", *COMMON, "--out", "o"), "no.csv"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_3(folder, monkeypatch, capsys, arguments, words):
    assert call(monkeypatch, *arguments) == 3
    error = capsys.readouterr().err
    assert words in error and "Traceback" not in error
