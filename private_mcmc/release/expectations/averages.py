"""Averages over a chain: how far one row moves them, and the vector that the chain averages.

With ``e`` the distance between the coupled chains' averages (in ``‖M^{-1/2}·‖``), a value of slope ``a`` in
``θ`` moves by at most ``√(aᵀMa) e``, an ``ℓ``-Lipschitz one by ``ℓ √λ_max(M) e``, and one kept in ``[a, b]``
by ``b − a``. Every value is measured in units of its own bound: centred, scaled and clamped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DeclarationError
from private_mcmc.preflight.certificates import largest_eigenvalue
from private_mcmc.release.expectations.functions import Function, Lipschitz, Slopes
from private_mcmc.release.noise import FloatArray
from private_mcmc.schedule import Average, Matrix, Schedule

_UP = 1 + 1e-9
# The share of a slope that rounding may take: well inside ``_UP``.
_LOST = 1e-10


@dataclass(frozen=True, eq=False)
class Movement:
    """What one row can change.

    Attributes:
        units: each value's own sensitivity, shape ``(d,)``.
        slopes: each value's Lipschitz constant in ``‖M^{-1/2}·‖``, shape ``(d,)``; ``inf`` if unknown.
        l1: joint L1 sensitivity of the values divided by their units.
        l2: the same in L2.
    """

    units: FloatArray
    slopes: FloatArray
    l1: float
    l2: float


def movement(schedule: Schedule, distance: float, part: Slopes | Lipschitz, ranges: FloatArray) -> Movement:
    """Sensitivities of one declared item; ``ranges`` holds each value's ``b − a`` (``inf`` if none)."""
    if isinstance(part, Slopes):
        inner = _in_metric(part.matrix, schedule.preconditioner)
        gram = inner @ inner.T
        slopes = np.sqrt(np.diag(gram)) * _UP
    else:
        gram = None
        widest = math.sqrt(largest_eigenvalue(schedule.preconditioner))
        slopes = np.full(part.size, part.constant * widest * _UP)
    # What is no number bounds nothing.
    slopes = np.where(slopes >= 0, slopes, math.inf)
    # A constant value moves by nothing, however far the chains are apart.
    moves = np.where(slopes == 0, 0.0, np.where(slopes > 0, slopes, 1.0) * distance)
    bounds = np.minimum(moves, ranges)
    if not np.all(bounds < math.inf):
        raise DeclarationError(
            "nothing bounds how far one row moves this expectation: the chain has no proved contraction or "
            "the function no Lipschitz constant. Give bounds=(a, b): the value is clamped to them."
        )
    units = np.where(bounds > 0, bounds, max(float(bounds.max()), np.finfo(float).tiny ** 0.5))
    capped = ranges < moves
    if gram is not None:
        free = np.flatnonzero(~capped)
        scale = np.where(slopes > 0, slopes, 1.0)[free]
        correlation = gram[np.ix_(free, free)] / np.outer(scale, scale) * _UP**2
        l1, l2 = _coordinatewise(correlation)
        count = int(capped.sum())
        return Movement(units, slopes, (l1 + count) * _UP, math.hypot(l2, math.sqrt(count)) * _UP)
    # Each value moves by at most one unit, all together by at most the largest ratio in L2.
    joint = min(math.sqrt(len(units)), float(np.max(moves / units)))
    return Movement(units, slopes, min(len(units), math.sqrt(len(units)) * joint) * _UP, joint * _UP)


def together(movements: tuple[Movement, ...]) -> Movement:
    """Several items side by side."""
    return Movement(
        np.concatenate([m.units for m in movements]),
        np.concatenate([m.slopes for m in movements]),
        math.fsum(m.l1 for m in movements) * _UP,
        math.sqrt(math.fsum(m.l2**2 for m in movements)) * _UP,
    )


def _coordinatewise(correlation: FloatArray) -> tuple[float, float]:
    """L1 and L2 norms of ``D^{-1/2} A M^{1/2}`` over the unit ball, given ``D^{-1/2} A M Aᵀ D^{-1/2}``.

    ``max_s ‖M^{1/2}AᵀD^{-1/2}s‖²`` over sign vectors ``s`` is at most ``Σ|correlation_ij|``.
    """
    if correlation.size == 0:
        return 0.0, 0.0
    largest = max(0.0, float(np.linalg.eigvalsh(correlation)[-1]))
    total = float(np.abs(correlation).sum())
    return math.sqrt(total), math.sqrt(min(total, largest * _UP))


