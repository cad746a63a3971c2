"""Borovykh, Kantas, Parpas, Pavliotis: how the shape of the noise and the batch size change what leaks.

**None of these numbers is a bound.** Their Algorithm 1 compares two runs with equal randomness and counts
how often predictions differ by more than ``ε``: it may be positive where ``δ`` must be zero, and small where
a real attack succeeds. The noise depends on the data, so no statement exists to compare it with either.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.papers.experiments.images import Images
from benchmarks.papers.experiments.networks import Network, perceptron
from benchmarks.papers.experiments.noise_result import NoiseResult, NoiseSettings, NoiseShape, Trained
from benchmarks.papers.gradient_noise import per_layer, proportional
from private_mcmc.auditing.confidence import FloatArray
from private_mcmc.errors import DeclarationError


@dataclass(frozen=True)
class NoiseExperiment(NoiseSettings):
    """Train networks side by side on ``D`` and on ``D'``. Attributes: :class:`NoiseSettings`."""

    def shapes(
        self, images: Images, chosen: tuple[NoiseShape, ...] = ("per layer", "proportional")
    ) -> NoiseResult:
        """Table 1: each shape of noise with its ``δ`` by Algorithm 1 and its worst loss."""
        found = tuple(self._trained(images, shape, self.batch_size, shape) for shape in chosen)
        return NoiseResult(self, found)

    def batches(self, images: Images, sizes: tuple[int, ...]) -> NoiseResult:
        """Table 2: plain SGD with each size of batch."""
        found = tuple(self._trained(images, "none", size, f"batches of {size}") for size in sizes)
        return NoiseResult(self, found)

    def _trained(self, images: Images, shape: NoiseShape, batch_size: int, name: str) -> Trained:
        if shape not in get_args(NoiseShape) or not 1 <= batch_size <= self.num_rows:
            raise DeclarationError(f"noise {shape!r} with batches of {batch_size}: not offered.")
        data = images.part(0, self.num_rows)
        network = perceptron(data.size, self.hidden)
        key = jax.random.wrap_key_data(
            jnp.asarray(np.random.SeedSequence(self.seed).generate_state(2, np.uint32)), impl="threefry2x32"
        )
        keys = jax.random.split(key, self.pairs * self.repeats)
        out = jnp.repeat(jnp.arange(self.pairs) % self.num_rows, self.repeats)
        train = jax.jit(jax.vmap(partial(_pair, self, network, data, shape, batch_size)))
        losses = np.asarray(train(keys, out), dtype=np.float64)
        # Shape (pairs, repeats, 2, N): loss of every row of D, trained on D and on D'.
        grouped = losses.reshape(self.pairs, self.repeats, 2, self.num_rows)
        left_out = np.stack([grouped[at, :, :, at % self.num_rows] for at in range(self.pairs)])
        return Trained(
            name,
            shape,
            batch_size,
            tuple((at, algorithm_1(grouped[:, :, 0], grouped[:, :, 1], at)) for at in self.epsilons),
            float(grouped[:, :, 0].max()),
            float(grouped[:, :, 0].mean()),
            tuple(left_out[:, :, 0].ravel().tolist()),
            tuple(left_out[:, :, 1].ravel().tolist()),
        )


def algorithm_1(with_row: FloatArray, without: FloatArray, epsilon: float) -> float:
    """``max_{t_1}`` of the share of rows and runs with ``ln p_c(x)/p'_c(x) > ε``.

    A heuristic: it is no bound on any ``δ``, below or above, and two different seeds make it positive for
    ``D = D'``. ``with_row``, ``without``: losses ``−ln p_c``, shape ``(T_1, T_2, N)``.

    Source: Borovykh, Kantas, Parpas, Pavliotis, Appendix C.
    """
    exceeds = without - with_row > epsilon
    return float(exceeds.mean(axis=(1, 2)).max())


def _pair(
    experiment: NoiseExperiment,
    network: Network,
    data: Images,
    shape: NoiseShape,
    batch_size: int,
    key: jax.Array,
    left_out: jax.Array,
) -> jax.Array:
    """Losses of all rows of ``D``, ``(2, N)``, after training on ``D`` and on ``D'`` with one randomness."""
    pixels, labels = jnp.asarray(data.pixels), jnp.asarray(data.labels)
    for_start, for_steps = jax.random.split(key)

    def mean_loss(theta: jax.Array, index: jax.Array, weight: jax.Array) -> jax.Array:
        losses = jax.vmap(network.loss, (None, 0, 0))(theta, pixels[index], labels[index])
        mean: jax.Array = (weight * losses).sum() / batch_size
        return mean

    def step(k: jax.Array, thetas: jax.Array) -> jax.Array:
        for_batch, for_noise = jax.random.split(jax.random.fold_in(for_steps, k))
        index = jax.random.choice(for_batch, len(data), (batch_size,), replace=False)
        normal = jax.random.normal(for_noise, thetas[0].shape, thetas.dtype)

        def one(theta: jax.Array, weight: jax.Array) -> jax.Array:
            gradient: jax.Array = jax.grad(mean_loss)(theta, index, weight)
            variance = jnp.zeros_like(gradient)
            if shape == "per layer":
                variance = per_layer(gradient, network.layers, network.num_layers, experiment.noise)
            elif shape == "proportional":
                variance = proportional(gradient, experiment.noise)
            spread = variance if experiment.deviation else jnp.sqrt(variance)
            moved: jax.Array = theta - experiment.learning_rate * gradient + spread * normal
            return moved

        weights = jnp.stack([jnp.ones(batch_size), (index != left_out).astype(jnp.float32)])
        return jax.vmap(one)(thetas, weights)

    start = jnp.tile(network.start(for_start), (2, 1))
    trained = jax.lax.fori_loop(0, experiment.steps, step, start)
    found: jax.Array = jax.vmap(lambda theta: jax.vmap(network.loss, (None, 0, 0))(theta, pixels, labels))(
        trained
    )
    return found
