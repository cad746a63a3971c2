"""The ledger: charged before, never changed, never over budget, and damaged files are refused."""

import json
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from private_mcmc.accounting import Gaussian, gaussian, gdp, of_unit
from private_mcmc.cli.common import balance_record, charge_record
from private_mcmc.errors import BudgetExceeded, DeclarationError, LedgerError, PrivateMCMCError, ReleaseError
from private_mcmc.release import Ledger
from private_mcmc.release.ledger import affordable
from private_mcmc.release.ledger_file import MAGIC, LedgerFile
from private_mcmc.release.ledger_state import Filter
from private_mcmc.target import Target, Unit

TARGET = Target(3.0, 1e-6)
LIMIT = gdp.budget(3.0, 1e-6)


def normal(m, adjacency="replace_one"):
    return gaussian(adjacency=adjacency, sensitivity=m, scale=1.0)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger.create(tmp_path / "people.ledger")
    made.declare("people", TARGET)
    return made


def test_a_charge_is_on_disk_before_the_run_and_stays_after_it(ledger):
    with ledger.charge("people", normal(0.3), purpose="means", model="abc") as reservation:
        assert Ledger(ledger.path).history()[0].outcome == "reserved"
        assert balance_record(ledger.balance("people"))["open"] == 1
    (charge,) = Ledger(ledger.path).history("people")
    assert charge.identity == reservation.identity
    assert (charge.outcome, charge.purpose, charge.model) == ("released", "means", "abc")
    assert ledger.balance("people").spent == charge.cost == pytest.approx(0.09)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_run_keeps_its_charge_and_its_own_error(ledger, error):
    with pytest.raises(error), ledger.charge("people", normal(0.3), purpose="x"):
        raise error
    assert ledger.history()[0].outcome == "kept"
    assert ledger.balance("people").spent == pytest.approx(0.09)


def test_what_does_not_fit_is_refused_and_the_message_says_what_would(ledger):
    ledger.reserve("people", normal(0.5), purpose="first")
    before = ledger.verify()
    with pytest.raises(BudgetExceeded, match="What would fit") as refusal:
        ledger.reserve("people", normal(0.5), purpose="second")
    assert ledger.verify() == before
    words = str(refusal.value)
    offered = float(words.split("fit: ε = ")[1].split()[0])
    share = float(words.split("a share of ")[1].split()[0])
    assert share == pytest.approx((gdp.budget(offered, 1e-6) / gdp.budget(3.0, 1e-6)) ** 2, rel=0.01)
    ledger.reserve("people", normal(gdp.budget(offered, 1e-6) * (1 - 1e-12)), purpose="second")
    with pytest.raises(BudgetExceeded):
        ledger.reserve("people", normal(0.05), purpose="third")


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_an_adversary_who_reads_every_answer_never_gets_more_than_the_budget(tmp_path_factory, seed):
    choose = random.Random(seed)
    ledger = Ledger.create(tmp_path_factory.mktemp("ledger") / "file")
    ledger.declare("people", TARGET)
    granted = Fraction(0)
    for _ in range(12):
        left = float(ledger.balance("people").remaining)
        m = (left * choose.choice([0.1, 0.5, 1 - 1e-12, 1.0, 1 + 1e-12, 2.0])) ** 0.5
        statement = normal(m) if m > 0 else normal(1e-9)
        try:
            granted += ledger.reserve("people", statement, purpose="more").cost
        except BudgetExceeded:
            continue
    assert granted <= Fraction(LIMIT) ** 2
    assert ledger.balance("people").spent == granted


def test_data_are_recognised_by_a_keyed_fingerprint_that_stays_inside(ledger):
    data = {"x": np.arange(6.0), "y": np.asarray([1, 0, 1, 0, 1, 0])}
    ledger.reserve("people", normal(0.1), purpose="first", data=data)
    narrow = {name: column.astype(np.float32) for name, column in data.items()}
    ledger.reserve("people", normal(0.1), purpose="same", data=narrow)
    before = ledger.verify()
    for name in ("x", "y"):
        changed = {**data, name: data[name] + 1}
        with pytest.raises(LedgerError, match="not the data"):
            ledger.reserve("people", normal(0.1), purpose="other", data=changed)
    assert ledger.verify() == before
    mark = ledger.state().dataset("people").fingerprint
    other = Ledger.create(ledger.path.with_name("second"))
    other.declare("people", TARGET)
    other.reserve("people", normal(0.1), purpose="first", data=data)
    assert other.state().dataset("people").fingerprint != mark
    assert mark not in str(ledger.balance("people")) + json.dumps(balance_record(ledger.balance("people")))


