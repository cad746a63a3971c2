"""The main job, whole: refusals with remedies, a private path, a private expectation, prices, a report."""

import numpy as np
import pytest
from rich.console import Console

from private_mcmc import preflight
from private_mcmc.accounting.curves import gdp
from private_mcmc.cli.adult_demo import ROWS, AdultDemo, model
from private_mcmc.data import load_adult
from private_mcmc.target import Target


@pytest.mark.long
def test_the_demonstration_tells_the_whole_story(tmp_path, capsys):
    console = Console(record=True, width=110)
    page = AdultDemo(3.0, 1e-6, tmp_path, nuts=False).run(console)
    told = console.export_text()
    for words in (
        "covariates without bounds: not private",
        "a flat prior: not private",
        "bounded covariates and the model's own prior: not private",
        "4-GDP, ε = 26.36",
        "temper to w ≤ 0.16",
        "PrivateMCMC raises NotPrivate",
        "Predicted from public facts alone",
        "w = 0.16: private",
        "Before anything is spent: probability: expected error",
        "Released: probability",
    ):
        assert words in told, words
    # The total of a 3-GDP-budget path and a pure 3-DP value, composed as fixed mechanisms.
    assert "total: ε = 5.9" in told or "total: ε = 6 " in told
    html = page.read_text()
    assert "What it cost" in html and "Refutation" in html and "NUTS" not in html


@pytest.mark.long
def test_the_shipped_people_fit_their_declared_domain():
    X, y = load_adult()
    assert X.shape == (32_561, 9) and int(y.sum()) == 7841
    assert np.linalg.norm(X, axis=1).max() <= 1.0
    assert len(load_adult("all")[1]) == 48_842


@pytest.mark.slow
def test_the_posterior_of_the_demonstration_is_four_gdp():
    report = preflight(model, ROWS, Target(3.0, 1e-6), n=32_561)
    assert report.verdict == "not private"
    assert report.certificates[0].gdp == 4.0 or abs(report.certificates[0].gdp - 4.0) < 1e-9
    assert abs(report.epsilon - gdp.epsilon(4.0, 1e-6)) < 1e-6
