"""A ledger that knows persons by cohorts: a person is charged for all that she can have been in."""

from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

from private_mcmc.accounting import gaussian
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.statement import of_unit
from private_mcmc.auditing.confidence import Scores, lower_bounds
from private_mcmc.cli.main import app
from private_mcmc.errors import BudgetExceeded, DeclarationError, LedgerError
from private_mcmc.release import Ledger
from private_mcmc.release.ledger import state as ledger_state
from private_mcmc.release.ledger.export import standing
from private_mcmc.target import Target, Unit


def normal(m, adjacency="replace_one"):
    return of_unit(gaussian(adjacency=adjacency, sensitivity=m, scale=1.0), Unit("patient", 4))


def registry(tmp_path, adjacency="replace_one", membership="public", at_most=1):
    """Yearly waves: 2020 holds a; 2021 holds a and b; 2022 holds c."""
    ledger = Ledger.create(tmp_path / "registry.ledger")
    ledger.declare("registry", Target(3.0, 1e-6, adjacency), unit="patient")
    ledger.cohorts("registry", ("a", "b", "c"), membership=membership, at_most=at_most)
    for wave, cohorts in (("2020", ("a",)), ("2021", ("a", "b")), ("2022", ("c",))):
        ledger.wave("registry", wave, cohorts)
    return ledger


def charge(ledger, wave, m, adjacency="replace_one"):
    ledger.reserve(f"registry/{wave}" if wave else "registry", normal(m, adjacency), purpose="means")


def test_a_person_pays_for_the_waves_of_her_cohort(tmp_path):
    ledger = registry(tmp_path)
    for wave, m in (("2020", 0.3), ("2021", 0.4), ("2022", 0.45), ("", 0.1)):
        charge(ledger, wave, m)
    balance = ledger.balance("registry")
    squares = {name: float(cost) for name, cost in balance.cohorts.items()}
    assert squares == pytest.approx({"a": 0.26, "c": 0.2125, "b": 0.17})
    assert balance.most_exposed == "a" and float(balance.spent) == pytest.approx(0.26)
    limit = gdp.budget(3.0, 1e-6) ** 2
    assert float(ledger.balance("registry/2022").remaining) == pytest.approx(limit - 0.2125)
    assert float(ledger.balance("registry/2021").remaining) == pytest.approx(limit - 0.26)
    assert "most exposed first" in str(ledger.report())
    ledger.verify()


def test_a_charge_that_one_cohort_cannot_bear_is_refused_to_its_waves_alone(tmp_path):
    ledger = registry(tmp_path)
    charge(ledger, "2020", 0.6)
    with pytest.raises(BudgetExceeded):
        charge(ledger, "2021", 0.4)
    with pytest.raises(BudgetExceeded):
        charge(ledger, "", 0.4)
    charge(ledger, "2022", 0.6)
    ledger.cohorts("registry", ("d",), membership="public")
    assert ledger.balance("registry").most_exposed in ("a", "c")
    charge(ledger, "", 0.1)
    assert float(ledger.balance("registry").cohorts["d"]) == pytest.approx(0.01)


def test_of_several_cohorts_the_dearest_set_counts(tmp_path):
    ledger = registry(tmp_path, at_most=2)
    for wave, m in (("2020", 0.3), ("2021", 0.3), ("2022", 0.2)):
        charge(ledger, wave, m)
    # Nobody pays twice for the wave that holds two of her cohorts.
    assert float(ledger.balance("registry").spent) == pytest.approx(0.09 + 0.09 + 0.04)


def test_a_run_on_a_wave_is_shown_what_its_persons_paid_before(tmp_path):
    """Its page said that nothing had been spent: cohorts were left out of the ledger at the run's time."""
    ledger = registry(tmp_path)
    charge(ledger, "2020", 0.3)
    charge(ledger, "2021", 0.4)
    first, second = (standing(ledger.state(), one.identity) for one in ledger.history())
    assert (first["before"], first["after"]) == ("0-GDP", "0.3-GDP")
    assert (second["before"], second["after"]) == ("0.3-GDP", "0.5-GDP")
    # Of cohort c, who was in neither: the whole registry's number was shown.
    charge(ledger, "2022", 0.1)
    third = standing(ledger.state(), ledger.history()[-1].identity)
    assert (third["before"], third["after"]) == ("0-GDP", "0.1-GDP")
    shown = {wave: float(ledger.balance(f"registry/{wave}").spent) for wave in ("2020", "2021", "2022")}
    assert shown == pytest.approx({"2020": 0.25, "2021": 0.25, "2022": 0.01})