def test_the_same_data_have_no_second_budget_under_another_name(ledger):
    data = {"x": np.arange(6.0)}
    ledger.declare("others", TARGET)
    ledger.reserve("people", normal(0.1), purpose="first", data=data)
    before = ledger.verify()
    with pytest.raises(LedgerError, match="knows as 'people"):
        ledger.reserve("others", normal(0.1), purpose="again", data=data)
    assert ledger.verify() == before
    ledger.reserve("others", normal(0.1), purpose="other people", data={"x": np.arange(7.0)})


@pytest.mark.parametrize("at_most", [None, 1, 3])
def test_rows_and_persons_and_adjacencies_are_never_added_up(ledger, at_most):
    """A row that enters may be one of several of a person; or the one of a person of whom others are not."""
    ledger.declare("patients", TARGET, unit="patient")
    rows, several = normal(0.1), None if at_most is None else Unit("patient", at_most)
    of_persons = of_unit(rows, several)
    other = ("people", normal(0.1, "zero_out"), None)
    for name, charged, unit in (("people", of_persons, "patient"), ("patients", rows, None), other):
        with pytest.raises(LedgerError, match="never composes"):
            ledger.reserve(name, charged, purpose="x", unit=unit)
        with pytest.raises(LedgerError, match="never composes"):  # before anything is planned further
            affordable(ledger.balance(name), charged, unit)
        with pytest.raises(LedgerError, match="never composes"):
            ledger.reserve(name, of_unit(rows, Unit("town", 1)), purpose="x")
    charge = ledger.reserve("patients", of_persons, purpose="x", unit="patient", staged=True)
    ledger.stage(charge, of_persons)
    assert not ledger.history("people") and len(ledger.history("patients")) == 1
    assert ledger.balance("patients").unit == "patient" and ledger.verify()


def test_declarations_are_made_once(ledger, tmp_path):
    with pytest.raises(LedgerError, match="never changed"):
        ledger.declare("people", Target(100.0, 0.1))
    with pytest.raises(LedgerError, match="never overwritten"):
        Ledger.create(ledger.path)
    with pytest.raises(LedgerError, match="'people'"):
        ledger.balance("nobody")
    for name, unit in (("a/b", None), ("", None), *(("others", one) for one in ("", " patient", "a\u200bb"))):
        with pytest.raises(DeclarationError):
            ledger.declare(name, TARGET, unit=unit)
    with pytest.raises(LedgerError, match="ledger init"):
        Ledger(tmp_path / "missing")
    with pytest.raises(LedgerError, match="cannot be read or written"):
        Ledger.create(tmp_path / "no" / "folder")


def test_a_reservation_is_settled_once(ledger):
    reservation = ledger.reserve("people", normal(0.1), purpose="x")
    ledger.settle(reservation, "kept")
    with pytest.raises(LedgerError, match="not open"):
        ledger.settle(reservation)
    with pytest.raises(DeclarationError):
        ledger.settle(reservation, "refunded")


def test_stages_are_charged_to_what_was_set_aside_for_them_and_nothing_is_for_a_forged_price(ledger):
    forged = replace(normal(0.5), curves=(Gaussian(0.001),))
    whole, single = (ledger.reserve("people", normal(0.4), purpose="x", staged=one) for one in (True, False))
    for charged_for in (partial(ledger.stage, whole), partial(ledger.reserve, "people", purpose="x")):
        with pytest.raises(ReleaseError, match="constants"):
            charged_for(forged)
    with pytest.raises(LedgerError, match="never composes"):
        ledger.stage(whole, normal(0.1, "zero_out"))
    ledger.stage(whole, normal(0.3))
    with pytest.raises(BudgetExceeded, match="set aside"):
        ledger.stage(whole, normal(0.28))
    assert ledger.balance("people").spent == pytest.approx(2 * 0.4**2)
    for charge in (whole, single):
        ledger.settle(charge, "stopped")
        with pytest.raises(LedgerError, match="not open for stages"):
            ledger.stage(charge, normal(0.1))
    assert ledger.balance("people").spent == pytest.approx(0.3**2 + 0.4**2)


