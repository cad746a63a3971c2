"""What is said of every run: the guarantee, the posterior itself, its time, and a δ that is not below 1/n."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import private_mcmc as pmc
from private_mcmc.accounting.risk import lines
from private_mcmc.dossier.page import page
from private_mcmc.model import read
from private_mcmc.models import logistic, logistic_rows
from private_mcmc.planning import Plan, Prediction
from private_mcmc.planning.policy import in_minutes
from private_mcmc.preflight import known_of_posterior
from tests.examples_of_models import declared
from tests.soundness.front_door.plans import stages_of

N = 1000
ROWS = logistic_rows(2)
RNG = np.random.default_rng(0)
COLUMNS = {"X": RNG.normal(size=(N, 2)), "y": RNG.integers(0, 2, N)}


def shown(report):
    console = Console(file=io.StringIO(), width=200, color_system=None)
    report.show(console)
    return console.file.getvalue()


@pytest.mark.some(1)
@pytest.mark.parametrize("delta", [1 / N, 1e-6])
def test_a_delta_that_is_not_below_one_over_n_is_named_wherever_a_target_is_shown(delta, capsys):
    target = pmc.Target(1.0, delta)
    plan = replace(stages_of((1.0,), 0.5), target=target, n=N, reading=read(logistic, ROWS, n=N))
    kernel = pmc.PrivateULA(logistic, step_size=1e-3, clip=1.0)
    mcmc = declared(kernel, ROWS, target=target, num_steps=8, progress_bar=True)
    mcmc.run(**COLUMNS)
    first = capsys.readouterr().err
    mcmc.print_summary()
    summary = capsys.readouterr().out
    places = {
        "preflight": shown(pmc.preflight(logistic, ROWS, target, n=N).report),
        "plan": shown(plan.report()),
        "first line": plan.opening,
        "first line of a declared run": first,
        "statement": mcmc.statement.summary(delta),
        "print_summary": summary,
        "dossier": shown(page(mcmc.study())),
    }
    assert "given that" in places["statement"] and "given that" not in places["print_summary"]
    said = {name for name, text in places.items() if "is not below 1/n" in text}
    assert said == (set(places) if delta >= 1 / N else set())
    # The price in a line; the argument on demand.
    assert lines(mcmc.statement, delta)[0] in summary and mcmc.statement.argument.theorem not in summary
    assert first.startswith("ε = 1 at δ = ") and "guarantee='run'; the posterior itself: " in first


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 30.0])
@pytest.mark.parametrize("sd", [0.05, 2.0])
def test_what_is_said_of_the_posterior_is_what_preflight_certifies(epsilon, sd):
    target = pmc.Target(epsilon, 1e-6)
    reading = read(logistic, ROWS, n=N, model_args={"sd": sd})
    private = pmc.preflight(logistic, ROWS, target, n=N, model_args={"sd": sd}).verdict == "private"
    assert known_of_posterior(reading, target, N).startswith("certified") == private


def test_expected_time_is_what_was_tried_and_the_quickest_synthetic_row_for_every_row(monkeypatch):
    monkeypatch.setattr(Plan, "predict", lambda *_: Prediction(0.1, 0.1, 0.0, 0.0))
    monkeypatch.setattr(Plan, "pace", lambda *_: 0.25)
    made = [pmc.plan(logistic, ROWS, pmc.Target(1.0, 1e-6), n=n, guarantee="run") for n in (1000, 2000)]
    assert made[1].seconds - made[0].seconds == pytest.approx(250.0, abs=20.0)
    assert [in_minutes(seconds) for seconds in (59.0, 61.0, 3700.0)] == [
        "less than a minute", "about 2 min", "about 1 h 2 min"
    ]  # fmt: skip
