"""Public random values of domains, of which every other one lies at an extreme: no private row is in them."""

from __future__ import annotations

import numpy as np

from private_mcmc.domains.domain import Ball, Binary, Box, Domain, Real
from private_mcmc.domains.persons import Several


def synthetic_values(domain: Domain, random: np.random.Generator, n: int) -> np.ndarray:
    """``n`` rows, ``(n, *event_shape)``, which are of the domain once they are projected."""
    shape = (n, *domain.event_shape)
    if isinstance(domain, Several):
        return synthetic_values(domain.each, random, n * domain.count).reshape(shape)
    if isinstance(domain, Binary):
        return random.integers(0, 2, n)
    if isinstance(domain, Real):
        # Of scales from 0.1 to 100.
        spread = 10.0 ** random.uniform(-1.0, 2.0, (n,) + (1,) * len(domain.event_shape))
        return np.asarray(random.normal(size=shape) * spread)
    if isinstance(domain, Ball):
        # Half on the sphere, some of them along an axis.
        vectors = random.normal(size=shape)
        axis = np.eye(domain.dim)[random.integers(0, domain.dim, n)] * np.sign(vectors[:, :1] + 0.5)
        vectors = np.where(random.random((n, 1)) < 0.3, axis, vectors)
        vectors = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
        return np.asarray(vectors * _every_other(np.ones((n, 1)), random.random((n, 1))) * domain.radius)
    lo, hi = domain.interval()
    extreme = random.integers(0, 2, shape)
    if isinstance(domain, Box):
        share = _every_other(extreme, random.random(shape))
        return np.asarray(lo * (1 - share) + hi * share)
    largest = int(hi)
    return _every_other(extreme * largest, random.integers(0, largest + 1, n))


def _every_other(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Rows of ``first`` at even, of ``second`` at odd positions."""
    even = (np.arange(len(first)) % 2 == 0).reshape((-1,) + (1,) * (first.ndim - 1))
    return np.where(even, first, second)
