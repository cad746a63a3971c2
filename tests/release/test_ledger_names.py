"""A charge is never lost, whatever a killed writer left and under whatever name the next one charges."""

import contextlib
import os
import shutil

import pytest

from private_mcmc.errors import LedgerError
from private_mcmc.release import Ledger
from private_mcmc.target import Target
from tests.release.ledger_workers import statement

# The calls by which a transaction changes the file, in their order.
CALLS = ("ftruncate", "pwrite", "fsync", "pwrite", "fsync")


@pytest.fixture
def ledger(tmp_path):
    made = Ledger.create(tmp_path / "people.ledger")
    made.declare("people", Target(3.0, 1e-6))
    return made


class Killed(BaseException):
    """In the place of a kill."""


def killed_at(path, number, torn=False):
    """Leave the file as one who charges and is killed before this call, or in the middle of it."""
    left, found = [number], []
    real = {name: getattr(os, name) for name in CALLS}

    def dying(name):
        def call(*args):
            if left[0] == 0:
                if torn and name == "pwrite":
                    real[name](args[0], args[1][: len(args[1]) // 2], args[2])
                found.append(path.read_bytes())
                raise Killed
            left[0] -= 1
            return real[name](*args)

        return call

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        for name in real:
            patch.setattr(os, name, dying(name))
        Ledger(path).reserve("people", statement(0.1), purpose="killed")
    path.write_bytes(found[0])


def linked(path, other):
    os.link(path, other)
    return lambda: None


def symbolic(path, other):
    os.symlink(path, other)
    return lambda: None


def copied_and_put_back(path, other):
    shutil.copy(path, other)
    return lambda: os.replace(other, path)


def copied_over(path, other):
    shutil.copy(path, other)
    return lambda: shutil.copy(other, path)


def moved_away_and_back(path, other):
    os.rename(path, other)
    return lambda: os.rename(other, path)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("number", range(len(CALLS)))
@pytest.mark.parametrize("under", [linked, symbolic, copied_and_put_back, copied_over, moved_away_and_back])
def test_a_charge_under_another_name_outlives_what_a_killed_writer_left(
    ledger, tmp_path, under, number, torn
):
    if torn and CALLS[number] == "pwrite" and number > 1:
        pytest.skip("a mark that is half written is refused, see below")
    killed_at(ledger.path, number, torn)
    other = tmp_path / "other"
    back = under(ledger.path, other)
    charge = Ledger(other).reserve("people", statement(0.2), purpose="under another name")
    back()
    again = Ledger(ledger.path)
    again.verify()
    assert charge in again.history()
    later = again.reserve("people", statement(0.2), purpose="later")
    assert [charge, later] == list(Ledger(ledger.path).history())[-2:]


def test_a_mark_that_is_half_written_stops_all_work(ledger):
    for _ in range(10):
        ledger.reserve("people", statement(0.01), purpose="x")
    killed_at(ledger.path, 3, torn=True)
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(ledger.path)


def test_an_entry_of_which_no_mark_tells_is_charged_or_gone_and_never_in_the_way(ledger):
    for number in range(len(CALLS)):
        before = ledger.history()
        killed_at(ledger.path, number)
        assert ledger.history()[: len(before)] == before
        kept = ledger.reserve("people", statement(0.01), purpose="next")
        assert ledger.history()[-1] == kept
        ledger.verify()


def test_a_file_that_takes_the_ledgers_place_during_a_charge_is_refused(ledger, tmp_path, monkeypatch):
    shutil.copy(ledger.path, tmp_path / "copy")
    real = os.open

    def opens(path, flags, *rest, **named):
        descriptor = real(path, flags, *rest, **named)
        if path == ledger.path and (tmp_path / "copy").exists():
            os.replace(tmp_path / "copy", ledger.path)
        return descriptor

    monkeypatch.setattr(os, "open", opens)
    with pytest.raises(LedgerError, match="took its place"):
        ledger.reserve("people", statement(0.1), purpose="x")
    assert ledger.history() == ()
