"""Executing what was decided: rows in, chain, release out. The only place that holds both sides."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.domains import Rows
from private_mcmc.domains.host_tables import HostColumn
from private_mcmc.errors import DeclarationError, NotPrivate, ReleaseError
from private_mcmc.inference.columns import on_device
from private_mcmc.inference.decision import Constrain, Decision, Declaration
from private_mcmc.inference.job import RunKeysAndState
from private_mcmc.inference.processes import releases
from private_mcmc.inference.progress import progress
from private_mcmc.inference.streams import blocks_of
from private_mcmc.kernels import (
    ChainRunner,
    Provenance,
    RunKeys,
    Streams,
    clipped_share,
    public_key,
)
from private_mcmc.kernels.chain import ChainOutput
from private_mcmc.kernels.gradient.clipping import widened
from private_mcmc.kernels.whitening import whitening
from private_mcmc.model import RowModel
from private_mcmc.planning import Conclusion, History
from private_mcmc.release import (
    Curator,
    ReleasedExpectations,
    ReleasedStates,
    curator_side,
    state_grid,
)
from private_mcmc.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Session:
    """How to run: warm-up to leave out, public start, progress bar, whether to keep the curator's side.

    ``rows_on_device``: rows of one block, where they are streamed.
    """

    num_warmup: int
    init_params: npt.ArrayLike | None
    progress_bar: bool
    curator: bool = False
    rows_on_device: int | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run released, at what price; for a plan also its stages and the draws made from them."""

    released: ReleasedStates | ReleasedExpectations
    statement: Statement
    draws: ReleasedStates | None = None
    history: History = ()
    conclusion: Conclusion | None = None
    curator: Curator | None = None


@dataclass(frozen=True, eq=False)
class Ready:
    """A run that lacks nothing but its charge and its steps: what can fail before them has been tried.

    ``run`` makes the steps; ``rows`` and ``present`` lie on the device, empty where rows are streamed.
    """

    run: Callable[..., ChainOutput]
    rows: dict[str, jax.Array]
    present: jax.Array


@contextmanager
def no_value_checks() -> Iterator[None]:
    """Switch off checks of JAX and NumPy whose errors and warnings would depend on private values."""
    with jax.debug_nans(False), jax.debug_infs(False), np.errstate(all="ignore"):
        yield


def ready(
    declared: Declaration, decision: Decision, columns: Mapping[str, Any], session: Session, generator: str
) -> Ready:
    """Bring the rows to where the run wants them and compile what it calls, before anything is charged.

    Raises:
        NotYetSupported, DataSchemaError: for rows that cannot be streamed, or cannot be read.
    """
    schedule = decision.schedule
    streams, start = trial_streams(generator), checked_start(session.init_params, schedule)
    if any(isinstance(column, HostColumn) for column in columns.values()):
        blocks = blocks_of(columns, session.rows_on_device, schedule.num_rows)
        decision.streamed_runner.try_out(blocks, start, streams)
        found = Ready(partial(decision.streamed_runner.run, blocks=blocks), {}, jnp.zeros(0, dtype=bool))
    else:
        n, storage = schedule.num_rows, schedule.storage
        rows, present = on_device(declared.rows, dict(columns), n, declared.layout, storage)
        decision.runner.try_out(start, rows, present, streams)
        found = Ready(partial(decision.runner.run, columns=rows, present=present), rows, present)
    if decision.expectations is None:
        with jax.enable_x64(True):
            jax.eval_shape(decision.constrain, jnp.zeros((schedule.num_chains, 1, schedule.dim)))
    return found


def trial_streams(generator: str) -> Streams:
    """Keys for trials, which everybody knows."""
    key = public_key(generator)
    return Streams(key, key, key)


