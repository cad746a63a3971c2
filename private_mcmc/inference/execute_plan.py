"""Executing a plan: each stage is priced, admitted by the budget's filter, charged and run; or one query.

A query is noised sums of rows: mapped into their domains, asked one by one, charged, noised and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.accounting import Statement, langevin_statement
from private_mcmc.arguments import check_kind
from private_mcmc.domains import Rows
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.errors import DeclarationError
from private_mcmc.inference.bookkeeping import Bill, Bookkeeping, Job, marked
from private_mcmc.inference.columns import BLOCK, checked_at, placed
from private_mcmc.inference.declared import (
    Array,
    Engine,
    Execution,
    Keep,
    Look,
    Outcome,
    constrained,
    is_look,
    outcome_of,
)
from private_mcmc.inference.execute import ReadyRun, checked_start, no_value_checks, run_name, runner_of
from private_mcmc.kernels import ChainRunner, Streams, run_keys
from private_mcmc.kernels.gradient import PreparedRows
from private_mcmc.kernels.partitions import Partition, Question, summed
from private_mcmc.planning import CompletedStage, History, PathStage, Plan, QueryStage, Stage
from private_mcmc.potential.rowwise import mapped, partial_parts
from private_mcmc.records import Fields, Record
from private_mcmc.release import Contribution, SecondMomentsPlan, SumsPlan, state_grid
from private_mcmc.release.ledger import ENDS
from private_mcmc.release.noise import FloatArray, gaussian_noise
from private_mcmc.report.document import progress
from private_mcmc.target import Target


def _sums(mechanism: SecondMomentsPlan | SumsPlan, found: np.ndarray, present: np.ndarray) -> Array:
    """The sums of a stage over the rows that are present."""
    if isinstance(mechanism, SumsPlan):
        return mechanism.sums((Contribution(found),), present)
    apart = (slice(None), *(None,) * (found.ndim - 1))
    return mechanism.sums(np.where(present[apart], found, 0.0))


def query(stage: QueryStage, plan: Plan, partitions: Sequence[Partition]) -> CompletedStage:
    """What a query releases: of the sums of all rows."""
    question, given = _asked_of(stage, plan)
    noised = stage.mechanism.noised(summed(question, partitions, *given))
    return CompletedStage(stage, stage.released(noised))


def _asked_of(stage: QueryStage, plan: Plan) -> tuple[Question, tuple[Any, ...]]:
    """The sums of a stage over all rows, and what they are asked with."""
    function, given = partial_parts(stage.of_row)
    functions = _of_each_row(function, plan.reading.rows)
    return Question(*functions, partial(_sums, stage.mechanism)), given


@lru_cache(maxsize=8)
def _of_each_row(function: Callable[..., Any], rows: Rows) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A question's functions; the same ones are compiled once."""

    def answer(held: Fields, first: jax.Array, *given: Any) -> jax.Array:
        return jnp.asarray(mapped(partial(function, *given), held))

    return (lambda columns, _: rows.project(columns)), answer


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

    def ready(self, columns: Fields, n: int, streams: Streams) -> ReadyRun:
        """Bring the rows to the device and compile the first stage, before anything is charged."""
        plan = self.declared
        first = plan.policy.next(self.bought[1])
        if first is None:
            raise DeclarationError("the plan's policy buys nothing.")
        _admitted(plan, self.bought[0] or plan.before, first)
        # Noise of later stages is known only then; that OpenDP can be asked of it, now.
        gaussian_noise(1.0, 1.0).confirmed()
        partitions = placed(columns, n, self.execution, plan.rows, plan.target.adjacency, streams)
        if isinstance(first, PathStage):
            runner, start, rows = _runner(plan, first, partitions)
            runner.try_out(start, rows, streams.of_stage(0))
        else:
            question, given = _asked_of(first, plan)
            with jax.enable_x64(True):
                one = plan.reading.rows.synthetic(0, 1)
                jax.eval_shape(question.at_once, one, np.ones(1, bool), 0, *given)
        constrained(plan.reading, np.zeros((1, 1, plan.reading.dim)))
        return partial(self._run, partitions, first)

    def _run(self, partitions: Sequence[Partition], first: Stage, job: Job, keep: Keep) -> None:
        """Buy stage after stage until the policy concludes; what was bought is kept whatever follows.

        Before a stage touches the rows, the stages so far and this one must fit the budget that was fixed
        beforehand (fully adaptive composition of Gaussian DP: Smith, Thakurta 2022).
        """
        plan = self.declared
        parts, history = self.bought[0] or plan.before, self.bought[1]
        stage: Stage | None = first
        source, statement = job.provenance.to_dict(), marked(plan.statement_of(parts), job.provenance)
        reached = Outcome(statement, None, history=history, provenance=source)
        # Before the first stage is bought: a charge whose release finds no room, or whose run is killed while
        # it buys, is known by its folder.
        keep(reached)
        while stage is not None:
            if self.look is not None and is_look(plan, history, stage) and self.look(plan, history):
                keep(replace(reached, ended="stopped"))
                return
            parts, statement = _admitted(plan, parts, stage)
            job.books.pay(parts[-1])
            if isinstance(stage, PathStage):
                states = self._path(stage, partitions, job.streams.of_stage(len(history)))
                done = CompletedStage(stage, state_grid(stage.schedule).round(states))
            else:
                done = query(stage, plan, partitions)
            history = (*history, done)
            reached = replace(reached, statement=marked(statement, job.provenance), history=history)
            keep(reached)
            stage = plan.policy.next(history)
        keep(replace(reached, ended="released"))
        keep(outcome_of(plan, history, reached.statement, source))

    def _path(self, stage: PathStage, partitions: Sequence[Partition], streams: Streams) -> Array:
        """The states of one path before rounding, shape ``(steps, p)``."""
        steps = stage.schedule.num_steps
        with progress(stage.name, steps, self.execution.progress_bar) as on_progress:
            runner, start, rows = _runner(self.declared, stage, partitions)
            return np.asarray(runner.run(start, rows, streams, on_progress)[0])


