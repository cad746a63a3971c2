"""The ledger from a shell: tables for people, JSON for programs, one line and its own status for trouble."""

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest

from private_mcmc import accounting
from private_mcmc.accounting import gaussian
from private_mcmc.cli import main
from private_mcmc.cli.common import ERROR
from private_mcmc.release import Ledger

INIT = ["--dataset", "people", "--epsilon", "3", "--delta", "1e-6"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


def call(*words):
    """The command in this process: its exit code and what it writes."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr("sys.argv", ["private-mcmc", "ledger", *map(str, words)])
        with redirect_stdout(out), redirect_stderr(err):
            main()
    return SimpleNamespace(exit_code=ended.value.code or 0, stdout=out.getvalue(), stderr=err.getvalue())


def answer(*words):
    result = call(*words, "--json")
    return result.exit_code, json.loads(result.stdout)


def charge(path):
    statement = gaussian(adjacency="replace_one", sensitivity=0.3, scale=1.0)
    with Ledger(path).charge("people", statement, purpose="means, for the report"):
        pass


def test_init_makes_a_file_then_adds_to_it(path):
    status, made = answer("init", path, *INIT)
    assert status == 0
    assert made[0]["dataset"] == "people"
    assert call("init", path, "--dataset", "others", *INIT[2:]).exit_code == 0
    assert [one["dataset"] for one in answer("show", path)[1]] == ["people", "others"]
    refusal = call("init", path, *INIT)
    assert refusal.exit_code == ERROR and refusal.stderr.startswith("LedgerError")


def test_history_and_balance_show_a_charge(path):
    call("init", path, *INIT)
    charge(path)
    (record,) = answer("history", path)[1]
    assert (record["purpose"], record["outcome"]) == ("means, for the report", "released")
    assert record["cost"] == "0.3-GDP"
    assert "released" in call("history", path, "--dataset", "people").stdout
    assert answer("show", path, "--dataset", "people")[1][0]["spent"] == "0.3-GDP"
    # Three lines of a terminal's width: of six columns four were broken.
    name, budget, spent, _ = (line.strip() for line in call("show", path).stdout.splitlines()[2:])
    assert (name, budget[:6]) == ("people", "budget") and max(map(len, (budget, spent))) <= 80
    assert spent.endswith(" (0.3-GDP), in 1 charge, 0 open")


def test_verify_prints_a_head_and_finds_an_older_file(path):
    call("init", path, *INIT)
    old = path.read_bytes()
    charge(path)
    status, found = answer("verify", path)
    assert (status, found["ok"]) == (0, True)
    assert found["head"] in call("verify", path).stdout
    assert call("verify", path, "--head", found["head"]).exit_code == 0
    path.write_bytes(old)
    result = call("verify", path, "--head", found["head"])
    assert result.exit_code == ERROR
    assert "gone" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["init", "PATH", "--dataset", "a", "--epsilon", "0", "--delta", "0"],
        ["init", "PATH", "--dataset", "a", "--epsilon", "1", "--delta", "0.1", "--adjacency", "next_door"],
        ["init", "PATH", "--dataset", "a", "--epsilon", "1", "--delta", "0"],
        ["show", "PATH"],
        ["history", "PATH"],
        ["verify", "PATH"],
    ],
)
def test_trouble_is_one_line_and_its_own_status(path, words):
    words = [path if word == "PATH" else word for word in words]
    for result in (call(*words), call(*words, "--json")):
        assert result.exit_code == ERROR and not result.stdout
        assert len(result.stderr.strip().splitlines()) == 1


def test_what_is_left_is_told_as_the_epsilon_that_would_fit(path):
    """A number of GDP tells nobody whether another analysis at ε = 1 is possible."""
    call("init", path, *INIT)
    whole = " ".join(call("show", path).stdout.split())
    charge(path)
    rest = " ".join(call("show", path).stdout.split())
    (budget,) = answer("show", path)[1]
    assert "ε = 3 (0.64" in whole
    left = float(re.search(r"ε = ([\d.]+) \(" + re.escape(budget["remaining"]), rest)[1])
    fitting = accounting.gdp.budget(left, budget["filter"]["delta"])
    assert 0.99 * float(budget["remaining"].removesuffix("-GDP")) < fitting
    assert fitting <= float(budget["remaining"].removesuffix("-GDP"))
