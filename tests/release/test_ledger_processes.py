"""The ledger under killed, crowding and hindered processes: never an under-count, never a lost entry."""

import multiprocessing
import os
import random
import signal
import tempfile
import time
from contextlib import ExitStack
from multiprocessing import forkserver
from pathlib import Path

import pytest

from private_mcmc.release import Ledger
from private_mcmc.target import Target
from tests.full_disk import files_at_most
from tests.release import ledger_workers

ROOT = str(Path(__file__).parents[2])
CONTEXT = multiprocessing.get_context("forkserver")


@pytest.fixture(scope="module", autouse=True)
def fork_server():
    """Imports everything once; its children start in milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", ROOT)
        CONTEXT.set_forkserver_preload(["tests.release.ledger_workers"])
        forkserver.ensure_running()


@pytest.fixture
def ledger(tmp_path):
    made = Ledger.create(tmp_path / "people.ledger")
    made.declare("people", Target(3.0, 1e-6))
    return made


def start(work, *args):
    process = CONTEXT.Process(target=work, args=args, daemon=True)
    process.start()
    return process


def lines(log, first):
    words = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [word[-1] for word in words if word[0] == first]


def kill_many(ledger, log, times, at_once=4):
    for _ in range(times // at_once):
        processes = [
            start(ledger_workers.run_until_killed, str(ledger.path), str(log)) for _ in range(at_once)
        ]
        while not {str(process.pid) for process in processes} <= set(lines(log, "started")):
            assert all(process.is_alive() for process in processes)
            time.sleep(0.01)
        for process in processes:
            time.sleep(random.uniform(0, 0.1))
            os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            process.join()
            assert process.exitcode == -signal.SIGKILL
        check_nothing_lost(ledger, log)


def check_nothing_lost(ledger, log):
    ledger.verify()
    charged = {r.identity: r for r in ledger.history()}
    assert set(lines(log, "touched")) <= set(charged)
    assert all(charged[identity].outcome == "released" for identity in lines(log, "finished"))
    spent = ledger.balance("people").spent
    assert spent == sum(r.cost for r in charged.values())


@pytest.mark.long
def test_killed_processes_leave_a_readable_file_that_counts_every_touch(ledger, tmp_path):
    kill_many(ledger, tmp_path / "log", 24)
    assert any(r.outcome == "reserved" for r in ledger.history())
    assert len(ledger.history()) > 5


@pytest.mark.slow
def test_fifty_concurrent_writers_spend_the_budget_to_the_last_charge(ledger, tmp_path):
    """The budget holds 41 charges of 0.1-GDP; fifty processes ask for one each."""
    log = tmp_path / "log"
    processes = [start(ledger_workers.charge_often, str(ledger.path), str(log), 1) for _ in range(50)]
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    fits = int(ledger.balance("people").dataset.filter.limit / ledger.history()[0].cost)
    assert fits == 41
    assert len(lines(log, "touched")) == len(ledger.history()) == fits
    assert len(lines(log, "refused")) == 50 - fits
    assert {r.outcome for r in ledger.history()} == {"released"}
    check_nothing_lost(ledger, log)


def told_by(work, path):
    ours, theirs = CONTEXT.Pipe()
    process = start(work, str(path), theirs)
    assert ours.poll(120)
    message = ours.recv()
    process.join()
    return message


def test_a_full_disk_stops_the_run_before_it_starts(ledger):
    before = ledger.verify()
    message = told_by(ledger_workers.charge_with_a_full_disk, ledger.path)
    assert message.startswith("LedgerError")
    assert "too large" in message
    assert "nothing is begun" in message
    assert ledger.verify() == before


def test_a_disk_that_fills_up_during_the_run_leaves_the_charge_and_the_result(ledger):
    before = len(ledger.history())
    told = pytest.warns(UserWarning, match="the charge stays open, and spent")
    charge = ledger.charge("people", ledger_workers.statement(0.01), purpose="a long run")
    with ExitStack() as disk, told, charge:
        disk.enter_context(files_at_most(512))
    assert [charge.outcome for charge in ledger.history()][before:] == ["reserved"]


def test_a_file_that_cannot_be_written_stops_the_run():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.ledger"
        ledger = Ledger.create(path)
        ledger.declare("people", Target(3.0, 1e-6))
        before = ledger.verify()
        path.chmod(0o444)
        Path(folder).chmod(0o777)
        message = told_by(ledger_workers.charge_as_nobody, path)
        assert message.startswith("LedgerError")
        assert "Permission denied" in message
        assert "nothing is begun" in message
        assert ledger.verify() == before
