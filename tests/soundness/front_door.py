"""Checks of the library through the driver alone: each tells what speaks against it, or nothing.

*Replays* (one driver run, no claim of privacy attacked): a path leaves, once the gradient that NumPyro's own
density has is taken off, exactly the declared noise. *Audits* (many runs on two adjacent data sets): the
lower bounds stay below the claim. A check is made once and tried with many seeds.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.auditing import Mechanism, Pair, audit, chain_mechanism
from private_mcmc.auditing.chains import keys, unconstrained
from private_mcmc.auditing.scores import ChainAttacks
from private_mcmc.inference.checkpoint import Saver
from private_mcmc.kernels import PrivateULA
from private_mcmc.kernels.sgld import PrivateSGLD
from private_mcmc.model import read
from private_mcmc.planning import Conclusion, PathStage, Plan, Prediction
from tests.soundness.replay import implied_noise, not_drawn_anew, not_standard, repeated
from tests.soundness.sweep.zoo import ZOO, line, mean

# Probability that a check speaks against a library without faults.
FAILURE = 1e-6

Attempt = Callable[[int], list[str]]
FAR = pmc.Rows(y=pmc.Box(-50.0, 50.0))
ANY = pmc.Target(1e6, 1 - 1e-6)
SEEDED = pmc.Execution(unsafe_seed=True)


@dataclass(frozen=True)
class Check:
    """``make()`` builds drivers and programs with the library as it is then; what it gives is tried."""

    name: str
    make: Callable[[], Attempt]


def driver(kernel: Any, rows: pmc.Rows, n: int, **declared: Any) -> pmc.PrivateMCMC:
    fields = {"target": ANY, "release": "path", "guarantee": "run", **declared}
    return pmc.PrivateMCMC(kernel, rows=rows, n=n, progress_bar=False, execution=SEEDED, **fields)


def seeded(seed: int) -> jax.Array:
    return keys(np.random.SeedSequence(seed), 1)[0]


def states(mcmc: pmc.PrivateMCMC, site: str) -> np.ndarray:
    """Released states ``(chains, steps, p)``."""
    value = np.asarray(mcmc.released.samples[site])
    return value.reshape(*value.shape[:2], -1)


# Replays ----------------------------------------------------------------------------------------------

_LOGISTIC = ZOO["logistic"]
_PEOPLE = {"X": np.array([[0.9, 0.3], [0.0, -1.0], [0.1, 0.05], [0.6, -0.6]]), "y": np.array([1, 0, 0, 1])}
_LINE = {"X": _PEOPLE["X"], "y": np.array([30.0, -3.0, 0.05, 8.0])}
_LINEAR_ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Box(-50.0, 50.0))


def path_replayed(
    model: Any, rows: pmc.Rows, data: Any, clip: float, step: float = 0.3
) -> Callable[[], Attempt]:
    """Two coefficients, 128 chains of 16 steps; not from 0, where NumPyro's Bernoulli density has a kink."""
    start = np.array([0.1, 0.2])

    def make() -> Attempt:
        mcmc = driver(
            PrivateULA(model, step_size=step, clip=clip),
            rows,
            4,
            num_steps=16,
            num_chains=128,
            init_params=start,
        )

        def attempt(seed: int) -> list[str]:
            mcmc.run(rng_key=seeded(seed), **data)
            noise = implied_noise(model, "w", data, states(mcmc, "w"), step_size=step, clip=clip, start=start)
            return not_standard(noise, FAILURE) + repeated(noise.reshape(-1, 2))

        return attempt

    return make


def states_on_the_grid() -> Attempt:
    mcmc = driver(PrivateULA(mean, step_size=0.1, clip=1.0), FAR, 1, num_steps=8)

    def attempt(seed: int) -> list[str]:
        mcmc.run(rng_key=seeded(seed), y=np.array([3.0]))
        multiples = states(mcmc, "mu") / mcmc.released.grid
        off = int(np.sum(multiples != np.rint(multiples)))
        return [f"{off} states off the grid"] if off else []

    return attempt


