"""How far rows reach: counts of their gradients' lengths, for any model, and what a clip takes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.special import softmax

from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import people
from private_mcmc.planning.facts import Facts, Metric
from private_mcmc.planning.influence import (
    MIDDLES,
    InfluenceCounts,
    cell_of,
    counts_of_influence,
    people_counted,
)
from private_mcmc.planning.stages import Array, CompletedStage, CountsStage, Row, of_rows
from private_mcmc.release import SumsPlan

REACH = "reach of rows"
REACH_SHARE = 0.08  # of the squared budget
# Fewer persons than this for each sd of a count's noise, and it would hide most cells.
_FEWEST = 40.0
# What a clip takes from rows has this over √p of its length in common, as for rows that are alike.
_ALIGNED = 1.25
# Beyond the last cell that surely holds rows each holds one of these shares of the one before, as likely as
# the noise of the counts makes it, or less surely: tails are no geometric series.
_FALLS, _BELIEVED = np.linspace(0.02, 0.98, 49), 0.5
# Public rows that tell how far rows reach under the model; none reaches further than theirs, with any outcome
# that was declared, by this factor.
_PUBLIC_ROWS, _FURTHEST = 64, 1.5


def have_reach(facts: Facts) -> bool:
    """Whether gradients are clipped, as those of few outcomes are not, and no latents of persons' own tell
    how alike their rows are."""
    return not facts.likelihood.few and facts.reading.own is None


def assumed(facts: Facts) -> tuple[str, ...]:
    """What a plan takes for granted of persons' rows, in words."""
    unit = facts.reading.unit
    if unit is None or not have_reach(facts):
        return ()
    follow = (
        "the run counts how far persons' sums reach, and unless noise hides these counts it clips and widens "
        "its draws by what they say"
        if _mechanism(facts) is not None
        else "these are too few persons to count how far their sums reach, and intervals are too narrow then"
    )
    return (
        f"The prediction takes rows of one {unit.name!r} for independent, given the columns, and outcomes "
        "to vary no more than the model says. Where they are more alike or vary more, errors are "
        f"larger: {follow}. A latent for each person, or a family that varies more, is the remedy.",
    )


def typical_length(facts: Facts, metric: Metric) -> float:
    """Root mean square length of a row's, or person's, gradient in ``metric``, as the model expects it."""
    return math.sqrt(metric.trace / (facts.temper * facts.num_rows))


def counts_reach(facts: Facts, theta: Array, metric: Metric) -> CountsStage | None:
    """How many persons have how long a gradient at ``theta``, or ``None`` where noise would hide it."""
    mechanism = _mechanism(facts) if have_reach(facts) else None
    if mechanism is None:
        return None
    root = metric.root / typical_length(facts, metric)
    return CountsStage(REACH, mechanism, partial(_cell_of(facts.reading), np.asarray(theta), root))


def _mechanism(facts: Facts) -> SumsPlan | None:
    gdp = math.sqrt(REACH_SHARE) * facts.budget
    found = counts_of_influence(gdp, facts.num_rows, facts.adjacency, facts.reading.unit)
    return None if facts.num_rows < _FEWEST * found.noise.sd else found


@dataclass(frozen=True, eq=False)
class Reach:
    """Released counts of rows by the length of their gradient over the typical one.

    Attributes:
        counts: of all rows, or persons.
        tail: about how many are in each cell.
        lengths: of public rows under the model, over their root mean square, where it tells their outcomes.
        weights: of these, their sum is 1.
        aligned: the share of what the clip takes from lengths that moves the mean score.
    """

    counts: InfluenceCounts
    tail: Array
    lengths: Array
    weights: Array
    aligned: float

    def share(self, clip: float) -> float:
        """Of the curvature that the clip leaves."""
        return self.counts.curvature_share(clip)

    def bias(self, clip: float) -> float:
        """Error of the clip in posterior sds: of unequal weights, and of what it takes beyond the model."""
        centred = self.counts.num_rows * float(self.weights @ np.maximum(self.lengths - clip, 0.0))
        excess = max(float(self.tail @ np.maximum(MIDDLES - clip, 0.0)) - centred, 0.0)
        moved = self.aligned * excess / math.sqrt(self.counts.num_rows) / self.share(clip)
        return math.hypot(self.counts.bias(clip), moved)


def reach_of(facts: Facts, completed: CompletedStage) -> Reach | None:
    """What the counts say, or ``None`` where noise hides most persons."""
    there = people_counted(completed.counts, facts.num_rows, facts.adjacency)
    found = InfluenceCounts(completed.counts, facts.num_rows, 0.0, people=there)
    if found.hidden:
        return None
    last, tail = found.occupied - 2, np.array(found.tail)
    beyond = completed.counts.values[0, last + 1 :]
    curves = tail[last] * _FALLS[:, None] ** np.arange(1, len(beyond) + 1)
    off = np.square((beyond - curves) / completed.counts.noise_sd).sum(axis=1) / 2
    tail[last + 1 :] = softmax(-_BELIEVED * off) @ curves
    lengths, weights, stage = np.zeros(1), np.ones(1), completed.stage
    if facts.likelihood.has_centre and isinstance(stage, CountsStage) and isinstance(stage.cell, partial):
        with jax.enable_x64(True):
            drawn = facts.reading.rows.project(people(facts.reading.rows, _PUBLIC_ROWS, 0))
            each = of_rows(partial(facts.likelihood.lengths, *stage.cell.args), drawn)
        lengths, weights = (np.ravel(one) for one in each)
        weights = weights / _PUBLIC_ROWS
        lengths = lengths / math.sqrt(float(weights @ lengths**2))
        tail[_FURTHEST * lengths.max() < MIDDLES] = 0.0
    return Reach(found, tail, lengths, weights, min(1.0, _ALIGNED / math.sqrt(facts.dim)))


@lru_cache(maxsize=8)
def _cell_of(reading: RowModel) -> Callable[[ArrayLike, ArrayLike, Row], jax.Array]:
    """One function for every parameter and metric, so that it is compiled once."""
    score = jax.grad(reading.row_loss)

    def cell(theta: ArrayLike, root: ArrayLike, person: Row) -> jax.Array:
        gradient = score(jnp.asarray(theta), person)
        length = jnp.linalg.norm(gradient @ jnp.asarray(root))
        # A sum that is no number is clipped as a long one.
        return cell_of(jnp.nan_to_num(length, nan=jnp.inf))

    return cell
