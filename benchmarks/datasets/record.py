"""One data set: rows inside public bounds, the model they belong to, and where the bounds come from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.datasets.models import Regression
from private_mcmc import Ball, Rows

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """A covariate with public bounds.

    Attributes:
        lo: values below it become ``lo``.
        hi: values above it become ``hi``.
        source: where the bounds are known from, other than the data.
    """

    name: str
    lo: float
    hi: float
    source: str


def indicator(name: str) -> Column:
    """A column that is 0 or 1 by its definition."""
    return Column(name, 0.0, 1.0, "an indicator")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows and outcome of a regression.

    Attributes:
        unit: what one row stands for, hence what is protected.
        columns: the covariates after the intercept.
        X: shape ``(n, p)``, intercept first, in the unit ball.
        y: outcomes, shape ``(n,)``, inside ``regression.outcome``.
        regression: family, prior and NumPyro model.
        source: package and citation.
    """

    name: str
    unit: str
    columns: tuple[Column, ...]
    X: Array
    y: npt.NDArray[Any]
    regression: Regression
    source: str

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def dim(self) -> int:
        """Number of parameters, the intercept included."""
        return self.X.shape[1]

    @property
    def rows(self) -> Rows:
        """The declaration the library enforces."""
        return Rows(X=Ball(1.0, dim=self.dim), y=self.regression.outcome)

    @cached_property
    def distinct(self) -> tuple[Array, Array, Array]:
        """Distinct rows, their outcomes and how often each occurs: sums over rows are cheaper over these."""
        table, counts = np.unique(np.column_stack([self.X, self.y]), axis=0, return_counts=True)
        return table[:, :-1], table[:, -1], counts.astype(np.float64)


def from_table(
    table: Mapping[str, Any],
    *,
    name: str,
    unit: str,
    columns: tuple[Column, ...],
    y: npt.NDArray[Any],
    regression: Regression,
    source: str,
) -> Dataset:
    """A data set whose covariates are ``columns`` of ``table``."""
    return Dataset(name, unit, columns, design(table, columns), y, regression, source)


def design(table: Mapping[str, Any], columns: Sequence[Column]) -> Array:
    """Intercept and covariates, each clamped to its bounds and mapped to [0, 1], in the unit ball.

    A row of ``p`` numbers in [0, 1] has Euclidean norm at most ``√p``, by which all are divided.
    """
    mapped = [np.ones(len(table[columns[0].name]))]
    for column in columns:
        values = np.asarray(table[column.name], dtype=np.float64)
        mapped.append((np.clip(values, column.lo, column.hi) - column.lo) / (column.hi - column.lo))
    return np.stack(mapped, axis=1) / math.sqrt(len(mapped))
