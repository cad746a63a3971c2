"""The demonstration: from a codebook to a dossier, by commands, on a census's people."""

import json

import numpy as np
import pytest

from private_mcmc import Study
from private_mcmc.cli.before import demo
from private_mcmc.data import load_adult
from private_mcmc.dossier import verify_dossier


@pytest.mark.long
def test_the_demonstration_tells_the_whole_story(tmp_path, capsys):
    demo(1.0, tmp_path / "story", as_json=True)
    captured = capsys.readouterr()
    folder = tmp_path / "story"
    assert {"table", "study", "check", "schema.yaml"} <= set(json.loads(captured.out)["files"])
    for words in (
        "$ private-mcmc init",
        "Misfit found",
        "male - female",
        "CONSISTENT; COMPARED WITH: THE LEDGER",
        "dossier.html",
    ):
        assert words in captured.err, words
    assert verify_dossier(folder / "study")
    study = Study.load(folder / "study")
    assert study.n == 48_842 and study.ledger["left"] != study.ledger["budget"]
    by_name = {one.name: one for one in study.answers().summary()}
    # Maximum likelihood has 1.046 a year and 3.11.
    assert by_name["age"].ratio == pytest.approx(1.0456, abs=0.01)
    assert by_name["sex[male]"].ratio == pytest.approx(3.11, rel=0.25)


@pytest.mark.long
def test_the_shipped_people_fit_their_declared_domain():
    X, y = load_adult()
    assert X.shape == (32_561, 9) and int(y.sum()) == 7841
    assert np.linalg.norm(X, axis=1).max() <= 1.0
    assert len(load_adult("all")[1]) == 48_842
