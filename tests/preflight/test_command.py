"""The command decides from files, prints what was asked for, and its exit code is the verdict."""

import pytest
from typer.testing import CliRunner

from private_mcmc.cli import app
from private_mcmc.cli.common import load_model
from private_mcmc.errors import DeclarationError

MODEL = """
import numpyro
import numpyro.distributions as dist

def coin(y=None, a=1.0):
    p = numpyro.sample("p", dist.Beta(a, a))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(probs=p), obs=y)

def strong(y=None):
    coin(y, 200.0)

def cauchy(y=None):
    m = numpyro.sample("m", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Cauchy(m, 100.0), obs=y)

not_a_function = 3
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "schema.yaml").write_text("fields: [{name: y, type: boolean}]\n")
    return tmp_path


def call(files, model: str = "coin", epsilon: str = "0.5", delta: str = "1e-6"):
    asked = ["--schema", f"{files}/schema.yaml", "--model", f"{files}/model.py:{model}", "--n", "100"]
    return CliRunner().invoke(app, ["preflight", *asked, "--epsilon", epsilon, "--delta", delta])


@pytest.mark.long
def test_exit_code_is_the_verdict(files) -> None:
    assert call(files, model="strong").exit_code == 0
    assert call(files).exit_code == 1
    assert call(files, model="cauchy", epsilon="1e-3", delta="1e-9").exit_code == 2


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("model.py", "a file and a function"),
        ("missing.py:model", "a file and a function"),
        ("model.py:absent", "no function 'absent'"),
        ("model.py:not_a_function", "no function 'not_a_function'"),
    ],
)
def test_a_place_that_is_no_model_is_refused(files, place: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        load_model(f"{files}/{place}" if place != "model.py" else place)