def _in_metric(matrix: FloatArray, metric: Matrix | None) -> FloatArray:
    """``A·M^{1/2}``, with the very factor of ``M`` that the chain uses.

    Not ``A M Aᵀ``, in which what ``A`` meets of a small direction is lost beside the large ones.
    """
    if metric is None:
        return matrix
    array = np.asarray(metric, dtype=np.float64)
    if array.ndim == 1:
        return np.asarray(matrix * np.sqrt(array))
    root = np.linalg.cholesky(array)
    product: FloatArray = matrix @ root
    lost = np.linalg.norm(np.abs(matrix) @ np.abs(root), axis=1) * len(array) * 2.0**-52
    if not np.all(lost <= _LOST * np.linalg.norm(product, axis=1)):
        raise DeclarationError(
            "expectations: in the metric of the preconditioner float64 does not tell how far these values "
            "move; take a preconditioner that is better conditioned."
        )
    return product


_UNIT = 2.0**-53
# Share of a value's own sensitivity that rounding of the running sums may add; it sets the window.
ROUNDING_SHARE = 2.0**-14


@dataclass(frozen=True, eq=False)
class Observed:
    """The ``d`` declared values in units of their own sensitivities.

    Values are clamped to ``[low, high]``: the declared bounds, and a window so wide that only a running
    sum of larger values could lose more than ``ROUNDING_SHARE`` of a unit to rounding.

    Attributes:
        functions: the declared items, in order.
        centres, units, low, high: shape ``(d,)``; ``low`` and ``high`` in units.
    """

    functions: tuple[Function, ...]
    centres: FloatArray
    units: FloatArray
    low: FloatArray
    high: FloatArray

    def __call__(self, theta: jax.Array) -> jax.Array:
        """``(f(θ) − centre)/unit`` of shape ``(d,)``, clamped; NaN counts as ``a`` (as 0 without bounds)."""
        parts = []
        for function in self.functions:
            value = function.evaluate(theta)
            parts.append(jnp.where(jnp.isnan(value), _fallback(function), value))
        scaled = (jnp.concatenate(parts) - self.centres) / self.units
        return jnp.clip(scaled, self.low, self.high)

    def averages(self, given: npt.ArrayLike) -> FloatArray:
        """Averages of this vector as a chain computed them, with what is not a number mapped."""
        array = np.asarray(given, dtype=np.float64)
        if array.shape != self.units.shape:
            raise DeclarationError(f"averages of shape {array.shape}, {self.units.shape} were planned.")
        lowest = (np.concatenate([_fallback(f) for f in self.functions]) - self.centres) / self.units
        mapped: FloatArray = np.clip(np.where(np.isnan(array), lowest, array), self.low, self.high)
        return mapped

    def split(self, values: FloatArray) -> list[FloatArray]:
        """A ``(d,)`` vector item by item, each in its own shape."""
        cuts = np.cumsum([function.size for function in self.functions])[:-1]
        return [
            part.reshape(function.shape)
            for part, function in zip(np.split(values, cuts), self.functions, strict=True)
        ]


def observed(functions: tuple[Function, ...], units: FloatArray, schedule: Schedule) -> Observed:
    """The vector of ``functions`` in these units, fit for the running sums of ``schedule``."""
    low, high = (np.concatenate([getattr(f, end) for f in functions]) for end in ("low", "high"))
    bounded = np.isfinite(high - low)
    centres = np.where(bounded, (np.where(bounded, low, 0.0) + np.where(bounded, high, 0.0)) / 2, 0.0)
    half = np.minimum((high - low) / 2 / units, _window(schedule))
    return Observed(functions, centres, units, -half, half)


def _fallback(function: Function) -> FloatArray:
    """What NaN counts as: the lower end, or 0 where there is none."""
    return np.where(np.isfinite(function.low), function.low, 0.0)


def _window(schedule: Schedule) -> float:
    """Largest value, in units, whose running sum over steps and chains rounds by less than the share."""
    first = schedule.release.first if isinstance(schedule.release, Average) else 1
    additions = (schedule.num_steps - first + 1) * schedule.num_chains + 16
    load = additions * _UNIT
    return ROUNDING_SHARE * (1 - load) / (2 * load)
