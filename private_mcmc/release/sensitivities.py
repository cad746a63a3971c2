"""How far one row moves a vector of averages, coordinate by coordinate and jointly.

With ``e`` the distance between the coupled chains' averages (in ``‖M^{-1/2}·‖``), a coordinate of slope
``c`` along ``θ_i`` moves by at most ``c √M_ii e``, an ``ℓ``-Lipschitz function by ``ℓ √λ_max(M) e``, and a
value kept in ``[a, b]`` by ``b − a``. Every coordinate is measured in units of its own bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Matrix, Schedule

FloatArray = npt.NDArray[np.float64]
_UP = 1 + 1e-9


@dataclass(frozen=True)
class Slopes:
    """Values ``f_j`` with ``|f_j(θ) − f_j(θ')| ≤ c_j |θ_{i_j} − θ'_{i_j}|``: real and interval sites."""

    coordinates: tuple[int, ...]
    slopes: tuple[float, ...]


@dataclass(frozen=True)
class Lipschitz:
    """``size`` values, jointly ``ℓ``-Lipschitz from ``‖·‖_2`` on the unconstrained space to ``‖·‖_2``."""

    size: int
    constant: float


@dataclass(frozen=True, eq=False)
class Movement:
    """What one row can change.

    Attributes:
        units: each coordinate's own sensitivity, shape ``(d,)``.
        l1: joint L1 sensitivity of the coordinates divided by their units.
        l2: the same in L2.
    """

    units: FloatArray
    l1: float
    l2: float


def movement(schedule: Schedule, distance: float, part: Slopes | Lipschitz, ranges: FloatArray) -> Movement:
    """Sensitivities of one declared item; ``ranges`` holds each value's ``b − a`` (``inf`` if none).

    Raises:
        DeclarationError: for a coordinate with neither a finite range nor a finite Lipschitz bound.
    """
    if isinstance(part, Slopes):
        gram = _block(schedule.preconditioner, part.coordinates)
        moves = np.asarray(part.slopes) * np.sqrt(np.diag(gram)) * distance * _UP
    else:
        reach = part.constant * math.sqrt(_largest_eigenvalue(schedule.preconditioner)) * distance * _UP
        moves = np.full(part.size, reach)
    units = np.minimum(moves, ranges)
    if not np.all((units > 0) & np.isfinite(units)):
        raise DeclarationError(
            "nothing bounds how far one row moves this expectation: the chain has no proved contraction or "
            "the function no Lipschitz constant. Give bounds=(a, b): the value is clamped to them."
        )
    capped = ranges <= moves
    if isinstance(part, Slopes):
        free = ~capped
        l1, l2 = _coordinatewise(gram[np.ix_(free, free)])
        count = int(capped.sum())
        return Movement(units, (l1 + count) * _UP, math.hypot(l2, math.sqrt(count)) * _UP)
    # Each value moves by at most one unit, all together by at most `reach` in L2.
    joint = min(math.sqrt(part.size), float(np.max(moves / units)))
    return Movement(units, min(part.size, math.sqrt(part.size) * joint) * _UP, joint * _UP)


def together(movements: tuple[Movement, ...]) -> Movement:
    """Several items side by side."""
    return Movement(
        np.concatenate([m.units for m in movements]),
        math.fsum(m.l1 for m in movements) * _UP,
        math.sqrt(math.fsum(m.l2**2 for m in movements)) * _UP,
    )


def _coordinatewise(gram: FloatArray) -> tuple[float, float]:
    """L1 and L2 norms of ``D^{-1/2} A M^{1/2}`` over the unit ball, ``A M Aᵀ = gram``, ``D`` its diagonal.

    ``max_s ‖M^{1/2}Aᵀs‖² = sᵀ gram s ≤ Σ|gram_ij|`` over sign vectors ``s``, after scaling.
    """
    if gram.size == 0:
        return 0.0, 0.0
    root = np.sqrt(np.diag(gram))
    correlation = gram / np.outer(root, root)
    return math.sqrt(float(np.abs(correlation).sum())), math.sqrt(float(np.linalg.eigvalsh(correlation)[-1]))


def _block(matrix: Matrix | None, coordinates: tuple[int, ...]) -> FloatArray:
    index = np.asarray(coordinates, dtype=int)
    if matrix is None:
        return np.eye(len(index))
    array = np.asarray(matrix, dtype=np.float64)
    if array.ndim == 1:
        return np.diag(array[index])
    block: FloatArray = array[np.ix_(index, index)]
    return block


def _largest_eigenvalue(matrix: Matrix | None) -> float:
    if matrix is None:
        return 1.0
    array = np.asarray(matrix, dtype=np.float64)
    return float(array.max() if array.ndim == 1 else np.linalg.eigvalsh(array)[-1])
