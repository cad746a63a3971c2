"""Released counts of rows by their influence: what a clip keeps of the data, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import isotonic_regression

from private_mcmc.planning.estimates import NOISE
from private_mcmc.planning.stages import Array
from private_mcmc.release import Counts
from private_mcmc.target import Adjacency

# Cells are geometric in a row's influence over the typical norm; the first and the last are open.
_LEAST, _RATIO, CELLS = 0.25, 64 ** (1 / 18), 32
MIDDLES = _LEAST * _RATIO ** (np.arange(CELLS) - 0.5)
CLIPS = tuple(float(clip) for clip in np.geomspace(0.7, 60.0, 40))
# Counts below so many noise sds are taken for noise: fewer next to a cell that is not. One false row in a
# hundred, in an outer cell, would count for most of the curvature.
_ALONE, _BESIDE = 5.5, 2.5
_LEAST_SHARE = 1e-3
_TIE = 1.001
# A run lasts between these times, whatever its budget buys.
SHORTEST, LONGEST = 10.0, 200.0
# So many rows are taken to move a posterior by a standard deviation from what a slightly wrong model misses.
_ROWS_THAT_SHOW_MISFIT = 100_000


def cell_of(influence: jax.Array) -> jax.Array:
    """The cell of a row's influence: an integer from 0 to ``CELLS − 1``."""
    position = jnp.log(jnp.maximum(influence, 1e-300) / _LEAST) / math.log(_RATIO)
    return jnp.clip(jnp.floor(jnp.nan_to_num(position)) + 1, 0, CELLS - 1).astype(int)


def people_counted(counts: Counts, num_rows: int, adjacency: Adjacency) -> float:
    """About how many rows are there, at most: those counted and two sds, where slots may be empty."""
    if adjacency == "replace_one":
        return float(num_rows)
    noise = 2 * counts.noise_sd * math.sqrt(len(counts.values))
    return min(max(float(np.sum(counts.values)), 0.0) + noise, float(num_rows))


@dataclass(frozen=True, eq=False)
class InfluenceCounts:
    """Released counts of rows by influence, of ``num_rows`` rows: what a clip keeps, and what it costs.

    ``skew``: the share of what rows lose beyond the clip that moves the mean; 0 where they lose weight.
    ``dispersion``: how much larger the squared slopes are than the model says.
    ``cells``: rows are in the first of so many.
    ``people``: how many of the rows are no empty slots, as far as that is known; all if left out.
    """

    counts: Counts
    num_rows: int
    skew: float
    dispersion: float = 1.0
    cells: int = CELLS
    people: float | None = None

    @cached_property
    def _significant(self) -> Array:
        kept, significant = np.zeros(CELLS), False
        for cell, count in enumerate(self.counts.values):
            significant = bool(count > (_BESIDE if significant else _ALONE) * self.counts.noise_sd)
            kept[cell] = count if significant else 0.0
        return kept

    @cached_property
    def tail(self) -> Array:
        """The counts, those beyond the fullest cell made to fall: a tail is more than its cells show."""
        counts = np.array(self.counts.values[: self.cells])
        peak = int(np.argmax(counts))
        falling = isotonic_regression(counts[peak:], increasing=False).x
        return np.asarray(np.maximum(np.concatenate([self._significant[:peak], falling]), 0.0))

    @property
    def occupied(self) -> int:
        """How many cells there are up to the last one that surely holds rows, and one more."""
        known = np.flatnonzero(self._significant)
        return min(int(known[-1]) + 2, CELLS) if len(known) else CELLS

    @property
    def hidden(self) -> bool:
        """Whether noise hides where most rows are, of those that are there."""
        there = self.num_rows if self.people is None else self.people
        return float(self._significant.sum()) < there / 2

    @property
    def synthetic(self) -> bool:
        """Whether these are synthetic people, without noise."""
        return self.counts.noise_sd == 0

    @property
    def mean_square(self) -> float:
        """Of the influence: 1 where it is that of slopes, and the model right."""
        return float((self._significant * MIDDLES**2).sum()) / max(float(self._significant.sum()), 1.0)

    def curvature_share(self, clip: float) -> float:
        """``E[ω]``: the share of the curvature that rows of weight ``ω = min(1, clip/influence)`` keep."""
        return max(self._moment(clip, 1), _LEAST_SHARE)

    def bias(self, clip: float) -> float:
        """Error that the clip adds to the mean, in posterior sds.

        With weights ``ω`` the estimate has variance ``A^{-1}BA^{-1}``, ``A = Σωψ''xxᵀ``, ``B = Σω²ψ''xxᵀ``.
        With all of them 1 it is efficient, so that the two differ by the difference of their variances: about
        ``E[ω²]/E[ω]² − 1``. A model that is a little wrong moves with the weights as much as that, more so
        the more rows there are. Slopes that are clipped on one side lose at most their excess.
        """
        weighting = self._inequality(clip)
        # What scatters more than a model says has a mean, too, that it misses.
        weighting *= self.dispersion**2 * (1 + self.num_rows / _ROWS_THAT_SHOW_MISFIT)
        beyond = np.maximum(MIDDLES[: self.cells] - clip, 0.0)
        excess = self.skew * float((self.tail * beyond).sum())
        return math.sqrt(weighting + excess**2 / self.num_rows)

    def _inequality(self, clip: float) -> float:
        """``E[ω²]/E[ω]² − 1``: zero where all rows lose the same share of their weight."""
        return max(self._moment(clip, 2) / self.curvature_share(clip) ** 2 - 1, 0.0)

    def _moment(self, clip: float, power: int) -> float:
        """``E[ω^power]`` over the curvature."""
        information = self._significant * MIDDLES**2
        total = float(information.sum())
        weights = np.minimum(1.0, clip / MIDDLES) ** power
        return float((information * weights).sum()) / total if total > 0 else 1.0

    def error(self, clip: float, time: float, distance: float = 0.0) -> float:
        """Predicted error of the means, in posterior sds, of a run of ``time`` from ``distance`` sds away."""
        monte_carlo = math.sqrt(2 / time) / self.curvature_share(clip)
        return math.hypot(self.bias(clip), monte_carlo, self.drift(clip, time, distance))

    def drift(self, clip: float, time: float, distance: float) -> float:
        """What correcting a mean for the start may be off by, over ``r`` relaxation times.

        The correction is ``(1 − e^{−r})/r`` of the distance, and as uncertain as the curvature.
        """
        relaxations = self.curvature_share(clip) * min(max(time, SHORTEST), LONGEST)
        return self.curvature_uncertainty(clip) * distance * -math.expm1(-relaxations) / relaxations

    def curvature_uncertainty(self, clip: float, caution: float = 1.0) -> float:
        """About the share of the curvature that is not known, once the clip has changed it unevenly."""
        uneven = caution * math.sqrt(self._inequality(clip))
        return min(1 - self.curvature_share(clip), uneven) + NOISE

    def best_clip(self, time: Callable[[float], float], distance: float = 0.0) -> float:
        """The largest clip with the smallest predicted error; ``time`` is what each buys.

        While all rows lose weight, a smaller clip buys as much more time as it makes the path slower.
        """
        errors = [self.error(clip, time(clip), distance) for clip in CLIPS]
        return max(clip for clip, error in zip(CLIPS, errors, strict=True) if error <= _TIE * min(errors))
