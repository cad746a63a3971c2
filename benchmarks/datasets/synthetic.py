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
