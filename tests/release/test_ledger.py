"""The ledger: charged before, never changed, never over budget, and damaged files are refused."""

import csv
import io
import json
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_mcmc.accounting import gaussian, laplace
from private_mcmc.accounting.curves import gdp
from private_mcmc.errors import BudgetExceeded, DeclarationError, LedgerError, PrivateMCMCError, ReleaseError
from private_mcmc.release import Ledger
from private_mcmc.release.ledger.file import _MADE, LedgerFile
from private_mcmc.release.ledger.filter import filter_for
from private_mcmc.target import Target

TARGET = Target(3.0, 1e-6)
LIMIT = gdp.budget(3.0, 1e-6)
KEY = b"an owner's key of enough bytes"
TRIGGERS = [line for line in _MADE if "TRIGGER" in line]


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
        assert ledger.balance("people").open == 1
    (charge,) = Ledger(ledger.path).history("people")
    assert (charge.identity, charge.outcome, charge.purpose, charge.model) == (
        reservation.identity,
        "released",
        "means",
        "abc",
    )
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
    parts = ledger.partition("people", "site", ("a", "b"))
    granted = {name: Fraction(0) for name in ("people", *parts)}
    for _ in range(12):
        name = choose.choice(list(granted))
        left = float(ledger.balance(name).remaining)
        m = (left * choose.choice([0.1, 0.5, 1 - 1e-12, 1.0, 1 + 1e-12, 2.0])) ** 0.5
        statement = normal(m) if m > 0 else normal(1e-9)
        try:
            granted[name] += ledger.reserve(name, statement, purpose="more").cost
        except BudgetExceeded:
            continue
    dearest = granted["people"] + max(granted[part] for part in parts)
    assert dearest <= Fraction(LIMIT) ** 2
    assert ledger.balance("people").spent == dearest


def test_parts_add_up_unless_declared_disjoint(ledger):
    ledger.declare("others", TARGET)
    a, b = ledger.partition("people", "site", ("a", "b"))
    young, old = ledger.partition("people", "age", ("young", "old"))
    for name, m in ((a, 0.3), (b, 0.2), (young, 0.1), ("people", 0.1)):
        ledger.reserve(name, normal(m), purpose="x")
    assert ledger.balance("people").spent == pytest.approx(0.3**2 + 0.1**2 + 0.1**2)
    assert ledger.balance("others").spent == 0
    room = {name: float(ledger.balance(name).remaining) for name in (a, b, young, old, "people")}
    left = LIMIT**2 - 0.11
    for name in room:
        balance = ledger.balance(name)
        assert balance.spent + balance.remaining == balance.dataset.filter.limit
    assert room == pytest.approx(
        {a: left, b: left + 0.09 - 0.04, young: left, old: left + 0.01, "people": left}
    )
    with pytest.raises(BudgetExceeded):
        ledger.reserve(b, normal((room[b] * 1.0001) ** 0.5), purpose="x")
    ledger.reserve(b, normal((room[b] * 0.9999) ** 0.5), purpose="x")
    with pytest.raises(LedgerError, match="partitioned"):
        ledger.partition("people", "site", ("c",))


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
    other.declare("people", TARGET, data=data)
    assert other.state().dataset("people").fingerprint != mark
    assert mark not in ledger.export("json") + ledger.export("csv")


def test_the_same_data_have_no_second_budget_under_another_name(ledger):
    data = {"x": np.arange(6.0)}
    ledger.declare("others", TARGET)
    part = ledger.partition("people", "site", ("a", "b"))[0]
    ledger.reserve(part, normal(0.1), purpose="first", data=data)
    ledger.reserve("people", normal(0.1), purpose="the part is all of it", data=data)
    before = ledger.verify()
    with pytest.raises(LedgerError, match="knows as 'people"):
        ledger.reserve("others", normal(0.1), purpose="again", data=data)
    with pytest.raises(LedgerError, match="knows as 'people"):
        ledger.declare("third", TARGET, data=data)
    assert ledger.verify() == before and "third" not in ledger.state().datasets
    ledger.reserve("others", normal(0.1), purpose="other people", data={"x": np.arange(7.0)})


