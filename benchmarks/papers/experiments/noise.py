"""Borovykh, Kantas, Parpas, Pavliotis: how the shape of the noise and the batch size change what leaks.

**None of these numbers is a bound.** Their Algorithm 1 compares two runs with equal randomness and counts
how often predictions differ by more than ``ε``: it may be positive where ``δ`` must be zero, and small where
a real attack succeeds. The noise depends on the data, so no statement exists to compare it with either.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.papers.experiments.images import Images
from benchmarks.papers.experiments.networks import Network, lenet, perceptron
from benchmarks.papers.experiments.noise_result import NoiseResult, NoiseSettings, NoiseShape, Trained
from benchmarks.papers.experiments.store import ChunkStore
from benchmarks.papers.gradient_noise import per_layer, proportional
from private_mcmc.auditing.mechanism import FloatArray
from private_mcmc.errors import DeclarationError


@dataclass(frozen=True)
class NoiseExperiment(NoiseSettings):
    """Train networks side by side on ``D`` and on each ``D'``. Attributes: :class:`NoiseSettings`."""

    def shapes(
        self,
        images: Images,
        chosen: tuple[NoiseShape, ...] = ("per layer", "proportional"),
        on_run: Callable[[int], None] = lambda done: None,
        folder: Path | None = None,
    ) -> NoiseResult:
        """Table 1 and Figure 4: each shape of noise with its ``δ`` by Algorithm 1, and losses.

        ``folder`` keeps every finished run; runs found there are not trained again.
        """
        if not chosen or not set(chosen) <= set(get_args(NoiseShape)):
            raise DeclarationError(f"noise {chosen!r}: some of {', '.join(get_args(NoiseShape))}.")
        losses = self._trained(images, chosen, self.batch_size, on_run, folder)
        return NoiseResult(
            self,
            tuple(
                self._summed(losses[:, :, at], shape, shape, self.batch_size)
                for at, shape in enumerate(chosen)
            ),
        )

    def batches(
        self,
        images: Images,
        sizes: tuple[int, ...],
        on_run: Callable[[int], None] = lambda done: None,
        folder: Path | None = None,
    ) -> NoiseResult:
        """Table 2: plain SGD with each size of batch."""
        return NoiseResult(
            self,
            tuple(
                self._summed(
                    self._trained(images, ("none",), size, on_run, folder and folder / str(size))[:, :, 0],
                    f"batches of {size}",
                    "none",
                    size,
                )
                for size in sizes
            ),
        )

    def _trained(
        self,
        images: Images,
        shapes: tuple[NoiseShape, ...],
        batch_size: int,
        on_run: Callable[[int], None],
        folder: Path | None,
    ) -> FloatArray:
        """Losses of all rows of ``D``, ``(runs, repeats, shapes, 1 + pairs, N)``; first trained on ``D``."""
        if not (1 <= batch_size <= self.num_rows and self.num_rows % batch_size == 0):
            raise DeclarationError(f"batches of {batch_size}: must divide the {self.num_rows} rows.")
        whole = images.part(0, self.runs * self.num_rows)
        network = lenet(whole.size, whole.channels) if self.hidden == 0 else perceptron(whole, self.hidden)
        train = jax.jit(partial(_side_by_side, self, network, shapes, batch_size))
        settings = asdict(self) | {"shapes": shapes, "batch_size": batch_size}
        store = None if folder is None else ChunkStore(folder, settings)
        found = []
        for run in range(self.runs):
            kept = None if store is None else store.load(run)
            if kept is None:
                began = time.perf_counter()
                data = whole.part(run * self.num_rows, self.num_rows)
                pixels, labels = jnp.asarray(data.pixels), jnp.asarray(data.labels)
                words = np.random.SeedSequence((self.seed, run)).generate_state(2, np.uint32)
                key = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
                keys = jax.random.split(key, self.repeats)
                losses = np.stack([np.asarray(train(pixels, labels, one)) for one in keys])
                kept = {"losses": losses, "seconds": np.array([time.perf_counter() - began])}
                if store is not None:
                    store.save(run, kept)
            found.append(kept["losses"])
            on_run(run + 1)
        return np.stack(found).astype(np.float64)

    def _summed(self, losses: FloatArray, name: str, shape: NoiseShape, batch_size: int) -> Trained:
        """``losses``: ``(runs, repeats, 1 + pairs, N)``; ``D'`` number ``t`` lacks row ``t``."""
        on_d, on_others = losses[:, :, 0], losses[:, :, 1:]
        left = np.arange(self.pairs)
        return Trained(
            name,
            shape,
            batch_size,
            tuple(
                (at, tuple(algorithm_1(*pair, at) for pair in zip(on_d, on_others, strict=True)))
                for at in self.epsilons
            ),
            tuple(on_d.mean(axis=-1).max(axis=-1).tolist()),
            tuple(on_d.max(axis=(1, 2)).tolist()),
            tuple(on_d.mean(axis=(1, 2)).tolist()),
            tuple(map(tuple, on_d[:, :, left].reshape(self.runs, -1).tolist())),
            tuple(map(tuple, on_others[:, :, left, left].reshape(self.runs, -1).tolist())),
        )