@pytest.mark.parametrize(
    ("names", "add_up"),
    [
        (("r/sex=f", "r/sex=m"), False),
        (("r/sex=f/of=x", "r/sex=m"), False),
        (("r/2020", "r/2022"), False),
        (("r/2020", "r/2021"), True),
        (("r/sex=f", "r/region=north"), True),
        (("r/sex=f", "r/sex=f/of=x"), True),
        (("r/sex=f", "r/2020"), True),
        (("r", "r/2020"), True),
        (("r", "r/sex=m"), True),
    ],
)
def test_the_same_rows_are_not_charged_where_nobody_can_be_in_both(tmp_path, names, add_up):
    """Disjoint parts share one budget, each having all of it: the same rows in two would spend it twice."""
    ledger = Ledger.create(tmp_path / "books")
    ledger.declare("r", Target(3.0, 1e-6), unit="patient")
    ledger.partition("r", "sex", ("f", "m"))
    ledger.partition("r", "region", ("north", "south"))
    ledger.partition("r/sex=f", "of", ("x", "y"))
    ledger.cohorts("r", ("a", "b", "c"), membership="public")
    for wave, cohorts in (("2020", ("a",)), ("2021", ("a", "b")), ("2022", ("c",))):
        ledger.wave("r", wave, cohorts)
    rows = {"y": np.arange(5.0)}
    ledger.reserve(names[0], normal(0.3), purpose="", data=rows)
    with nullcontext() if add_up else pytest.raises(LedgerError, match="second budget"):
        ledger.reserve(names[1], normal(0.3), purpose="", data=rows)
    assert float(ledger.balance("r").spent) == pytest.approx(0.18 if add_up else 0.09)


def test_the_same_rows_are_not_charged_to_waves_that_nobody_can_all_be_in(tmp_path):
    """Any two of the three hold somebody of two cohorts: pairs alone let the third charge through."""
    ledger, rows = registry(tmp_path, at_most=2), {"y": np.arange(5.0)}
    for wave in ("a", "b", "c"):
        ledger.wave("registry", f"of {wave}", (wave,))
    for wave in ("a", "b"):
        ledger.reserve(f"registry/of {wave}", normal(0.3), purpose="", data=rows)
    # Persons of a and b, or of a and c, are in both.
    ledger.reserve("registry/2021", normal(0.3), purpose="", data=rows)
    with pytest.raises(LedgerError, match="second budget"):
        ledger.reserve("registry/of c", normal(0.3), purpose="", data=rows)
    assert float(ledger.balance("registry").spent) == pytest.approx(0.27)


@pytest.mark.parametrize(
    "alike", ["2020 ", " 2020", "20 20", "\u200b2020", "2020\u034f", "２０２０", "2020\n", "2020\x1b[0m"]
)
def test_names_that_look_alike_are_not_two(tmp_path, alike):
    """A person of "2020" who is put into "2020 " next time would be charged once for both."""
    ledger = registry(tmp_path)
    ledger.cohorts("registry", ("2020", "Zoë", "2020-21", "St. John's"), membership="public")
    ledger.declare("2020", Target(3.0, 1e-6))
    before = ledger.verify()
    for declared in (
        lambda: ledger.cohorts("registry", (alike,), membership="public"),
        lambda: ledger.cohorts("registry", ("z", "Z"), membership="public"),
        lambda: ledger.cohorts("registry", ("zoe\u0308",), membership="public"),
        lambda: ledger.cohorts("registry", ("2020\u201321",), membership="public"),
        lambda: ledger.cohorts("registry", ("St. John\u2019s",), membership="public"),
        lambda: ledger.declare(alike, Target(3.0, 1e-6)),
        lambda: ledger.declare("Registry", Target(3.0, 1e-6)),
        lambda: ledger.wave("registry", alike, ("2020",)),
        lambda: ledger.partition("registry", "sex", ("f", "F")),
    ):
        with pytest.raises(DeclarationError, match=r"looks like|unprintable"):
            declared()
    assert ledger.verify() == before


def test_a_run_says_on_which_claims_of_the_owner_its_sum_rests(tmp_path):
    """The ledger takes it from the owner that nobody is in two cohorts; whoever signs has to know."""
    ledger = registry(tmp_path, "add_remove", "exclusive")
    ledger.partition("registry", "region", ("north", "south"))
    for wave in ("2020", "2022", "region=north", ""):
        charge(ledger, wave, 0.1, "add_remove")
    told = [standing(ledger.state(), one.identity)["claimed"] for one in ledger.history()]
    ledger.cohorts("registry", ("later",), membership="exclusive")
    charge(ledger, "2021", 0.1, "add_remove")
    assert [standing(ledger.state(), one.identity)["claimed"] for one in ledger.history()][:4] == told
    words = [" ".join(claims) for claims in told]
    assert "'registry/2020' is of 'a'" in words[0] and "2022" not in words[0]
    assert "more than 1 of the cohorts" in words[0] and "fixed" not in words[0]
    assert "'registry/2022' is of 'c'" in words[1] and "region" not in words[1]
    assert "two of the parts of 'registry' by 'region'" in words[2] and words[3] == words[2]
    alone = Ledger.create(tmp_path / "alone")
    alone.declare("r", Target(3.0, 1e-6), unit="patient")
    alone.reserve("r", normal(0.1), purpose="")
    assert "claimed" not in standing(alone.state(), alone.history()[0].identity)


