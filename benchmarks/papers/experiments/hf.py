"""Heller and Fetaya's attack on SGLD: how much one adversarial row shows, epoch after epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from benchmarks.papers.experiments.adversarial import adversarial_row
from benchmarks.papers.experiments.hf_result import EpochResult, HFResult
from benchmarks.papers.experiments.hf_settings import HFSettings
from benchmarks.papers.experiments.images import Images
from benchmarks.papers.experiments.networks import Network, lenet
from benchmarks.papers.experiments.sgld import SGLD, Neighbour, epoch
from benchmarks.papers.experiments.store import Arrays, ChunkStore
from private_mcmc.auditing.auditing import (
    FloatArray,
    bound_at_best,
    clopper_pearson_upper,
    epsilon_from_errors,
)

_TEST_IMAGES = 256
_LEAST_PROBABILITY = 1e-6


@dataclass(frozen=True)
class HFExperiment(HFSettings):
    """Train LeNet5 by SGLD on ``D`` and on ``D'``, and tell from the networks which it was.

    ``D'`` has an adversarial image in place of one of ``D``'s; it is made against networks trained on other
    images. Networks are described by four log-probabilities; a linear classifier and its threshold are
    learned on one half of them, its errors counted on the other. Attributes: :class:`HFSettings`.

    Source: Heller, Fetaya 2023, Section V and Appendix E.
    """

    def run(
        self,
        train: Images,
        test: Images,
        folder: Path | None = None,
        on_epoch: Callable[[int], None] = lambda done: None,
    ) -> HFResult:
        """Train, attack, compare.

        Args:
            train: the first ``num_rows`` are ``D``; the surrogates are trained on others.
            test: accuracy is measured on its first 256; the surrogates may see the others.
            folder: keeps every finished chunk of networks; chunks found there are not trained again.
            on_epoch: told how many epochs of how many chunks are done.

        Raises:
            DeclarationError: for too few images, or a folder with another experiment.
        """
        network = lenet(train.size)
        data, other = train.part(0, self.num_rows), self._others(train, test)
        # Not ``models``: of more networks the first are the same.
        settings = {name: value for name, value in asdict(self).items() if name != "models"}
        store = None if folder is None else ChunkStore(folder, settings | {"size": train.size})
        start, *seeds = np.random.SeedSequence(self.seed).spawn(1 + self.chunks)
        fooled: tuple[int, Images] | None = None
        seen: list[Arrays] = []
        for index, seed in enumerate(seeds):
            found = None if store is None else store.load(index)
            began = time.perf_counter()
            if found is None:
                if fooled is None:
                    fooled = self._surrogates(network, data, other, start)
                report = lambda done, at=index: on_epoch(at * self.epochs + done)  # noqa: E731
                found = self._train(network, data, test, fooled, index, seed, report)
                found["seconds"] = np.array([time.perf_counter() - began])
                if store is not None:
                    store.save(index, found)
            seen.append(found)
            on_epoch((index + 1) * self.epochs)
        arrays = {name: np.concatenate([chunk[name] for chunk in seen]) for name in seen[0]}
        return self._attacked(network.dim, arrays)

    def _others(self, train: Images, test: Images) -> Images:
        """At most ``num_rows`` images, neither of ``D`` nor of those that accuracy is measured on."""
        left = train.pixels[self.num_rows :], test.pixels[_TEST_IMAGES:]
        named = train.labels[self.num_rows :], test.labels[_TEST_IMAGES:]
        everyone = Images(np.concatenate(left), np.concatenate(named))
        return everyone.part(0, max(self.batch_size, min(self.num_rows, len(everyone))))

    def _surrogates(
        self, network: Network, data: Images, other: Images, seed: np.random.SeedSequence
    ) -> tuple[int, Images]:
        """The row of ``D`` to replace and the image in its place; surrogates see other rows only."""
        nobody = Neighbour(jnp.asarray(-1), jnp.zeros_like(data.pixels[0]), jnp.asarray(0))
        public = SGLD(len(other), self.batch_size, self.learning_rate, None, self.as_rows / len(other))
        once = epoch(public, network, other, nobody)
        thetas, keys = _started(network, seed, self.surrogates)
        # As many steps as the networks that are attacked get.
        for index in range(-(-self.epochs * self.sgld.steps // public.steps)):
            thetas = once(thetas, _folded(keys, index), jnp.zeros(self.surrogates, bool))
        return adversarial_row(network, thetas, data)

    def _train(
        self,
        network: Network,
        data: Images,
        test: Images,
        fooled: tuple[int, Images],
        index: int,
        seed: np.random.SeedSequence,
        on_epoch: Callable[[int], None],
    ) -> Arrays:
        """One chunk: what is seen of its networks, ``(networks, epochs, 4)``, and their accuracy."""
        row, image = fooled
        neighbour = Neighbour(jnp.asarray(row), jnp.asarray(image.pixels[0]), jnp.asarray(image.labels[0]))
        once = epoch(self.sgld, network, data, neighbour)
        checked = test.part(0, min(_TEST_IMAGES, len(test)))
        seen = jax.jit(jax.vmap(_seen(network, data.pixels[row], neighbour, checked)))
        # Every other network of the whole experiment is trained on D'.
        number = index * self.chunk + np.arange(self.chunk)
        member = number % 2 == 1
        thetas, keys = _started(network, seed, self.chunk)
        found = []
        for done in range(self.epochs):
            thetas = once(thetas, _folded(keys, done), jnp.asarray(member))
            found.append(jax.tree.map(np.asarray, seen(thetas)))
            on_epoch(done + 1)
        features, accuracy = (np.stack(part, axis=1) for part in zip(*found, strict=True))
        return {"features": features, "accuracy": accuracy, "member": member}

    def _attacked(self, dim: int, arrays: Arrays) -> HFResult:
        features = np.asarray(arrays["features"], dtype=np.float64)
        member = arrays["member"]
        sides = features[~member][: 2 * self.models], features[member][: 2 * self.models]
        epochs = []
        for at in range(self.epochs):
            first, second = (side[:, at] for side in sides)
            counts_bound, largest = self._lower(first, second)
            epochs.append(
                EpochResult(
                    at + 1,
                    counts_bound,
                    largest,
                    self.sgld.statement(dim, at + 1),
                    float(arrays["accuracy"][:, at].mean()),
                    float(np.exp(first[:, 0]).mean()),
                    float(np.exp(second[:, 0]).mean()),
                )
            )
        return HFResult(self, tuple(epochs))

    def _lower(self, first: FloatArray, second: FloatArray) -> tuple[float, float]:
        """The lower bound, and the largest that so many networks could show."""
        half = self.models
        score = _linear(first[:half], second[:half])
        one, two = score(first), score(second)

        def bound(*errors: FloatArray) -> FloatArray:
            return epsilon_from_errors(*errors, self.delta)

        none = clopper_pearson_upper([0], half, self.failure_probability / 2)
        return bound_at_best((one, two), self.failure_probability, bound), float(bound(none, none)[0])


def _linear(first: FloatArray, second: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """The direction ``S^{-1}(x̄_2 − x̄_1)``, ``S`` the pooled covariance: best for Gaussians that share it."""
    pooled = (np.cov(first, rowvar=False) + np.cov(second, rowvar=False)) / 2
    direction = np.linalg.lstsq(pooled, second.mean(0) - first.mean(0), rcond=None)[0]
    return lambda outputs: outputs @ direction


def _started(network: Network, seed: np.random.SeedSequence, count: int) -> tuple[jax.Array, jax.Array]:
    words = seed.generate_state(2, np.uint32)
    key = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
    for_start, for_steps = jax.random.split(key)
    return jax.jit(jax.vmap(network.start))(jax.random.split(for_start, count)), jax.random.split(
        for_steps, count
    )


def _folded(keys: jax.Array, number: int) -> jax.Array:
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)


def _seen(
    network: Network, before: npt.NDArray[np.float32], neighbour: Neighbour, checked: Images
) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
    """Of one network: ``log p`` of the label and of the strongest other class on both images; accuracy."""
    pixels, labels = jnp.asarray(checked.pixels), jnp.asarray(checked.labels)
    others = jnp.arange(10) != neighbour.label

    def describe(theta: jax.Array, image: jax.Array) -> jax.Array:
        p = jax.nn.softmax(network.logits(theta, image))
        rival = jnp.max(jnp.where(others, p, 0.0))
        return jnp.log(jnp.maximum(jnp.stack([p[neighbour.label], rival]), _LEAST_PROBABILITY))

    def seen(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        features = jnp.concatenate([describe(theta, neighbour.image), describe(theta, jnp.asarray(before))])
        said = jnp.argmax(jax.vmap(network.logits, (None, 0))(theta, pixels), axis=-1)
        return features, jnp.mean(said == labels)

    return seen
