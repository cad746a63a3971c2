"""Executing what was decided: rows in, chain, release out. The only place that holds both sides."""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.domains import Rows
from private_mcmc.domains.rows import project_rows
from private_mcmc.errors import DeclarationError
from private_mcmc.inference.bookkeeping import Job, marked
from private_mcmc.inference.columns import placed
from private_mcmc.inference.decision import Decision, Decisions
from private_mcmc.inference.declared import Array, Execution, Keep, Outcome, constrained
from private_mcmc.kernels import ChainRunner, Streams, chain_runner, langevin_program
from private_mcmc.kernels.gradient import PreparedRows, whitening
from private_mcmc.kernels.partitions import Partition, Resident, partitioned_runner
from private_mcmc.kernels.step import Observable
from private_mcmc.potential.potential import Potential, model_marks
from private_mcmc.potential.rowwise import EXACT, at_each, of_rows, program_mark, rowwise
from private_mcmc.records import Fields
from private_mcmc.release import ReleasedExpectations, ReleasedStates, state_grid
from private_mcmc.report.document import progress
from private_mcmc.schedule import Schedule

# Columns computed from each row.
Derived = Callable[[Fields], Mapping[str, jax.Array]]
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
        return rows if derived is None else {**rows, **at_each(rowwise(derived), rows)}

    return partitioned_runner(langevin_program(reading, schedule), schedule, mapped, observable)


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


def run_name() -> str:
    """A fresh identity for a run, so that its statement is never counted twice or composed with itself."""
    return uuid.uuid4().hex


@dataclass(frozen=True, eq=False)
class DeclaredRun(Decisions):
    """Chains of one declared kernel."""

    execution: Execution

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
        partitions = placed(columns, n, self.execution, self.declared.rows, schedule.adjacency, streams)
        runner = runner_of(reading.rows, reading, schedule, partitions, decision.expectations)
        with jax.enable_x64(True):
            rows = runner.prepare(partitions)
        runner.try_out(start, rows, streams)
        if decision.expectations is None:
            constrained(reading, np.zeros((1, 1, reading.dim)))
        return partial(self._run, decision, partial(runner.run, start, rows))

    def _run(self, decision: Decision, run: Callable[..., Array], job: Job, keep: Keep) -> None:
        """Run the decided schedule once and release what was declared."""
        schedule, expectations = decision.schedule, decision.expectations
        with progress("sampling", schedule.num_steps, self.execution.progress_bar) as on_progress:
            output = run(job.streams, on_progress, job.saved)
        statement = marked(decision.statement.of(run_name()), job.provenance)
        provenance = job.provenance.to_dict()
        released: ReleasedStates | ReleasedExpectations
        if expectations is not None:
            released = replace(expectations.release(output, provenance), statement=statement)
        else:
            grid, kept = state_grid(schedule), accounting.released_steps(schedule)
            samples = constrained(decision.reading, grid.round(output))
            warmup = self.declared.num_warmup
            released = ReleasedStates(samples, kept, warmup, statement, provenance, grid.step)
        # Only now: a run that fails before can be taken up again. After it no copy of it can.
        job.finish()
        keep(Outcome(statement, released, provenance=provenance, ended="released"))
        if job.saved is not None:
            job.saved.checkpoint.remove()
