"""Executing a plan: each stage is priced, admitted by the budget's filter, charged and run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.arguments import check_kind
from private_mcmc.errors import DeclarationError
from private_mcmc.inference.bookkeeping import Job, marked
from private_mcmc.inference.columns import Columns, Held, HostColumns, Place, held_rows
from private_mcmc.inference.decision import Decision
from private_mcmc.inference.execute import (
    Array,
    Execution,
    Keep,
    Outcome,
    ReadyRun,
    checked_start,
    given_rows,
    released_states,
    run_name,
    runner_of,
    trial_streams,
    try_constraining,
)
from private_mcmc.kernels import ChainRunner, Streams
from private_mcmc.kernels.partitions import Question, mesh_of, summed
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
from private_mcmc.potential.rowwise import rowwise
from private_mcmc.release import Contribution, ReleasedStates, StateGrid, state_grid
from private_mcmc.release.noise import gaussian_noise
from private_mcmc.report.document import progress
from private_mcmc.schedule import Schedule


def _sums(stage: MomentsStage | CountsStage, found: np.ndarray, present: np.ndarray) -> Array:
    """The sums of a stage over the rows that are present."""
    if isinstance(stage, CountsStage):
        return stage.mechanism.sums((Contribution(found),), present)
    apart = (slice(None), *(None,) * (found.ndim - 1))
    return stage.mechanism.sums(np.where(present[apart], found, 0.0))


def query(stage: MomentsStage | CountsStage, held: Held, plan: Plan) -> CompletedStage:
    """What a query releases: of the sums of all rows."""
    function = stage.vectors if isinstance(stage, MomentsStage) else stage.cell
    sums = partial(_sums, stage)
    if held.partitions:
        mapped = plan.reading.rows.project
        question = Question(
            lambda columns, present: mapped(columns),
            lambda rows, first: jax.vmap(rowwise(function))(rows),
            sums,
        )
        exact = summed(question, held.partitions)
    else:
        with jax.enable_x64(True):
            found = np.asarray(of_rows(function, held.rows))
        # Without what fills the devices up.
        exact = sums(found[: plan.n], np.asarray(held.present)[: plan.n])
    return CompletedStage(stage, stage.released(stage.mechanism.noised(exact)))


# Of the squared budget: a stage that costs more is bought only after a look at what those before it say.
_LARGE = 0.5
# Whether to stop there, by the plan and what was released; whatever it does with them is post-processing.
Look = Callable[[Plan, History], bool]


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """The stages of a plan, which was priced when it was made.

    ``look`` is asked once, after the cheap stages, whether to stop; ``bought``: stages that an interrupted
    process bought, with their statements in ``plan.before``'s place.
    """

    declared: Plan
    execution: Execution
    look: Look | None = None
    bought: tuple[tuple[Statement, ...], History] = ((), ())

    def __post_init__(self) -> None:
        check_kind("plan", self.declared, Plan)
        if self.execution.init_params is not None:
            raise DeclarationError("init_params=: a plan chooses where its paths start.")

    @cached_property
    def place(self) -> Place:
        """Rows over the devices that were given, or elsewhere; files whole unless blocks are asked for."""
        given = self.execution
        return Place(mesh_of(given.devices), given.rows_on_device, given.engine, whole=True)

    def decide(self, n: int | None = None) -> Decision:
        """Refuse: nothing is left to decide."""
        raise DeclarationError("a plan was decided when it was made: see plan.statement.")

    def price(self, n: int | None = None) -> Statement:
        """What all stages together cost at most."""
        return self.declared.statement

    def ready(self, columns: Columns | HostColumns, n: int, generator: str) -> ReadyRun:
        """Bring the rows to the device and compile the first stage, before anything is charged."""
        plan = self.declared
        first = plan.policy.next(self.bought[1])
        if first is None:
            raise DeclarationError("the plan's policy buys nothing.")
        _admitted(plan, self.bought[0] or plan.before, first)
        # Noise of later stages is known only then; that OpenDP can be asked of it, now.
        gaussian_noise(1.0, 1.0).confirmed()
        held = held_rows(plan.reading.rows, columns, n, self.place)
        held.placed(trial_streams(generator).start, plan)
        if isinstance(first, PathStage):
            start = checked_start(first.start, first.schedule)
            given = given_rows(held, first.derived)
            _runner(plan, first, held).try_out(start, *given, trial_streams(generator))
        elif not held.partitions:
            of_row = first.vectors if isinstance(first, MomentsStage) else first.cell
            with jax.enable_x64(True):
                jax.eval_shape(jax.vmap(rowwise(of_row)), held.rows)
        try_constraining(plan.reading, 1)
        return partial(self._run, held, first)

    def _run(self, held: Held, first: Stage, job: Job, keep: Keep) -> None:
        """Buy stage after stage until the policy concludes; what was bought is kept whatever follows.

        Before a stage touches the rows, the stages so far and this one must fit the budget that was fixed
        beforehand (fully adaptive composition of Gaussian DP: Smith, Thakurta 2022).
        """
        plan, paths = self.declared, job.streams.steps
        held = held.placed(job.streams.start, plan)
        history: History = self.bought[1]
        parts: tuple[Statement, ...] = self.bought[0] or plan.before
        stage: Stage | None = first
        while stage is not None:
            if self._stops(history, stage):
                statement = marked(plan.statement_of(parts), job.provenance)
                source = job.provenance.to_dict()
                keep(Outcome(statement, None, history=history, provenance=source, ended="stopped"))
                return
            parts, statement = _admitted(plan, parts, stage)
            statement = marked(statement, job.provenance)
            job.books.pay(parts[-1])
            if isinstance(stage, PathStage):
                states = self._path(stage, held, jax.random.fold_in(paths, len(history)))
                released = state_grid(stage.schedule).round(states)
                history = (*history, CompletedStage(stage, released))
            else:
                history = (*history, query(stage, held, plan))
            reached = Outcome(statement, None, history=history, provenance=job.provenance.to_dict())
            keep(reached)
            stage = plan.policy.next(history)
        keep(replace(reached, ended="released"))

        keep(outcome_of(plan, history, statement, job.provenance.to_dict()))

    def _stops(self, history: History, stage: Stage) -> bool:
        """Whether to buy no more, by what the cheap stages released."""
        asked = self.look is not None and is_look(self.declared, history, stage)
        return asked and self.look is not None and self.look(self.declared, history)

    def _path(self, stage: PathStage, held: Held, key: jax.Array) -> Array:
        """The states of one path before rounding, shape ``(steps, p)``; ``key`` is of its noise alone."""
        runner, start = _runner(self.declared, stage, held), checked_start(stage.start, stage.schedule)
        steps, streams = stage.schedule.num_steps, Streams(key, key)
        with progress(stage.name, steps, self.execution.progress_bar) as on_progress:
            given = given_rows(held, stage.derived)
            output = runner.run(start, *given, streams=streams, on_progress=on_progress)
        return np.zeros((0, stage.schedule.dim)) if output.states is None else output.states[0]


def is_look(plan: Plan, history: History, stage: Stage) -> bool:
    """Whether the cheap stages end where ``stage`` would be the next."""
    return bool(history) and (stage.statement.gdp or math.inf) ** 2 > _LARGE * plan.budget**2


def _admitted(
    plan: Plan, parts: tuple[Statement, ...], stage: Stage
) -> tuple[tuple[Statement, ...], Statement]:
    """The stages' statements with this one, and the plan's; raises where they do not fit the budget."""
    parts = (*parts, stage.statement.of(run_name()))
    return parts, plan.statement_of(parts)


def _runner(plan: Plan, stage: PathStage, held: Held) -> ChainRunner:
    """What runs a path where the rows are."""
    schedule = stage.schedule
    if (schedule.num_rows, schedule.dim) != (plan.n, plan.reading.dim):
        raise DeclarationError(f"stage {stage.name!r}: its schedule is for other rows or another model.")
    reading = stage.reading or plan.reading
    return runner_of(plan.reading.rows, reading, schedule, held, derived=stage.derived)


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
    return Outcome(
        statement,
        raw,
        draws=draws,
        history=history,
        conclusion=conclusion,
        provenance=provenance,
        ended="released",
    )