def test_exports_hold_every_charge(ledger):
    for purpose in ("means", 'quotes " and, commas\nand lines', "=1+1"):
        ledger.reserve("people", normal(0.1), purpose=purpose)
    state = ledger.state()
    rows = [charge_record(state, charge) for charge in ledger.history()]
    assert [row["purpose"] for row in rows] == [charge.purpose for charge in ledger.history()]
    assert json.loads(json.dumps(rows)) == rows and [row["cost"] for row in rows] == ["0.1-GDP"] * 3
    spent = balance_record(ledger.balance("people"))["spent_epsilon"]
    assert spent == pytest.approx(gdp.epsilon(0.03**0.5, 1e-6), rel=1e-9)


# Damage and tampering.


@pytest.fixture
def filled(ledger):
    for index in range(5):
        with ledger.charge("people", normal(0.1), purpose=f"run {index}"):
            pass
    return ledger


def start_of(content, entry):
    """Where the line of an entry begins, the first is 1; two lines come before."""
    place = 0
    for _ in range(entry + 1):
        place = content.index(b"\n", place) + 1
    return place


def without(content, entry):
    return content[: start_of(content, entry)] + content[start_of(content, entry + 1) :]


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.replace(b"run 1", b"run 9"),
        lambda content: without(content, 4),
        lambda content: without(content, 11),
        lambda content: content[: start_of(content, 9)],
        lambda content: content[: start_of(content, 1)],
        lambda content: content[: start_of(content, 0)],
        lambda content: content.replace(b"11:", b"12:", 1),
        lambda content: content.replace(b'"key": "', b'"key": "0'),
        lambda content: content.replace(b'"key": "', b'"key": "00')[:-2],
        lambda content: content.replace(b"ledger 1", b"ledger 2"),
        lambda content: content + content[start_of(content, 1) : start_of(content, 2)],
        lambda content: content[: start_of(content, 2)] + b"\xff" + content[start_of(content, 2) + 1 :],
        lambda content: b"",
        lambda content: b"\n" + content,
    ],
)
def test_whatever_is_changed_is_found_and_work_stops(filled, change):
    before, content = filled.history(), filled.path.read_bytes()
    filled.path.write_bytes(change(content))
    for use in (
        lambda: Ledger(filled.path).history(),
        filled.history,
        lambda: filled.reserve("people", normal(0.1), purpose="x") and filled.history()[:-1],
        lambda: filled.verify() and filled.history()[:5],
    ):
        with suppress(LedgerError):
            assert use() == before  # what was appended by nobody counts for nothing


def test_an_older_copy_is_found_with_a_head_kept_elsewhere(filled, tmp_path):
    shutil.copy(filled.path, tmp_path / "old")
    ledger = Ledger(tmp_path / "old")
    early = str(ledger.verify())
    filled.reserve("people", normal(0.1), purpose="later")
    late = str(filled.verify())
    assert filled.verify(early)
    assert filled.verify(late)
    with pytest.raises(LedgerError, match="gone"):
        ledger.verify(late)
    for nonsense in ("", "x", "3:", "-1:0", "999:00", "3:ü", "3:\udcff", "9" * 30 + ":0"):
        with pytest.raises(LedgerError, match="gone"):
            ledger.verify(nonsense)


def test_an_older_copy_put_in_its_place_meanwhile_is_found(filled, tmp_path):
    shutil.copy(filled.path, tmp_path / "old")
    spent = filled.reserve("people", normal(0.1), purpose="later")
    shutil.copy(tmp_path / "old", filled.path)
    for use in (
        lambda: filled.balance("people"),
        lambda: filled.reserve("people", normal(0.1), purpose="x"),
        lambda: filled.settle(spent),
    ):
        with pytest.raises(LedgerError, match="gone"):
            use()


def test_a_process_that_sees_later_entries_goes_on(filled):
    other = Ledger(filled.path)
    for book in (filled, other, filled):
        book.reserve("people", normal(0.05), purpose="x")
    assert filled.balance("people").spent == other.balance("people").spent


def charged(ledger, cost, statement, identity="0"):
    """A charge as a file may hold it, whatever wrote it."""
    said = {"purpose": "", "model": "", "staged": False, "unit": None}
    paid = {"identity": identity, "dataset": "people", "cost": cost, "statement": statement}
    appended(ledger, "reserve", **paid, **said)


def appended(ledger, kind, **fields):
    """An entry that something else wrote."""
    with LedgerFile(ledger.path).opened(writing=True) as transaction:
        transaction.append(kind, **fields)