def run_declared(
    declared: Declaration,
    decision: Decision,
    columns: Mapping[str, Any],
    prepared: Ready,
    job: RunKeysAndState,
    session: Session,
) -> Outcome | None:
    """Run the decided schedule once; one process releases what was declared, the others get ``None``."""
    schedule, expectations = decision.schedule, decision.expectations
    _test_curvature(declared, decision, prepared.rows, prepared.present)
    output = _follow(schedule, prepared.run, job, session)
    if not releases():
        return None
    statement = marked(decision.statement.of(run_name()), job)
    released: ReleasedStates | ReleasedExpectations
    shares = None
    if expectations is not None and output.average is not None:
        found = expectations.release(output.average, job.provenance.to_dict())
        released = replace(found, statement=statement)
    else:
        released = _states(
            decision.constrain, schedule, output, statement, job.provenance, session.num_warmup
        )
        if session.curator and output.states is not None:
            rows = widened(prepared.rows)
            shares = clipping_shares(decision.reading, schedule, rows, prepared.present, output.states)
    outcome = Outcome(released, statement, curator=_curator(session, declared.rows, columns, output, shares))
    # Only now: a run that fails before can be taken up again.
    job.finish()
    return outcome


def _test_curvature(
    declared: Declaration, decision: Decision, rows: dict[str, jax.Array], present: jax.Array
) -> None:
    """Run the declared test of curvature, if there is one; what it finds is released, so it may be said.

    Raises:
        NotPrivate: if less was found than the run relies on. The test is paid for.
    """
    test, proposed = decision.curvature_test, declared.curvature
    if test is None or proposed is None:
        return
    found = test.release(rows, present).floor.lower
    if not found >= proposed.at_least:
        raise NotPrivate(
            f"the private test found curvature of at least {found:.6g}; the run relies on "
            f"{proposed.at_least:g}. Nothing was run; the test stays paid for. Propose less, or temper more.",
            decision.report,
        )


def clipping_shares(
    reading: RowModel,
    schedule: Schedule,
    rows: dict[str, jax.Array],
    present: jax.Array,
    states: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Shares of clipped rows at the last state of every chain; ``states`` is ``(chains, kept, p)``."""
    return np.array([clipped_share(reading, schedule, last, rows, present) for last in states[:, -1]])


def _curator(
    session: Session,
    rows: Rows,
    columns: Mapping[str, Any],
    output: ChainOutput,
    shares: npt.NDArray[np.float64] | None,
) -> Curator | None:
    if not session.curator:
        return None
    return curator_side(rows, dict(columns), output.states, output.average, shares)


def chain(
    runner: ChainRunner,
    rows: dict[str, jax.Array],
    present: jax.Array,
    keys: RunKeys,
    session: Session,
) -> ChainOutput:
    """Run the runner's schedule once, from the session's public start."""
    return _follow(
        runner.schedule, partial(runner.run, columns=rows, present=present), RunKeysAndState.of(keys), session
    )


def _follow(
    schedule: Schedule, run: Callable[..., ChainOutput], job: RunKeysAndState, session: Session
) -> ChainOutput:
    start = checked_start(session.init_params, schedule)
    shown = session.progress_bar and releases()
    with progress("sampling", schedule.num_steps, shown) as on_progress:
        return run(
            theta=start,
            streams=job.streams,
            on_progress=on_progress,
            saving=job.saver,
            state=job.state,
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
    provenance: Provenance,
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
        provenance=provenance.to_dict(),
        grid=grid.step,
    )


def marked(statement: Statement, keys: RunKeys | RunKeysAndState) -> Statement:
    """The statement, with a line that voids it when the caller chose the seed."""
    if not keys.provenance.reproducible:
        return statement
    argument = statement.argument
    void = "NOT PRIVATE to anyone who knows the seed, which the caller gave"
    return replace(statement, argument=replace(argument, assumptions=(void, *argument.assumptions)))


def run_name() -> str:
    """A fresh identity for a run, so that its statement is never counted twice or composed with itself."""
    return uuid.uuid4().hex
