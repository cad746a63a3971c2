"""The sweep from a shell."""

import json

import pytest

from private_mcmc.cli.main import main
from tests.soundness.sweep.__main__ import app as sweep
from tests.soundness.sweep.settings import settings


def call(monkeypatch, *arguments, app):
    monkeypatch.setattr("sys.argv", ["private-mcmc", *arguments])
    with pytest.raises(SystemExit) as ended:
        main(app)
    return ended.value.code or 0


@pytest.mark.long
def test_a_part_of_the_sweep_runs_from_the_shell(monkeypatch, capsys):
    code = call(monkeypatch, "--every", "300", "--num-runs", "400", "--json", app=sweep)
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["settings"] == 2 * len(list(settings())[::300])
