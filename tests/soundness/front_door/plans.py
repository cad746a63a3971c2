"""Plans whose stages are given: they stay within their budget, and have noise of their own."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.auditing import Mechanism, Pair
from private_mcmc.auditing.mechanism import keys
from private_mcmc.kernels import PrivateULA
from private_mcmc.model import read
from private_mcmc.planning import Conclusion, PathStage, Plan, Prediction
from tests.soundness.front_door.setup import FAR, SEEDED, Attempt, audited, far_apart, seeded
from tests.soundness.replay import implied_noise, repeated
from tests.soundness.sweep.zoo import mean


@dataclass(frozen=True, eq=False)
class Fixed:
    """A policy that names the same stages, and concludes the same draws, whatever they release."""

    stages: tuple[Any, ...]
    assumed: tuple[str, ...] = ()
    draws: Any = ((0.0,),)
    facts: Any = None

    def next(self, history: Any) -> Any:
        return self.stages[len(history)] if len(history) < len(self.stages) else None

    def conclude(self, history: Any) -> Conclusion:
        return Conclusion(np.asarray(self.draws), Prediction(1.0, 0.0, 1.0, 0.0))


_STAGE_STEPS = 2
# Of many short runs most of the time is the making of keys.


def path_stage(clip: float) -> PathStage:
    schedule = PrivateULA(mean, step_size=0.1, clip=clip).schedule(
        adjacency="replace_one", num_rows=2, dim=1, num_steps=_STAGE_STEPS, num_chains=1, release="path"
    )
    return PathStage(f"clip {clip}", schedule, np.zeros(1))


def stages_of(clips: tuple[float, ...], budget: float) -> Plan:
    """A plan of the mean of two rows, one path for every clip, under a budget in Gaussian DP."""
    delta = 1e-5
    target = pmc.Target(accounting.gdp.epsilon(budget, delta), delta)
    return Plan(
        model=mean,
        reading=read(mean, FAR, n=2),
        rows=FAR,
        target=target,
        n=2,
        model_args={},
        guarantee="run",
        temper=1.0,
        policy=Fixed(tuple(map(path_stage, clips))),
        certificate=None,
        prediction=Prediction(1.0, 0.0, 1.0, 0.0),
    )


def plan_runs(plan: Plan) -> Callable[[Any, int, np.random.SeedSequence], np.ndarray]:
    """Outputs ``(runs, stages · steps)`` of a plan whose stages are within its budget."""
    mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False, execution=SEEDED)

    def once(data: Any, key: jax.Array) -> np.ndarray:
        mcmc.run(rng_key=key, **data)
        return np.concatenate([np.ravel(completed.value) for completed in mcmc.history])

    return lambda data, count, seed: np.stack([once(data, key) for key in keys(seed, count)])


_CLIP, _STAGES = 2.37, 7


def stages_add_up_to_the_budget() -> Attempt:
    """What ran costs ``Σ TγΔ²/2``, ``Δ = 2C``, worked out here: no more than the square of the budget."""
    plan = stages_of((_CLIP,) * _STAGES, 1.1 * path_stage(_CLIP).statement.gdp)
    mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False, execution=SEEDED)
    data = {"y": np.array([50.0, -50.0])}

    def attempt(seed: int) -> list[str]:
        try:
            mcmc.run(rng_key=seeded(seed), **data)
        except pmc.NotPrivate:
            return []
        spent = len(mcmc.history) * _STAGE_STEPS * 0.1 * (2 * _CLIP) ** 2 / 2
        return [f"stages of {spent:.4g} ran"] if spent > plan.statement.gdp**2 else []

    return attempt


_TWO_CLIPS = 0.05, 0.1


def _implied(outputs: np.ndarray, data: Any) -> np.ndarray:
    """The noise ``(runs, stages · steps)`` of two stages."""
    paths = outputs.reshape(len(outputs), len(_TWO_CLIPS), _STAGE_STEPS, 1)
    found = [
        implied_noise(mean, "mu", data, paths[:, j], step_size=0.1, clip=clip)
        for j, clip in enumerate(_TWO_CLIPS)
    ]
    return np.concatenate(found, axis=1)[..., 0]


def no_stage_repeats_the_noise_of_another() -> Attempt:
    """Of one run: both steps' noise of two stages is as near with probability below 3e-7."""
    runs = plan_runs(stages_of(_TWO_CLIPS, 8.0))
    data = {"y": np.array([50.0, -50.0])}

    def attempt(seed: int) -> list[str]:
        noise = _implied(runs(data, 1, np.random.SeedSequence(seed)), data)
        return repeated(noise.reshape(len(_TWO_CLIPS), _STAGE_STEPS), distance=1e-3)

    return attempt


def stages_have_noise_of_their_own() -> Attempt:
    """Two stages with different clips: equal noise in both would leave the difference of gradients bare."""
    plan = stages_of(_TWO_CLIPS, 8.0)

    def nearest(outputs: np.ndarray, data: Any) -> np.ndarray:
        noise = _implied(outputs, data)
        apart = np.abs(noise[:, :_STAGE_STEPS, None] - noise[:, None, _STAGE_STEPS:])
        return np.log(apart.min(axis=(1, 2)) + 1e-9)

    def scores(pair: Pair) -> Any:
        first, second = pair.first, pair.second
        return {"noise used twice": lambda outputs: nearest(outputs, first) - nearest(outputs, second)}

    mechanism = Mechanism("plan", plan.statement, plan_runs(plan), scores)
    # The budget is far from spent: what is claimed is what the two stages cost.
    cost = accounting.compose(*(stage.statement.of(str(j)) for j, stage in enumerate(plan.policy.stages)))
    return audited(replace(mechanism, statement=cost), far_apart(0, 2), num_runs=60)
