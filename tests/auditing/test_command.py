"""The audit from a shell: exit codes, JSON, the HTML report."""

import json

import pytest

from private_mcmc.cli.main import app as commands
from private_mcmc.cli.main import main
from tests.soundness.sweep.__main__ import app as sweep
from tests.soundness.sweep.settings import settings

MODEL = """
import numpyro, numpyro.distributions as dist
def model(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
"""


def call(monkeypatch, *arguments, app=commands):
    monkeypatch.setattr("sys.argv", ["private-mcmc", *arguments])
    with pytest.raises(SystemExit) as ended:
        main(app)
    return ended.value.code or 0


@pytest.mark.long
def test_a_run_is_audited_from_a_model_file(tmp_path, monkeypatch, capsys):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "rows.toml").write_text("y = {box = {lo = -5.0, hi = 5.0}}\n")
    monkeypatch.chdir(tmp_path)
    chain = ["--n", "1", "--step-size", "0.05", "--num-steps", "10", "--clip", "1.0"]
    code = call(
        monkeypatch, "audit", "run", "model.py:model", "--rows", "rows.toml", *chain, "--num-runs", "2000",
        "--json", "--html", "audit.html",
    )  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["sound"]
    assert 0.5 < found["tightness"] <= 1
    assert "sound" in (tmp_path / "audit.html").read_text()


@pytest.mark.long
def test_a_part_of_the_sweep_runs_from_the_shell(monkeypatch, capsys):
    code = call(monkeypatch, "--every", "300", "--num-runs", "400", "--json", app=sweep)
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["settings"] == 2 * len(list(settings())[::300])
