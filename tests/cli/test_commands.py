"""The command line on files: a model, a schema, a CSV; errors in one line and exit code 3."""

import subprocess
import sys
from importlib.metadata import version

import pytest

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
