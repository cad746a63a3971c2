"""The driver of private runs, in the manner of ``numpyro.infer.MCMC``."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import jax
import numpy.typing as npt

from private_mcmc.accounting import Statement
from private_mcmc.domains import Rows
from private_mcmc.dossier import Study
from private_mcmc.errors import DeclarationError, NotYetSupported, ReleaseError, arguments_checked
from private_mcmc.inference.arguments import Execution, records, refuse_key, steps_of
from private_mcmc.inference.bookkeeping import Bookkeeping, ChargedRun
from private_mcmc.inference.decision import Decision, Declaration, Guarantee
from private_mcmc.inference.execute import DeclaredRun, Outcome, Runnable, no_value_checks
from private_mcmc.inference.execute_plan import PlannedRun, given_releases, of_the_path
from private_mcmc.inference.posterior import resembles
from private_mcmc.inference.processes import releases
from private_mcmc.inference.record import About, study_of
from private_mcmc.kernels import LangevinKernel, run_keys
from private_mcmc.kernels.devices import layout
from private_mcmc.planning import Conclusion, History, Plan
from private_mcmc.release import Curator, Expectations, ReleasedExpectations, ReleasedStates
from private_mcmc.release.curvature import ProposedCurvature
from private_mcmc.report import Report
from private_mcmc.schedule import Release
from private_mcmc.target import Target, check_count

if TYPE_CHECKING:
    import arviz


class PrivateMCMC:
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
        model_args: the model's other arguments, public.
        init_params: public start, flat and unconstrained; zero if left out.
        curvature: strong convexity of the data that the run relies on, behind a private test;
            see :class:`private_mcmc.ProposedCurvature`.
        progress_bar: show steps done.
        execution: devices, blocks of rows, random generator: see :class:`private_mcmc.Execution`.
        bookkeeping: ledger and checkpoint: see :class:`private_mcmc.Bookkeeping`.
        deprecated: the fields of the two records, one by one.

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
        guarantee: Guarantee = "posterior",
        num_warmup: int = 0,
        n: int | None = None,
        model_args: Mapping[str, Any] | None = None,
        init_params: npt.ArrayLike | None = None,
        curvature: ProposedCurvature | None = None,
        progress_bar: bool = True,
        execution: Execution | None = None,
        bookkeeping: Bookkeeping | None = None,
        **deprecated: Any,
    ) -> None:
        here, books = records(execution, bookkeeping, deprecated, _ARGUMENTS)
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
            model_args={} if model_args is None else copy.deepcopy(model_args),
            init_params=init_params,
            layout=layout(here.chain_method, here.devices, num_chains),
            curvature=curvature,
        )
        self._set(DeclaredRun(declared, here, progress_bar), here, books)

    def _set(self, run: Runnable, execution: Execution, books: Bookkeeping) -> None:
        if books.checkpoint is not None and run.never_saved:
            raise DeclarationError(f"checkpoint=…: {run.never_saved}.")
        self._run, self._execution, self._books = run, execution, books
        self._outcome: Outcome | None = None
        self._charge: Mapping[str, Any] | None = None
        self._n = 0
        self._posterior: ReleasedStates | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @classmethod
    @arguments_checked
    def from_plan(
        cls,
        plan: Plan,
        *,
        progress_bar: bool = True,
        execution: Execution | None = None,
        bookkeeping: Bookkeeping | None = None,
        **deprecated: Any,
    ) -> Self:
        """A driver that executes every stage of ``plan``; the ledger is charged for all of them at once.

        Where a later stage fails, what the earlier ones released is in ``history``, at the price of all.
        """
        here, books = records(
            execution, bookkeeping, deprecated, ("progress_bar", "execution", "bookkeeping")
        )
        driver = cls.__new__(cls)
        driver._set(PlannedRun(plan, here, progress_bar), here, books)
        return driver

    def local_rows(self, n: int) -> slice:
        """Which of all ``n`` rows this process passes to ``run``: all, unless it is one of several."""
        return self._run.layout.local_rows(n)

    def decide(self, n: int | None = None) -> Decision:
        """Preflight and the run's own statement, without any data; raises ``NotPrivate`` as ``run`` would."""
        return self._run.decide(n)

    def run(self, *args: object, rng_key: Any = None, present: Any = None, **columns: Any) -> None:
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
        refuse_key(args)
        keys = run_keys(rng_key, self._execution.generator)
        keys.provenance.check_releasable(self._execution.unsafe_seed)
        checked, n = self._run.columns(args, columns, present)
        with no_value_checks():
            charged = self._charged(checked, n)
            charged.check_new()
            steps = self._run.ready(checked, n, keys.provenance.generator)
            with charged.begun(keys) as job:
                self._charge = job.charge
                steps(job, self._keep)

    def resume(self, *args: object, present: Any = None, **columns: Any) -> None:
        """Go on with the run in the checkpoint, on the same rows: the same run, charged when it began.

        Raises:
            ReleaseError: without a checkpoint, for one of another run or other rows, or of a run that has
                released.
        """
        self._begin()
        if self._books.checkpoint is None:
            raise ReleaseError("resume: only a driver made with checkpoint=… saves its runs.")
        checked, n = self._run.columns(args, columns, present)
        with no_value_checks():
            job = self._charged(checked, n).resumed(self._books.checkpoint)
            job.provenance.check_releasable(self._execution.unsafe_seed)
            self._charge = job.charge
            self._run.ready(checked, n, job.provenance.generator)(job, self._keep)

    def _begin(self) -> None:
        """Forget the last run, whatever comes of this one; in the one thread that runs this driver."""
        with self._lock:
            if self._thread not in (None, threading.current_thread()):
                raise ReleaseError(
                    "another thread runs this driver, and a second run would take the place of its result: "
                    "make a driver for each thread. Nothing was run or charged."
                )
            self._thread = threading.current_thread()
        self._outcome = self._posterior = None

    def _charged(self, columns: Mapping[str, object], n: int) -> ChargedRun:
        self._n = n
        price, saved = self._run.price(n), partial(self._run.to_save, n)
        return ChargedRun(self._books, self._run.declared, price, columns, saved)

    def _keep(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def _refuse(self, *_: object) -> NoReturn:
        raise ReleaseError(
            "a driver is never copied, pickled or sent to another process: it may hold the curator's side of "
            "a run. Save .released, or make another driver from the same declarations."
        )

    def __getattr__(self, name: str) -> NoReturn:
        """Habits from NumPyro's driver that have no place here are told what has."""
        remedy = f": {_INSTEAD[name]}" if name in _INSTEAD else "."
        raise AttributeError(f"PrivateMCMC has no attribute {name!r}{remedy}")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = __replace__ = _refuse

    @property
    def statement(self) -> Statement:
        """(ε, δ), the whole curve, and the argument that proves it: of the last run, or of the plan."""
        return self._run.price() if self._outcome is None else self._outcome.statement

    @property
    def released(self) -> ReleasedStates | ReleasedExpectations:
        """What the last run released."""
        if self._outcome is not None and self._outcome.released is None:
            raise ReleaseError("the plan broke off: .history has what its stages released.")
        if self._outcome is None or self._outcome.released is None:
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

        Of a plan: draws of ``posterior()``; ``released`` has the raw path.
        """
        return self._states().get_samples(group_by_chain)

    def to_arviz(self) -> arviz.InferenceData:
        """Released draws as an ArviZ ``InferenceData`` that carries the statement."""
        return self._states().to_arviz(self._run.declared.target.delta)

    def print_summary(self, prob: float = 0.9) -> None:
        """NumPyro's summary table of released draws, or the released expectations; then the statement."""
        if isinstance(self.released, ReleasedStates):
            states = self._states()
            states.print_summary(prob)
            if "draws" in states.provenance:
                print(f"Draws: {states.provenance['draws']}.")
        else:
            print(self.released)
        print(self.statement.summary(self._run.declared.target.delta))

    def study(self, about: About | None = None) -> Study:
        """The record of the last run: all that a reader or a reviewer needs, and nothing private.

        Raises:
            ReleaseError: if nothing was released.
        """
        if self._outcome is None:
            raise ReleaseError("nothing was released yet: run first.")
        noised = self._outcome.released is None or isinstance(self._outcome.released, ReleasedExpectations)
        samples = {} if noised else self.get_samples(group_by_chain=True)
        return study_of(self._run, self._n, self._outcome, samples, self._charge, about or About())

    def report(self) -> Report:
        """The dossier of the last run as a page; of a plan that was not run yet, the plan."""
        declared = self._run.declared
        if self._outcome is None and isinstance(declared, Plan):
            return declared.report()
        return self.study().report()

    def _repr_html_(self) -> str | None:
        waiting = self._outcome is None or self._outcome.released is None
        return None if waiting else self.report()._repr_html_()

    def save(self, folder: str | Path) -> Path:
        """Write the dossier of the last run into a folder: record, page, draws, model.

        Raises:
            ReleaseError: if nothing was released.
            OutputError: if there is a dossier already, or a file cannot be written.
        """
        return self.study().save(folder)

    def expectation(self, what: Any) -> Any:
        """A released expectation by its declared name, or a mean over released draws (free).

        Raises:
            ReleaseError: for something that was not declared, when expectations were released.
        """
        released = self.released
        if isinstance(released, ReleasedStates):
            return self._states().expectation(what)
        return released[what].value

    def posterior(self, also: Sequence[PrivateMCMC] = (), rng_key: jax.Array | None = None) -> ReleasedStates:
        """Draws of the posterior given everything that a plan's run released, in several chains of NUTS.

        Stages are noisy observations with known noise: privacy's noise, the cost of bounding rows' influence
        and the prior are in the width. It is post-processing: free, and a function of what was released.
        Under ``guarantee="posterior"`` too it is that of the model, whose likelihood is not weighted.

        Args:
            also: other runs of plans for the same model on the same data, merged as one likelihood; the
                statement is then that of all of them together.
            rng_key: of the sampler; a public one if left out, so that the draws are reproduced.

        Raises:
            ReleaseError: for a driver that has not run a plan, or for runs of another model.
            NotYetSupported: for models whose releases have no likelihood yet; ``get_samples`` then has draws
                of the path, and ``print_summary`` says so.
        """
        runs = (self, *also)
        outcomes = [one._outcome for one in runs]
        known = [one for one in outcomes if one is not None and one.history and one.released is not None]
        plans = [one._run.declared for one in runs]
        plan, first = plans[0], outcomes[0]
        if not isinstance(plan, Plan) or first is None or len(known) < len(runs):
            raise ReleaseError("posterior: only of plans that were run to their end.")
        if any(one.reading.names != plan.reading.names for one in plans if isinstance(one, Plan)):
            raise ReleaseError("posterior: also= takes runs of plans for the same model.")
        if not also and rng_key is None:
            if self._posterior is None:
                self._posterior = given_releases(plan, known)
            return self._posterior
        return given_releases(plan, known, rng_key)

    def _states(self) -> ReleasedStates:
        if self._outcome is not None and self._outcome.draws is not None:
            concluded, plan = self._outcome.conclusion, self._run.declared
            exact = concluded is not None and concluded.prediction.rms <= _EXACT
            if exact and isinstance(plan, Plan) and not resembles(plan.reading):
                # Synthetic rows know little of categories, which would count as noise of the run.
                return of_the_path(
                    self._outcome.draws, "covariates are categories, and the budget is not small"
                )
            try:
                return self.posterior()
            except NotYetSupported as reason:
                return of_the_path(self._outcome.draws, str(reason))
        if not isinstance(self.released, ReleasedStates):
            raise ReleaseError(
                "this run released expectations, not states: its states stay hidden. "
                "Another run with release='path' is another mechanism, charged again."
            )
        return self.released


# Of an error that a plan expects of its own means, in posterior sds: its own draws are as wide as they say.
_EXACT = 1.0
_HIDDEN = "states that were not released stay hidden; .released has those that were."
_INSTEAD = {
    "get_extra_fields": "what a kernel computes besides draws depends on private rows, and stays hidden.",
    "last_state": _HIDDEN,
    "post_warmup_state": _HIDDEN,
    "warmup": "warm-up is part of the one run that is paid for: give num_warmup=… and call run(…).",
    "num_chains": "for ArviZ there is to_arviz().",
    "sampler": "make another driver of the kernel; for ArviZ there is to_arviz().",
}
_ARGUMENTS = tuple(name for name in signature(PrivateMCMC.__init__).parameters if name != "self")