def test_one_adjacency_for_one_data_set(ledger):
    with pytest.raises(LedgerError, match="never composes"):
        ledger.reserve("people", normal(0.1, "add_remove"), purpose="x")


def test_a_statement_that_does_not_follow_from_its_constants_is_not_charged(ledger):
    from dataclasses import replace

    from private_mcmc.accounting import Gaussian

    forged = replace(normal(0.5), curves=(Gaussian(0.001),))
    with pytest.raises(ReleaseError, match="constants"):
        ledger.reserve("people", forged, purpose="x")


def test_declarations_are_made_once(ledger, tmp_path):
    with pytest.raises(LedgerError, match="never changed"):
        ledger.declare("people", Target(100.0, 0.1))
    with pytest.raises(LedgerError, match="never overwritten"):
        Ledger.create(ledger.path)
    with pytest.raises(LedgerError, match="'people'"):
        ledger.balance("nobody")
    with pytest.raises(DeclarationError):
        ledger.declare("a/b", TARGET)
    with pytest.raises(LedgerError, match="ledger init"):
        Ledger(tmp_path / "missing")
    with pytest.raises(LedgerError, match="cannot be created"):
        Ledger.create(tmp_path / "no" / "folder")


def test_a_reservation_is_settled_once(ledger):
    reservation = ledger.reserve("people", normal(0.1), purpose="x")
    ledger.settle(reservation, "kept")
    with pytest.raises(LedgerError, match="not open"):
        ledger.settle(reservation)
    with pytest.raises(DeclarationError):
        ledger.settle(reservation, "refunded")


def test_a_budget_without_delta_is_spent_in_epsilon(tmp_path):
    ledger = Ledger.create(tmp_path / "file")
    ledger.declare("people", Target(1.0, 0.0))
    ledger.reserve("people", laplace(0.75, adjacency="replace_one", sensitivity=1.0, scale=2.0), purpose="x")
    with pytest.raises(BudgetExceeded, match=r"has ε = 0\.25 left"):
        ledger.reserve(
            "people", laplace(0.5, adjacency="replace_one", sensitivity=1.0, scale=2.0), purpose="x"
        )


def test_exports_hold_every_charge(ledger):
    for purpose in ("means", 'quotes " and, commas\nand lines', "=1+1"):
        ledger.reserve("people", normal(0.1), purpose=purpose)
    record = json.loads(ledger.export("json"))
    rows = list(csv.DictReader(io.StringIO(ledger.export("csv"))))
    assert [row["purpose"] for row in rows] == [charge["purpose"] for charge in record["charges"]]
    assert record["datasets"][0]["spent_epsilon"] == pytest.approx(gdp.epsilon(0.03**0.5, 1e-6), rel=1e-9)
    with pytest.raises(DeclarationError):
        ledger.export("xml")


# Damage and tampering.


@pytest.fixture
def filled(ledger):
    for index in range(5):
        with ledger.charge("people", normal(0.1), purpose=f"run {index}"):
            pass
    return ledger


def changed(ledger, *commands):
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        for command in commands:
            connection.execute(command)


def tampered(ledger, *commands):
    """Changed past the triggers, which are there again afterwards: nothing but what was changed tells."""
    away = [f"DROP TRIGGER {line.split()[2]}" for line in TRIGGERS]
    again = [] if any("DROP" in command for command in commands) else TRIGGERS
    changed(ledger, *away, *commands, *again)


