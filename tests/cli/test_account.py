"""The calculator gives the library's own numbers, under the names of the Python arguments."""

from __future__ import annotations

import json
import math

import pytest
from typer.testing import CliRunner

from private_mcmc import accounting
from private_mcmc.cli.account import app
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Batch, Schedule

QUADRATIC = "--step-size 0.01 --num-steps 100 --sensitivity 2 --strong-convexity 1 --smoothness 50"


def ask(line):
    result = CliRunner().invoke(app, [*line.split(), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.mark.parametrize(
    ("release", "gdp"), [("last", 1.3590787), ("path", 1.4142136), ("10,30,60,100", 1.4083322)]
)
def test_ula_reference_numbers(release, gdp):
    answer = ask(f"ula {QUADRATIC} --release {release}")
    assert answer["gdp"] == pytest.approx(gdp, abs=6e-8)
    assert answer["delta"] == 1e-6
    assert answer["epsilon"] == pytest.approx(accounting.gdp.epsilon(gdp, 1e-6), abs=1e-5)
    assert answer["argument"]
    assert answer["constants"]["step_size"] == 0.01
    if release == "last":
        assert answer["epsilon"] == pytest.approx(6.955764, abs=1e-5)


def test_delta_at_epsilon_inverts_epsilon_at_delta():
    there = ask(f"ula {QUADRATIC} --delta 1e-4")
    back = ask(f"ula {QUADRATIC} --epsilon {there['epsilon']}")
    assert back["delta"] == pytest.approx(1e-4, rel=1e-6)


def test_adjacency_does_not_change_what_a_given_sensitivity_costs():
    values = [
        ask(f"ula {QUADRATIC} --adjacency {name}")["gdp"]
        for name in ("replace_one", "add_remove", "zero_out")
    ]
    assert values == pytest.approx([values[0]] * 3, rel=1e-9)


def test_bounded_gradient_needs_its_bound():
    line = (
        "ula --step-size 0.1 --num-steps 1000 --sensitivity 2 --prior-strong-convexity 1 --prior-smoothness 1"
    )
    with pytest.raises(DeclarationError, match="gradient-bound"):
        ask(line)
    answer = ask(f"{line} --gradient-bound 3")
    assert answer["gdp"] == pytest.approx(math.sqrt((0.6) ** 2 / 0.2 * 1.9 / 0.1), rel=1e-6)


@pytest.mark.long
def test_sgld_is_the_statement_of_the_schedule():
    line = "sgld --step-size 0.0001 --num-steps 200 --sensitivity 0.2 --num-rows 1000"
    line += " --batch-size 50 --release path"
    answer = ask(line)
    schedule = Schedule(
        adjacency="replace_one",
        num_rows=1000,
        dim=1,
        step_size=1e-4,
        num_steps=200,
        clip=0.1,
        batch=Batch(scheme="poisson", rate=0.05),
        release="path",
    )
    assert answer["epsilon"] == pytest.approx(accounting.langevin_statement(schedule).epsilon(1e-6), rel=1e-9)
    assert answer["gdp"] is None
    fixed = ask(f"{line} --sampling fixed")
    assert fixed["epsilon"] > 0
    with pytest.raises(DeclarationError, match="batch-cap"):
        ask(f"{line} --sampling truncated_poisson")


def test_posterior_certificates():
    assert ask("posterior --sensitivity 2 --strong-convexity 1")["gdp"] == pytest.approx(2.0)
    assert ask("posterior --gradient-bound 3 --prior-strong-convexity 4")["gdp"] == pytest.approx(3.0)
    bounded = ask("posterior --likelihood-range 0.5 --delta 0")
    assert (bounded["epsilon"], bounded["gdp"]) == (0.5, None)
    both = ask("posterior --likelihood-range 50 --sensitivity 0.1 --strong-convexity 1")
    assert both["gdp"] == pytest.approx(0.1)
    with pytest.raises(DeclarationError, match="give --likelihood-range"):
        ask("posterior")


@pytest.mark.parametrize(("burn_in", "eta"), [(0, 0.744744), (50, 1.053664)])
def test_expectation_reference_numbers(burn_in, eta):
    answer = ask(f"expectation {QUADRATIC} --burn-in {burn_in} --epsilon 0.5")
    assert answer["constants"]["joint"] == pytest.approx(eta, abs=6e-7)
    assert answer["constants"]["scale"] == pytest.approx(2 * eta, abs=2e-6)
    assert (answer["epsilon"], answer["delta"], answer["gdp"]) == (0.5, 0.0, None)


def test_expectation_of_a_clamped_function_is_bounded_by_its_range():
    assert ask(f"expectation {QUADRATIC} --lipschitz 10 --value-range 1")["constants"][
        "joint"
    ] == pytest.approx(1)
    gaussian = ask(f"expectation {QUADRATIC} --noise-sd 2")
    assert gaussian["gdp"] == pytest.approx(0.744744 / 2, abs=1e-6)
    with pytest.raises(DeclarationError, match="nothing bounds"):
        ask("expectation --step-size 0.01 --num-steps 100 --sensitivity 2")


@pytest.mark.parametrize(
    "line", ["ula --release now", "ula --adjacency neighbours", "ula --delta 1e-5 --epsilon 1"]
)
def test_nonsense_is_refused_in_words(line):
    command, *rest = line.split()
    with pytest.raises(DeclarationError):
        ask(" ".join([command, QUADRATIC, *rest]))


def test_a_table_without_json():
    result = CliRunner().invoke(app, ["ula", *QUADRATIC.split()], catch_exceptions=False)
    assert result.exit_code == 0
    assert "1.3590787" in result.output
    assert "6.955764" in result.output
