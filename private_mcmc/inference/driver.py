"""The driver of private runs, in the manner of ``numpyro.infer.MCMC``."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, Self

import numpy as np

from private_mcmc.arguments import arguments_checked, check_kind
from private_mcmc.domains import Rows
from private_mcmc.errors import DeclarationError, ReleaseError, clean_errors
from private_mcmc.inference.bookkeeping import Bill, Bookkeeping
from private_mcmc.inference.columns import checked
from private_mcmc.inference.decision import Decision, Declaration
from private_mcmc.inference.execute import DeclaredRun, Execution, Outcome, no_value_checks
from private_mcmc.inference.execute_plan import Look, PlannedRun
from private_mcmc.inference.last_run import LastRun, charged_words
from private_mcmc.kernels import LangevinKernel, run_keys
from private_mcmc.kernels.gradient import check_arithmetic
from private_mcmc.planning import DeclaredPlan, History, Plan, Prediction
from private_mcmc.planning.policy import make_room, opening, predict_after
from private_mcmc.preflight import known_of_posterior
from private_mcmc.records import Fields
from private_mcmc.release import Expectations
from private_mcmc.release.ledger import ENDS
from private_mcmc.report.document import announce
from private_mcmc.schedule import Release, check_steps
from private_mcmc.system import blas_of_one_thread
from private_mcmc.target import OF_PLANS, Guarantee, Target, check_count


class PrivateMCMC(LastRun):
    """Run a private kernel on private rows and release what was declared, if the target is met.

    Preflight decides from public declarations before any row is touched; the kernel then runs the very
    schedule that was accounted for, and only the declared release comes out. A driver shows its last run, or
    nothing where that failed (of a plan that broke off: ``history``), and is run by one thread; its results
    may be read from any.

    **Guarantee**: what ``statement`` says of the release, for the target's adjacency.
    **Assumptions**: those quoted in the statement; ``Rows``, the model, ``model_args``, ``n`` and every
    argument here are public and were not chosen by looking at the private rows.
    **Cost**: one run is one mechanism. What is computed from released states is free; another run is
    charged again.

    Args:
        kernel: what to run, for example ``PrivateULA(model, step_size=…, clip=…)``.
        rows: domain of every row column; rows are mapped into it silently.
        target: (ε, δ) and adjacency.
        release: ``"last"``, ``"path"``, a tuple of steps, or ``Expectations(…)``.
        num_steps: steps of every chain.
        num_samples: in place of ``num_steps``, as in NumPyro: ``num_steps = num_warmup + num_samples``.
            Under ``"path"`` so many draws of every chain are shown; the warm-up is paid for as well.
        num_chains: independent chains; the price of states grows with their number.
        guarantee: ``"posterior"``: preflight must certify the posterior at the target, and the run must
            meet it too. ``"run"``: the run's own statement decides.
        num_warmup: states of the first steps are released like the others but left out of samples.
        n: the number of rows, checked against the data. Under ``add_remove`` an upper bound, under
            ``zero_out`` the number of slots, empty ones included; needed under both.
        execution: devices, blocks of rows, start, random generator: see :class:`private_mcmc.Execution`.
        bookkeeping: ledger and checkpoint: see :class:`private_mcmc.Bookkeeping`.
        progress_bar: as in NumPyro, in place of ``Execution(progress_bar=…)``.

    Raises:
        DeclarationError: for declarations that make no sense.

    Example:
        >>> from private_mcmc.models import logistic, logistic_rows
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.normal(size=(100, 2)), rng.integers(0, 2, size=100)
        >>> mcmc = pmc.PrivateMCMC(
        ...     pmc.PrivateULA(logistic, step_size=1e-3, clip=1.0, temper=0.1), rows=logistic_rows(2),
        ...     target=pmc.Target(epsilon=3.0, delta=1e-6), release="last", num_steps=20, n=100,
        ... )
        >>> mcmc.run(X=X, y=y)
        sampling ... 20/20 ...
        >>> mcmc.get_samples()["w"].shape
        (1, 2)
        >>> round(mcmc.statement.epsilon(1e-6), 3)
        0.071
    """

    @arguments_checked
    def __init__(
        self,
        kernel: LangevinKernel,
        *,
        rows: Rows,
        target: Target,
        release: Release | Expectations,
        num_steps: int | None = None,
        num_samples: int | None = None,
        num_chains: int = 1,
        guarantee: Guarantee = OF_PLANS,
        num_warmup: int = 0,
        n: int | None = None,
        execution: Execution | None = None,
        bookkeeping: Bookkeeping | None = None,
        progress_bar: bool | None = None,
    ) -> None:
        here = executed(execution, progress_bar)
        check_count("num_chains", num_chains)
        declared = Declaration(
            kernel=kernel,
            rows=rows,
            target=target,
            release=release,
            num_steps=steps_of(num_steps, num_warmup, num_samples),
            num_chains=num_chains,
            guarantee=guarantee,
            num_warmup=num_warmup,
            n=n,
            model_args=copy.deepcopy(getattr(kernel, "model_args", {})),
        )
        self._set(DeclaredRun(declared, here), here, bookkeeping)

    def _set(
        self, run: DeclaredRun | PlannedRun, execution: Execution, bookkeeping: Bookkeeping | None
    ) -> None:
        books = Bookkeeping() if bookkeeping is None else bookkeeping
        check_kind("bookkeeping", books, Bookkeeping)
        if books.checkpoint is not None and isinstance(run, PlannedRun):
            raise DeclarationError("checkpoint=…: a plan is resumed from what its stages released.")
        self._run, self._execution, self._books = run, execution, books
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @classmethod
    @arguments_checked
    def from_plan(
        cls,
        plan: Plan | DeclaredPlan,
        *,
        execution: Execution | None = None,
        bookkeeping: Bookkeeping | None = None,
        progress_bar: bool | None = None,
        stop_if: Callable[[Prediction], bool] | None = None,
    ) -> Self:
        """A driver that executes every stage of ``plan``, each charged to the ledger before it is run.

        The ledger sets the plan's whole budget aside. After the cheap stages the error of the rest is
        predicted again from what they released: if ``stop_if`` says so of it, nothing more is bought, and
        the ledger has the rest again. So it has where a later stage fails; what the earlier ones released is
        in ``history``. By itself such a run is as private as the whole budget, which was fixed beforehand.

        A plan of one declared run has no stages: it begins at the plan's own start.
        """
        here = executed(execution, progress_bar)
        if isinstance(plan, DeclaredPlan):
            if stop_if is not None:
                raise DeclarationError(
                    "stop_if=…: this plan is of one run, which releases nothing before its end."
                )
            declared = {name: getattr(plan, name) for name in _DECLARED}
            start = plan.start if here.init_params is None else here.init_params
            return cls(
                plan.kernel, **declared, execution=replace(here, init_params=start), bookkeeping=bookkeeping
            )
        look = None if stop_if is None else stopping(stop_if)
        return cls.of_run(PlannedRun(plan, here, look), bookkeeping)

    @classmethod
    def of_run(cls, run: PlannedRun, bookkeeping: Bookkeeping | None) -> Self:
        """A driver of a plan's run."""
        driver = cls.__new__(cls)
        driver._set(run, run.execution, bookkeeping)
        return driver

    def decide(self, n: int | None = None) -> Decision:
        """Preflight and the run's own statement, without any data; raises ``NotPrivate`` as ``run`` would."""
        return self._run.decide(n)

    @clean_errors
    def run(self, /, *args: object, rng_key: Any = None, present: object = None, **columns: object) -> None:
        """Run on the private ``columns``: the model's row arguments, by position or by name.

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
        refuse_key(args)
        streams, provenance = run_keys(rng_key)
        provenance.check_releasable(self._execution.unsafe_seed)
        with no_value_checks(), blas_of_one_thread():
            bill = self._bill(args, columns, present)
            if self._execution.progress_bar:
                announce(self._opening(self._n))
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

    def _opening(self, n: int) -> str:
        declared = self._run.declared
        if isinstance(declared, Plan):
            return declared.opening
        known = "certified at this target"  # refused otherwise
        if declared.guarantee == "run":
            known = known_of_posterior(self._run.decide(n).reading, declared.target, n, declared.temper)
        return opening(declared.target, n, declared.guarantee, known)

    def _bill(self, args: tuple[object, ...], named: Mapping[str, object], present: object) -> Bill:
        """What a run on these columns costs, once they are checked and what is needed for it is there."""
        run, planned = self._run, isinstance(self._run, PlannedRun)
        columns, n = checked(run.declared, args, named, present, self._execution.place(whole=planned))
        check_arithmetic()
        self._n = n
        words, price = charged_words(run, n), run.price(n)
        if isinstance(run, PlannedRun):
            return Bill(price, words, columns, staged=True)
        return Bill(price, words, columns, run=run.mark(n) if self._books.checkpoint else "")

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

    def recall(self, outcome: Outcome, charge: Fields | None) -> None:
        """Show what a plan's run has released in another process: public values and their statement."""
        self._begin()
        self._n, self._outcome, self._charge = int(self._run.declared.n or 0), outcome, charge

    def _refuse(self, *_: object) -> NoReturn:
        raise ReleaseError(
            "a driver is never copied, pickled or sent to another process: it may hold the curator's side of "
            "a run. Save .released, or make another driver from the same declarations."
        )

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = __replace__ = _refuse