@pytest.mark.some(5)
@pytest.mark.parametrize(
    "commands",
    [
        ("UPDATE entries SET body = replace(body, 'run 1', 'run 9') WHERE sequence = 4",),
        ("DELETE FROM entries WHERE sequence = 4",),
        ("DELETE FROM entries WHERE sequence = 11",),
        ("DELETE FROM entries WHERE sequence > 9",),
        ("DELETE FROM entries",),
        ("DELETE FROM head",),
        ("UPDATE head SET count = 10",),
        ("UPDATE keys SET key = zeroblob(32)",),
        ("DELETE FROM keys",),
        ("DROP TABLE entries",),
        ("UPDATE entries SET body = x'ff00' WHERE sequence = 2",),
        ("UPDATE entries SET digest = 'ü' WHERE sequence = 2",),
        ("UPDATE entries SET sequence = 100 WHERE sequence = 11",),
        ("PRAGMA application_id = 1",),
    ],
)
def test_whatever_is_changed_is_found_and_work_stops(filled, commands):
    tampered(filled, *commands)
    for use in (
        lambda: Ledger(filled.path),
        lambda: filled.balance("people"),
        lambda: filled.reserve("people", normal(0.1), purpose="x"),
        filled.verify,
    ):
        with pytest.raises(LedgerError):
            use()


LOST_UPDATE = "CREATE TRIGGER b BEFORE UPDATE ON head BEGIN SELECT RAISE(IGNORE); END"
LAST_OUT = "DELETE FROM entries WHERE sequence = NEW.sequence"


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize(
    "commands",
    [
        ("CREATE TRIGGER a BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END", LOST_UPDATE),
        (
            "DROP TRIGGER entries_last",
            f"CREATE TRIGGER a AFTER INSERT ON entries BEGIN {LAST_OUT}; END",
            LOST_UPDATE,
        ),
        (
            "ALTER TABLE entries RENAME TO others",
            "CREATE VIEW entries AS SELECT * FROM others",
            "CREATE TRIGGER a INSTEAD OF INSERT ON entries BEGIN SELECT 1; END",
            LOST_UPDATE,
        ),
        ("DROP TRIGGER entries_last",),
        ("CREATE UNIQUE INDEX a ON entries (digest)",),
    ],
)
def test_a_file_that_would_lose_what_is_written_is_found_whoever_has_the_key(tmp_path, key, commands):
    ledger = Ledger.create(tmp_path / "people.ledger", key)
    ledger.declare("people", TARGET)
    changed(ledger, *commands)
    for use in (lambda: ledger.reserve("people", normal(0.1), purpose="x"), ledger.verify):
        with pytest.raises(LedgerError, match="triggers"):
            use()