def batches_drawn_anew() -> Attempt:
    """One row that pushes 18 noise sds at every step it is in: who was drawn can be read off the path."""
    rate, step, clip = 0.3, 0.1, 25.0
    mcmc = driver(
        PrivateSGLD(mean, step_size=step, clip=clip, rate=rate), FAR, 1, num_steps=64, num_chains=16
    )

    def attempt(seed: int) -> list[str]:
        mcmc.run(rng_key=seeded(seed), y=np.array([50.0]))
        nobody = np.zeros((64, 1))
        residual = implied_noise(
            mean, "mu", {"y": np.array([50.0])}, states(mcmc, "mu"), step_size=step, clip=clip, weights=nobody
        )
        return not_drawn_anew(residual[..., 0] > 9, rate, FAILURE)

    return attempt


def holes_stay_in_their_slots() -> Attempt:
    """Cyclic batches of one row, the first slot empty: every other row acts at its own steps."""
    step, clip, n, steps = 0.1, 5.0, 4, 8
    data = {"y": np.array([50.0, -50.0, 0.5, 50.0])}
    present = np.array([False, True, True, True])
    mcmc = driver(
        PrivateSGLD(mean, step_size=step, clip=clip, scheme="cyclic", batch_size=1),
        FAR,
        n,
        num_steps=steps,
        num_chains=64,
        target=pmc.Target(1e6, 1 - 1e-6, "zero_out"),
    )
    weights = n * present * (np.arange(steps)[:, None] % n == np.arange(n))

    def attempt(seed: int) -> list[str]:
        mcmc.run(rng_key=seeded(seed), present=present, **data)
        noise = implied_noise(
            mean, "mu", data, states(mcmc, "mu"), step_size=step, clip=clip, weights=weights
        )
        return not_standard(noise, FAILURE)

    return attempt


# Plans ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fixed:
    """A policy that names the same stages whatever they release."""

    stages: tuple[Any, ...]

    def next(self, history: Any) -> Any:
        return self.stages[len(history)] if len(history) < len(self.stages) else None

    def conclude(self, history: Any) -> Conclusion:
        return Conclusion(np.zeros((1, 1)), Prediction(1.0, 0.0, 1.0, 0.0))


_STAGE_STEPS = 2


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
        statement=accounting.adaptive(accounting.gdp.budget(target.epsilon, delta), "replace_one", ()),
        certificate=None,
        prediction=Prediction(1.0, 0.0, 1.0, 0.0),
        make=lambda *_: (None, None),
    )


def plan_runs(plan: Plan) -> Callable[[Any, int, np.random.SeedSequence], np.ndarray]:
    """Outputs ``(runs, stages · steps)``; a stage that the budget refuses ends a run without any output."""
    mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False, execution=SEEDED)
    empty = np.zeros(len(plan.policy.stages) * _STAGE_STEPS)

    def once(data: Any, key: jax.Array) -> np.ndarray:
        try:
            mcmc.run(rng_key=key, **data)
        except pmc.NotPrivate:
            return empty
        return np.concatenate([np.ravel(completed.value) for completed in mcmc.history])

    return lambda data, count, seed: np.stack([once(data, key) for key in keys(seed, count)])


def plan_within_its_budget() -> Attempt:
    """Twelve stages that cost three times the budget together: what would run is refuted, or nothing runs."""
    clips = (1.0,) * 12
    plan = stages_of(clips, 1.1 * path_stage(1.0).statement.gdp)

    def ends(outputs: np.ndarray) -> np.ndarray:
        return -outputs.reshape(len(outputs), len(clips), _STAGE_STEPS)[:, :, -1].sum(axis=1)

    mechanism = Mechanism("plan", plan.statement, plan_runs(plan), lambda pair: {"ends of stages": ends})
    return audited(mechanism, _far_apart(1, 2), num_runs=240)


