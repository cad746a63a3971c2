"""Runs on private rows: columns checked, the price charged, run and kept, in this order, by one thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from private_mcmc.errors import ReleaseError, clean_errors
from private_mcmc.inference.bookkeeping import Bill
from private_mcmc.inference.columns import checked
from private_mcmc.inference.declared import Execution, Outcome
from private_mcmc.inference.execute import DeclaredRun, no_value_checks
from private_mcmc.inference.execute_plan import PlannedRun
from private_mcmc.inference.last_run import LastRun, charged_words, opening_of
from private_mcmc.kernels import run_keys
from private_mcmc.kernels.gradient import check_arithmetic
from private_mcmc.release.ledger import ENDS
from private_mcmc.report.document import announce
from private_mcmc.system import blas_of_one_thread, make_room


class Runs(LastRun):
    """What a driver does with private rows; the last run, which it shows, is the base's."""

    _execution: Execution
    _lock: threading.Lock
    _thread: threading.Thread | None = None

    @clean_errors
    def run(self, /, *args: object, rng_key: Any = None, present: object = None, **columns: object) -> None:
        """Run on the private ``columns``: the model's row arguments, by position or by name; copied once.

        Under ``zero_out`` the columns have a row for every one of the ``n`` slots, and ``present`` of shape
        ``(n,)`` tells which slots hold a person (true or 1; left out: all of them). What lies in the others
        is ignored: they add exactly 0 to every sum, and no other row moves.

        ``rng_key`` makes the run reproducible and therefore not private; it is refused without
        ``unsafe_seed=True``. A second call is a new, independent run, charged again. Everything that can fail
        is tried before the charge: rows are brought to the device and the chain is compiled.

        Raises:
            DataSchemaError: for missing columns, wrong shapes or types, masks, a wrong number of rows; for
                ``present`` under an adjacency without holes.
            NotPrivate: if preflight or the run's own statement refuses; nothing was computed then.
            BudgetExceeded: if the ledger has too little left.
            ReleaseError: for a seed given without ``unsafe_seed=True``, or a driver that another thread runs.
        """
        self._begin()
        streams, provenance = run_keys(rng_key)
        provenance.check_releasable(self._execution.unsafe_seed)
        with no_value_checks(), blas_of_one_thread():
            bill = self._bill(args, columns, present)
            if self._execution.progress_bar:
                announce(opening_of(self._run, self._n))
            steps = self._run.ready(bill.columns, self._n, streams)
            with self._books.begun(bill, streams, provenance) as job:
                self._charge = job.books.standing
                steps(job, self._keep)

    @clean_errors
    def resume(self, /, *args: object, present: object = None, **columns: object) -> None:
        """Go on with the run in the checkpoint, on the same rows: the same run, charged when it began.

        Raises:
            ReleaseError: without a checkpoint, for one of another run or other rows, or of a run that has
                released.
        """
        self._begin()
        with no_value_checks(), blas_of_one_thread():
            bill = self._bill(args, columns, present)
            job = self._books.resumed(bill)
            job.provenance.check_releasable(self._execution.unsafe_seed)
            self._charge = job.books.standing
            self._run.ready(bill.columns, self._n, job.streams)(job, self._keep)

    def _begin(self) -> None:
        """Forget the last run, whatever comes of this one; in the one thread that runs this driver."""
        with self._lock:
            if self._thread not in (None, threading.current_thread()):
                raise ReleaseError(
                    "another thread runs this driver, and a second run would take the place of its result: "
                    "make a driver for each thread. Nothing was run or charged."
                )
            self._thread = threading.current_thread()
        self._outcome = self._known = self._recorded = None
        make_room()

    def _bill(self, args: tuple[object, ...], named: Mapping[str, object], present: object) -> Bill:
        """What a run on these columns costs, once they are checked and what is needed for it is there."""
        run = self._run
        columns, self._n = checked(run.declared, args, named, present, self._execution)
        check_arithmetic()
        # Of a plan what all of its stages cost at most.
        price = run.declared.statement if isinstance(run, PlannedRun) else run.decide(self._n).statement
        bill = Bill(price, charged_words(run, self._n), columns, isinstance(run, PlannedRun))
        if self._books.checkpoint is None or not isinstance(run, DeclaredRun):
            return bill
        return replace(bill, run=run.mark(self._n))

    def _keep(self, outcome: Outcome) -> None:
        self._outcome = outcome
        # How it ended, and a plan's draws, are no release: every stage has been copied.
        keep = None if outcome.ended else self._books.keep
        if keep is not None and outcome.statement.parts:
            self._books.hand_on(outcome, self._charge)
        elif keep is not None and self._charge is not None:
            keep(outcome, self._charge)  # nothing is bought yet: what fails here ends the run
        if outcome.ended and self._charge is not None:
            ENDS[str(self._charge["charge"])] = outcome.ended

    def _refuse(self, *_: object) -> NoReturn:
        raise ReleaseError(
            "a driver is never copied, pickled or sent to another process: it may hold the curator's side of "
            "a run. Save .released, or make another driver from the same declarations."
        )

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = __replace__ = _refuse
