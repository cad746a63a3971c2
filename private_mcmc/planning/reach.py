"""How far persons reach: counts of persons by the length of their summed gradient, and the clip for them.

A plan's synthetic persons have outcomes as the model says, each row's by itself. Real counts vary more, and
rows of one person are alike, so that sums of rows are several times as long, and a clip that was chosen on
synthetic persons takes from many of them, mostly on one side. How long the sums are is bought by a Gaussian
histogram; the run's clip follows what it says, and so do the widths of the draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc import accounting
from private_mcmc.model import RowModel
from private_mcmc.planning.estimates import Metric
from private_mcmc.planning.facts import Facts
from private_mcmc.planning.influence_counts import (
    CELLS,
    CLIPS,
    MIDDLES,
    InfluenceCounts,
    cell_of,
    people_counted,
)
from private_mcmc.planning.stages import Array, CompletedStage, CountsStage, Row
from private_mcmc.release import Counts, CountsPlan, plan_counts

REACH = "reach of persons"
REACH_SHARE = 0.04  # of the squared budget
# Fewer persons than this for each sd of a count's noise, and it would hide most cells.
_FEWEST = 40.0
# Beyond the last cell that surely holds persons each holds this share of the one before, or less where the
# last two fell faster: lengths whose tail falls with about their cube.
_FALL = 0.5
# What a clip takes from persons' sums has this over √p of its length in common, as for rows that are alike.
_ALIGNED = 1.25


@dataclass(frozen=True, eq=False)
class Reach:
    """What released counts say of the lengths of persons' sums, over the typical one that a plan expects.

    Attributes:
        persons: about how many are in each cell.
        num_persons: how many there are in all.
        dim: number of parameters.
    """

    persons: Array
    num_persons: int
    dim: int

    def share(self, clip: float) -> float:
        """Mean over persons of ``min(1, clip/length)``: about the curvature that the clip leaves."""
        kept = float((self.persons * np.minimum(1.0, clip / MIDDLES)).sum())
        return max(kept / max(float(self.persons.sum()), 1.0), 1e-3)

    def bias(self, clip: float) -> float:
        """Error that the clip adds to posterior means, in posterior sds."""
        excess = float((self.persons * np.maximum(MIDDLES - clip, 0.0)).sum())
        aligned = min(1.0, _ALIGNED / math.sqrt(self.dim))
        return aligned * excess / math.sqrt(self.num_persons) / self.share(clip)

    def noise(self, clip: float, time: float) -> float:
        """Error of the means of a run of ``time`` that privacy's noise makes, in posterior sds."""
        return math.sqrt(2 / time) / self.share(clip)

    def best_clip(self, time: Callable[[float], float]) -> float:
        """The clip with the smallest predicted error; ``time`` is what each buys."""
        return min(CLIPS, key=lambda clip: math.hypot(self.bias(clip), self.noise(clip, time(clip))))


def have_reach(facts: Facts) -> bool:
    """Whether rows are persons whose sums are clipped, without latents that tell how alike their rows are."""
    return facts.reading.unit is not None and facts.reading.own is None


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


def _mechanism(facts: Facts) -> CountsPlan | None:
    found = plan_counts(math.sqrt(REACH_SHARE) * facts.budget, cells=CELLS, adjacency=facts.adjacency)
    if facts.num_rows < _FEWEST * found.noise.sd:
        return None
    return replace(found, statement=accounting.of_unit(found.statement, facts.reading.unit))


def reach_of(facts: Facts, completed: CompletedStage) -> Reach | None:
    """What the counts say, or ``None`` where noise hides most persons."""
    if not isinstance(completed.value, Counts):
        raise TypeError("persons are counted by the lengths of their sums")
    there = people_counted(completed.value, facts.num_rows, facts.adjacency)
    found = InfluenceCounts(completed.value, facts.num_rows, 0.0, people=there)
    if found.hidden:
        return None
    last = found.occupied - 2
    persons = np.array(found.tail)
    before = max(persons[max(last - 2, 0)], 1.0)
    fall = min(_FALL, math.sqrt(persons[last] / before))
    persons[last + 1 :] = persons[last] * fall ** np.arange(1, len(persons) - last)
    return Reach(persons, facts.num_rows, facts.dim)


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
