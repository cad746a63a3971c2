"""The row that tells two data sets apart: an image that every trained network gets wrong."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.papers.experiments.images import Images
from benchmarks.papers.experiments.networks import Network
from private_mcmc.errors import DeclarationError

_ROUNDS = 50
_OVERSHOOT = 1.05
# In logits: how much surer than of the row's label a model shall be of another class.
_MARGIN = 4.0
_CANDIDATES = 8


def adversarial_row(network: Network, models: jax.Array, images: Images) -> tuple[int, Images]:
    """A row of ``images`` and its fooled version: ``models`` agree on the row, and on the fooled image all
    of them are wrong. The label stays the row's own.

    Among the rows tried first, the one that the models are surest about after the change is taken. The
    change is the sum of the smallest steps to the nearest boundary of each model that is not fooled yet.

    ``models``: parameters of shape ``(M, p)``, best trained on other images than ``images``.

    Raises:
        DeclarationError: if no row can be fooled.
    Source: Moosavi-Dezfooli, Fawzi, Frossard 2016; Heller, Fetaya 2023, Section V.
    """
    answers = jax.jit(jax.vmap(jax.vmap(network.logits, (None, 0)), (0, None)))
    said = np.asarray(answers(models, jnp.asarray(images.pixels[: 8 * _CANDIDATES]))).argmax(axis=-1)
    agreed = np.flatnonzero((said == images.labels[: said.shape[1]]).all(axis=0))[:_CANDIDATES]
    fool = jax.jit(jax.vmap(lambda image, label: _fooled(network, models, image, label)))
    if agreed.size == 0:
        raise DeclarationError("the models agree on no row: train them longer, or with less noise.")
    fooled = fool(jnp.asarray(images.pixels[agreed]), jnp.asarray(images.labels[agreed]))
    right = jax.nn.softmax(answers(models, fooled), axis=-1)[
        :, jnp.arange(len(agreed)), images.labels[agreed]
    ]
    largest = np.asarray(right.max(axis=0))
    best = int(np.argmin(largest))
    if not largest[best] < 0.5:
        raise DeclarationError(
            "no row could be turned into one that all models get wrong: they know too little of the images. "
            "Train them longer, with less noise (a larger as_rows), or from another seed."
        )
    row = int(agreed[best])
    return row, Images(np.asarray(fooled[best])[None], images.labels[row : row + 1])


def _fooled(network: Network, models: jax.Array, image: jax.Array, label: jax.Array) -> jax.Array:
    others = jnp.arange(10) != label

    def smallest_step(theta: jax.Array, x: jax.Array) -> jax.Array:
        """Past the nearest linearised boundary of one model, or nothing if it is wrong already."""
        logits, slopes = network.logits(theta, x), jax.jacrev(lambda z: network.logits(theta, z))(x)
        rise, direction = logits - logits[label], slopes - slopes[label]
        size = jnp.sqrt((direction**2).sum(axis=(1, 2)))
        nearest = jnp.argmin(jnp.where(others, (_MARGIN - rise) / jnp.maximum(size, 1e-6), jnp.inf))
        amount = (_MARGIN - rise[nearest]) / jnp.maximum(size[nearest], 1e-6) ** 2
        fooled = jnp.max(jnp.where(others, rise, -jnp.inf)) >= _MARGIN
        return jnp.where(fooled, 0.0, amount * direction[nearest])

    def once(_: jax.Array, x: jax.Array) -> jax.Array:
        steps = jax.vmap(smallest_step, in_axes=(0, None))(models, x)
        return jnp.clip(x + _OVERSHOOT * steps.mean(axis=0), 0.0, 1.0)

    found: jax.Array = jax.lax.fori_loop(0, _ROUNDS, once, image)
    return found
