"""Executing a plan: each stage priced, admitted by the budget's filter, run, and handed to the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.errors import DeclarationError, check_kind
from private_mcmc.inference.bookkeeping import RunKeysAndState, ToSave, marked
from private_mcmc.inference.columns import (
    Columns,
    HostColumns,
    checked,
    in_memory,
    loaded,
    on_device,
    placed,
)
from private_mcmc.inference.decision import Decision
from private_mcmc.inference.execute import (
    Array,
    Execution,
    Keep,
    Outcome,
    ReadyRun,
    checked_start,
    curator_of,
    follow,
    keep_all,
    released_states,
    run_name,
    trial_streams,
    try_constraining,
)
from private_mcmc.inference.processes import alone, check_same_everywhere, releases, shared_values, summed
from private_mcmc.kernels import ChainRunner, RunKeys, chain_runner, langevin_program
from private_mcmc.kernels.chain import path_runner
from private_mcmc.kernels.devices import Layout, layout
from private_mcmc.model.row_model import model_marks, program_mark
from private_mcmc.planning import (
    CompletedStage,
    CountsStage,
    History,
    MomentsStage,
    PathStage,
    Plan,
    Stage,
    of_rows,
)
from private_mcmc.records import Fields
from private_mcmc.release import ReleasedStates, StateGrid, state_grid
from private_mcmc.release.noise import gaussian_noise
from private_mcmc.schedule import Schedule

Rows = dict[str, jax.Array]


@dataclass(frozen=True, eq=False)
class Held:
    """Rows on their devices, padded, and which are present; ``here`` of them lie in this process."""

    rows: Rows
    present: jax.Array
    here: int

    def local(self, column: jax.Array) -> np.ndarray:
        """The rows of a column that lie in this process, without those that fill up."""
        if column.is_fully_addressable:
            return np.asarray(column)[: self.here]
        shards = sorted(column.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        return np.concatenate([np.asarray(shard.data) for shard in shards])[: self.here]


def query(stage: MomentsStage | CountsStage, held: Held) -> CompletedStage:
    """What a query releases: of the sums of all processes, with the first one's noise."""
    present = held.local(held.present)
    if isinstance(stage, MomentsStage):
        vectors = _of_rows(stage.vectors, held)
        apart = (slice(None), *(None,) * (vectors.ndim - 1))
        exact = summed(stage.mechanism.sums(np.where(present[apart], vectors, 0.0)))
    else:
        exact = summed(stage.mechanism.sums(_of_rows(stage.cell, held), present))
    noised = shared_values(stage.mechanism.noised(exact) if releases() else np.zeros_like(exact))
    return CompletedStage(stage, stage.mechanism.released(noised))


def _of_rows(function: Callable[[Fields], jax.Array], held: Held) -> np.ndarray:
    """The function of this process's rows."""
    with jax.enable_x64(True):
        here = {name: jnp.asarray(held.local(column)) for name, column in held.rows.items()}
        return np.asarray(of_rows(function, here))


def stage_mark(stage: Stage, plan: Plan) -> str:
    """A hash of all that says what a stage does with the rows."""
    what: list[object] = [type(stage).__name__, stage.statement.to_dict()]
    with jax.enable_x64(True):
        row = {name: jnp.zeros(one.event_shape, one.dtype) for name, one in plan.reading.rows.items}
    if isinstance(stage, PathStage):
        what += [stage.schedule, stage.start.tobytes()]
        if stage.derived is not None:
            what.append(program_mark(stage.derived, row))
            with jax.enable_x64(True):
                row |= stage.derived(row)
        what += model_marks(stage.reading or plan.reading)
    else:
        function = stage.vectors if isinstance(stage, MomentsStage) else stage.cell
        what += [stage.mechanism, program_mark(function, row)]
    return repr(what)


