"""How far rows reach, from released counts: what a clip keeps of the curvature, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.release import Counts

Array = npt.NDArray[np.float64]

# Cells are geometric in a row's reach over the typical norm; the first and the last are open.
_LEAST, _RATIO, CELLS = 0.25, 64 ** (1 / 18), 20
_MIDDLES = _LEAST * _RATIO ** (np.arange(CELLS) - 0.5)
CLIPS = tuple(float(clip) for clip in np.geomspace(0.7, 12.0, 25))
# Counts below this many noise sds are taken for noise.
_SIGNIFICANT = 2.5
_LEAST_KEPT = 0.05
# So many rows are taken to move a posterior by a standard deviation from what a slightly wrong model misses.
_ROWS_THAT_SHOW_MISFIT = 100_000


def cell_of(reach: jax.Array) -> jax.Array:
    """The cell of a row's reach: an integer from 0 to ``CELLS − 1``."""
    position = jnp.log(jnp.maximum(reach, 1e-300) / _LEAST) / math.log(_RATIO)
    return jnp.clip(jnp.floor(jnp.nan_to_num(position)) + 1, 0, CELLS - 1).astype(int)


@dataclass(frozen=True, eq=False)
class Reach:
    """Released counts of rows by reach, of ``num_rows`` rows.

    ``unbiased``: rows beyond the clip lose weight, not symmetry.
    """

    counts: Counts
    num_rows: int
    unbiased: bool

    @property
    def _significant(self) -> Array:
        values = self.counts.values
        kept: Array = np.where(values > _SIGNIFICANT * self.counts.noise_sd, values, 0.0)
        return kept

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
        weighting = max(self._moment(clip, 2) / self.kept(clip) ** 2 - 1, 0.0)
        weighting *= 1 + self.num_rows / _ROWS_THAT_SHOW_MISFIT
        if self.unbiased:
            return math.sqrt(weighting)
        excess = float((self._significant * np.maximum(_MIDDLES - clip, 0.0)).sum())
        return math.sqrt(weighting + excess**2 / self.num_rows)

    def _moment(self, clip: float, power: int) -> float:
        """``E[ω^power]`` over the curvature."""
        information = self._significant * _MIDDLES**2
        total = float(information.sum())
        weights = np.minimum(1.0, clip / _MIDDLES) ** power
        return float((information * weights).sum()) / total if total > 0 else 1.0

    def best_clip(self, time: Callable[[float], float]) -> float:
        """The clip with the smallest predicted error; ``time`` is what each buys."""

        def error(clip: float) -> float:
            return self.bias(clip) ** 2 + 2 / (time(clip) * self.kept(clip) ** 2)

        return min(CLIPS, key=error)
