"""Noised sums of a bounded vector of each person: counts of cells, sums of a number and its square in them.

One mechanism serves tables, checks and comparisons (``theory.md``, section 14). What a row adds is computed
from that row alone and enforced here: one cell of each family, and ``t`` in ``[−1, 1]``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement, capped
from private_mcmc.accounting.rounding import product_up, root_up, sum_up
from private_mcmc.accounting.statement import of_unit
from private_mcmc.domains.columns import numeric_column
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.release.noise import FloatArray, GaussianNoise, gaussian_noise
from private_mcmc.target import Adjacency, Unit, check_adjacency

# What is summed is a whole number of these, so that sums are exact.
_UNIT = 2.0**-20
_MOST_ROWS = 2**31
_MOST_NUMBERS = 2**22


@dataclass(frozen=True)
class Family:
    """Cells of which each row has at most one, and what is summed in them.

    Attributes:
        name: in words.
        cells: their number.
        moments: 0: rows are counted; 1: their ``t`` is summed as well, and with 2 also ``2t² − 1``.
        weight: by which the family's numbers are multiplied before noise of one sd is added to all of them.
    """

    name: str
    cells: int
    moments: int = 0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not (self.cells >= 1 and self.moments in (0, 1, 2) and 0 < self.weight < math.inf):
            raise DeclarationError(
                f"family {self.name!r}: at least one cell, 0 to 2 moments, a weight above 0."
            )


class Contribution(NamedTuple):
    """What rows add to one family, curator-side: their cells and their ``t``, shape ``(n,)`` or ``(n, k)``.

    A cell below 0 is none; one beyond the last is the last. A ``t`` that is NaN counts as 0.
    """

    cells: npt.ArrayLike
    t: npt.ArrayLike | None = None


@dataclass(frozen=True, eq=False)
class Sums:
    """What was released of one family; using it further costs nothing.

    Attributes:
        values: shape ``(1 + moments, cells)``: counts, sums of ``t``, sums of ``2t² − 1``, each with noise.
        noise_sd: of every number.
    """

    values: FloatArray
    noise_sd: float


@dataclass(frozen=True)
class SumsPlan:
    """The mechanism, known before anything is spent.

    A row adds ``w_f (e_c, t e_c, (2t² − 1) e_c)`` to family ``f``. Of a person with several rows the average
    of what they add is taken, so that each person counts once.

    **Guarantee**: ``Δ/σ``-GDP, with ``Δ² = 2 Σ w_f² (1 + moments_f)`` under ``replace_one`` and half of it
    under ``add_remove`` and ``zero_out``. Of rows: in different cells the parts are orthogonal, each of
    squared norm ``≤ w²(1 + moments)``; in one cell they differ by ``|t − t'| ≤ 2``, with squares by 2.2682
    ``< √6``. Of persons: an average lies in the convex hull of vectors of rows, or is 0 without any, and the
    norm of a difference is convex in both, so that it is largest between rows, or a row and 0. ``t``,
    ``2t² − 1`` and shares are rounded to multiples of 2⁻²⁰, so that sums are exact; the noise has room for
    that rounding, for the weights' and for its own grid. **Assumptions**: none about the rows. Source: Dong,
    Roth, Su 2022.

    Attributes:
        families: whose numbers are released, one after the other.
        num_rows: the most rows, or persons.
        rows: the most rows of a person.
        noise: on every number.
        statement: the cost.
    """

    families: tuple[Family, ...]
    num_rows: int
    rows: int
    noise: GaussianNoise
    statement: Statement

    def release(self, parts: Sequence[Contribution], present: npt.ArrayLike) -> tuple[Sums, ...]:
        """Sum and add noise; ``present``, ``(n,)`` or ``(n, k)``, tells which rows count: curator-side."""
        return self.released(self.noised(self.sums(parts, present)))

    def sums(self, parts: Sequence[Contribution], present: npt.ArrayLike) -> FloatArray:
        """Exact sums of all rows: curator-side."""
        there = numeric_column("present", present) > 0
        persons = there[:, None] if there.ndim == 1 else there
        fits = len(persons) <= self.num_rows and persons.shape[1] <= self.rows
        if len(parts) != len(self.families) or not fits:
            raise DataSchemaError(
                f"{len(self.families)} families, of at most {self.num_rows} with {self.rows} rows each."
            )
        count = persons.sum(axis=1, keepdims=True)
        shares = np.where(persons, np.rint(1 / np.maximum(count, 1) / _UNIT), 0).astype(np.int64).ravel()
        found = [
            _sums(one, part, shares, there.shape) for one, part in zip(self.families, parts, strict=True)
        ]
        return np.concatenate([one.astype(np.float64).ravel() * _UNIT for one in found])

    def noised(self, exact: FloatArray) -> FloatArray:
        """All numbers with noise, drawn once; weights are divided out."""
        weights = self._weights
        return self.noise.release(exact * weights) / weights

    def released(self, values: FloatArray) -> tuple[Sums, ...]:
        """What ``noised`` gave, by family."""
        sizes = [one.cells * (1 + one.moments) for one in self.families]
        parts = np.split(np.asarray(values, dtype=np.float64), np.cumsum(sizes)[:-1])
        return tuple(
            Sums(part.reshape(1 + one.moments, one.cells), self.noise.sd / one.weight)
            for one, part in zip(self.families, parts, strict=True)
        )

    @property
    def _weights(self) -> FloatArray:
        return np.concatenate([np.full(one.cells * (1 + one.moments), one.weight) for one in self.families])


def plan_sums(
    gdp: float,
    families: Sequence[Family],
    *,
    num_rows: int,
    adjacency: Adjacency,
    unit: Unit | None = None,
    what: str = "sums by cell",
) -> SumsPlan:
    """Plan a release of cost ``gdp``-GDP of rows, or of persons with several.

    ``num_rows`` is ``n``, under ``add_remove`` the public ``n_max``; of persons their number.
    """
    size = sum(one.cells * (1 + one.moments) for one in families)
    if not (families and 0 < gdp < math.inf and 1 <= num_rows <= _MOST_ROWS and size <= _MOST_NUMBERS):
        raise DeclarationError(
            f"gdp={gdp}, num_rows={num_rows}, {size} numbers: a positive budget, at least one row, and 1 to "
            f"{_MOST_NUMBERS:,} numbers are needed."
        )
    both = 2.0 if check_adjacency(adjacency) == "replace_one" else 1.0
    squares = sum_up(product_up(both, one.weight, one.weight, 1.0 + one.moments) for one in families)
    sensitivity, rows = root_up(squares), 1 if unit is None else unit.rows
    scale = product_up(sensitivity, over=(gdp,))
    # The parts of one row, or of ``rows`` shares of them, are off by half a unit each, or one and a half.
    parts = sum_up((1.0 + one.moments) for one in families)
    heaviest = max(one.weight for one in families)
    rounding = product_up(2.0, heaviest, root_up(parts), 1.5 * _UNIT, float(rows)) if rows > 1 else 0.0
    # Multiplying by weights rounds every sum, of at most ``num_rows`` and what shares were rounded up.
    rounding += product_up(heaviest, root_up(float(size)), 2.0 * num_rows, 2.0**-51)
    noise = gaussian_noise(sensitivity / scale, sum_up((sensitivity, rounding)), size)
    made = accounting.gaussian(adjacency=adjacency, sensitivity=sensitivity, scale=scale, dim=size, what=what)
    return SumsPlan(tuple(families), num_rows, rows, noise, of_unit(capped(made, num_rows), unit))


def _sums(
    family: Family, part: Contribution, shares: npt.NDArray[np.int64], shape: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """Sums of one family in units of ``_UNIT``, shape ``(1 + moments, cells)``."""
    cells = numeric_column("cells", part.cells)
    if cells.shape != shape or not np.issubdtype(cells.dtype, np.integer):
        raise DataSchemaError(f"family {family.name!r}: one whole number for the cell of each row is needed.")
    where = np.minimum(cells.ravel(), family.cells - 1)
    counted = (where >= 0) & (shares > 0)
    where, shares = where[counted], shares[counted]
    columns = [shares]
    if family.moments:
        t = np.zeros(shape) if part.t is None else numeric_column("t", part.t).astype(np.float64)
        if t.shape != shape:
            raise DataSchemaError(f"family {family.name!r}: one t for each row is needed.")
        inside = np.clip(np.nan_to_num(t.ravel()[counted], nan=0.0), -1.0, 1.0)
        inside = np.rint(inside / _UNIT) * _UNIT
        weights = [inside, 2 * inside**2 - 1][: family.moments]
        columns += [np.rint(weight * shares).astype(np.int64) for weight in weights]
    total = np.zeros((1 + family.moments, family.cells), np.int64)
    for row, column in zip(total, columns, strict=True):
        np.add.at(row, where, column)
    return total
