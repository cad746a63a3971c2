"""A registry that releases every year, by commands: cohorts, waves, charges, and what is signed."""

import json
import sys

import numpy as np
import pytest

from private_mcmc import accounting
from private_mcmc.cli.main import main

SCHEMA = """fields:
- {name: died, type: boolean}
- {name: age, type: number, constraints: {minimum: 0, maximum: 100}}
- {name: patient, type: string}
private_mcmc: {person: {field: patient, at_most: 3}}
"""
QUESTION = ("--schema", "schema.yaml", "--formula", "died ~ age")
# The larger one holds those who came in either year.
WAVES = {"2023": ("a", "b"), "2024": ("b",)}
CHARGED = ("--ledger", "books.db", "--dataset")


@pytest.fixture
def call(monkeypatch, capsys):
    """A command's exit code, its answer and its remarks."""

    def called(*line):
        monkeypatch.setattr(sys, "argv", ["private-mcmc", *line])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return called


def tables(without=None):
    """Two rows a year of each patient of the wave's cohorts; one patient may be in none of them."""
    random = np.random.default_rng(0)
    found = {}
    for year, cohorts in WAVES.items():
        who = [f"{cohort}{k}" for cohort in cohorts for k in range(12) for _ in range(2)]
        rows = [(random.integers(0, 2), random.integers(20, 90), one) for one in who]
        found[year] = [f"{died},{age},{one}" for died, age, one in rows if one != without]
    return found


def registry(place, call, rows):
    """Every command's exit code, and what those of the ledger and the refusal said."""
    place.mkdir()
    said, codes = [], []

    def run(*line, told=True):
        code, *words = call(*line)
        codes.append(code)
        said.extend(words if told else ())

    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place)
        (place / "schema.yaml").write_text(SCHEMA)
        hides = ("--adjacency", "add_remove")
        run("plan", *QUESTION, "--epsilon", "1", "--n", "40", *hides, "--save", "plan.json")
        whole = ("--dataset", "registry", "--epsilon", "1.5", "--delta", "1e-6", *hides, "--unit", "patient")
        run("ledger", "init", "books.db", *whole)
        names = ("--cohort", "a", "--cohort", "b", "--membership", "exclusive")
        run("ledger", "cohorts", "books.db", "--dataset", "registry", *names)
        for year, cohorts in WAVES.items():
            held = [word for name in cohorts for word in ("--cohort", name)]
            run("ledger", "wave", "books.db", "--dataset", "registry", "--name", year, *held)
            (place / f"{year}.csv").write_text("\n".join(["died,age,patient", *rows[year]]))
        fit = (*QUESTION, "--plan", "plan.json", "--yes")
        for year in WAVES:
            run("fit", f"{year}.csv", *fit, "--out", year, *CHARGED, f"registry/{year}", told=False)
        run("fit", "2024.csv", *fit, "--out", "again", *CHARGED, "registry/2024")
        run("ledger", "show", "books.db", "--json")
        for year in WAVES:
            run("verify", year, "--ledger", "books.db", told=False)
    return codes, said


@pytest.mark.long
def test_a_person_is_charged_for_all_waves_she_can_be_in_whoever_is_in_them(tmp_path, call):
    """Of cohort b in both waves, of cohort a in one; the third charge fits a's persons alone."""
    codes, said = registry(tmp_path / "all", call, tables())
    assert codes == [0] * 7 + [3, 0, 0, 0]
    assert "BudgetExceeded" in "".join(said) and not (tmp_path / "all" / "again").exists()
    balance = json.loads(next(words for words in said if words.startswith("[{")))[0]
    each = accounting.gdp.budget(1.0, 1e-6)
    charged = {name: float(cost.partition("-GDP")[0]) for name, cost in balance["cohorts"].items()}
    assert charged == pytest.approx({"a": each, "b": 2**0.5 * each}, rel=1e-5)
    assert balance["spent"] == balance["cohorts"]["b"] and balance["most_exposed"] == "b"
    page = (tmp_path / "all" / "2024" / "dossier.html").read_text()
    for claim in ("&#x27;registry/2024&#x27; is of &#x27;b&#x27;", "more than 1 of the cohorts"):
        assert claim in page
    # Whether b3 came at all is private: nothing but draws may tell, and not who is charged what.
    assert registry(tmp_path / "without", call, tables("b3")) == (codes, said)