def algorithm_1(with_row: FloatArray, without: FloatArray, epsilon: float) -> float:
    """``max_{t_1}`` of the share of rows and runs with ``ln p_c(x)/p'_c(x) > ε``.

    A heuristic: it is no bound on any ``δ``, below or above, and two different seeds make it positive for
    ``D = D'``. Losses ``−ln p_c``: ``with_row`` of shape ``(T_2, N)``, ``without`` ``(T_2, T_1, N)``.

    Source: Borovykh, Kantas, Parpas, Pavliotis, Appendix C.
    """
    exceeds = without - with_row[:, None] > epsilon
    return float(exceeds.mean(axis=(0, 2)).max())


def _side_by_side(
    experiment: NoiseExperiment,
    network: Network,
    shapes: tuple[NoiseShape, ...],
    batch_size: int,
    pixels: jax.Array,
    labels: jax.Array,
    key: jax.Array,
) -> jax.Array:
    """Losses ``(shapes, 1 + pairs, N)`` after training with one start, one order of rows and one noise.

    As all networks see the same batch, their first layers are one matrix product.
    """
    rows = len(labels)
    per_epoch = rows // batch_size
    for_start, for_batches, for_noise = jax.random.split(key, 3)
    # Row t is left out of the t-th D'; none is left out of D.
    left_out = jnp.tile(jnp.arange(-1, experiment.pairs), len(shapes))

    def mean_loss(theta: jax.Array, index: jax.Array, out: jax.Array) -> jax.Array:
        losses = jax.vmap(network.loss, (None, 0, 0))(theta, pixels[index], labels[index])
        mean: jax.Array = jnp.where(index == out, 0.0, losses).sum() / batch_size
        return mean

    def moved(shape: NoiseShape, theta: jax.Array, gradient: jax.Array, normal: jax.Array) -> jax.Array:
        new = theta - experiment.learning_rate * gradient
        if shape == "none":
            return new
        entries = proportional(gradient, experiment.noise)
        if shape == "per layer":
            entries = per_layer(gradient, network.layers, experiment.noise)
        spread = entries if experiment.deviation else jnp.sqrt(entries)
        return new + (experiment.learning_rate if experiment.on_gradient else 1.0) * spread * normal

    def step(k: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        thetas, order = now
        key = jax.random.fold_in(for_batches, k // per_epoch)
        order = jax.lax.cond(k % per_epoch == 0, lambda: jax.random.permutation(key, rows), lambda: order)
        index = jax.lax.dynamic_slice(order, (k % per_epoch * batch_size,), (batch_size,))
        normal = jax.random.normal(jax.random.fold_in(for_noise, k), thetas.shape[1:], thetas.dtype)
        gradients = jax.vmap(jax.grad(mean_loss), (0, None, 0))(thetas, index, left_out)
        parts = zip(shapes, jnp.split(thetas, len(shapes)), jnp.split(gradients, len(shapes)), strict=True)
        moves = [jax.vmap(partial(moved, shape), (0, 0, None))(*part, normal) for shape, *part in parts]
        return jnp.concatenate(moves), order

    start = jnp.tile(network.start(for_start), (len(left_out), 1))
    thetas, _ = jax.lax.fori_loop(0, experiment.steps, step, (start, jnp.arange(rows)))
    losses = jax.vmap(lambda theta: jax.vmap(network.loss, (None, 0, 0))(theta, pixels, labels))(thetas)
    found: jax.Array = losses.reshape(len(shapes), 1 + experiment.pairs, rows)
    return found
