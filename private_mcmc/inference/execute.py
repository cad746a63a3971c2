"""Executing what was decided: rows in, chain, release out. The only place that holds both sides."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.arguments import construction_checked
from private_mcmc.domains import Rows
from private_mcmc.domains.rows import project_rows
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.inference.bookkeeping import Job, marked
from private_mcmc.inference.columns import Place, placed
from private_mcmc.inference.decision import Decision, Declaration, decide
from private_mcmc.kernels import ChainOutput, ChainRunner, Streams, chain_runner, langevin_program
from private_mcmc.kernels.gradient import PreparedRows, whitening
from private_mcmc.kernels.partitions import Engine, Partition, Resident, partitioned_runner
from private_mcmc.kernels.step import Observable
from private_mcmc.planning import Conclusion, History
from private_mcmc.planning.stages import of_rows
from private_mcmc.potential.potential import Potential, model_marks
from private_mcmc.potential.rowwise import EXACT, abstract, in_blocks, program_mark, rowwise
from private_mcmc.records import Fields
from private_mcmc.release import ReleasedExpectations, ReleasedStates, StateGrid, state_grid
from private_mcmc.report.document import progress
from private_mcmc.schedule import Schedule
from private_mcmc.target import check_count

Array = npt.NDArray[np.float64]
# Columns computed from each row.
Derived = Callable[[Fields], Mapping[str, jax.Array]]


@construction_checked
@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where a run is executed, and with which random numbers; nothing here changes what it costs.

    Attributes:
        devices: how many devices share the rows, or which; the default device if left out.
        engine: rows in the memory of other processes or machines: :class:`private_mcmc.Ray`.
        rows_on_device: stream the rows in blocks of so many, read again at every step. Columns that are
            ``np.memmap``, or of a :class:`private_mcmc.Parquet` or :class:`private_mcmc.Arrow` file, are
            streamed in any case.
        unsafe_seed: allow ``run(rng_key=…)``, whose result is reproducible and not private.
        init_params: public start of every chain, flat and unconstrained; zero if left out.
        progress_bar: show steps done.

    Example:
        >>> pmc.Execution(devices=1).devices
        1
    """

    devices: int | Sequence[jax.Device] | None = None
    engine: Engine | None = None
    rows_on_device: int | None = None
    unsafe_seed: bool = False
    init_params: npt.ArrayLike | None = field(default=None, repr=False, compare=False)
    progress_bar: bool = True

    def __post_init__(self) -> None:
        if self.rows_on_device is not None:
            check_count("rows_on_device", self.rows_on_device)
        if not (self.devices is None or isinstance(self.devices, int | Sequence)):
            raise DeclarationError("devices: a number, or a sequence of jax.devices().")

    def place(self, whole: bool = False) -> Place:
        """Where the rows lie: on devices or elsewhere; ``whole``: files in memory unless blocks are asked."""
        return Place(devices_of(self.devices), self.rows_on_device, self.engine, whole)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run released, at what price; of a plan also its stages and the draws made from them.

    ``released`` is ``None`` where a plan ended after some of its stages. ``ended``: how, where nothing more
    is bought; ``""`` while more may be. ``provenance`` tells where its randomness came from.
    """

    statement: Statement
    released: ReleasedStates | ReleasedExpectations | None
    draws: ReleasedStates | None = None
    history: History = ()
    conclusion: Conclusion | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    ended: Literal["", "released", "stopped"] = ""


Keep = Callable[[Outcome], None]
# The steps of a run that lacks nothing but them and its charge. It hands all that it releases to ``Keep`` at
# once, so that nothing is lost to what fails later.
ReadyRun = Callable[[Job, Keep], None]


@contextmanager
def no_value_checks() -> Iterator[None]:
    """Switch off checks of JAX and NumPy whose errors and warnings would depend on private values.

    Products are those of the numbers' own type, whatever precision JAX is set to: bounds of rows, sums and
    noise are float64.
    """
    exact = jax.default_matmul_precision(EXACT)
    with jax.debug_nans(False), jax.debug_infs(False), np.errstate(all="ignore"), exact:
        yield


def runner_of(
    domains: Rows,
    reading: Potential,
    schedule: Schedule,
    partitions: Sequence[Partition],
    observable: Observable | None = None,
    derived: Derived | None = None,
) -> ChainRunner:
    """What makes the steps of ``schedule`` where the rows are, each with the columns ``derived`` of it.

    It holds no row, and its ``prepare`` takes the partitions, whose rows are mapped into ``domains``. Where
    one device has all of them, many steps are one program.
    """
    if len(partitions) > 1 or not isinstance(partitions[0], Resident):
        return _partitioned(domains, reading, schedule, observable, derived)
    runner = chain_runner(reading, schedule, observable)

    def prepare(partitions: Sequence[Resident]) -> PreparedRows:
        (here,) = partitions
        rows = project_rows(domains, here.columns)
        return runner.prepare(rows if derived is None else {**rows, **of_rows(derived, rows)}, here.present)

    return replace(runner, prepare=prepare)


@lru_cache(maxsize=8)
def _partitioned(
    domains: Rows,
    reading: Potential,
    schedule: Schedule,
    observable: Observable | None,
    derived: Derived | None,
) -> ChainRunner:
    def mapped(columns: Mapping[str, jax.Array]) -> Mapping[str, jax.Array]:
        rows = domains.project(columns)
        return rows if derived is None else {**rows, **jax.vmap(rowwise(derived))(rows)}

    return partitioned_runner(langevin_program(reading, schedule), schedule, mapped, observable)


def devices_of(devices: int | Sequence[jax.Device] | None) -> tuple[jax.Device, ...] | None:
    """The first so many of ``jax.devices()``, or these; ``None``: the default device."""
    if devices is None:
        return None
    if isinstance(devices, int) and not 1 <= devices <= len(jax.devices()):
        raise DeclarationError(f"devices={devices}: there are {len(jax.devices())} of them.")
    chosen = tuple(jax.devices()[:devices] if isinstance(devices, int) else devices)
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise DeclarationError("devices: a number, or a sequence of jax.devices().")
    return chosen


def checked_start(init_params: npt.ArrayLike | None, schedule: Schedule) -> Array:
    """The public start, zero by default."""
    dim = schedule.dim
    if init_params is None:
        return np.zeros(dim)
    try:
        start = np.array(init_params, dtype=np.float64)  # a copy: it is looked at here and runs later
    except (TypeError, ValueError):
        start = np.full(dim, np.nan)
    if start.shape != (dim,) or not np.all(np.isfinite(start)):
        raise DeclarationError(f"init_params: {dim} finite numbers are needed (flat, unconstrained).")
    if schedule.within < math.inf:
        with jax.enable_x64(True):
            whitened = np.asarray(whitening(schedule.preconditioner, dim).from_parameter(jnp.asarray(start)))
        if not np.max(np.abs(whitened)) <= schedule.within:
            raise DeclarationError(
                f"init_params: with hidden states, at most {schedule.within:.3g} in whitened coordinates."
            )
    return start


def constrained(reading: Potential, states: Array) -> dict[str, np.ndarray]:
    """States ``(chains, kept, p)`` as values of the model's sites, ``(chains, kept, …)``."""
    with jax.enable_x64(True), jax.default_matmul_precision(EXACT):
        found = in_blocks(partial(_constrained, reading), states.reshape(-1, reading.dim))
    return {name: values.reshape(*states.shape[:2], *values.shape[1:]) for name, values in found.items()}


