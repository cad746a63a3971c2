"""What runs released, draws as values of the model's sites, looks at plans: post-processing, free."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import Statement
from private_mcmc.planning import Conclusion, History, PathStage, Plan, Prediction, Stage, predict_after
from private_mcmc.potential.potential import Potential
from private_mcmc.potential.rowwise import EXACT, in_blocks
from private_mcmc.release import ReleasedExpectations, ReleasedStates, StateGrid, state_grid

Array = npt.NDArray[np.float64]


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


DIVERGED = (
    "The path diverged, and no estimate is made of it; what the stages released is in the record, paid for. "
    "The model's prior or its scales are steeper somewhere than these steps can follow."
)


def diverged(history: History) -> bool:
    """Whether a path has come to the end of its grid, or to no number, which the grid has as 0."""
    for one in history:
        if isinstance(one.stage, PathStage):
            states, grid = np.asarray(one.value), state_grid(one.stage.schedule)
            if np.any(np.abs(states) >= grid.largest) or np.any(np.all(states[-2:] == 0, axis=0)):
                return True
    return False


# Of the squared budget: a stage that costs more is bought only after a look at what those before it say.
_LARGE = 0.5
# Whether to stop there, by the plan and what was released; whatever it does with them is post-processing.
Look = Callable[[Plan, History], bool]


def is_look(plan: Plan, history: History, stage: Stage) -> bool:
    """Whether the cheap stages end where ``stage`` would be the next."""
    return bool(history) and (stage.statement.gdp or math.inf) ** 2 > _LARGE * plan.budget**2


def stopping(stop_if: Callable[[Prediction], bool]) -> Look:
    """The look at a plan's cheap stages that stops by the error predicted from them."""

    def look(plan: Plan, releases: History) -> bool:
        return bool(stop_if(predict_after(plan, releases)))

    return look


def constrained(reading: Potential, states: Array) -> dict[str, np.ndarray]:
    """States ``(chains, kept, p)`` as values of the model's sites, ``(chains, kept, …)``."""
    with jax.enable_x64(True), jax.default_matmul_precision(EXACT):
        found = in_blocks(partial(_constrained, reading), states.reshape(-1, reading.dim))
    return {name: values.reshape(*states.shape[:2], *values.shape[1:]) for name, values in found.items()}


@partial(jax.jit, static_argnums=0)
def _constrained(reading: Potential, states: jax.Array) -> Mapping[str, jax.Array]:
    return jax.vmap(reading.constrain)(states)


def outcome_of(plan: Plan, history: History, statement: Statement, provenance: Mapping[str, str]) -> Outcome:
    """The policy's draws and the states of all paths, on the grid that all of them lie on: the finest."""
    conclusion = plan.policy.conclude(history)
    grids = [state_grid(one.stage.schedule) for one in history if isinstance(one.stage, PathStage)]
    grid = min(grids, key=lambda one: one.step, default=StateGrid(2.0**-40))

    def released(states: Array, num_warmup: int = 0) -> ReleasedStates:
        steps = tuple(range(1, len(states) + 1))
        samples = constrained(plan.reading, states[None])
        return ReleasedStates(samples, steps, num_warmup, statement, provenance, grid.step)

    draws = raw = released(conclusion.draws)
    paths = [np.asarray(one.value) for one in history if isinstance(one.stage, PathStage)]
    if paths:
        kept = np.concatenate(paths)
        raw = released(kept, num_warmup=len(kept) - len(paths[-1]))
    return Outcome(statement, raw, draws, history, conclusion, provenance, ended="released")
