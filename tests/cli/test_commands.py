"""The command line on files: a model, a schema, a CSV; errors in one line and exit code 3."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from private_mcmc.cli import main
from private_mcmc.target import Target
from tests.dossier.studies import books_in, statement_of

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


def call(monkeypatch, *arguments):
    """Run the command; returns its exit code."""
    monkeypatch.setattr("sys.argv", ["private-mcmc", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


ASKED = ("--schema", "schema.yaml", "--model", "model.py:model")
COMMON = (*ASKED, "--epsilon", "2", "--delta", "1e-6")


def test_the_version_is_that_of_the_installed_package(monkeypatch, capsys):
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == version("private-mcmc")


def test_where_a_data_set_stands_is_three_lines_of_eighty_columns(tmp_path, monkeypatch, capsys):
    """Columns were too many: `1 (1 open)` and `ε = 2 at δ = 1e-6` stood on two lines each."""
    books_in(tmp_path).reserve("people", statement_of(Target(0.5, 1e-6)), purpose="and again")
    assert call(monkeypatch, "ledger", "show", tmp_path / "books.db") == 0
    _, _, name, *lines = capsys.readouterr().out.splitlines()
    assert name.strip() == "people" and [line.split()[0] for line in lines] == ["budget", "spent", "left"]
    assert max(map(len, lines)) <= 80 and lines[1].endswith("-GDP), in 2 charges, 1 open")


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
