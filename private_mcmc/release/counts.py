"""Private counts: how many rows fall into each of a declared number of cells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.domains.numeric import numeric_column
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.release.noise import FloatArray, GaussianNoise, gaussian_noise
from private_mcmc.target import Adjacency, check_adjacency


@dataclass(frozen=True, eq=False)
class Counts:
    """Released counts plus noise; using them further costs nothing.

    Attributes:
        values: shape ``(cells,)``; may be negative.
        noise_sd: sd of every count's noise.
        statement: what the release cost.
    """

    values: FloatArray
    noise_sd: float
    statement: Statement

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "counts": self.values.tolist(),
            "noise_sd": self.noise_sd,
            "statement": self.statement.to_dict(),
        }


@dataclass(frozen=True)
class CountsPlan:
    """The mechanism, known before anything is spent: a Gaussian histogram.

    **Guarantee**: replacing a row moves two counts by one, ``√2/σ``-GDP (``replace_one``); adding, removing
    or blanking one moves a single count, ``1/σ``-GDP. The noise drawn also covers its grid.
    Source: Dong, Roth, Su 2022.

    Attributes:
        cells: number of cells; other cell numbers are mapped to the nearest one.
        noise: the noise on every count.
        statement: the cost.
    """

    cells: int
    noise: GaussianNoise
    statement: Statement

    def release(self, cells: npt.ArrayLike, present: npt.ArrayLike) -> Counts:
        """Count the present rows by cell, add noise. Both arguments have shape ``(n,)``: curator-side.

        Raises:
            DataSchemaError: for a wrong shape; never about values.
        """
        where, given = numeric_column("cells", cells), numeric_column("present", present).astype(bool)
        if where.ndim != 1 or where.shape != given.shape or not np.issubdtype(where.dtype, np.integer):
            raise DataSchemaError("one integer cell for each row is needed.")
        kept = np.clip(where[given], 0, self.cells - 1)
        exact = np.bincount(kept, minlength=self.cells).astype(np.float64)
        return Counts(self.noise.release(exact), self.noise.sd, self.statement)


def plan_counts(gdp: float, *, cells: int, adjacency: Adjacency) -> CountsPlan:
    """Plan a release of cost ``gdp``-GDP.

    Raises:
        DeclarationError: for numbers out of range.
    """
    if not (cells >= 1 and 0 < gdp < math.inf):
        raise DeclarationError(
            f"cells={cells}, gdp={gdp}: at least one cell and a positive budget are needed."
        )
    sensitivity = math.sqrt(2.0) if check_adjacency(adjacency) == "replace_one" and cells >= 2 else 1.0
    sensitivity *= 1 + 2.0**-52
    scale = sensitivity / gdp * (1 + 2.0**-50)
    statement = accounting.gaussian(
        adjacency=adjacency, sensitivity=sensitivity, scale=scale, dim=cells, what="counts by cell"
    )
    return CountsPlan(cells, gaussian_noise(sensitivity / scale, sensitivity, cells), statement)
