"""Two chains on adjacent data with one start and one noise never part further than the accountant says.

The constants are the library's own, read from NumPyro models; the chains are stepped with the models'
gradients. Everything here holds surely, so one pair of states further apart is a fault of the library.
"""

import copy
import dataclasses
import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from private_mcmc import accounting as acc
from private_mcmc.accounting.steps import sensitivity
from private_mcmc.domains import Binary, Box, Rows
from private_mcmc.model import RowModel, read
from private_mcmc.potential.potential import curvature
from private_mcmc.schedule import Average, Schedule
from tests.examples_of_models import normal_mean, outcomes
from tests.schedules import schedule

N = 3
WIDE = np.sinh(np.linspace(-6, 6, 301)) / 25  # dense around the origin, out to ±8
REAL = Rows(y=Box(-1.0, 1.0))
ENDS = (-1.0, 0.0, 1.0)
BITS = Rows(y=Binary())


def bumps():
    return dist.MixtureSameFamily(
        dist.Categorical(jnp.array([0.5, 0.5])), dist.Normal(jnp.array([-2.0, 2.0]), 0.4)
    )


# Bounds of the curvature of a prior that is no line of the library's table, by hand: a mixture of Normals of
# one scale s has 1/s² − R²/4s⁴ ≤ K'' ≤ 1/s², R the range of the means.
BY_HAND = {"mixture": (1 / 0.4**2 - 4.0 / 0.4**4, 1 / 0.4**2)}