def test_charges_never_lie_in_a_second_file(filled):
    changed(filled, "PRAGMA journal_mode = WAL")
    filled.reserve("people", normal(0.1), purpose="x")
    with closing(sqlite3.connect(filled.path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert [path.name for path in filled.path.parent.iterdir()] == [filled.path.name]


def test_a_file_of_another_program_is_refused_and_stays_as_it_is(tmp_path):
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE a (b)")
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(other).verify()
    with closing(sqlite3.connect(other)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_entries_cannot_be_changed_by_accident(filled):
    with closing(sqlite3.connect(filled.path)) as connection:
        for command in ("UPDATE entries SET body = ''", "DELETE FROM entries"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(command)


def test_a_cut_file_is_found(filled):
    content = filled.path.read_bytes()
    for kept in (0, 50, 100, 4096, len(content) // 2, len(content) - 1, len(content) - 4096):
        filled.path.write_bytes(content[:kept])
        with pytest.raises(LedgerError):
            Ledger(filled.path).verify()


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


def test_with_an_owners_key_nobody_else_can_forge_an_entry(tmp_path):
    path = tmp_path / "file"
    Ledger.create(path, KEY).declare("people", TARGET)
    for key in (None, b"another key of enough bytes"):
        with pytest.raises(LedgerError, match="key"):
            Ledger(path, key)
    assert KEY not in path.read_bytes()
    with pytest.raises(LedgerError, match="without an owner's key"):
        Ledger(Ledger.create(tmp_path / "other").path, KEY)
    with pytest.raises(DeclarationError, match="16 bytes"):
        Ledger.create(tmp_path / "third", b"short")


def charged(ledger, cost, statement, identity="0"):
    """A charge as a file may hold it, whatever wrote it."""
    entry = {
        "kind": "reserve",
        "id": identity,
        "dataset": "people",
        "cost": cost,
        "statement": statement,
        "purpose": "",
        "model": "",
        "time": "",
    }
    with LedgerFile(ledger.path, None).writing() as transaction:
        transaction.append(entry)


BUDGET = filter_for(TARGET).to_dict()
OTHER = {
    "kind": "dataset",
    "name": "x",
    "adjacency": "replace_one",
    "fingerprint": None,
    "whole": None,
    "by": None,
}


@pytest.mark.parametrize(
    "entry",
    [
        {"surprise": 1},
        {"filter": BUDGET | {"kind": "a later kind"}},
        {"filter": BUDGET | {"surprise": 1}},
        {"filter": BUDGET | {"limit": "1/2"}},
        {"filter": BUDGET | {"limit": "100", "kind": "rdp", "order": 2.0}},
        {"filter": BUDGET | {"limit": "2", "kind": "basic"}},
        {"filter": BUDGET | {"epsilon": 10**400}},
        {"filter": BUDGET | {"limit": -1}},
    ],
)
def test_an_entry_that_this_version_may_read_wrongly_is_refused(filled, entry):
    with LedgerFile(filled.path, None).writing() as transaction:
        transaction.append({**OTHER, "filter": BUDGET, "time": "", **entry})
    with pytest.raises(LedgerError, match="newer version"):
        Ledger(filled.path)


@pytest.mark.parametrize("cost", ["1000", "1e300", 10**400, True, -1, "nan"])
def test_a_charge_that_no_budget_held_is_refused(filled, cost):
    charged(filled, cost, normal(0.5).to_dict())
    with pytest.raises(LedgerError, match="newer version"):
        filled.reserve("people", normal(0.1), purpose="x")


def test_charges_that_add_up_to_more_than_a_budget_are_refused_in_words(filled):
    for _ in range(2):
        with LedgerFile(filled.path, None).writing() as transaction:
            number = str(len(transaction.entries))
        charged(filled, str(Fraction(LIMIT) ** 2), normal(LIMIT).to_dict(), number)
    with pytest.raises(BudgetExceeded, match="Nothing more fits"):
        filled.reserve("people", normal(0.1), purpose="x")
    with pytest.raises(LedgerError, match="more than its budget"):
        filled.verify()


def test_a_charge_below_its_statements_cost_is_found(filled):
    charged(filled, "1/1000000", normal(0.5).to_dict())
    with pytest.raises(LedgerError, match="less than its statement"):
        filled.verify()


def test_a_charge_that_does_not_say_what_its_numbers_are_for_is_kept_and_named(filled):
    record = normal(0.5).to_dict()
    record["argument"]["assumptions"] = record["argument"]["assumptions"][:1]
    spent = filled.balance("people").spent
    charged(filled, "1/4", record)
    assert filled.balance("people").spent == spent + Fraction(1, 4)
    with pytest.raises(LedgerError, match=r"charge 0 is not verified.*cannot be verified"):
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
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ENTRIES = st.fixed_dictionaries(
    {"kind": st.sampled_from(["dataset", "fingerprint", "reserve", "settle", "other"])},
    optional={
        name: JSON | st.just("people")
        for name in ("name", "id", "dataset", "cost", "filter", "whole", "by", "outcome", "time", "statement")
    },
)


@pytest.mark.long
@settings(deadline=None, max_examples=60)
@given(ENTRIES)
def test_entries_that_make_no_sense_are_the_librarys_own_error(tmp_path_factory, entry):
    ledger = Ledger.create(tmp_path_factory.mktemp("fuzz") / "file")
    ledger.declare("people", TARGET)
    with LedgerFile(ledger.path, None).writing() as transaction:
        transaction.append(entry)
    for use in (ledger.verify, lambda: ledger.balance("people"), lambda: ledger.export("csv")):
        try:
            said = use()
        except Exception as error:
            said = error
        assert not isinstance(said, Exception) or isinstance(said, PrivateMCMCError)


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=300), st.booleans())
def test_files_that_are_something_else_are_refused(tmp_path_factory, content, like_sqlite):
    path = tmp_path_factory.mktemp("else") / "file"
    path.write_bytes((b"SQLite format 3\x00" if like_sqlite else b"") + content)
    with pytest.raises(LedgerError):
        Ledger(path)
