"""The Langevin step, and whole chains of it, read from a schedule and nothing else.

One step of every chain, in whitened coordinates (``M = AAᵀ``, ``θ = Au``):
``u' = u − γ_k (Aᵀ∇K(Au) + w f Σ_i clip_C(Aᵀ∇v_i(Au))) + √(2γ_k) ξ``, ``ξ ~ N(0, I)`` or another constant
covariance. The sum is over all rows (``f = 1``) or over a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from private_mcmc.accounting import gradient_limit
from private_mcmc.accounting.steps import whitened_noise
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.batches import BatchDraw, First, batch_sum, streams
from private_mcmc.kernels.gradient import (
    ClippedGradient,
    PreparedRows,
    Whitening,
    schedule_gradient,
    whitening,
)
from private_mcmc.kernels.keys import Streams
from private_mcmc.potential.potential import Potential
from private_mcmc.potential.rowwise import at_each
from private_mcmc.records import Record
from private_mcmc.schedule import Schedule

# Caps of slopes are clips over norms of at least 1e-140; sums are of at most 2^31 rows of a clip each.
_LEAST, _MOST = 1e-100, 1e100
# Uniform numbers of 52 bits draw rows that are rarer than this with another probability.
_RAREST = 2.0**-30


Observable = Callable[[jax.Array], jax.Array]
States = Float[Array, "chains p"]
# A key of batches, or what was drawn with it; ``None`` where all rows are in every step.
Drawn = jax.Array | None


class StepNumbers(NamedTuple):
    """What a step reads of its schedule's numbers, of any number of chains and steps.

    Constants of a compiled run; arguments where one compiled program serves many schedules.

    Attributes:
        root: ``A`` with ``AAᵀ`` the preconditioner.
        clip: of the norm of a row's gradient.
        step_size: one, or one for every step.
        temper: weight of the likelihood.
        limit: where every coordinate of the gradient is clamped.
    """

    root: jax.Array | np.ndarray | None
    clip: float | jax.Array
    step_size: np.ndarray | jax.Array
    temper: float | jax.Array
    limit: float | jax.Array

    @classmethod
    def of(cls, schedule: Schedule) -> StepNumbers:
        """Those of a schedule."""
        root = whitening(schedule.preconditioner, schedule.dim).root
        steps = np.asarray(schedule.step_size)
        return cls(root, schedule.clip, steps, schedule.temper, gradient_limit(schedule))


# Programs are compiled for whole multiples of so many steps.
_STEPS = 512


def whole_steps(num_steps: int) -> int:
    """The steps that a program is compiled for: those of a run, rounded up."""
    return -(-num_steps // _STEPS) * _STEPS


def without_numbers(schedule: Schedule) -> Schedule | None:
    """The schedule with 1 for its ``StepNumbers`` and its steps rounded up: what a program is compiled for.

    ``None`` for schedules that differ in more than those from another path of one chain over all rows.
    """
    steps = whole_steps(schedule.num_steps)
    numbers: Record = {"step_size": 1.0, "clip": 1.0, "temper": 1.0, "preconditioner": None}
    kept = {name: getattr(schedule, name) for name in ("adjacency", "num_rows", "dim", "unit")}
    plain = Schedule(**kept, **numbers, num_steps=steps)
    if isinstance(schedule.step_size, tuple) or np.ndim(schedule.preconditioner or 0) != 2:
        return None
    return plain if replace(schedule, num_steps=steps, **numbers) == plain else None


@dataclass(frozen=True, eq=False)
class LangevinProgram:
    """The pure functions of one run; the data are always arguments, never closed over.

    A step is ``move`` after ``data``. Where rows lie in several places, their ``data`` are added in between:
    ``data`` takes the key of batches and ``move`` the noise, so that no place of rows needs the latter. What
    steps draw may be drawn for many of them at once.

    Attributes:
        prepare: ``(columns, present) -> rows``, once a run.
        drawn: ``(key, k) -> numbers`` of the batches of step ``k``, or ``None``.
        data: ``(u, k, key, drawn, rows, first) -> f Σ clip``, ``(chains, p)``, over the rows that are here:
            those of the run from number ``first`` on, all of them for ``None``.
        noise: ``(key, k) -> ξ``, standard normals of step ``k``, ``(chains, p)``.
        move: ``(u, k, noise, total) -> u'``, given the sum over all rows.
        whitening: the change of variables between ``u`` and the unconstrained parameter.
    """

    prepare: Callable[..., PreparedRows]
    drawn: Callable[[Drawn, jax.Array], Drawn]
    data: Callable[..., jax.Array]
    noise: Callable[[jax.Array, jax.Array], jax.Array]
    move: Callable[..., jax.Array]
    whitening: Whitening

    def step(self, u: States, k: jax.Array, keys: Streams, rows: PreparedRows) -> States:
        """``u'`` after step number ``k ≥ 0``, with every row here."""
        total = self.data(u, k, keys.batches, self.drawn(keys.batches, k), rows)
        return self.move(u, k, self.noise(keys.steps, k), total)


