"""How far rows reach, from released counts: what a clip keeps of the curvature, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.planning.metric import NOISE
from private_mcmc.release import Counts

Array = npt.NDArray[np.float64]

# Cells are geometric in a row's reach over the typical norm; the first and the last are open.
_LEAST, _RATIO, CELLS = 0.25, 64 ** (1 / 18), 32
_MIDDLES = _LEAST * _RATIO ** (np.arange(CELLS) - 0.5)
CLIPS = tuple(float(clip) for clip in np.geomspace(0.7, 60.0, 40))
# Counts below so many noise sds are taken for noise: fewer next to a cell that is not. One false row in a
# hundred, far out, would count for most of the curvature.
_ALONE, _BESIDE = 5.5, 2.5
_LEAST_KEPT = 1e-3
_TIE = 1.001
# So many rows are taken to move a posterior by a standard deviation from what a slightly wrong model misses.
_ROWS_THAT_SHOW_MISFIT = 100_000


def cell_of(reach: jax.Array) -> jax.Array:
    """The cell of a row's reach: an integer from 0 to ``CELLS − 1``."""
    position = jnp.log(jnp.maximum(reach, 1e-300) / _LEAST) / math.log(_RATIO)
    return jnp.clip(jnp.floor(jnp.nan_to_num(position)) + 1, 0, CELLS - 1).astype(int)


@dataclass(frozen=True, eq=False)
class InfluenceCounts:
    """Released counts of rows by reach, of ``num_rows`` rows.

    ``unbiased``: rows beyond the clip lose weight, not symmetry. ``dispersion``: how much larger the squared
    slopes are than the model says.
    """

    counts: Counts
    num_rows: int
    unbiased: bool
    dispersion: float = 1.0

    @cached_property
    def _significant(self) -> Array:
        kept, found = np.zeros(CELLS), False
        for cell, count in enumerate(self.counts.values):
            found = bool(count > (_BESIDE if found else _ALONE) * self.counts.noise_sd)
            kept[cell] = count if found else 0.0
        return kept

    @property
    def mean_square(self) -> float:
        """Of the reach: 1 where it is that of slopes, and the model right."""
        return float((self._significant * _MIDDLES**2).sum()) / max(float(self._significant.sum()), 1.0)

    def kept(self, clip: float) -> float:
        """Share of the curvature that rows of weight ``min(1, clip/reach)`` keep."""
        return max(self._moment(clip, 1), _LEAST_KEPT)

    def bias(self, clip: float) -> float:
        """Error that the clip adds to the mean, in posterior sds.

        With weights ``ω`` the estimate has variance ``A^{-1}BA^{-1}``, ``A = Σωψ''xxᵀ``, ``B = Σω²ψ''xxᵀ``.
        With all of them 1 it is efficient, so that the two differ by the difference of their variances: about
        ``E[ω²]/E[ω]² − 1``. A model that is a little wrong moves with the weights as much as that, more so
        the more rows there are. Slopes that are clipped on one side lose at most their excess.
        """
        weighting = self._inequality(clip)
        weighting *= self.dispersion * (1 + self.num_rows / _ROWS_THAT_SHOW_MISFIT)
        if self.unbiased:
            return math.sqrt(weighting)
        excess = float((self._significant * np.maximum(_MIDDLES - clip, 0.0)).sum())
        return math.sqrt(weighting + excess**2 / self.num_rows)

    def _inequality(self, clip: float) -> float:
        """``E[ω²]/E[ω]² − 1``: zero where all rows lose the same share of their weight."""
        return max(self._moment(clip, 2) / self.kept(clip) ** 2 - 1, 0.0)

    def _moment(self, clip: float, power: int) -> float:
        """``E[ω^power]`` over the curvature."""
        information = self._significant * _MIDDLES**2
        total = float(information.sum())
        weights = np.minimum(1.0, clip / _MIDDLES) ** power
        return float((information * weights).sum()) / total if total > 0 else 1.0

    def error(self, clip: float, time: float, distance: float = 0.0) -> float:
        """Predicted error of the means, in posterior sds, of a run of ``time`` from ``distance`` sds away."""
        return math.hypot(
            self.bias(clip), math.sqrt(2 / time) / self.kept(clip), self.drift(clip, time, distance)
        )

    def drift(self, clip: float, time: float, distance: float) -> float:
        """What correcting a mean for the start may be off by, over ``r`` relaxation times.

        The correction is ``(1 − e^{−r})/r`` of the distance, and as uncertain as the curvature.
        """
        relaxations = self.kept(clip) * time
        return self.doubt(clip) * distance * -math.expm1(-relaxations) / relaxations

    def doubt(self, clip: float, caution: float = 1.0) -> float:
        """About the share of the curvature that is not known, once the clip has changed it unevenly."""
        uneven = caution * math.sqrt(self._inequality(clip))
        return min(1 - self.kept(clip), uneven) + NOISE

    def best_clip(self, time: Callable[[float], float], distance: float = 0.0) -> float:
        """The largest clip with the smallest predicted error; ``time`` is what each buys.

        While all rows lose weight, a smaller clip buys as much more time as it makes the path slower.
        """
        errors = [self.error(clip, time(clip), distance) for clip in CLIPS]
        return max(clip for clip, error in zip(CLIPS, errors, strict=True) if error <= _TIE * min(errors))