def stages_have_noise_of_their_own() -> Attempt:
    """Two stages with different clips: equal noise in both would leave the difference of gradients bare."""
    clips = 0.5, 1.0
    plan = stages_of(clips, 8.0)

    def implied(outputs: np.ndarray, data: Any) -> np.ndarray:
        paths = outputs.reshape(len(outputs), len(clips), _STAGE_STEPS, 1)
        found = [
            implied_noise(mean, "mu", data, paths[:, j], step_size=0.1, clip=clip)
            for j, clip in enumerate(clips)
        ]
        return np.concatenate(found, axis=1)[..., 0]

    def nearest(outputs: np.ndarray, data: Any) -> np.ndarray:
        noise = implied(outputs, data)
        apart = np.abs(noise[:, :_STAGE_STEPS, None] - noise[:, None, _STAGE_STEPS:])
        return np.log(apart.min(axis=(1, 2)) + 1e-9)

    def scores(pair: Pair) -> Any:
        first, second = pair.first, pair.second
        return {"noise used twice": lambda outputs: nearest(outputs, first) - nearest(outputs, second)}

    mechanism = Mechanism("plan", plan.statement, plan_runs(plan), scores)
    # The budget is far from spent: what is claimed is what the two stages cost.
    cost = accounting.compose(*(stage.statement.of(str(j)) for j, stage in enumerate(plan.policy.stages)))
    return audited(replace(mechanism, statement=cost), _far_apart(0, 2), num_runs=160)


# Resumed runs -----------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


@contextlib.contextmanager
def killed_after(steps: int) -> Iterator[None]:
    """The process dies once so many steps are saved."""
    save = Saver.save

    def saved(saver: Saver, state: Any) -> None:
        save(saver, state)
        if state.done >= steps:
            raise Killed

    Saver.save = saved
    try:
        yield
    except Killed:
        pass
    finally:
        Saver.save = save


def resumed(make: Callable[[Any], pmc.PrivateMCMC], data: Any, key: jax.Array, after: int) -> pmc.PrivateMCMC:
    """A driver whose run was killed after so many steps and then taken up again."""
    with tempfile.TemporaryDirectory() as folder:
        mcmc = make(pmc.Checkpoint(Path(folder) / "run", seconds=0.0))
        with killed_after(after):
            mcmc.run(rng_key=key, **data)
        mcmc.resume(**data)
        return mcmc


def resumed_is_the_same_run() -> Attempt:
    step, clip = 0.3, 0.2

    def make(checkpoint: Any) -> pmc.PrivateMCMC:
        kernel = PrivateULA(_LOGISTIC.model, step_size=step, clip=clip)
        return driver(
            kernel,
            _LOGISTIC.rows,
            4,
            num_steps=16,
            num_chains=64,
            bookkeeping=pmc.Bookkeeping(checkpoint=checkpoint),
        )

    def attempt(seed: int) -> list[str]:
        paths = states(resumed(make, _PEOPLE, seeded(seed), 8), "w")
        noise = implied_noise(_LOGISTIC.model, "w", _PEOPLE, paths, step_size=step, clip=clip)
        return not_standard(noise, FAILURE) + repeated(noise.reshape(-1, 2))

    return attempt


# Audits -----------------------------------------------------------------------------------------------


def audited(
    mechanism: Mechanism, pair: Pair, num_runs: int, at: tuple[float, float] = (1.0, 0.01)
) -> Attempt:
    epsilon, delta = at

    def attempt(seed: int) -> list[str]:
        found = audit(
            mechanism,
            pair,
            num_runs=num_runs,
            epsilon=epsilon,
            delta=delta,
            seed=seed,
            failure_probability=FAILURE,
        )
        return [f"{c.quantity} at least {c.lower:.3g}, claimed {c.upper:.3g}" for c in found.violations]

    return attempt


def _far_apart(place: int, n: int = 1) -> Pair:
    sides = np.zeros((2, n))
    sides[:, place] = 50.0, -50.0
    return Pair({"y": sides[0]}, {"y": sides[1]})


def last_state() -> Attempt:
    """One clipped row under a wide prior: the claimed m is exact, whatever makes it smaller is refuted."""

    def model(y=None):
        import numpyro
        import numpyro.distributions as dist

        mu = numpyro.sample("mu", dist.Normal(0, 2.5))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    mechanism = chain_mechanism(
        PrivateULA(model, step_size=0.2, clip=0.7),
        rows=FAR,
        target=pmc.Target(1.0, 1e-5),
        release="last",
        num_steps=60,
        n=1,
    )
    return audited(mechanism, _far_apart(0), num_runs=20_000)