@partial(jax.jit, static_argnums=0)
def _constrained(reading: Potential, states: jax.Array) -> Mapping[str, jax.Array]:
    return jax.vmap(reading.constrain)(states)


def try_constraining(reading: Potential) -> None:
    """Trace what maps states to the model's sites."""
    with jax.enable_x64(True):
        jax.eval_shape(partial(_constrained, reading), abstract((1, reading.dim), np.float64))


def released_states(
    reading: Potential,
    states: Array,
    grid: StateGrid,
    statement: Statement,
    provenance: Mapping[str, str],
    steps: tuple[int, ...],
    num_warmup: int,
) -> ReleasedStates:
    """States ``(chains, kept, p)`` on their grid, as values of the model's sites."""
    samples = constrained(reading, states)
    return ReleasedStates(samples, steps, num_warmup, statement, provenance, grid.step)


def run_name() -> str:
    """A fresh identity for a run, so that its statement is never counted twice or composed with itself."""
    return uuid.uuid4().hex


@dataclass(frozen=True, eq=False)
class DeclaredRun:
    """Chains of one declared kernel, decided once for a number of rows."""

    declared: Declaration
    execution: Execution
    _decided: dict[int, Decision] = field(default_factory=dict)

    def decide(self, n: int | None = None) -> Decision:
        """Decided once for a number of rows: the declarations it rests on are frozen copies."""
        rows = self.declared.n if n is None else n
        if rows is None:
            raise DeclarationError("decide(n): the number of rows is needed.")
        check_count("n", rows)
        if rows not in self._decided:
            self._decided[rows] = decide(self.declared, rows)
        return self._decided[rows]

    def price(self, n: int | None = None) -> Statement:
        """The run's own statement."""
        if n is None:
            raise ReleaseError("nothing was run yet; decide(n).statement tells the price beforehand.")
        return self.decide(n).statement

    def mark(self, n: int) -> str:
        """A hash of what must be the same for the same run: schedule, domains, model, start, averages."""
        decision = self.decide(n)
        start = checked_start(self.execution.init_params, decision.schedule)
        averaged = "" if decision.expectations is None else program_mark(decision.expectations, start)
        marks = (*model_marks(decision.reading), decision.reading.rows.fingerprint, averaged)
        return hashlib.sha256(repr((decision.schedule, start.tolist(), marks)).encode()).hexdigest()

    def ready(self, columns: Fields, n: int, streams: Streams) -> ReadyRun:
        """Bring the rows to where the run wants them, compile what it calls; nothing is charged yet."""
        decision = self.decide(n)
        reading, schedule = decision.reading, decision.schedule
        start = checked_start(self.execution.init_params, schedule)
        place = self.execution.place()
        partitions = placed(columns, n, place, self.declared, streams)
        runner = runner_of(reading.rows, reading, schedule, partitions, decision.expectations)
        with jax.enable_x64(True):
            rows = runner.prepare(partitions)
        runner.try_out(start, rows, streams)
        if decision.expectations is None:
            try_constraining(reading)
        return partial(self._run, decision, partial(runner.run, start, rows))

    def _run(self, decision: Decision, run: Callable[..., ChainOutput], job: Job, keep: Keep) -> None:
        """Run the decided schedule once and release what was declared."""
        schedule, expectations = decision.schedule, decision.expectations
        with progress("sampling", schedule.num_steps, self.execution.progress_bar) as on_progress:
            output = run(job.streams, on_progress, job.saved)
        statement = marked(decision.statement.of(run_name()), job.provenance)
        provenance = job.provenance.to_dict()
        released: ReleasedStates | ReleasedExpectations
        if expectations is not None and output.average is not None:
            noised = expectations.release(output.average, provenance)
            released = replace(noised, statement=statement)
        elif output.states is not None:
            grid, kept = state_grid(schedule), accounting.released_steps(schedule)
            on_grid, warmup = grid.round(output.states), self.declared.num_warmup
            released = released_states(decision.reading, on_grid, grid, statement, provenance, kept, warmup)
        else:
            raise ReleaseError("this schedule keeps no states: it releases averages.")
        # Only now: a run that fails before can be taken up again. After it no copy of it can.
        job.finish()
        keep(Outcome(statement, released, provenance=provenance, ended="released"))
        job.forget()