# What a plan of one run declares.
_DECLARED = ("rows", "target", "release", "num_steps", "num_chains", "guarantee", "n")


def stopping(stop_if: Callable[[Prediction], bool]) -> Look:
    """The look at a plan's cheap stages that stops by the error predicted from them."""

    def look(plan: Plan, releases: History) -> bool:
        return bool(stop_if(predict_after(plan, releases)))

    return look


def executed(execution: Execution | None, progress_bar: bool | None) -> Execution:
    """Where to run, with a progress bar if the caller asks for one as of NumPyro's drivers."""
    here = Execution() if execution is None else execution
    check_kind("execution", here, Execution)
    return here if progress_bar is None else replace(here, progress_bar=bool(progress_bar))


def steps_of(num_steps: int | None, num_warmup: int, num_samples: int | None) -> int:
    """``num_steps``, or ``num_warmup + num_samples``."""
    if not isinstance(num_warmup, int | np.integer) or isinstance(num_warmup, bool) or num_warmup < 0:
        raise DeclarationError(f"num_warmup={num_warmup!r}: must be a whole number, at least 0.")
    if (num_steps is None) == (num_samples is None):
        raise DeclarationError("give num_steps=…, or num_samples=… after num_warmup; one of them.")
    if num_samples is not None:
        check_count("num_samples", num_samples)
        num_steps = num_warmup + num_samples
    check_steps(num_steps)
    if num_steps is None or not num_warmup < num_steps:
        raise DeclarationError(f"num_warmup={num_warmup}: must leave some of the {num_steps} steps.")
    return int(num_steps)


def refuse_key(args: tuple[object, ...]) -> None:
    """``run(rng_key, …)`` as of NumPyro's drivers: a key or a seed where a column is expected."""
    first = args[0] if args else None
    shape, kind = getattr(first, "shape", None), getattr(first, "dtype", None)
    if isinstance(first, int) or shape == () or (shape == (2,) and kind == np.uint32):
        raise DeclarationError(
            "run(…) takes the private columns, and no random key: its keys come from the operating system. A "
            "key of your own is rng_key=…, which makes a run reproducible and not private. (A column of two "
            "uint32 rows is passed by its name.)"
        )
