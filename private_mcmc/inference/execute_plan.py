"""Executing a plan: each stage priced, admitted by the budget's filter, run, and handed to the policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.inference.columns import Columns, on_device
from private_mcmc.inference.decision import constrainer
from private_mcmc.inference.execute import (
    Outcome,
    Session,
    chain,
    checked_start,
    clipping_shares,
    marked,
    run_name,
    trial_streams,
)
from private_mcmc.kernels import ChainRunner, RunKeys, chain_runner, langevin_program
from private_mcmc.model import RowModel
from private_mcmc.planning import CompletedStage, CountsStage, History, MomentsStage, PathStage, Plan, Stage
from private_mcmc.release import ReleasedStates, StateGrid, curator_side, state_grid
from private_mcmc.schedule import Schedule

Rows = dict[str, jax.Array]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ReadyPlan:
    """Rows on the device and the first stage, compiled: what can fail before a stage is bought was tried."""

    plan: Plan
    columns: Columns
    rows: Rows
    present: jax.Array
    first: Stage


def ready_plan(plan: Plan, columns: Columns, generator: str) -> ReadyPlan:
    """Bring the rows to the device and compile the first stage, before anything is charged.

    Raises:
        DeclarationError: if the policy buys nothing, or a first stage that does not fit the plan.
    """
    first = plan.policy.next(())
    if first is None:
        raise DeclarationError("the plan's policy buys nothing.")
    _admitted(plan, (), first)
    rows, present = on_device(plan.rows, columns, plan.n)
    if isinstance(first, PathStage):
        runner, given = _runner(plan, first), _with_derived(first, rows)
        start = checked_start(first.start, first.schedule)
        runner.try_out(start, given, present, trial_streams(generator))
    else:
        with jax.enable_x64(True):
            jax.eval_shape(jax.vmap(first.vectors if isinstance(first, MomentsStage) else first.cell), rows)
    with jax.enable_x64(True):
        jax.eval_shape(constrainer(plan.reading), jnp.zeros((1, 1, plan.reading.dim)))
    return ReadyPlan(plan, columns, rows, present, first)


def run_plan(prepared: ReadyPlan, keys: RunKeys, session: Session) -> Outcome:
    """Buy stage after stage until the policy concludes.

    Before a stage touches the rows, the stages so far and this one must fit the budget that was fixed
    beforehand (fully adaptive composition of Gaussian DP: Smith, Thakurta 2022).

    Raises:
        NotPrivate: if the policy asks for more than the budget: nothing of that stage is computed.
    """
    plan, rows, present = prepared.plan, prepared.rows, prepared.present
    paths = keys.take("steps")
    history: History = ()
    parts: tuple[Statement, ...] = ()
    states: list[Array] = []
    stage: Stage | None = prepared.first
    while stage is not None:
        parts, statement = _admitted(plan, parts, stage)
        if isinstance(stage, PathStage):
            own = RunKeys(jax.random.fold_in(paths, len(history)), keys.provenance)
            states.append(_path(plan, stage, rows, present, own, session))
            released = state_grid(stage.schedule).round(states[-1])
            history = (*history, CompletedStage(stage, released))
        else:
            history = (*history, _query(stage, rows, present))
        stage = plan.policy.next(history)
    return _outcome(
        plan, history, marked(statement, keys), keys, session, prepared.columns, rows, present, states
    )


def _admitted(
    plan: Plan, parts: tuple[Statement, ...], stage: Stage
) -> tuple[tuple[Statement, ...], Statement]:
    """The stages' statements with this one, and the plan's; raises where they do not fit the budget."""
    parts = (*parts, stage.statement.of(run_name()))
    statement = accounting.adaptive(plan.budget, plan.target.adjacency, parts)
    return parts, accounting.capped(statement, plan.n)


def _query(stage: MomentsStage | CountsStage, rows: Rows, present: jax.Array) -> CompletedStage:
    if isinstance(stage, MomentsStage):
        vectors = _of_rows(stage.vectors, rows)
        apart = (slice(None), *(None,) * (vectors.ndim - 1))
        return CompletedStage(
            stage, stage.mechanism.release(np.where(np.asarray(present)[apart], vectors, 0.0))
        )
    return CompletedStage(stage, stage.mechanism.release(_of_rows(stage.cell, rows), np.asarray(present)))


def _of_rows(function: Callable[[Rows], jax.Array], rows: Rows) -> npt.NDArray[Any]:
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(function)(rows))


def _path(
    plan: Plan,
    stage: PathStage,
    rows: Rows,
    present: jax.Array,
    keys: RunKeys,
    session: Session,
) -> Array:
    """The states of one path before rounding, shape ``(steps, p)``."""
    runner, given = _runner(plan, stage), _with_derived(stage, rows)
    output = chain(runner, given, present, keys, replace(session, init_params=stage.start))
    return np.zeros((0, stage.schedule.dim)) if output.states is None else output.states[0]


def _runner(plan: Plan, stage: PathStage) -> ChainRunner:
    if (stage.schedule.num_rows, stage.schedule.dim) != (plan.n, plan.reading.dim):
        raise DeclarationError(f"stage {stage.name!r}: its schedule is for other rows or another model.")
    return _compiled(stage.schedule, stage.reading or plan.reading)


def _with_derived(stage: PathStage, rows: Rows) -> Rows:
    if stage.derived is None:
        return rows
    with jax.enable_x64(True):
        return {**rows, **jax.vmap(stage.derived)(rows)}


@lru_cache(maxsize=8)
def _compiled(schedule: Schedule, reading: RowModel) -> ChainRunner:
    """A compiled chain, which holds no data: stages, and runs of one plan, of equal schedules share it."""
    return chain_runner(langevin_program(reading, schedule), schedule)


_constrain = lru_cache(maxsize=8)(constrainer)


def _outcome(
    plan: Plan,
    history: History,
    statement: Statement,
    keys: RunKeys,
    session: Session,
    columns: Columns,
    rows: Rows,
    present: jax.Array,
    states: list[Array],
) -> Outcome:
    conclusion = plan.policy.conclude(history)
    paths = [completed for completed in history if isinstance(completed.stage, PathStage)]
    draws = _released(plan, conclusion.draws, statement, keys, 0, _finest(paths))
    raw = draws
    if paths:
        kept = np.concatenate([np.asarray(completed.value) for completed in paths])
        warmup = len(kept) - len(np.asarray(paths[-1].value))
        raw = _released(plan, kept, statement, keys, warmup, _finest(paths))
    curator = None
    if session.curator:
        last, shares = paths[-1].stage if paths else None, None
        if isinstance(last, PathStage):
            shares = clipping_shares(plan.reading, last.schedule, rows, present, states[-1][None])
        hidden = np.concatenate(states)[None] if states else None
        curator = curator_side(plan.rows, columns, hidden, None, shares)
    return Outcome(raw, statement, draws=draws, history=history, conclusion=conclusion, curator=curator)


def _finest(paths: list[CompletedStage]) -> StateGrid:
    """The grid that all released states lie on: the finest of the stages'."""
    stages = [completed.stage for completed in paths]
    grids = [state_grid(stage.schedule) for stage in stages if isinstance(stage, PathStage)]
    return min(grids, key=lambda grid: grid.step, default=StateGrid(2.0**-40))


def _released(
    plan: Plan, states: Array, statement: Statement, keys: RunKeys, num_warmup: int, grid: StateGrid
) -> ReleasedStates:
    constrain: Any = _constrain(plan.reading)
    with jax.enable_x64(True):
        samples = {name: np.asarray(value) for name, value in constrain(jnp.asarray(states[None])).items()}
    return ReleasedStates(
        samples=samples,
        steps=tuple(range(1, len(states) + 1)),
        num_warmup=num_warmup,
        statement=statement,
        provenance=keys.provenance.to_dict(),
        grid=grid.step,
    )