def test_names_of_parts_that_spell_the_same_leave_the_ledger_as_it_was(tmp_path):
    ledger = registry(tmp_path)
    ledger.partition("registry", "a", ("b=c",))
    before = ledger.verify()
    with pytest.raises(LedgerError, match="already"):
        ledger.partition("registry", "a=b", ("c",))
    assert ledger.verify() == before


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
def test_exclusive_membership_serves_presence(tmp_path, adjacency):
    ledger = registry(tmp_path, adjacency, "exclusive")
    charge(ledger, "2020", 0.5, adjacency)
    charge(ledger, "2022", 0.5, adjacency)
    assert float(ledger.balance("registry").spent) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("how", "kind", "why"),
    [
        (lambda b: b.cohorts("registry", ("z",), membership="exclusive"), DeclarationError, "another cohort"),
        (lambda b: b.cohorts("registry", ("z",), membership="unknown"), DeclarationError, "add up"),
        (lambda b: b.cohorts("registry", ("a",), membership="public"), LedgerError, "declared already"),
        (
            lambda b: b.cohorts("registry", ("z",), membership="public", at_most=2),
            LedgerError,
            "never changed",
        ),
        (lambda b: b.cohorts("rows", ("z",), membership="public"), DeclarationError, "kept for rows"),
        (lambda b: b.wave("registry", "2023", ("a", "z")), LedgerError, "not declared"),
        (lambda b: b.wave("registry", "2020", ("a",)), LedgerError, "declared already"),
        (lambda b: b.wave("registry", "2023", ()), DeclarationError, "the cohorts that are in it"),
        (lambda b: b.wave("rows", "2023", ("a",)), LedgerError, "not declared"),
        (lambda b: b.partition("registry/2020", "sex", ("f", "m")), DeclarationError, "whole data set"),
    ],
)
def test_what_cannot_be_known_is_refused(tmp_path, how, kind, why):
    ledger = registry(tmp_path)
    ledger.declare("rows", Target(3.0, 1e-6))
    before = ledger.verify()
    with pytest.raises(kind, match=why):
        how(ledger)
    assert ledger.verify() == before


def test_the_same_person_in_two_waves_is_attacked(tmp_path, monkeypatch):
    """Sums of two waves that hold cohort a, one person's values replaced in both.

    Sound claims are exceeded with probability below 1e-6; that of the planted fault is.
    """
    random, draws = np.random.default_rng(0), 4000

    def releases(value):
        return random.normal(value, 1.0, (draws, 2)).sum(axis=1) / np.sqrt(2)

    scores = Scores(*((releases(0.0), releases(2.0)) for _ in range(2)))
    found = lower_bounds(scores, delta=1e-3, epsilon=1.0, failure=1e-6).gdp

    def claim(name):
        (tmp_path / name).mkdir()
        ledger = Ledger.create(tmp_path / name / "file")
        ledger.declare("registry", Target(60.0, 1e-3), unit="patient")
        ledger.cohorts("registry", ("a", "b"), membership="public")
        for wave in ("2020", "2021"):
            ledger.wave("registry", wave, ("a", "b"))
            charge(ledger, wave, 2.0)
        return float(ledger.balance("registry").spent) ** 0.5

    assert found <= claim("sound")
    largest = lambda cohorts, waves, touching=None: max(waves.values(), default=Fraction(0))  # noqa: E731
    monkeypatch.setattr(ledger_state, "dearest", largest)
    monkeypatch.setattr(ledger_state.LedgerState, "_waves", _each_wave)
    assert found > claim("the dearest wave alone")


def _each_wave(self, dataset):
    """The planted fault: waves are taken for disjoint."""
    return {wave: self._own(wave) for wave in self.datasets.values() if wave.cohorts}


def test_from_the_shell(tmp_path):
    book, run = str(tmp_path / "books.db"), CliRunner()

    def shell(*words):
        result = run.invoke(app, ["ledger", *words])
        assert result.exit_code == 0, result.output
        return result.output

    shell("init", book, "--dataset", "r", "--epsilon", "3", "--delta", "1e-6", "--unit", "patient")
    shell("cohorts", book, "--dataset", "r", "--cohort", "a", "--cohort", "b", "--membership", "public")
    shell("wave", book, "--dataset", "r", "--name", "2020", "--cohort", "a")
    Ledger(book).reserve("r/2020", normal(0.3), purpose="means")
    assert "most exposed first" in shell("show", book, "--dataset", "r")
    assert "sound" in shell("verify", book)
    refused = run.invoke(
        app, ["ledger", "cohorts", book, "--dataset", "r", "--cohort", "z", "--membership", "exclusive"]
    )
    assert refused.exit_code != 0