def with_derived(stage: PathStage, rows: Rows) -> Rows:
    """The rows with the columns that a path computes from each of them."""
    if stage.derived is None:
        return rows
    with jax.enable_x64(True):
        return {**rows, **of_rows(stage.derived, rows)}


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """The stages of a plan, which was priced when it was made."""

    declared: Plan
    execution: Execution
    never_saved: str = "a plan is not saved as it goes: its moments and counts draw their noise meanwhile"

    def __post_init__(self) -> None:
        check_kind("plan", self.declared, Plan)
        given = self.execution
        if (given.chain_method, given.rows_on_device) != ("vectorized", None):
            raise DeclarationError(
                "a plan runs one chain on rows in memory: chain_method= and rows_on_device= are for others."
            )
        if given.init_params is not None:
            raise DeclarationError("init_params=: a plan chooses where its paths start.")
        if given.curator and not alone():
            raise DeclarationError("curator=True: only where one process holds all rows.")

    @cached_property
    def layout(self) -> Layout:
        """Rows over the devices that were given; over all of them where there are several processes."""
        return layout("vectorized", self.execution.devices)

    def columns(
        self, args: tuple[object, ...], named: Mapping[str, object], present: object
    ) -> tuple[Columns | HostColumns, int]:
        """The checked columns, those of files read whole: every stage needs all rows at once."""
        return checked(self.declared, args, named, present, in_memory, self.layout)

    def decide(self, n: int | None = None) -> Decision:
        """Refuse: nothing is left to decide."""
        raise DeclarationError("a plan was decided when it was made: see plan.statement.")

    def price(self, n: int | None = None) -> Statement:
        """What all stages together cost at most."""
        return self.declared.statement

    def to_save(self, n: int) -> ToSave:
        """Refuse."""
        raise DeclarationError(f"checkpoint=…: {self.never_saved}.")

    def ready(self, columns: Columns | HostColumns, n: int, generator: str) -> ReadyRun:
        """Bring the rows to the device and compile the first stage, before anything is charged."""
        plan, arrays = self.declared, loaded(columns)
        first = plan.policy.next(())
        if first is None:
            raise DeclarationError("the plan's policy buys nothing.")
        _admitted(plan, plan.before, first)
        # Noise of later stages is known only then; that OpenDP can be asked of it, now.
        gaussian_noise(1.0, 1.0).confirmed()
        rows, present = on_device(plan.reading.rows, arrays, n, self.layout)
        here = self.layout.local_rows(n)
        held = Held(rows, present, here.stop - here.start)
        placed(trial_streams(generator).start, plan, self.layout, rows, present)
        if isinstance(first, PathStage):
            runner, given = _runner(plan, first, self.layout), with_derived(first, rows)
            start = checked_start(first.start, first.schedule)
            runner.try_out(start, given, present, trial_streams(generator))
        else:
            of_row = first.vectors if isinstance(first, MomentsStage) else first.cell
            with jax.enable_x64(True):
                jax.eval_shape(jax.vmap(of_row), rows)
        try_constraining(plan.reading, 1)
        return partial(self._run, arrays, held, first)

    def _run(
        self,
        columns: Columns,
        held: Held,
        first: Stage,
        job: RunKeysAndState,
        keep: Keep,
    ) -> None:
        """Buy stage after stage until the policy concludes; what was bought is kept whatever follows.

        Before a stage touches the rows, the stages so far and this one must fit the budget that was fixed
        beforehand (fully adaptive composition of Gaussian DP: Smith, Thakurta 2022). Several processes go on
        with the first one's releases, and only where all of them are about to buy the same stage.
        """
        plan, paths = self.declared, job.streams.steps
        rows, present = placed(job.streams.start, plan, self.layout, held.rows, held.present)
        held = replace(held, rows=rows, present=present)
        history: History = ()
        parts: tuple[Statement, ...] = plan.before
        states: list[Array] = []
        stage: Stage | None = first
        while stage is not None:
            parts, statement = _admitted(plan, parts, stage)
            statement = marked(statement, job.provenance)
            if not alone():
                check_same_everywhere(f"stages {stage.name!r}", stage_mark(stage, plan))
            if isinstance(stage, PathStage):
                own = RunKeys(jax.random.fold_in(paths, len(history)), job.provenance)
                states.append(self._path(stage, held, RunKeysAndState.of(own)))
                released = shared_values(state_grid(stage.schedule).round(states[-1]))
                history = (*history, CompletedStage(stage, released))
            else:
                history = (*history, query(stage, held))
            if releases():
                keep(Outcome(statement, None, history=history, provenance=job.provenance.to_dict()))
            stage = plan.policy.next(history)
        if not releases():
            return

        last = next(reversed(_schedules(history)), None)
        hidden = np.concatenate(states)[None] if states else None
        side = partial(curator_of, plan.reading, last, columns, held.rows, held.present, hidden)
        outcome = outcome_of(plan, history, statement, job.provenance.to_dict())
        keep_all(outcome, keep, side if self.execution.curator else None)

    def _path(self, stage: PathStage, held: Held, job: RunKeysAndState) -> Array:
        """The states of one path before rounding, shape ``(steps, p)``."""
        runner, given = _runner(self.declared, stage, self.layout), with_derived(stage, held.rows)
        steps = partial(runner.run, checked_start(stage.start, stage.schedule), given, held.present)
        output = follow(steps, stage.schedule, job, self.execution, stage.name)
        return np.zeros((0, stage.schedule.dim)) if output.states is None else output.states[0]


def _admitted(
    plan: Plan, parts: tuple[Statement, ...], stage: Stage
) -> tuple[tuple[Statement, ...], Statement]:
    """The stages' statements with this one, and the plan's; raises where they do not fit the budget."""
    parts = (*parts, stage.statement.of(run_name()))
    return parts, plan.statement_of(parts)


def _runner(plan: Plan, stage: PathStage, layout: Layout) -> ChainRunner:
    if (stage.schedule.num_rows, stage.schedule.dim) != (plan.n, plan.reading.dim):
        raise DeclarationError(f"stage {stage.name!r}: its schedule is for other rows or another model.")
    reading = stage.reading or plan.reading
    if layout.mesh is None:
        return path_runner(reading, stage.schedule)
    return chain_runner(langevin_program(reading, stage.schedule), stage.schedule, layout=layout)


def _schedules(history: History) -> list[Schedule]:
    """Of the paths among the stages."""
    return [stage.schedule for stage in (one.stage for one in history) if isinstance(stage, PathStage)]


def outcome_of(plan: Plan, history: History, statement: Statement, provenance: Mapping[str, str]) -> Outcome:
    """The policy's draws and the states of all paths, on the grid that all of them lie on: the finest."""
    conclusion = plan.policy.conclude(history)
    grids = [state_grid(schedule) for schedule in _schedules(history)]
    grid = min(grids, key=lambda one: one.step, default=StateGrid(2.0**-40))

    def released(states: Array, num_warmup: int = 0) -> ReleasedStates:
        steps = tuple(range(1, len(states) + 1))
        return released_states(plan.reading, states[None], grid, statement, provenance, steps, num_warmup)

    draws = raw = released(conclusion.draws)
    paths = [np.asarray(one.value) for one in history if isinstance(one.stage, PathStage)]
    if paths:
        kept = np.concatenate(paths)
        raw = released(kept, num_warmup=len(kept) - len(paths[-1]))
    return Outcome(statement, raw, draws=draws, history=history, conclusion=conclusion, provenance=provenance)