BUDGET = Filter.of(TARGET).to_dict()
OTHER = {"name": "x", "adjacency": "replace_one", "unit": None}


@pytest.mark.parametrize(
    "entry",
    [
        {"surprise": 1},
        {"filter": BUDGET | {"limit": "100"}},
        {"filter": BUDGET | {"surprise": 1}},
        {"filter": BUDGET | {"delta": 0.0}},
        {"filter": BUDGET | {"epsilon": 10**400}},
        {"filter": BUDGET | {"limit": -1}},
    ],
)
def test_an_entry_that_this_version_may_read_wrongly_is_refused(filled, entry):
    appended(filled, "dataset", **{**OTHER, "filter": BUDGET, **entry})
    with pytest.raises(LedgerError, match="newer version"):
        Ledger(filled.path)


@pytest.mark.parametrize("cost", ["1000", "1e300", 10**400, True, -1, "nan"])
def test_a_charge_that_no_budget_held_is_refused(filled, cost):
    charged(filled, cost, normal(0.5).to_dict())
    with pytest.raises(LedgerError, match="newer version"):
        filled.reserve("people", normal(0.1), purpose="x")


def test_charges_that_add_up_to_more_than_a_budget_are_refused_in_words(filled):
    for identity in "ab":
        charged(filled, str(Fraction(LIMIT) ** 2), normal(LIMIT).to_dict(), identity)
    with pytest.raises(BudgetExceeded, match="Nothing more fits"):
        filled.reserve("people", normal(0.1), purpose="x")
    with pytest.raises(LedgerError, match="more than its budget"):
        filled.verify()


@pytest.mark.parametrize(
    ("cost", "said", "why"),
    [
        ("1/1000000", None, "less than its statement"),
        ("1/4", 1, "charge 0 is not verified.*cannot be verified"),
    ],
)
def test_a_charge_below_its_cost_or_silent_of_what_it_is_for_is_kept_and_found(filled, cost, said, why):
    record, spent = normal(0.5).to_dict(), filled.balance("people").spent
    record["argument"]["assumptions"] = record["argument"]["assumptions"][:said]
    charged(filled, cost, record)
    assert filled.balance("people").spent == spent + Fraction(cost)
    with pytest.raises(LedgerError, match=why):
        filled.verify()


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.randoms(use_true_random=False))
def test_flipped_bytes_give_the_same_ledger_or_its_own_error(tmp_path_factory, choose):
    folder = tmp_path_factory.mktemp("flip")
    ledger = Ledger.create(folder / "file")
    ledger.declare("people", TARGET)
    ledger.reserve("people", normal(0.1), purpose="x")
    spent = ledger.balance("people").spent
    content = bytearray(ledger.path.read_bytes())
    for _ in range(choose.choice([1, 1, 3, 50])):
        content[choose.randrange(len(content))] = choose.randrange(256)
    ledger.path.write_bytes(content)
    with suppress(LedgerError):
        assert Ledger(ledger.path).balance("people").spent == spent


JSON = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
OPTIONAL = "name", "identity", "dataset", "cost", "filter", "whole", "by", "outcome", "time", "statement"
ENTRIES = st.fixed_dictionaries(
    {"kind": st.sampled_from(["dataset", "fingerprint", "reserve", "settle", "other"])},
    optional=dict.fromkeys(OPTIONAL, JSON | st.just("people")),
)


@pytest.mark.long
@settings(deadline=None, max_examples=60)
@given(ENTRIES)
def test_entries_that_make_no_sense_are_the_librarys_own_error(tmp_path_factory, entry):
    ledger = Ledger.create(tmp_path_factory.mktemp("fuzz") / "file")
    ledger.declare("people", TARGET)
    appended(ledger, **entry)
    for use in (ledger.verify, lambda: ledger.balance("people"), ledger.history):
        try:
            said = use()
        except Exception as error:
            said = error
        assert not isinstance(said, Exception) or isinstance(said, PrivateMCMCError)


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=300), st.booleans())
@example(b"SQLite format 3\0" + bytes(4080), False)
def test_files_that_are_something_else_are_refused_and_stay_as_they_are(tmp_path_factory, rest, like_ledger):
    path, content = tmp_path_factory.mktemp("else") / "file", (MAGIC if like_ledger else b"") + rest
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=None if like_ledger else "not a ledger"):
        Ledger(path)
    assert path.read_bytes() == content