def _admitted(
    plan: Plan, parts: tuple[Statement, ...], stage: Stage
) -> tuple[tuple[Statement, ...], Statement]:
    """The stages' statements with this one, and the plan's; raises where they do not fit the budget.

    A stage costs what its mechanism costs, or its schedule, whatever was released before it.
    """
    priced = langevin_statement(stage.schedule) if isinstance(stage, PathStage) else stage.mechanism.statement
    parts = (*parts, priced.of(run_name()))
    return parts, plan.statement_of(parts)


def _runner(
    plan: Plan, stage: PathStage, partitions: Sequence[Partition]
) -> tuple[ChainRunner, Array, PreparedRows]:
    """What runs a path where the rows are, its start, and its rows."""
    schedule = stage.schedule
    if (schedule.num_rows, schedule.dim) != (plan.n, plan.reading.dim):
        raise DeclarationError(f"stage {stage.name!r}: its schedule is for other rows or another model.")
    reading = stage.reading or plan.reading
    runner = runner_of(plan.reading.rows, reading, schedule, partitions, derived=stage.derived)
    start = checked_start(stage.start, schedule)
    with jax.enable_x64(True):
        return runner, start, runner.prepare(partitions)


def release_sums(mechanism: SumsPlan, exact: FloatArray, books: Bookkeeping, words: str) -> Record:
    """Charge, add noise once, and hand that on before the charge is settled.

    Returns the statement, the place in the ledger and the noised sums. ``words`` are the ledger's for what
    runs.
    """
    mechanism.noise.confirmed()
    statement = mechanism.statement.of(run_name())
    with books.charge(Bill(statement, words, {})) as paid:
        place = paid.standing
        noised = mechanism.noised(exact)
        found = {"statement": statement.to_dict(), "ledger": place, "released": tuple(noised.tolist())}
        if place is not None:
            # Whatever stops the process now: the sums may be on disk.
            ENDS[str(place["charge"])] = "released"
        paid.hand_on(found, place)
    return found


def row_sums(
    of_row: Callable[[Fields], Any],
    rows: Rows,
    mechanism: SumsPlan,
    columns: Fields,
    target: Target,
    random: bool,
    engine: Engine | None = None,
) -> FloatArray:
    """What all rows add to every family, exact: curator-side; nothing is spent.

    ``of_row`` gives a cell and a number in ``[−1, 1]`` for every family, as of ``Contribution``.
    Rows are mapped into their domains and asked one by one, some of them at a time, or at an engine. Where
    the number of rows, or who has some, is hidden they lie in slots drawn at random, so that no row's own
    rounding follows from who else is there. With ``random`` each row has a uniform number of its own, by a
    key from the operating system.
    """
    where, (keys, _) = Execution(rows_on_device=max(1, BLOCK // mechanism.rows), engine=engine), run_keys()
    held, n = checked_at(where, columns, rows, target, mechanism.num_rows, False)
    partitions = placed(held, n, where, rows, target.adjacency, keys)
    slots = rows if rows.unit is None else rows.persons
    with no_value_checks():
        return summed(_asked(of_row, slots, mechanism, random), partitions, keys.batches)


def _asked(function: Callable[[Fields], Any], slots: Rows, mechanism: SumsPlan, random: bool) -> Question:
    """The function of every row by itself; persons' rows one after the other.

    The answer has which rows count, then each family's cells and ``t``: ``(1 + 2 families, n)`` or
    ``(…, n, k)``. What leaves are their sums.
    """

    def answer(held: Fields, first: jax.Array, key: jax.Array) -> jax.Array:
        columns = dict(held)
        own = columns.pop(OWN_ROWS, None)
        shape = next(iter(columns.values())).shape[: 1 if own is None else 2]
        flat = {name: one.reshape(-1, *one.shape[len(shape) :]) for name, one in columns.items()}
        if random:
            keys = jax.vmap(partial(jax.random.fold_in, key))(first + jnp.arange(shape[0]))
            flat["uniform"] = jax.vmap(lambda one: jax.random.uniform(one, shape[1:]))(keys).ravel()
        found = mapped(lambda row: tuple(function(row)), flat)
        numbers = [jnp.ones(shape) if own is None else own > 0]
        for cells, t in found:
            numbers += [cells, jnp.zeros(shape) if t is None else t]
        return jnp.stack([jnp.asarray(one, dtype=float).reshape(shape) for one in numbers])

    return Question(lambda columns, _: slots.project(columns), answer, partial(_cell_sums, mechanism))


def _cell_sums(mechanism: SumsPlan, found: np.ndarray, present: np.ndarray) -> FloatArray:
    """Whole numbers of one unit, whose sums are exact."""
    parts = zip(found[1::2], found[2::2], strict=True)
    there = (found[0] > 0) & present.reshape(-1, *(1,) * (found.ndim - 2))
    return mechanism.sums([Contribution(cells.astype(np.int64), t) for cells, t in parts], there)
