"""The driver of private runs, in the manner of ``numpyro.infer.MCMC``."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from typing import Any, NoReturn, Self

import jax
import numpy.typing as npt

from private_mcmc.accounting import Statement
from private_mcmc.domains import Rows
from private_mcmc.domains.host_tables import HostColumn
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.inference.account import Account
from private_mcmc.inference.checkpoint import Checkpoint
from private_mcmc.inference.columns import (
    bind_columns,
    checked_columns,
    number_of_rows,
    presence_column,
)
from private_mcmc.inference.decision import Decision, Declaration, Guarantee, decide
from private_mcmc.inference.execute import (
    Outcome,
    Ready,
    Session,
    checked_start,
    no_value_checks,
    ready,
    run_declared,
)
from private_mcmc.inference.execute_plan import ready_plan, run_plan
from private_mcmc.inference.job import RunKeysAndState, SavedRuns
from private_mcmc.inference.processes import charged_once, releases
from private_mcmc.inference.streams import in_memory, schema, streamed
from private_mcmc.kernels import Generator, LangevinKernel, PrivateULA, run_keys
from private_mcmc.kernels.devices import ChainMethod, Devices, layout
from private_mcmc.planning import Conclusion, History, Plan
from private_mcmc.release import (
    Curator,
    Expectations,
    Ledger,
    ReleasedExpectations,
    ReleasedStates,
)
from private_mcmc.release.curvature import ProposedCurvature
from private_mcmc.schedule import Release
from private_mcmc.target import Target


class PrivateMCMC:
    """Run a private kernel on private rows and release what was declared, if the target is met.

    Preflight decides from public declarations before any row is touched; the kernel then runs the very
    schedule that was accounted for, and only the declared release comes out. A driver shows its last run, or
    nothing where that failed, and is run by one thread; its results may be read from any.

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
        num_chains: independent chains; the price of states grows with their number.
        guarantee: ``"posterior"``: preflight must certify the posterior at the target, and the run must
            meet it too. ``"run"``: the run's own statement decides.
        num_warmup: states of the first steps are released like the others but left out of samples.
        n: the number of rows, checked against the data. Under ``add_remove`` an upper bound, under
            ``zero_out`` the number of slots, empty ones included; needed under both.
        model_args: the model's other arguments, public.
        init_params: public start, flat and unconstrained; zero if left out.
        chain_method: ``"vectorized"``, ``"parallel"`` (chains over devices) or ``"sequential"``.
        devices: how many devices share the rows, or which; the default device if left out.
        rows_on_device: stream the rows in blocks of so many, read again at every step. Columns that are
            ``np.memmap``, or of a :class:`private_mcmc.Parquet` or :class:`private_mcmc.Arrow` file, are
            streamed in any case.
        curvature: strong convexity of the data that the run relies on, behind a private test;
            see :class:`private_mcmc.ProposedCurvature`.
        checkpoint: save the run as it goes, in a secret file from which :meth:`resume` goes on.
        ledger: charged before the first step, once all that may fail has been tried; see
            :class:`private_mcmc.Ledger`.
        dataset: the ledger's name for the data set.
        purpose: the owner's words for the ledger's history.
        progress_bar: show steps done.
        curator: keep what only the curator may look at (``.curator``), in this process's memory.
        generator: ``"chacha20"``, or ``"threefry2x32"``, which is faster and not cryptographic.
        unsafe_seed: allow ``run(rng_key=…)``, whose result is reproducible and not private.

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

    def __init__(
        self,
        kernel: LangevinKernel,
        *,
        rows: Rows,
        target: Target,
        release: Release | Expectations,
        num_steps: int,
        num_chains: int = 1,
        guarantee: Guarantee = "posterior",
        num_warmup: int = 0,
        n: int | None = None,
        model_args: Mapping[str, Any] | None = None,
        init_params: npt.ArrayLike | None = None,
        chain_method: ChainMethod = "vectorized",
        devices: Devices = None,
        rows_on_device: int | None = None,
        curvature: ProposedCurvature | None = None,
        checkpoint: Checkpoint | None = None,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        purpose: str = "",
        progress_bar: bool = True,
        curator: bool = False,
        generator: Generator = "chacha20",
        unsafe_seed: bool = False,
    ) -> None:
        if guarantee not in ("posterior", "run"):
            raise DeclarationError(f"guarantee={guarantee!r}: 'posterior' or 'run'.")
        if not isinstance(kernel, LangevinKernel):
            raise DeclarationError(
                f"kernel: {type(kernel).__name__} is not a private kernel; "
                "use PrivateULA, PrivateSGLD or AnisotropicLangevin."
            )
        if not 0 <= num_warmup < num_steps:
            raise DeclarationError(f"num_warmup={num_warmup}: must leave some of the {num_steps} steps.")
        self._declared = Declaration(
            kernel=kernel,
            rows=rows,
            target=target,
            release=release,
            num_steps=num_steps,
            num_chains=num_chains,
            guarantee=guarantee,
            model_args=copy.deepcopy(dict(model_args or {})),
            layout=layout(chain_method, devices, num_chains),
            curvature=curvature,
        )
        if curvature is not None and checkpoint is not None:
            raise DeclarationError("curvature=…: a run behind a test cannot be saved with checkpoint=….")
        self._decided: tuple[int, Decision] | None = None
        self._plan: Plan | None = None
        if rows_on_device is not None and not rows_on_device >= 1:
            raise DeclarationError(f"rows_on_device={rows_on_device}: must be at least 1.")
        self._session = Session(num_warmup, init_params, progress_bar, curator, rows_on_device)
        self._checkpoint = checkpoint
        self._account = Account(ledger, dataset, purpose)
        self._n = n
        self._generator: Generator = generator
        self._unsafe_seed = unsafe_seed
        self._outcome: Outcome | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        *,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        purpose: str = "",
        progress_bar: bool = True,
        curator: bool = False,
        generator: Generator = "chacha20",
        unsafe_seed: bool = False,
    ) -> Self:
        """A driver that executes every stage of ``plan``; the ledger is charged for all of them at once."""
        driver = cls(
            PrivateULA(plan.model, step_size=1.0, clip=1.0),
            rows=plan.rows,
            target=plan.target,
            release="path",
            num_steps=1,
            guarantee=plan.guarantee,
            n=plan.n,
            model_args=plan.model_args,
            ledger=ledger,
            dataset=dataset,
            purpose=purpose,
            progress_bar=progress_bar,
            curator=curator,
            generator=generator,
            unsafe_seed=unsafe_seed,
        )
        driver._plan = plan
        return driver

    def local_rows(self, n: int) -> slice:
        """Which of all ``n`` rows this process passes to ``run``: all, unless it is one of several."""
        return self._declared.layout.local_rows(n)

    def decide(self, n: int | None = None) -> Decision:
        """Preflight and the run's own statement, without any data; raises ``NotPrivate`` as ``run`` would."""
        if self._plan is not None:
            raise DeclarationError("a plan was decided when it was made: see plan.statement.")
        rows = self._n if n is None else n
        if rows is None:
            raise DeclarationError("decide(n): the number of rows is needed.")
        return self._decision(rows)

    def _decision(self, n: int) -> Decision:
        """Decided once for a number of rows: the declarations it rests on are frozen copies."""
        decided = self._decided
        if decided is None or decided[0] != n:
            self._decided = decided = n, decide(self._declared, n)
        return decided[1]

    def run(self, *args: Any, rng_key: Any = None, present: Any = None, **columns: Any) -> None:
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
            NotPrivate: if preflight or the run's own statement refuses; nothing was computed then. Also
                where a declared test of curvature does not succeed: then nothing but the test was run.
            BudgetExceeded: if the ledger has too little left.
            ReleaseError: for a seed given without ``unsafe_seed=True``, or a driver that another thread runs.
        """
        self._begin()
        declared = self._declared
        keys = run_keys(rng_key, self._generator)
        keys.provenance.check_releasable(self._unsafe_seed)
        checked, n = self._checked(args, columns, present)
        generator = keys.provenance.generator
        with no_value_checks():
            if self._plan is not None:
                completed = ready_plan(self._plan, checked, generator)
                with self._account.charge(self._plan.statement, declared, checked):
                    self._outcome = run_plan(completed, keys, self._session)
                return
            decision = self._decision(n)
            if self._checkpoint is not None:
                jobs = self._saved_jobs(self._checkpoint, decision, checked)
                jobs.check_new()
                prepared = ready(declared, decision, checked, self._session, generator)
                self._run_saved(jobs.begin(keys), decision, checked, prepared)
                return
            prepared, job = (
                ready(declared, decision, checked, self._session, generator),
                RunKeysAndState.of(keys),
            )
            with charged_once(self._account.charge(decision.statement, declared, checked)):
                self._outcome = run_declared(declared, decision, checked, prepared, job, self._session)

    def resume(self, *args: Any, present: Any = None, **columns: Any) -> None:
        """Go on with the run in the checkpoint, on the same rows: the same run, charged when it began.

        Raises:
            ReleaseError: without a checkpoint, for one of another run or other rows, or of a run that has
                released.
        """
        self._begin()
        if self._checkpoint is None or self._plan is not None:
            raise ReleaseError("resume: only a driver made with checkpoint=… saves its runs.")
        checked, n = self._checked(args, columns, present)
        with no_value_checks():
            decision = self._decision(n)
            job = self._saved_jobs(self._checkpoint, decision, checked).resume()
            prepared = ready(self._declared, decision, checked, self._session, job.provenance.generator)
            self._run_saved(job, decision, checked, prepared)

    def _begin(self) -> None:
        """Forget the last run, whatever comes of this one; in the one thread that runs this driver."""
        with self._lock:
            if self._thread not in (None, threading.current_thread()):
                raise ReleaseError(
                    "another thread runs this driver, and a second run would take the place of its result: "
                    "make a driver for each thread. Nothing was run or charged."
                )
            self._thread = threading.current_thread()
        self._outcome = None

    def _run_saved(
        self, job: RunKeysAndState, decision: Decision, columns: Mapping[str, Any], prepared: Ready
    ) -> None:
        job.provenance.check_releasable(self._unsafe_seed)
        self._outcome = run_declared(self._declared, decision, columns, prepared, job, self._session)

    def _refuse(self, *_: Any) -> NoReturn:
        raise ReleaseError(
            "a driver is never copied, pickled or sent to another process: it may hold the curator's side of "
            "a run. Save .released, or make another driver from the same declarations."
        )

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = __replace__ = _refuse

    def _saved_jobs(
        self, checkpoint: Checkpoint, decision: Decision, columns: Mapping[str, Any]
    ) -> SavedRuns:
        start = checked_start(self._session.init_params, decision.schedule)
        rows = self._session.rows_on_device
        return SavedRuns(checkpoint, self._account, self._declared, decision, columns, start, rows)

    def _checked(
        self, args: tuple[Any, ...], columns: Mapping[str, Any], present: Any
    ) -> tuple[dict[str, Any], int]:
        """The columns after every check of their schema, and the public number of rows."""
        declared, target = self._declared, self._declared.target
        data = bind_columns(declared.model, args, columns, declared.rows)
        data |= presence_column(present)
        if self._plan is None:
            data = streamed(data, self._session.rows_on_device, declared.layout)
        else:
            data = in_memory(data)
        shapes = schema(data)
        n = number_of_rows(declared.rows, shapes, target, self._n)
        checked = checked_columns(declared.rows, shapes, target, n, declared.layout)
        outside = any(isinstance(column, HostColumn) for column in data.values())
        if self._session.curator and (outside or jax.process_count() > 1):
            raise DeclarationError("curator=True: only where one process holds all rows on its device.")
        if declared.curvature is not None and (outside or jax.process_count() > 1):
            raise DeclarationError("curvature=…: only where one process holds all rows on its device.")
        if self._plan is not None and jax.process_count() > 1:
            raise DeclarationError("a plan runs in one process; run its kernel by PrivateMCMC(…) in several.")
        return (data if outside else dict(checked)), n

    @property
    def statement(self) -> Statement:
        """(ε, δ), the whole curve, and the argument that proves it: of the last run, or of the plan."""
        if self._outcome is None:
            if self._plan is not None:
                return self._plan.statement
            raise ReleaseError("nothing was run yet; decide(n).statement tells the price beforehand.")
        return self._outcome.statement

    @property
    def released(self) -> ReleasedStates | ReleasedExpectations:
        """What the last run released."""
        if self._outcome is None:
            where = "" if releases() else " in this process: the first one of them releases"
            raise ReleaseError(f"nothing was released yet{where}.")
        return self._outcome.released

    @property
    def history(self) -> History:
        """The stages of a plan and what each of them released; empty for a declared run."""
        return () if self._outcome is None else self._outcome.history

    @property
    def conclusion(self) -> Conclusion | None:
        """What a plan's policy made of its releases: draws and the error to expect of them."""
        return None if self._outcome is None else self._outcome.conclusion

    @property
    def curator(self) -> Curator:
        """The curator's side of the last run: hidden states, rows moved into their domain. No statement."""
        if self._outcome is None or self._outcome.curator is None:
            raise ReleaseError("nothing was kept for the curator: run a driver made with curator=True.")
        return self._outcome.curator

    def get_samples(self, group_by_chain: bool = False) -> Mapping[str, npt.NDArray[Any]]:
        """Released draws of every site after warm-up; ``(chains, draws, …)`` with ``group_by_chain``.

        Of a plan: the draws that its policy made from all releases; ``released`` has the raw path.
        """
        return self._states().get_samples(group_by_chain)

    def to_arviz(self) -> Any:
        """Released draws as an ArviZ ``InferenceData`` that carries the statement."""
        return self._states().to_arviz(self._declared.target.delta)

    def print_summary(self, prob: float = 0.9) -> None:
        """NumPyro's summary table of released draws, or the released expectations; then the statement."""
        if isinstance(self.released, ReleasedStates):
            self._states().print_summary(prob)
        else:
            print(self.released)
        print(self.statement.summary(self._declared.target.delta))

    def expectation(self, what: Any) -> Any:
        """A released expectation by its declared name, or a mean over released draws (free).

        Raises:
            ReleaseError: for something that was not declared, when expectations were released.
        """
        released = self.released
        if isinstance(released, ReleasedStates):
            return self._states().expectation(what)
        return released[what].value

    def _states(self) -> ReleasedStates:
        if self._outcome is not None and self._outcome.draws is not None:
            return self._outcome.draws
        if not isinstance(self.released, ReleasedStates):
            raise ReleaseError(
                "this run released expectations, not states: its states stay hidden. "
                "Another run with release='path' is another mechanism, charged again."
            )
        return self.released