def langevin_program(
    model: Potential, schedule: Schedule, numbers: StepNumbers | None = None
) -> LangevinProgram:
    """The step of ``schedule`` for ``model``; ``numbers``, which may be traced, in place of the schedule's.

    ``DeclarationError`` for a preconditioner or noise that makes no sense.
    """
    if schedule.unit != model.term.unit:
        raise DeclarationError(
            f"the schedule protects {schedule.unit or 'a row'}, the model {model.term.unit or 'a row'}."
        )
    if numbers is None:
        check_magnitudes(schedule)
        numbers = StepNumbers.of(schedule)
    states = None if schedule.rate is not None else schedule.num_chains
    gradient = schedule_gradient(model, Whitening(numbers.root), schedule, states, numbers.clip)
    return step_program(model, schedule, gradient, numbers)


def check_magnitudes(schedule: Schedule) -> None:
    """Refuse numbers that floats do not serve: of a row's cap, of a sum of clipped rows, of rare draws."""
    clips = (schedule.clip,) if schedule.clips is None else schedule.clips
    if not all(_LEAST <= value <= _MOST for value in (*clips, schedule.temper, *schedule.step_sizes)):
        raise DeclarationError(
            f"clip, temper and step_size must lie in [{_LEAST:g}, {_MOST:g}]: choose other units."
        )
    if schedule.rate is not None and not schedule.rate >= _RAREST:
        raise DeclarationError(
            f"rate={schedule.rate}: at least 2^-30, below which rows would be drawn more often."
        )


def step_program(
    model: Potential, schedule: Schedule, gradient: ClippedGradient, numbers: StepNumbers
) -> LangevinProgram:
    """The step for a given sum over rows; of ``schedule`` only what is not in ``numbers`` is read."""
    change, colour = Whitening(numbers.root), whitened_noise(schedule)
    batch = None if schedule.rate is None else batch_sum(gradient, schedule)

    def drawn(batches: Drawn, k: jax.Array) -> Drawn:
        if batch is None or batch.draw is None:
            return None
        return batch.draw(jax.random.fold_in(streams(batches)[0], k))

    def data(
        u: States, k: jax.Array, batches: Drawn, drawn: Drawn, rows: PreparedRows, first: First = None
    ) -> States:
        def one(state: Float[Array, " p"], chain: jax.Array, own: Drawn) -> Float[Array, " p"]:
            if batch is None:
                return gradient.total(state, rows)
            return batch.total(state, rows, BatchDraw(streams(batches)[1], k, chain, own), first)

        return jnp.asarray(at_each(one, u, jnp.arange(u.shape[0]), drawn))

    def move(u: States, k: jax.Array, standard: States, total: States) -> States:
        gamma = jnp.asarray(numbers.step_size)
        gamma = gamma if gamma.ndim == 0 else gamma[k]
        prior = change.pull_back(at_each(model.prior_slope, change.to_parameter(u)))
        slope = jnp.clip(prior + numbers.temper * total, -numbers.limit, numbers.limit)
        standard = standard.astype(u.dtype)
        standard = standard if colour is None else standard * colour
        # The noise joins the gradient before the state does: what rounds from there on is post-processing.
        u = u + (jnp.sqrt(2.0 * gamma) * standard - gamma * slope)
        if not math.isfinite(schedule.within):
            return u
        # The box in which rounding is small: its nearest points move no two states apart.
        return jnp.clip(jnp.nan_to_num(u, nan=0.0), -schedule.within, schedule.within)

    def noise(key: jax.Array, k: jax.Array) -> jax.Array:
        return jax.random.normal(jax.random.fold_in(key, k), (schedule.num_chains, schedule.dim))

    return LangevinProgram(gradient.prepare, drawn, data, noise, move, change)
