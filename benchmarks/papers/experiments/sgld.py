"""SGLD of many networks side by side, on a data set and on its neighbour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.papers.experiments.images import Images
from benchmarks.papers.experiments.networks import Network
from private_mcmc.accounting import Curvature, Statement, langevin_statement
from private_mcmc.schedule import Schedule


class Neighbour(NamedTuple):
    """The row in which ``D'`` differs from ``D``: its number, image and label in ``D'``."""

    row: jax.Array
    image: jax.Array
    label: jax.Array


@dataclass(frozen=True)
class SGLD:
    """``θ' = θ − γ(θ + w(n/b) Σ_{i in batch} ∇v_i) + N(0, 2γ)``, prior ``N(0, 1)``, batches of fixed size.

    Attributes:
        num_rows: ``n``.
        batch_size: ``b``; a uniform subset at every step, drawn anew.
        learning_rate: ``γwn/b``, what multiplies the sum over the batch: HF's effective learning rate.
        clip: bound on each ``‖∇v_i‖``; ``None``: no clipping, and then no certificate.
        temper: ``w``, the weight of the likelihood.
    """

    num_rows: int
    batch_size: int
    learning_rate: float
    clip: float | None
    temper: float = 1.0

    @property
    def step_size(self) -> float:
        """``γ``."""
        return self.learning_rate * self.batch_size / (self.temper * self.num_rows)

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return self.num_rows // self.batch_size

    def statement(self, dim: int, epochs: int) -> Statement | None:
        """What is claimed of the network after ``epochs`` epochs; ``None`` without clipping.

        The network is not convex, so hidden states gain nothing, and batches of fixed size are not amplified:
        each may hold the row. In real arithmetic; the experiment trains in float32.
        """
        if self.clip is None:
            return None
        schedule = Schedule(
            adjacency="replace_one",
            num_rows=self.num_rows,
            dim=dim,
            step_size=self.step_size,
            num_steps=self.steps * epochs,
            clip=self.clip,
            temper=self.temper * self.num_rows / self.batch_size,
            release="last",
        )
        return langevin_statement(schedule, Curvature())


def distinct(key: jax.Array, size: int, bound: jax.Array) -> jax.Array:
    """``size`` of the numbers below ``bound``, a uniform draw: repeated numbers are drawn again."""

    def repeated(values: jax.Array) -> jax.Array:
        order = jnp.argsort(values, stable=True)
        same = jnp.concatenate([jnp.zeros(1, dtype=bool), values[order][1:] == values[order][:-1]])
        return jnp.zeros(size, dtype=bool).at[order].set(same)

    def again(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        attempt, values, bad = carry
        fresh = jax.random.randint(jax.random.fold_in(key, attempt), (size,), 0, bound)
        values = jnp.where(bad, fresh, values)
        return attempt + 1, values, repeated(values)

    start = jnp.asarray(0), jnp.zeros(size, dtype=int), jnp.ones(size, dtype=bool)
    values: jax.Array = jax.lax.while_loop(lambda carry: jnp.any(carry[2]), again, start)[1]
    return values


Epoch = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def epoch(sgld: SGLD, network: Network, images: Images, neighbour: Neighbour) -> Epoch:
    """``(thetas (models, p), keys (models,), member (models,)) ↦`` networks one epoch later.

    ``member`` tells which networks are trained on ``D'``. Each has its own batches and its own noise.
    """
    pixels, labels = jnp.asarray(images.pixels), jnp.asarray(images.labels)
    factor, gamma = sgld.temper * sgld.num_rows / sgld.batch_size, sgld.step_size
    bound, size = jnp.asarray(sgld.num_rows), sgld.batch_size

    def batch_loss(theta: jax.Array, image: jax.Array, label: jax.Array) -> jax.Array:
        return jax.vmap(network.loss, (None, 0, 0))(theta, image, label).sum()

    def clipped(theta: jax.Array, image: jax.Array, label: jax.Array) -> jax.Array:
        found: jax.Array = jax.grad(network.loss)(theta, image, label)
        return found * jnp.minimum(1.0, sgld.clip / jnp.maximum(jnp.linalg.norm(found), 1e-30))

    def gradient(theta: jax.Array, image: jax.Array, label: jax.Array) -> jax.Array:
        if sgld.clip is None:
            found: jax.Array = jax.grad(batch_loss)(theta, image, label)
            return found
        return jax.vmap(clipped, (None, 0, 0))(theta, image, label).sum(axis=0)

    def step(theta: jax.Array, key: jax.Array, member: jax.Array) -> jax.Array:
        for_batch, for_noise = jax.random.split(key)
        index = distinct(for_batch, size, bound)
        changed = (index == neighbour.row) & member
        image = jnp.where(changed[:, None, None], neighbour.image, pixels[index])
        label = jnp.where(changed, neighbour.label, labels[index])
        total = gradient(theta, image, label)
        noise = jax.random.normal(for_noise, theta.shape, theta.dtype)
        moved: jax.Array = theta - gamma * (theta + factor * total) + (2 * gamma) ** 0.5 * noise
        return moved

    def one(theta: jax.Array, key: jax.Array, member: jax.Array) -> jax.Array:
        done: jax.Array = jax.lax.fori_loop(
            0, sgld.steps, lambda k, now: step(now, jax.random.fold_in(key, k), member), theta
        )
        return done

    return jax.jit(jax.vmap(one))
