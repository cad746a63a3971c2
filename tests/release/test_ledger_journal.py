"""A killed writer leaves a journal by the ledger's name: undoing it never undoes anybody else's charge."""

import os
import shutil
import sqlite3
import struct
from contextlib import closing

import pytest

from private_mcmc.accounting import gaussian
from private_mcmc.errors import LedgerError
from private_mcmc.release import Ledger
from private_mcmc.target import Target


def charge(ledger):
    with ledger.charge("people", gaussian(adjacency="replace_one", sensitivity=0.1, scale=1.0), purpose="x"):
        pass


@pytest.fixture
def ledger(tmp_path):
    made = Ledger.create(tmp_path / "people.ledger")
    made.declare("people", Target(3.0, 1e-6))
    return made


def left_behind(path, written=True):
    """What a process leaves that is killed in a transaction, after its pages are ``written`` or before."""
    pages = path.read_bytes()
    size, nonce, sector = int.from_bytes(pages[16:18], "big"), 7, 512
    blocks = [pages[start : start + size] for start in range(0, len(pages), size)]
    head = struct.pack(">IIIII", len(blocks), nonce, len(blocks), sector, size)
    records = [
        struct.pack(">I", number)
        + block
        + struct.pack(">I", (nonce + sum(block[size - 200 : 0 : -200])) % 2**32)
        for number, block in enumerate(blocks, start=1)
    ]
    content = (bytes.fromhex("d9d505f920a163d7") + head).ljust(sector, b"\0") + b"".join(records)
    if written:
        charge(Ledger(path))
    path.with_name(f"{path.name}-journal").write_bytes(content)


@pytest.mark.parametrize("written", [False, True])
def test_what_a_killed_process_began_is_undone(ledger, written, monkeypatch):
    charge(ledger)
    began = ledger.verify()
    # One transaction, of the two of a charge.
    monkeypatch.setattr(Ledger, "settle", lambda *_: None)
    left_behind(ledger.path, written)
    assert Ledger(ledger.path).verify(str(began)) == began
    charge(Ledger(ledger.path))


def moved_and_back(path):
    os.rename(path, path.with_name("archive.ledger"))
    charge(Ledger(path.with_name("archive.ledger")))
    os.rename(path.with_name("archive.ledger"), path)


def copied_and_back(path):
    shutil.copy(path, path.with_name("copy.ledger"))
    charge(Ledger(path.with_name("copy.ledger")))
    shutil.copy(path.with_name("copy.ledger"), path)


def charged_by_another_name(path):
    os.link(path, path.with_name("same.ledger"))
    charge(Ledger(path.with_name("same.ledger")))


def of_an_older_copy(path):
    older = path.read_bytes()
    path.with_name(f"{path.name}-journal").unlink()
    charge(Ledger(path))
    left_behind(path, written=False)
    path.write_bytes(older)


@pytest.mark.parametrize(
    "elsewhere", [moved_and_back, copied_and_back, charged_by_another_name, of_an_older_copy]
)
@pytest.mark.parametrize("written", [False, True])
def test_a_journal_of_another_time_undoes_nobodys_charge(ledger, written, elsewhere):
    """Two transactions under another name were undone, and the chain that was left verified."""
    charge(ledger)
    journal = ledger.path.with_name(f"{ledger.path.name}-journal")
    left_behind(ledger.path, written)
    elsewhere(ledger.path)
    content, beside = ledger.path.read_bytes(), journal.read_bytes()
    for use in (lambda: Ledger(ledger.path), lambda: charge(ledger)):
        with pytest.raises(LedgerError, match="journal beside it"):
            use()
    assert (ledger.path.read_bytes(), journal.read_bytes()) == (content, beside)
    # What SQLite would do with it.
    with closing(sqlite3.connect(ledger.path)) as plain:
        assert plain.execute("SELECT count(*) FROM entries").fetchone()
    assert ledger.path.read_bytes() != content


def test_a_journal_that_is_moved_away_leaves_a_ledger_that_goes_on(ledger):
    charge(ledger)
    left_behind(ledger.path)
    charged_by_another_name(ledger.path)
    ledger.path.with_name(f"{ledger.path.name}-journal").unlink()
    assert len(Ledger(ledger.path).history()) == 3
    Ledger(ledger.path).verify()
