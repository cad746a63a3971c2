"""The Langevin step, and whole chains of it, read from a schedule and nothing else.

One step of every chain, in whitened coordinates (``M = AAᵀ``, ``θ = Au``):
``u' = u − γ_k (Aᵀ∇K(Au) + w f Σ_i clip_C(Aᵀ∇v_i(Au))) + √(2γ_k) ξ``, ``ξ ~ N(0, I)`` or another constant
covariance, then perhaps a projection. The sum is over all rows (``f = 1``) or over a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from private_mcmc.accounting import gradient_limit
from private_mcmc.kernels.batches import StepKeys, batch_sum
from private_mcmc.kernels.gradient import clipped_gradient
from private_mcmc.kernels.projection import projection
from private_mcmc.kernels.storage import stored
from private_mcmc.kernels.whitening import Whitening, noise_colour, whitening
from private_mcmc.modeling import RowModel
from private_mcmc.schedule import Schedule

Observable = Callable[[jax.Array], jax.Array]

# In bulk a draw costs a fraction of one made alone: noise is drawn for groups of steps of about so many
# elements, and ahead for as many groups as have this many.
_GROUP_ELEMENTS = 2**9
_AHEAD_ELEMENTS = 2**21


class Place(NamedTuple):
    """Which part of a run is here: the numbers of its first chain and of its first row."""

    chain: jax.Array | int = 0
    row: jax.Array | int = 0


class DrawnSteps(NamedTuple):
    """The keys of a run, and the noise of the steps from ``first`` on, ``(steps, chains, p)``."""

    keys: StepKeys
    first: jax.Array
    noise: jax.Array


Keys = jax.Array | StepKeys | DrawnSteps


@dataclass(frozen=True, eq=False)
class LangevinProgram:
    """The pure functions of one run; the data are always arguments, never closed over.

    A step is ``move`` after ``data``. Where rows lie in several places, their ``data`` are added in between.

    Attributes:
        prepare: ``(columns, present, everyone=None) -> rows``, once a run; ``everyone`` tells which of all
            rows are present where only some are here.
        data: ``(u, k, key, rows, place) -> f Σ clip``, summed over the rows that are here, ``(chains, p)``.
        move: ``(u, k, key, total, place) -> u'``, given the sum over all rows.
        ahead: ``(keys, first, count) -> keys``, with the same noise of ``count`` steps drawn at once.
        whitening: the change of variables between ``u`` and the unconstrained parameter.
    """

    prepare: Callable[..., Any]
    data: Callable[..., jax.Array]
    move: Callable[..., jax.Array]
    ahead: Callable[[Keys, jax.Array, int], Keys]
    whitening: Whitening

    def step(self, u: jax.Array, k: jax.Array, key: Keys, rows: Any) -> jax.Array:
        """``u'`` for ``u`` of shape ``(chains, p)`` and step number ``k ≥ 0``, with every row here.

        ``key`` is the key of the steps, or ``StepKeys`` where the schedule draws batches.
        """
        return self.move(u, k, key, self.data(u, k, key, rows))


def langevin_program(model: RowModel, schedule: Schedule, one_by_one: bool = False) -> LangevinProgram:
    """Build the step of ``schedule`` for ``model``; ``one_by_one`` takes the gradients chain after chain.

    Raises:
        DeclarationError: for a preconditioner, noise or projection that makes no sense.
    """
    change = whitening(schedule.preconditioner, model.dim)
    together = 1 if one_by_one else schedule.num_chains
    states = None if schedule.batch is not None else together
    data_gradient = batch_sum(
        stored(clipped_gradient(model, change, schedule.clip, states), schedule.storage), schedule
    )
    prior_score: Observable = jax.grad(lambda u: model.neg_log_prior(change.to_parameter(u)))
    colour, project = noise_colour(schedule, change), projection(schedule)
    limit = gradient_limit(schedule)

    def data(u: jax.Array, k: jax.Array, key: Keys, rows: Any, place: Place | None = None) -> jax.Array:
        first = None if place is None else place.row
        draws = None
        if schedule.batch is not None:
            draws = _of_all(place, schedule, u, lambda chains: _keys(key).of_chains(k, chains))

        def one(state: jax.Array, draw: jax.Array | None) -> jax.Array:
            return data_gradient.total(state, rows, k, draw, first)

        if one_by_one:
            total: jax.Array = jax.lax.map(lambda each: one(*each), (u, draws))
            return total
        return jax.vmap(one)(u, draws)

    def move(
        u: jax.Array,
        k: jax.Array,
        key: Keys,
        total: jax.Array,
        place: Place | None = None,
    ) -> jax.Array:
        gamma = _step_size(schedule, k)
        noise = colour(_of_all(place, schedule, u, lambda chains: _noise(key, k, chains, u)))
        gradient = jax.vmap(prior_score)(u) + schedule.temper * total
        gradient = jnp.clip(gradient, -limit, limit)
        # The noise joins the gradient before the state does: what rounds from there on is post-processing.
        return project(u + (jnp.sqrt(2.0 * gamma) * noise - gamma * gradient))

    def ahead(keys: Keys, first: jax.Array, count: int) -> Keys:
        shape = schedule.num_chains, schedule.dim
        if count * shape[0] * shape[1] > _AHEAD_ELEMENTS:
            return keys
        size = _group_size(*shape)
        begin = first // size
        groups = begin + jnp.arange(count // size + 2)
        noise = jax.vmap(lambda group: _group(_keys(keys).steps, group, size, shape))(groups)
        return DrawnSteps(_keys(keys), begin * size, noise.reshape(-1, *shape))

    return LangevinProgram(data_gradient.prepare, data, move, ahead, change)


def _keys(key: Keys) -> StepKeys:
    if isinstance(key, DrawnSteps):
        return key.keys
    return key if isinstance(key, StepKeys) else StepKeys(key)


def _noise(key: Keys, k: jax.Array, chains: int, u: jax.Array) -> jax.Array:
    """Standard normals of step ``k`` for all ``chains``, as drawn ahead or drawn now."""
    if isinstance(key, DrawnSteps):
        # No step may take another's noise: beyond what was drawn there is none.
        row = key.noise.at[k - key.first]
        return row.get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False).astype(u.dtype)
    size = _group_size(chains, u.shape[1])
    group = _group(_keys(key).steps, k // size, size, (chains, u.shape[1]))
    return group[k % size].astype(u.dtype)


def _group(key: jax.Array, number: jax.Array, size: int, shape: tuple[int, ...]) -> jax.Array:
    """The noise of a group of ``size`` steps."""
    return jax.random.normal(jax.random.fold_in(key, number), (size, *shape))


def _group_size(chains: int, dim: int) -> int:
    return max(1, _GROUP_ELEMENTS // (chains * dim))


def _of_all(
    place: Place | None, schedule: Schedule, u: jax.Array, draw: Callable[[int], jax.Array]
) -> jax.Array:
    """What is drawn for the chains that are here: the same numbers wherever a chain runs."""
    if place is None:
        return draw(u.shape[0])
    drawn = draw(schedule.num_chains)
    return jax.lax.dynamic_slice_in_dim(drawn, place.chain, u.shape[0])


def _step_size(schedule: Schedule, k: jax.Array) -> jax.Array:
    if isinstance(schedule.step_size, tuple):
        return jnp.asarray(schedule.step_size)[k]
    return jnp.asarray(schedule.step_size)
