"""Noised sums over persons: counts of cells, sums of a number and its square in them; second moments.

One mechanism of counts serves tables, checks and comparisons (``theory.md``, section 14). What a row adds is
computed from that row alone and enforced here: one cell of each family, and ``t`` in ``[−1, 1]``; vectors of
a norm that is at most the declared one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.accounting.mechanisms import second_moments_sensitivity
from private_mcmc.accounting.rounding import product_up, root_up, sum_up
from private_mcmc.accounting.statement import of_unit
from private_mcmc.domains.columns import numeric_column
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.release.noise import FloatArray, GaussianNoise, gaussian_noise
from private_mcmc.release.released import SecondMoments, Sums
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

    def sums(self, parts: Sequence[Contribution], present: npt.ArrayLike) -> FloatArray:
        """Exact sums of the rows that ``present``, ``(n,)`` or ``(n, k)``, tells of: curator-side."""
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
        sizes = [one.cells * (1 + one.moments) for one in self.families]
        weights: FloatArray = np.repeat([one.weight for one in self.families], sizes)
        return self.noise.release(exact * weights) / weights

    def released(self, values: FloatArray) -> tuple[Sums, ...]:
        """What ``noised`` gave, by family."""
        sizes = [one.cells * (1 + one.moments) for one in self.families]
        parts = np.split(np.asarray(values, dtype=np.float64), np.cumsum(sizes)[:-1])
        return tuple(
            Sums(part.reshape(1 + one.moments, one.cells), self.noise.sd / one.weight)
            for one, part in zip(self.families, parts, strict=True)
        )


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
    made = accounting.gaussian(
        adjacency=adjacency, sensitivity=sensitivity, scale=scale, dim=size, what=what, num_rows=num_rows
    )
    return SumsPlan(tuple(families), num_rows, rows, noise, of_unit(made, unit))


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


_CHUNK = 4096
_ROUND_OFF = 2.0**-53


@dataclass(frozen=True)
class SecondMomentsPlan:
    """The mechanism, known before anything is spent.

    Rows are mapped into the ball ``‖x‖ ≤ R`` (non-finite rows to 0), summed in float64, and the upper
    triangle, its off-diagonal part times ``√2`` (then the Euclidean norm is the Frobenius norm), gets
    isotropic discrete Gaussian noise. A row may also be several vectors, a matrix ``V`` with Frobenius norm
    at most ``R`` that adds ``VᵀV``: the difference of two such matrices is no larger.

    **Guarantee**: ``√2R²/τ``-GDP under ``replace_one`` with ``p ≥ 2``, else ``R²/τ``-GDP. The noise drawn
    is a little larger than ``τ``: it also covers the rounding of two float64 sums and the noise grid.
    **Assumptions**: at most ``num_rows`` rows.
    Source: Dong, Roth, Su 2022; Higham 2002, section 3.1 (rounding).

    Attributes:
        vectors: the most vectors of one row.
        noise: the noise on the ``p(p+1)/2`` coordinates.
        statement: the cost.
    """

    radius: float
    dim: int
    num_rows: int
    noise: GaussianNoise
    statement: Statement
    vectors: int = 1

    def sums(self, rows: npt.ArrayLike) -> FloatArray:
        """``Σ VᵀV`` of rows, ``(n, p)`` or ``(n, k, p)``, of a partition, a block, or all: curator-side.

        The sums of blocks, and then of partitions, are added with a rounding each, for which the noise has
        room.
        """
        array = numeric_column("rows", rows)
        if array.ndim not in (2, 3) or array.shape[-1] != self.dim:
            raise DataSchemaError(f"rows of shape (n, {self.dim}) or (n, k, {self.dim}) are needed.")
        if array.ndim == 3 and array.shape[1] > self.vectors:
            raise DataSchemaError(f"more vectors in a row than the declared {self.vectors}.")
        if array.shape[0] > self.num_rows:
            raise DataSchemaError(f"more rows than the declared {self.num_rows}.")
        return _gram(array, self.radius)

    def noised(self, exact: FloatArray) -> FloatArray:
        """The sums of all rows with noise, drawn once; symmetric."""
        upper = np.triu_indices(self.dim)
        weight = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
        noised = self.noise.release(exact[upper] * weight) / weight
        matrix = np.zeros((self.dim, self.dim))
        matrix[upper] = noised
        matrix.T[upper] = noised
        return matrix

    def released(self, matrix: FloatArray) -> SecondMoments:
        """What ``noised`` gave, with its price."""
        return SecondMoments(matrix, self.noise.sd, self.statement)


def plan_second_moments(
    gdp: float, *, radius: float, dim: int, num_rows: int, adjacency: Adjacency, vectors: int = 1
) -> SecondMomentsPlan:
    """Plan a release of cost ``gdp``-GDP; ``num_rows`` is ``n``, under ``add_remove`` the public ``n_max``.

    ``vectors`` is the most vectors that one row adds, with joint norm at most ``radius``.
    """
    if not (num_rows >= 1 and vectors >= 1 and dim >= 1 and 0 < gdp < math.inf and 0 < radius < math.inf):
        raise DeclarationError(
            f"num_rows={num_rows}, vectors={vectors}, dim={dim}, gdp={gdp}, radius={radius}: at least one "
            "each, and a positive budget and radius."
        )
    exact, size = second_moments_sensitivity(radius, dim, adjacency), dim * (dim + 1) // 2
    tau = product_up(exact, over=(gdp,))
    noise = gaussian_noise(exact / tau, exact + _rounding(radius, dim, num_rows, vectors), size)
    what = f"second moments of rows clipped at the norm {radius:g}"
    statement = accounting.gaussian(
        adjacency=adjacency, sensitivity=exact, scale=tau, dim=size, what=what, num_rows=num_rows
    )
    return SecondMomentsPlan(radius, dim, num_rows, noise, statement, vectors)


def _rounding(radius: float, dim: int, num_rows: int, vectors: int = 1) -> float:
    """Most that float64 adds to the difference of two computed sums, in the Frobenius norm.

    Every entry is a sum of ``k`` rounded products, off by ``k u/(1 − k u) Σ|x_i x_j|``; the matrix of
    ``Σ|x_i x_j|`` has Frobenius norm at most ``n R²``. The sums of blocks (``math.fsum``), and then of
    partitions, round once more each. A row's own norm is enforced up to ``(kp + 8)u``.
    """
    additions = min(num_rows, _CHUNK) * vectors + -(-num_rows // _CHUNK) + 8
    load = additions * _ROUND_OFF
    norm_slack = 4 * (dim * vectors + 8) * _ROUND_OFF
    underflow = num_rows * vectors * dim * 2.0**-1070
    allowance = 2 * load / (1 - load) * num_rows * radius**2 * (1 + norm_slack) + 2 * norm_slack * radius**2
    allowance += underflow
    if not allowance < radius**2:
        raise DeclarationError(f"num_rows={num_rows}: float64 sums of so many rows carry no useful bound.")
    return allowance


def _gram(rows: npt.NDArray[np.generic], radius: float) -> FloatArray:
    total = np.zeros((rows.shape[-1], rows.shape[-1]))
    for first in range(0, len(rows), _CHUNK):
        chunk = _into_ball(np.asarray(rows[first : first + _CHUNK], dtype=np.float64), radius)
        vectors = chunk.reshape(-1, rows.shape[-1])
        total += vectors.T @ vectors
    return total


def _into_ball(rows: FloatArray, radius: float) -> FloatArray:
    """Rows scaled to norm at most ``radius``; a row that is not finite, or too large to square, becomes 0."""
    apart = (slice(None), *(None,) * (rows.ndim - 1))
    with np.errstate(all="ignore"):
        norms = np.sqrt(np.square(rows).reshape(len(rows), -1).sum(axis=1))
        finite = np.isfinite(norms)
        scale = np.where(norms > radius, radius / norms, 1.0)
        return np.where(finite[apart], rows * scale[apart], 0.0)
