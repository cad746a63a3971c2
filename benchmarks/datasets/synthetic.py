"""Synthetic rows: public, so that peers' hyper-parameters may be tuned on them, and small in tests."""

from __future__ import annotations

import numpy as np

from benchmarks.datasets.models import Regression
from benchmarks.datasets.record import Column, Dataset, design
from private_mcmc import Binary

_COVARIATES = 7
_SOURCE = "made up: a beta distribution"


def synthetic(n: int = 30_000, seed: int = 0) -> Dataset:
    """A logistic regression on skewed, correlated covariates, with coefficients of the prior's size."""
    generator = np.random.default_rng(seed)
    columns = tuple(Column(f"x{index}", 0.0, 1.0, _SOURCE) for index in range(_COVARIATES))
    shared = generator.beta(2.0, 4.0, size=n)
    table = {column.name: 0.5 * shared + 0.5 * generator.beta(1.0, 2.0, size=n) for column in columns}
    X = design(table, columns)
    w = generator.normal(0.0, 8.0, size=X.shape[1])
    probability = 1.0 / (1.0 + np.exp(-(X - X.mean(axis=0)) @ w + 1.0))
    return Dataset(
        name="made_up",
        unit="nobody",
        columns=columns,
        X=X,
        y=(generator.uniform(size=n) < probability).astype(np.int64),
        regression=Regression("logistic", Binary()),
        source=_SOURCE,
    )


_PREVALENCES = (0.5, 0.35, 0.2, 0.1, 0.05, 0.02)


def rare(n: int = 26_000, seed: int = 1) -> Dataset:
    """A rare outcome (two or three in a hundred) given nine covariates, six of them indicators, some rare.

    The model misses an interaction.
    """
    generator = np.random.default_rng(seed)
    columns = tuple(Column(f"x{index}", 0.0, 1.0, _SOURCE) for index in range(len(_PREVALENCES) + 3))
    drawn = [generator.random(n) < prevalence for prevalence in _PREVALENCES]
    drawn += [generator.beta(2.0, 5.0, size=n) for _ in range(3)]
    table = {column.name: values.astype(float) for column, values in zip(columns, drawn, strict=True)}
    X = design(table, columns)
    effects = np.array([0.4, -0.5, 0.6, 0.8, 1.0, 1.2, 1.5, -1.0, 0.5])
    predictor = np.stack([table[column.name] for column in columns], axis=1) @ effects
    predictor += 0.7 * table["x0"] * table["x7"] - 4.5
    return Dataset(
        name="rare",
        unit="nobody",
        columns=columns,
        X=X,
        y=(generator.uniform(size=n) < 1.0 / (1.0 + np.exp(-predictor))).astype(np.int64),
        regression=Regression("logistic", Binary()),
        source="made up: a rare outcome",
    )
