"""What the ledger's tests run in other processes; importable by a fork server."""

import os
import resource

from private_mcmc.accounting import gaussian
from private_mcmc.errors import BudgetExceeded, LedgerError
from private_mcmc.release.ledger import Ledger


def statement(m):
    return gaussian(adjacency="replace_one", sensitivity=m, scale=1.0)


def note(path, word):
    """Append a line, on disk before this returns."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{word}\n".encode())
    os.fsync(file)
    os.close(file)


def run_until_killed(path, log):
    """Reserve, run, settle, over and over; the log says what was touched and what was finished."""
    ledger = Ledger(path)
    note(log, f"started {os.getpid()}")
    while True:
        with ledger.charge("people", statement(0.01), purpose="killed") as reservation:
            note(log, f"touched {reservation.identity}")
        note(log, f"finished {reservation.identity}")


def charge_often(path, log, times):
    ledger = Ledger(path)
    for _ in range(times):
        try:
            with ledger.charge("people", statement(0.1), purpose="crowd") as reservation:
                note(log, f"touched {reservation.identity}")
        except BudgetExceeded:
            note(log, "refused")


def charge_with_a_full_disk(path, connection):
    """Files may not grow beyond what the ledger's file is now."""
    size = os.path.getsize(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    _charge_and_tell(path, connection)


def charge_as_nobody(path, connection):
    if os.geteuid() == 0:
        os.setuid(65534)
    _charge_and_tell(path, connection)


def _charge_and_tell(path, connection):
    try:
        with Ledger(path).charge("people", statement(0.01), purpose="x" * 200_000):
            connection.send("the run happened")
    except LedgerError as error:
        connection.send(f"LedgerError: {error}")
