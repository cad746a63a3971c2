"""Small classifiers of images as functions of one flat parameter vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.flatten_util import ravel_pytree

from benchmarks.papers.experiments.images import CLASSES, Images

Layers = dict[str, tuple[jax.Array, jax.Array]]


@dataclass(frozen=True, eq=False)
class Network:
    """A classifier.

    Attributes:
        start: ``key ↦ θ_0`` of shape ``(p,)``, float32, free of data.
        logits: ``(θ, image of shape (s, s)) ↦`` logits of shape ``(10,)``.
        layers: the layer that every parameter belongs to, ints of shape ``(p,)``.
    """

    start: Callable[[jax.Array], jax.Array]
    logits: Callable[[jax.Array, jax.Array], jax.Array]
    layers: npt.NDArray[np.int64]

    @property
    def dim(self) -> int:
        """``p``."""
        return int(self.layers.shape[0])

    def loss(self, theta: jax.Array, image: jax.Array, label: jax.Array) -> jax.Array:
        """``−log p(label | image, θ)``."""
        return -jax.nn.log_softmax(self.logits(theta, image))[label]


def lenet(size: int, channels: int = 1) -> Network:
    """LeNet5 for ``size × size`` images: 61,706 parameters at 28, grey; smaller windows below 28 pixels.

    A border of two pixels is added to images of fewer than 32.

    Source: LeCun, Bottou, Bengio, Haffner 1998, with rectifiers and largest-value pooling.
    """
    window = 5 if size >= 28 else 3
    border = 2 if size < 32 else 0
    left = ((size + 2 * border - 4) // 2 - window + 1) // 2
    shapes = {
        "convolution 1": (25 * channels, 6),
        "convolution 2": (6 * window**2, 16),
        "dense 1": (16 * left**2, 120),
        "dense 2": (120, 84),
        "output": (84, CLASSES),
    }

    def logits(layers: Layers, image: jax.Array) -> jax.Array:
        x = jnp.pad(image.reshape(size, size, channels), ((border, border), (border, border), (0, 0)))
        x = _pool(jax.nn.relu(_dense(layers["convolution 1"], _windows(x, 5))))
        x = _pool(jax.nn.relu(_dense(layers["convolution 2"], _windows(x, window))))
        x = jax.nn.relu(_dense(layers["dense 1"], x.ravel()))
        x = jax.nn.relu(_dense(layers["dense 2"], x))
        return _dense(layers["output"], x)

    return _network(shapes, logits)


def perceptron(images: Images, hidden: int) -> Network:
    """One hidden layer of ``hidden`` units."""

    def logits(layers: Layers, image: jax.Array) -> jax.Array:
        return _dense(layers["output"], jax.nn.relu(_dense(layers["hidden"], image.ravel())))

    return _network({"hidden": (images.pixels[0].size, hidden), "output": (hidden, CLASSES)}, logits)


def _network(shapes: dict[str, tuple[int, int]], logits: Callable[[Layers, jax.Array], jax.Array]) -> Network:
    def layers(key: jax.Array) -> Layers:
        keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
        return {
            name: (
                jax.random.normal(keys[name], shape, jnp.float32) * (2 / shape[0]) ** 0.5,
                jnp.zeros(shape[1], jnp.float32),
            )
            for name, shape in shapes.items()
        }

    example = {name: (jnp.zeros(shape, jnp.float32), jnp.zeros(shape[1])) for name, shape in shapes.items()}
    _, unravel = ravel_pytree(example)
    numbered: Any = {
        name: jax.tree.map(lambda leaf, at=index: jnp.full(leaf.shape, at), example[name])
        for index, name in enumerate(shapes)
    }
    return Network(
        lambda key: ravel_pytree(layers(key))[0],
        lambda theta, image: logits(unravel(theta), image),
        np.asarray(ravel_pytree(numbered)[0]),
    )


def _dense(layer: tuple[jax.Array, jax.Array], x: jax.Array) -> jax.Array:
    return x @ layer[0] + layer[1]


def _windows(x: jax.Array, width: int) -> jax.Array:
    """Every ``width × width`` window of ``(s, s, c)`` as a vector: a convolution is then one matrix product,
    which stays one when every model has its own weights.
    """
    s = x.shape[0] - width + 1
    return jnp.concatenate([x[i : i + s, j : j + s] for i in range(width) for j in range(width)], axis=-1)


def _pool(x: jax.Array) -> jax.Array:
    half = x.shape[0] // 2
    return x[: 2 * half, : 2 * half].reshape(half, 2, half, 2, -1).max(axis=(1, 3))
