"""Executing what was decided: rows in, chain, release out. The only place that holds both sides."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.errors import DeclarationError, NotPrivate, ReleaseError
from private_mcmc.inference.columns import Columns, on_device
from private_mcmc.inference.decision import Constrain, Decision, Declaration, constrainer
from private_mcmc.inference.progress import progress
from private_mcmc.kernels import (
    ChainRunner,
    RunKeys,
    Streams,
    chain_runner,
    clipped_share,
    langevin_program,
)
from private_mcmc.kernels.chain import ChainOutput
from private_mcmc.kernels.whitening import whitening
from private_mcmc.modeling import RowModel, Rows
from private_mcmc.plan import Plan, RunStage, run_schedule
from private_mcmc.release import (
    Curator,
    ReleasedExpectations,
    ReleasedStates,
    SecondMoments,
    curator_side,
    state_grid,
)
from private_mcmc.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Session:
    """How to run: warm-up to leave out, public start, progress bar, whether to keep the curator's side."""

    num_warmup: int
    init_params: npt.ArrayLike | None
    progress_bar: bool
    curator: bool = False


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run released, and at what price."""

    released: ReleasedStates | ReleasedExpectations
    statement: Statement
    moments: SecondMoments | None = None
    stage: RunStage | None = None
    curator: Curator | None = None


@contextmanager
def no_value_checks() -> Iterator[None]:
    """Switch off JAX's optional NaN checks, whose errors would depend on private values."""
    with jax.debug_nans(False), jax.debug_infs(False):
        yield


def run_declared(
    declared: Declaration, decision: Decision, columns: Columns, keys: RunKeys, session: Session
) -> Outcome:
    """Run the decided schedule once and release what was declared."""
    rows, present = on_device(declared.rows, columns, decision.schedule.num_rows)
    expectations = decision.expectations
    output = _chain(decision.runner, rows, present, keys, session)
    statement = _marked(decision.statement.of(_name()), keys)
    if expectations is not None and output.average is not None:
        released = expectations.release(output.average, keys.provenance.to_dict())
        return Outcome(
            replace(released, statement=statement),
            statement,
            curator=_curator(session, declared.rows, columns, output, None),
        )
    states = _states(decision.constrain, decision.schedule, output, statement, keys, session.num_warmup)
    clipping = _Clipping(decision.reading, decision.schedule, rows, present)
    return Outcome(states, statement, curator=_curator(session, declared.rows, columns, output, clipping))


def run_plan(plan: Plan, columns: Columns, keys: RunKeys, session: Session) -> Outcome:
    """Run every stage of a plan: second moments, then the path that they shape."""
    rows, present = on_device(plan.rows, columns, plan.n)
    problem = plan.problem
    with jax.enable_x64(True):
        design = jax.jit(jax.vmap(problem.predictor.design))(rows)
        design = np.asarray(jnp.where(present[:, None], design, 0.0))
    moments = plan.moments.release(design)
    stage = plan.run_stage(moments)
    schedule = run_schedule(problem, stage.kernel, stage.num_steps)
    run_statement = accounting.run(schedule).of(_name())
    budget = plan.statement.gdp
    if budget is None:
        raise NotPrivate("the plan has no Gaussian DP budget.")
    statement = accounting.adaptive(
        budget, plan.target.adjacency, (moments.statement.of(_name()), run_statement)
    )
    statement = _marked(statement, keys)
    runner = chain_runner(langevin_program(problem.reading, schedule), schedule)
    output = _chain(runner, rows, present, keys, session)
    released = _states(constrainer(problem.reading), schedule, output, statement, keys, stage.num_warmup)
    clipping = _Clipping(problem.reading, schedule, rows, present)
    curator = _curator(session, plan.rows, columns, output, clipping)
    return Outcome(released, statement, moments, stage, curator)


@dataclass(frozen=True, eq=False)
class _Clipping:
    """What the share of clipped rows is computed from."""

    reading: RowModel
    schedule: Schedule
    rows: dict[str, jax.Array]
    present: jax.Array

    def shares(self, states: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Shares at the last state of every chain."""
        return np.array(
            [
                clipped_share(self.reading, self.schedule, last, self.rows, self.present)
                for last in states[:, -1]
            ]
        )


def _curator(
    session: Session, rows: Rows, columns: Columns, output: ChainOutput, clipping: _Clipping | None
) -> Curator | None:
    if not session.curator:
        return None
    shares = None
    if clipping is not None and output.states is not None:
        shares = clipping.shares(output.states)
    return curator_side(rows, columns, output.states, output.average, shares)


def _chain(
    runner: ChainRunner,
    rows: dict[str, jax.Array],
    present: jax.Array,
    keys: RunKeys,
    session: Session,
) -> ChainOutput:
    start = checked_start(session.init_params, runner.schedule)
    with progress("sampling", runner.schedule.num_steps, session.progress_bar) as on_progress:
        return runner.run(
            start,
            rows,
            present,
            Streams(keys.take("start"), keys.take("steps"), keys.take("batches")),
            on_progress,
        )


def checked_start(init_params: npt.ArrayLike | None, schedule: Schedule) -> npt.NDArray[np.float64]:
    """The public start, zero by default.

    Raises:
        DeclarationError: for a wrong shape, numbers that are not finite, or, where states stay hidden, a
            start so far out that float64 rounds steps by more than the statement allows.
    """
    dim = schedule.dim
    if init_params is None:
        return np.zeros(dim)
    start = np.asarray(init_params, dtype=np.float64)
    if start.shape != (dim,) or not np.all(np.isfinite(start)):
        raise DeclarationError(f"init_params: {dim} finite numbers are needed (flat, unconstrained).")
    if schedule.release != "path":
        with jax.enable_x64(True):
            whitened = np.asarray(whitening(schedule.preconditioner, dim).from_parameter(jnp.asarray(start)))
        limit = accounting.rounding_box(schedule) / 2
        if not np.max(np.abs(whitened)) <= limit:
            raise DeclarationError(
                f"init_params: with hidden states, at most {limit:.3g} in whitened coordinates."
            )
    return start


def _states(
    constrain: Constrain,
    schedule: Schedule,
    output: ChainOutput,
    statement: Statement,
    keys: RunKeys,
    num_warmup: int,
) -> ReleasedStates:
    if output.states is None:
        raise ReleaseError("this schedule keeps no states: it releases averages.")
    grid = state_grid(schedule)
    with jax.enable_x64(True):
        samples = {
            name: np.asarray(value)
            for name, value in constrain(jnp.asarray(grid.round(output.states))).items()
        }
    return ReleasedStates(
        samples=samples,
        steps=accounting.released_steps(schedule),
        num_warmup=num_warmup,
        statement=statement,
        provenance=keys.provenance.to_dict(),
        grid=grid.step,
    )


def _marked(statement: Statement, keys: RunKeys) -> Statement:
    """The statement, with a line that voids it when the caller chose the seed."""
    if not keys.provenance.reproducible:
        return statement
    argument = statement.argument
    void = "NOT PRIVATE to anyone who knows the seed, which the caller gave"
    return replace(statement, argument=replace(argument, assumptions=(void, *argument.assumptions)))


def _name() -> str:
    """A fresh identity for a run, so that its statement is never counted twice or composed with itself."""
    return uuid.uuid4().hex
