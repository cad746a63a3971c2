"""Synthetic people: columns as tables of people have them, rare indicators among them, from a declaration."""

from __future__ import annotations

import math

import numpy as np

from private_mcmc.domains import Ball, Binary, Categories, Domain, Rows
from private_mcmc.domains.persons import OWN_ROWS, Several
from private_mcmc.planning.stages import Array

# Prevalences of indicators, and means of other columns' shares of their range.
_PREVALENCES = (0.02, 0.08, 0.2, 0.35, 0.5)
_MEANS = (0.1, 0.25, 0.4, 0.6)
_SPREAD = 6.0


def people(rows: Rows, count: int, seed: int) -> dict[str, np.ndarray]:
    """``count`` public rows, before they are mapped into their domains."""
    random = np.random.default_rng(seed)
    drawn = {name: _column(domain, count, random) for name, domain in rows.items}
    if OWN_ROWS in drawn:
        most = drawn[OWN_ROWS].shape[1]
        # One person in two has all rows that are allowed.
        has = np.where(random.random(count) < 0.5, most, random.integers(1, most + 1, count))
        drawn[OWN_ROWS] = np.asarray(np.arange(most) < has[:, None], dtype=np.int64)
    return drawn


def _column(domain: Domain, count: int, random: np.random.Generator) -> np.ndarray:
    if isinstance(domain, Several):
        values = _column(domain.each, count * domain.count, random)
        values = values.reshape(count, domain.count, *domain.each.event_shape)
        # Of some, what a row says is the person's, like their age, and of others it changes.
        same = random.random(count) < 0.5
        values[same] = values[same, :1]
        return values
    if isinstance(domain, Ball):
        # An intercept, and the others in [0, 1], divided by the norm of the longest such row.
        shares = np.column_stack([_shares(count, random) for _ in range(domain.dim)])
        shares[:, 0] = 1.0
        return np.asarray(shares * (domain.radius / math.sqrt(domain.dim)))
    if isinstance(domain, Categories):
        weights = random.permutation(0.5 ** np.arange(domain.k).clip(max=6))
        return np.asarray(random.choice(domain.k, size=count, p=weights / weights.sum()))
    low, high = domain.interval()
    if not np.all(np.isfinite(high - low)):
        return np.asarray(random.standard_normal((count, *domain.event_shape)))
    if isinstance(domain, Binary):
        return _indicator(count, random)
    size = max(math.prod(domain.event_shape), 1)
    shares = np.column_stack([_shares(count, random) for _ in range(size)])
    return np.asarray(low + (high - low) * shares.reshape(count, *domain.event_shape))


def _shares(count: int, random: np.random.Generator) -> Array:
    if random.random() < 0.5:
        return _indicator(count, random)
    mean = random.choice(_MEANS)
    return np.asarray(random.beta(_SPREAD * mean, _SPREAD * (1 - mean), size=count))


def _indicator(count: int, random: np.random.Generator) -> Array:
    return np.asarray(random.random(count) < random.choice(_PREVALENCES), dtype=np.float64)
