"""A plan under attack, through the front door: every stage of it, run after run."""

from __future__ import annotations

from contextlib import suppress

import jax
import numpy as np

from private_mcmc.auditing.chains import check_inside, in_slots, keys
from private_mcmc.auditing.confidence import FloatArray
from private_mcmc.auditing.mechanism import DataSet, Mechanism
from private_mcmc.auditing.pairs import worst_pairs
from private_mcmc.errors import NotPrivate
from private_mcmc.inference import Execution, PrivateMCMC
from private_mcmc.kernels import Generator
from private_mcmc.planning import CompletedStage, Plan
from private_mcmc.release import Counts, SecondMoments
from private_mcmc.schedule import Schedule

# Numbers that are kept of a stage, and of a run: what a stage releases may be long, and policies may differ
# in their stages from run to run.
_OF_STAGE, _OF_RUN = 64, 256


def plan_mechanism(plan: Plan, *, generator: Generator = "chacha20") -> Mechanism:
    """The whole policy of ``plan`` as ``PrivateMCMC.from_plan(plan).run`` executes it, stage after stage.

    What is attacked are the releases of all stages: noised moments and counts, and of a path every state, or
    the first, the mean and the last one of a long path. A stage that the budget refuses ends a run, which is
    an output as well. A policy that shapes its paths by what it has released compiles them anew in every run,
    about a second each: give ``audit`` a few hundred ``num_runs``.
    """
    mcmc = PrivateMCMC.from_plan(
        plan, progress_bar=False, execution=Execution(generator=generator, unsafe_seed=True)
    )
    # Extreme pairs are found by gradients of norm at most 1, whatever clips the policy will choose.
    schedule = Schedule(
        adjacency=plan.target.adjacency,
        num_rows=plan.n,
        dim=plan.reading.dim,
        step_size=1.0,
        num_steps=1,
        clip=1.0,
    )

    def once(slots: DataSet, key: jax.Array) -> FloatArray:
        numbers = np.zeros(_OF_RUN)
        with suppress(NotPrivate):
            mcmc.run(rng_key=key, **slots)
        # What the stages before a refused one released is shown as well.
        seen = np.concatenate([np.zeros(0), *(_numbers(completed) for completed in mcmc.history)])[:_OF_RUN]
        numbers[: len(seen)] = seen
        return numbers

    def draw(data: DataSet, count: int, seed: np.random.SeedSequence) -> FloatArray:
        check_inside(plan.rows, data)
        slots = in_slots(data, schedule)
        return np.stack([once(slots, key) for key in keys(seed, count, generator)])

    name = f"plan for {getattr(plan.model, '__name__', 'a model')}"
    return Mechanism(name, plan.statement, draw, pairs=lambda: worst_pairs(plan.reading, schedule))


def _numbers(completed: CompletedStage) -> FloatArray:
    """What a stage released, the length of it first."""
    value = completed.value
    if isinstance(value, SecondMoments):
        released = np.asarray(value.matrix)[np.triu_indices(len(value.matrix))]
    elif isinstance(value, Counts):
        released = np.ravel(value.values)
    elif value.size > _OF_STAGE:
        released = np.concatenate([value[0], value.mean(axis=0), value[-1]])
    else:
        released = np.ravel(value)
    return np.concatenate([[np.size(value) if isinstance(value, np.ndarray) else 0.0], released[:_OF_STAGE]])
