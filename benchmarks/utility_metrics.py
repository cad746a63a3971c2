"""How far draws are from a reference posterior: curator-side numbers, never released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist, pdist

from benchmarks.utility_reference import Reference

Array = npt.NDArray[np.float64]

# Fewer draws than these have no useful sds and tail quantiles.
_FEWEST_FOR_SPREAD = 20
_MOST_FOR_ENERGY = 500


@dataclass(frozen=True)
class Score:
    """One run against the reference; ``None`` where the run released too few draws to say.

    Attributes:
        rms: root mean square over parameters of (mean − reference mean)/reference sd.
        sd_ratio: root mean square over parameters of sd/reference sd.
        coverage_50: share of parameters whose central 50 % interval holds the reference mean.
        coverage_90: the same at 90 %.
        energy: energy distance of the draws from the reference, coordinates in reference sds.
    """

    rms: float
    sd_ratio: float | None
    coverage_50: float | None
    coverage_90: float | None
    energy: float


@dataclass(frozen=True)
class Summary:
    """A metric over runs: its value and the standard error of that value."""

    value: float
    error: float


def score(draws: Array, reference: Reference) -> Score:
    """Compare ``draws``, shape ``(k, p)``, with the reference; a point estimate has ``k = 1``."""
    standard = (draws - reference.mean) / reference.sd
    enough = len(draws) >= _FEWEST_FOR_SPREAD
    return Score(
        rms=float(np.sqrt(np.mean(standard.mean(axis=0) ** 2))),
        sd_ratio=float(np.sqrt(np.mean(standard.std(axis=0, ddof=1) ** 2))) if enough else None,
        coverage_50=coverage(draws, reference.mean, 0.5) if enough else None,
        coverage_90=coverage(draws, reference.mean, 0.9) if enough else None,
        energy=energy_distance(standard, (reference.draws - reference.mean) / reference.sd),
    )


def coverage(draws: Array, truth: Array, level: float) -> float:
    """Share of coordinates of ``truth`` inside the central ``level`` interval of ``draws``."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return float(np.mean((low <= truth) & (truth <= high)))


def energy_distance(first: Array, second: Array) -> float:
    """``2E|X−Y| − E|X−X'| − E|Y−Y'|``, estimated without bias from independent draws, thinned evenly.

    Székely and Rizzo (2013). The estimate may be slightly negative; a single draw is a point mass.
    """
    x, y = _thinned(first), _thinned(second)
    return float(2.0 * np.mean(cdist(x, y)) - _mean_distance(x) - _mean_distance(y))


def _thinned(draws: Array) -> Array:
    count = min(len(draws), _MOST_FOR_ENERGY)
    return draws[np.linspace(0, len(draws) - 1, count).round().astype(int)]


def _mean_distance(draws: Array) -> float:
    return float(np.mean(pdist(draws))) if len(draws) > 1 else 0.0


METRICS = tuple(field.name for field in fields(Score))


def summarise(metric: str, values: Sequence[float | None]) -> Summary | None:
    """Value and standard error over runs: a root mean square for errors, else a mean.

    ``None`` where no run has the metric; the error is NaN for a single run.
    """
    known = np.array([value for value in values if value is not None])
    if len(known) == 0:
        return None
    if metric != "rms":
        return Summary(float(known.mean()), _standard_error(known))
    value = float(np.sqrt(np.mean(known**2)))
    # First-order propagation through the square root.
    return Summary(value, _standard_error(known**2) / (2.0 * value) if value > 0 else 0.0)


def _standard_error(values: Array) -> float:
    if len(values) < 2:
        return math.nan
    return float(values.std(ddof=1) / math.sqrt(len(values)))
