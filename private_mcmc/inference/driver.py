"""The driver of private runs, in the manner of ``numpyro.infer.MCMC``."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Self

import numpy as np

from private_mcmc.arguments import OF_PLANS, Guarantee, arguments_checked, check_kind
from private_mcmc.domains import Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.inference.bookkeeping import Bookkeeping
from private_mcmc.inference.decision import Decision
from private_mcmc.inference.declared import Declaration, Execution, stopping
from private_mcmc.inference.execute import DeclaredRun
from private_mcmc.inference.execute_plan import PlannedRun
from private_mcmc.inference.runs import Runs
from private_mcmc.kernels import LangevinKernel
from private_mcmc.planning import DeclaredPlan, Plan, Prediction
from private_mcmc.release import Expectations
from private_mcmc.schedule import Release, check_steps
from private_mcmc.target import Target, check_count


class PrivateMCMC(Runs):
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
        self._run, self._execution, self._books, self._lock = run, execution, books, threading.Lock()

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
        if isinstance(self._run, PlannedRun):
            raise DeclarationError("a plan was decided when it was made: see plan.statement.")
        return self._run.decide(n)


# What a plan of one run declares.
_DECLARED = ("rows", "target", "release", "num_steps", "num_chains", "guarantee", "n")


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