# Prior, likelihood of a row, domain and values of a row, clip, whether small steps keep chains together.
Model = tuple[Callable, Callable, Rows, tuple, float, bool]
NORMAL = lambda: dist.Normal(0.0, 0.5)  # noqa: E731
MODELS: dict[str, Model] = {
    "normal, Normal rows": (NORMAL, lambda t: dist.Normal(t, 1.0), REAL, ENDS, 0.5, True),
    "normal, binary rows": (NORMAL, lambda t: dist.Bernoulli(logits=t), BITS, (0, 1), 0.4, True),
    "normal, Student rows": (NORMAL, lambda t: dist.StudentT(2.0, t, 0.1), REAL, ENDS, 2.0, False),
    "normal, Laplace rows": (NORMAL, lambda t: dist.Laplace(t, 0.3), REAL, ENDS, 1.0, False),
    "mixture, binary rows": (bumps, lambda t: dist.Bernoulli(logits=t), BITS, (0, 1), 1, False),
    "log-normal, exponential rows": (
        lambda: dist.LogNormal(0.0, 0.7),
        dist.Exponential,
        Rows(y=Box(0.1, 3.0)),
        (0.1, 3.0),
        1.0,
        True,
    ),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model as read, and its gradients: of the prior ``(t,)``, of clipped rows ``(t, values)``."""

    reading: RowModel
    values: tuple
    clip: float
    prior: Callable[[np.ndarray], np.ndarray]
    rows: Callable[[np.ndarray], np.ndarray]

    def schedule(self, step: float, **changes) -> Schedule:
        fields = dict(num_rows=N, dim=1, num_steps=40, step_size=step, clip=self.clip, release=Average(1))
        return schedule(**(fields | changes))

    def pairs(self) -> list[tuple[list[int], list[int]]]:
        """Adjacent data as numbers of copies of every value: all replacements, with two kinds of others."""
        count = len(self.values)
        found = []
        for other, (here, there) in itertools.product(
            (0, count - 1), itertools.combinations(range(count), 2)
        ):
            base = np.bincount([other] * (N - 1), minlength=count)
            found.append((base + np.eye(count)[here], base + np.eye(count)[there]))
        return found

    def step(self, step: float, counts: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """``x − γ(K'(x) + Σ clip(v'(x)))``."""
        return lambda x: x - step * (self.prior(x) + self.rows(x) @ counts)


def believed(part: Any, **said: object) -> Any:
    """The part with other constants than are proved of it, which no field of it sets."""
    other = copy.copy(part)
    vars(other).update(said)
    return other


@cache
def case(name: str) -> Case:
    prior, likelihood, rows, values, clip, _ = MODELS[name]
    reading = read(outcomes(prior, likelihood), rows, n=N)
    known = BY_HAND.get(name.split(",")[0])
    if known is not None:
        low, high = (np.array([end]) for end in known)
        reading = dataclasses.replace(
            reading, prior=believed(reading.prior, lower=low, upper=high, hessian=None)
        )
    with jax.enable_x64(True):
        column = jnp.asarray(values)

        @jax.jit
        def gradients(points):
            prior = jax.vmap(jax.grad(reading.neg_log_prior))(points[:, None])[:, 0]
            row = jax.grad(lambda t, y: reading.row_loss(t, {"y": y}))
            slopes = jax.vmap(lambda t: jax.vmap(lambda y: row(t, y)[0])(column))(points[:, None])
            return prior, jnp.clip(slopes, -clip, clip)

    def at(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            padded = np.resize(points, WIDE.size)
            return tuple(np.asarray(part)[: len(points)] for part in gradients(padded))

    return Case(reading, values, clip, lambda x: at(x)[0], lambda x: at(x)[1])


def step_sizes(reading) -> tuple[float, ...]:
    """Small, below ``2/L_K`` and beyond it."""
    smooth = reading.prior.in_metric(None)[1]
    return (0.02, 0.5, *(factor / smooth for factor in (0.5, 1.9, 3.0) if 0 < smooth < np.inf))


def excess(item: Case, proved: acc.Curvature, step: float) -> float:
    """The most by which two states of any pair are moved further apart than a step is said to move them."""
    public = item.schedule(step)
    gap = proved.gap(step)
    if gap < 0:
        return -np.inf
    allowed = (1 - gap) * np.abs(WIDE[:, None] - WIDE[None, :]) + step * sensitivity(public)
    worst = -np.inf
    for here, there in item.pairs():
        moved = item.step(step, here)(WIDE)[:, None] - item.step(step, there)(WIDE)[None, :]
        worst = max(worst, float(np.max(np.abs(moved) - allowed * (1 + 1e-12))))
    return worst


@pytest.mark.some(6)
@pytest.mark.parametrize("name", MODELS)
def test_no_two_states_are_moved_further_apart_than_a_step_is_said_to_move_them(name: str) -> None:
    item = case(name)
    for step in step_sizes(item.reading):
        proved = curvature(item.reading, item.schedule(step))
        assert excess(item, proved, step) <= 1e-12


def parted(item: Case, step: float, counts: tuple, starts: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """Distances of two chains after every step, and of their averages: ``(T, starts)``, ``(starts,)``."""
    rng = np.random.default_rng(seed)
    maps = [item.step(step, count) for count in counts]
    x = y = starts
    states = []
    for _ in range(40):
        noise = np.sqrt(2 * step) * rng.standard_normal(starts.size)
        x, y = maps[0](x) + noise, maps[1](y) + noise
        states.append((x, y))
    gaps = np.array([x - y for x, y in states])
    return np.abs(gaps), np.abs(gaps.mean(axis=0))


@pytest.mark.some(4)
@pytest.mark.parametrize("name", MODELS)
def test_coupled_chains_and_their_averages_stay_as_close_as_claimed(name: str) -> None:
    item = case(name)
    starts = np.resize([0.0, 5.0, -5.0, *np.linspace(-3, 3, 59)], WIDE.size)
    for step in step_sizes(item.reading)[:3]:
        public = item.schedule(step)
        proved = curvature(item.reading, public)
        average = acc.average_sensitivity(public, proved)
        last = acc.average_sensitivity(item.schedule(step, release=Average(40)), proved)
        assert np.isfinite(last) == (proved.gap(step) >= 0)
        assert step > 0.02 or np.isfinite(last) == MODELS[name][-1]
        if not np.isfinite(last):
            continue
        for counts in item.pairs()[:2]:
            gaps, means = parted(item, step, counts, starts, seed=1)
            assert np.max(means) <= average * (1 + 1e-12)
            assert np.max(gaps[-1]) <= last * (1 + 1e-12)


FAULTS = {
    "mixture, binary rows": lambda reading: dataclasses.replace(
        reading, prior=believed(reading.prior, lower=np.full(1, 1e-3))
    ),
    "normal, Student rows": lambda reading: dataclasses.replace(
        reading, term=believed(reading.term, constants=dataclasses.replace(reading.constants, convex=True))
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrongly_taken_for_convex_is_found_out(name: str) -> None:
    """The fault planted: a prior, or rows, said to be convex that are not."""
    item = case(name)
    step = 1.0 / (item.reading.prior.in_metric(None)[1] + 1000.0 * ("Student" in name))
    assert excess(item, curvature(FAULTS[name](item.reading), item.schedule(step)), step) > 1e-3


def test_a_prior_of_constant_hessian_is_smooth_on_both_sides() -> None:
    prior = read(normal_mean, REAL, n=N).prior
    bent = believed(prior, hessian=np.array([-3.0]), lower=np.array([-3.0]), upper=np.array([-3.0]))
    assert bent.in_metric(None)[1] >= 3.0 and bent.in_metric(None)[0] == 0.0 and not bent.convex