def path_of_the_first_row() -> Attempt:
    mechanism = chain_mechanism(
        PrivateULA(mean, step_size=0.1, clip=1.5),
        rows=FAR,
        target=pmc.Target(1.0, 1e-5),
        release="path",
        num_steps=6,
        n=3,
    )
    return audited(mechanism, _far_apart(0, 3), num_runs=2_000)


def path_of_rows_below_the_clip() -> Attempt:
    mechanism = chain_mechanism(
        PrivateULA(mean, step_size=0.1, clip=1.5),
        rows=FAR,
        target=pmc.Target(1.0, 1e-5),
        release="path",
        num_steps=6,
        n=1,
    )
    return audited(mechanism, Pair({"y": np.array([50.0])}, {"y": np.array([0.1])}), num_runs=2_000)


def path_of_batches() -> Attempt:
    """Batches that are as small as is worth most to the claim, pushes of a little more than the noise."""
    mechanism = chain_mechanism(
        PrivateSGLD(mean, step_size=0.1, clip=0.7, rate=0.13),
        rows=FAR,
        target=pmc.Target(1.0, 1e-5, "add_remove"),
        release="path",
        num_steps=16,
        n=2,
    )
    pair = Pair({"y": np.array([0.0, 50.0])}, {"y": np.array([0.0])})
    return audited(mechanism, pair, num_runs=30_000, at=(2.0, 0.01))


def path_with_a_hole() -> Attempt:
    mechanism = chain_mechanism(
        PrivateSGLD(mean, step_size=0.1, clip=0.7, scheme="cyclic", batch_size=1),
        rows=FAR,
        target=pmc.Target(1.0, 1e-5, "zero_out"),
        release="path",
        num_steps=8,
        n=4,
    )
    y = np.array([50.0, -50.0, 50.0, -50.0])
    pair = Pair({"y": y}, {"y": y, "present": np.array([False, True, True, True])})
    return audited(mechanism, pair, num_runs=4_000)


def path_of_a_resumed_run() -> Attempt:
    kernel = PrivateULA(mean, step_size=0.1, clip=1.5)
    one = driver(kernel, FAR, 1, num_steps=6).decide(1)
    width = 500
    attacks = ChainAttacks(one.reading, one.schedule, np.zeros(1))

    def make(checkpoint: Any) -> pmc.PrivateMCMC:
        return driver(
            kernel, FAR, 1, num_steps=6, num_chains=width, bookkeeping=pmc.Bookkeeping(checkpoint=checkpoint)
        )

    def draw(data: Any, count: int, seed: np.random.SeedSequence) -> np.ndarray:
        runs = [resumed(make, data, key, 3).released for key in keys(seed, -(-count // width))]
        found = [unconstrained(one.reading, released.samples).reshape(width, -1) for released in runs]
        return np.concatenate(found)[:count]

    pair = Pair({"y": np.array([50.0])}, {"y": np.array([0.1])})
    return audited(Mechanism("resumed path", one.statement, draw, attacks), pair, num_runs=1_000)


CHECKS = (
    Check("replay: linear path", path_replayed(line, _LINEAR_ROWS, _LINE, 1.0)),
    Check("replay: logistic path", path_replayed(_LOGISTIC.model, _LOGISTIC.rows, _PEOPLE, 0.6, 1.0)),
    Check("replay: grid", states_on_the_grid),
    Check("replay: batches", batches_drawn_anew),
    Check("replay: holes", holes_stay_in_their_slots),
    Check("replay: resumed", resumed_is_the_same_run),
    Check("audit: last state", last_state),
    Check("audit: first row", path_of_the_first_row),
    Check("audit: below the clip", path_of_rows_below_the_clip),
    Check("audit: batches", path_of_batches),
    Check("audit: holes", path_with_a_hole),
    Check("audit: plan's budget", plan_within_its_budget),
    Check("audit: plan's noise", stages_have_noise_of_their_own),
    Check("audit: resumed", path_of_a_resumed_run),
)
