"""How far rows' gradients reach, how their influence is bounded, and what the bound costs.

Clipping a slope ``ψ'(η, y)`` at ``c`` makes its expectation under the model differ from zero, and the
posterior's mode drifts by many posterior sds when rows are many; where gradients grow with the parameters,
as in networks and products of latents, the chain runs away. A factor ``min(1, c/max_y|ψ'(η, y)|)`` bounds
the slope too, and does not depend on the outcome: at the true parameter the expectation stays zero
(conditionally unbiased bounded influence: Künsch, Stefanski, Carroll 1989).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.special import softmax

from private_mcmc.domains.rows import project_rows
from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import people
from private_mcmc.planning.facts import Facts, Metric
from private_mcmc.planning.outcomes import CENTRE, Likelihood
from private_mcmc.planning.stages import Array, CompletedStage, QueryStage, Row
from private_mcmc.potential.potential import RowTerm
from private_mcmc.potential.rowwise import at_each, of_rows
from private_mcmc.release import Family, Sums, SumsPlan, plan_sums
from private_mcmc.system import blas_of_one_thread
from private_mcmc.target import Adjacency

# Cells are geometric in a row's influence over the typical norm; the first and the last are open.
_LEAST, _RATIO, CELLS = 0.25, 64 ** (1 / 18), 32
MIDDLES = _LEAST * _RATIO ** (np.arange(CELLS) - 0.5)
CLIPS = tuple(float(clip) for clip in np.geomspace(0.7, 60.0, 40))
# Counts below so many noise sds are taken for noise: fewer next to a cell that is not. One false row in a
# hundred, in an outer cell, would count for most of the curvature.
_ALONE, _BESIDE = 5.5, 2.5
_LEAST_SHARE = 1e-3
# The square of what weights cost if the model is right is taken so many times: once more for a wrong model,
# whose mode they move, and more the more rows there are. On 22 tables these two chose the clips of least
# error, 0.99 of that expected (``python -m benchmarks.misfit``). Nonlinear effects may cost 40.
_WITH_MISFIT, _ROWS_THAT_SHOW_MISFIT = 2.0, 50_000


def cell_of(influence: jax.Array) -> jax.Array:
    """The cell of a row's influence: an integer from 0 to ``CELLS − 1``."""
    position = jnp.log(jnp.maximum(influence, 1e-300) / _LEAST) / math.log(_RATIO)
    return jnp.clip(jnp.floor(jnp.nan_to_num(position)) + 1, 0, CELLS - 1).astype(int)


@dataclass(frozen=True, eq=False)
class Reach:
    """Released counts of rows by the length of their gradient over the typical one, and what clips cost.

    Attributes:
        counts: of all rows, or persons.
        num_rows: how many there may be.
        adjacency: under all but ``"replace_one"`` some of these may be empty slots.
        tail: about how many are in each cell.
        lengths: of public rows under the model, over their root mean square, where it tells their outcomes.
        weights: of these, their sum is 1.
        aligned: the share of what the clip takes from lengths that moves the mean score; 0 of weighted rows,
            of which nothing is beyond the clip.
    """

    counts: Sums
    num_rows: int
    adjacency: Adjacency = "replace_one"
    tail: Array = field(default_factory=partial(np.zeros, CELLS))
    lengths: Array = field(default_factory=partial(np.zeros, 1))
    weights: Array = field(default_factory=partial(np.ones, 1))
    aligned: float = 0.0

    @cached_property
    def significant(self) -> Array:
        """The counts that are no noise, ``(CELLS,)``."""
        kept, significant = np.zeros(CELLS), False
        for cell, count in enumerate(self.counts.values[0]):
            significant = bool(count > (_BESIDE if significant else _ALONE) * self.counts.noise_sd)
            kept[cell] = count if significant else 0.0
        return kept

    @property
    def hidden(self) -> bool:
        """Whether noise hides where most rows are, of those that are there: those counted and two sds."""
        there, values = float(self.num_rows), self.counts.values
        if self.adjacency != "replace_one":
            noise = 2 * self.counts.noise_sd * math.sqrt(values.size)
            there = min(max(float(np.sum(values)), 0.0) + noise, there)
        return float(self.significant.sum()) < there / 2

    @property
    def mean_square(self) -> float:
        """Of the influence: 1 where it is that of slopes, and the model right."""
        return float((self.significant * MIDDLES**2).sum()) / max(float(self.significant.sum()), 1.0)

    def curvature_share(self, clip: float) -> float:
        """``E[ω]``: the share of the curvature that rows of weight ``ω = min(1, clip/influence)`` keep."""
        return max(self._moment(clip, 1), _LEAST_SHARE)

    def bias(self, clip: float) -> float:
        """Error that the clip adds to the mean, in posterior sds: of weights, and of what it takes besides.

        With weights ``ω`` the estimate has variance ``A^{-1}BA^{-1}``, ``A = Σωψ''xxᵀ``, ``B = Σω²ψ''xxᵀ``.
        With all of them 1 it is efficient, so that the two differ by the difference of their variances: about
        ``E[ω²]/E[ω]² − 1``. The mode of a model that is a little wrong moves with the weights as much again,
        and more so the more rows there are.
        """
        share = self.curvature_share(clip)
        inequality = max(self._moment(clip, 2) / share**2 - 1, 0.0)
        misfit = _WITH_MISFIT + self.num_rows / _ROWS_THAT_SHOW_MISFIT
        centred = self.num_rows * float(self.weights @ np.maximum(self.lengths - clip, 0.0))
        taken = np.maximum(MIDDLES - clip, 0.0)
        # Of a skewed law all that is taken is on one side, where the model's, that the centre allows for, has
        # two; of rows far beyond the clip no more than what is left of them.
        excess = max(float(self.tail @ taken) - centred, float(self.tail @ np.minimum(taken, clip)))
        moved = self.aligned * excess / math.sqrt(self.num_rows) / share
        return math.hypot(math.sqrt(inequality * misfit), moved)

    def _moment(self, clip: float, power: int) -> float:
        """``E[ω^power]`` over the curvature."""
        information = self.significant * MIDDLES**2
        total = float(information.sum())
        weights = np.minimum(1.0, clip / MIDDLES) ** power
        return float((information * weights).sum()) / total if total > 0 else 1.0


def weighted_model(
    reading: RowModel, outcomes: Mapping[str, jax.Array], root: ArrayLike, clip: float | jax.Array
) -> RowModel:
    """The model whose rows have the gradient ``min(1, C / max_y ‖Aᵀ∇v(θ, x, y)‖) ∇v``.

    The maximum is over ``outcomes``, shape ``(values, …)`` by name; ``root`` is ``A``, ``clip`` is ``C``. The
    loss's value means nothing, and rows are no longer functions of an affine predictor.
    """
    score = reading.row_slope

    def weighted(theta: jax.Array, row: Row) -> jax.Array:
        fixed = jax.lax.stop_gradient(theta)
        gradients = at_each(lambda outcome: score(fixed, {**row, **outcome}), dict(outcomes))
        largest = jnp.max(jnp.linalg.norm(gradients @ jnp.asarray(root, dtype=gradients.dtype), axis=-1))
        weight = jnp.minimum(1.0, clip / jnp.maximum(largest, 1e-30))
        return jnp.dot(jax.lax.stop_gradient(weight * score(fixed, row)), theta)

    return replace(reading, term=RowTerm(weighted, reading.rows, reading.unit))


@lru_cache(maxsize=8)
def centred_model(reading: RowModel) -> RowModel:
    """The model whose rows have the gradient ``∇v − a`` with the column ``a`` of each."""

    def loss(theta: jax.Array, row: Row) -> jax.Array:
        own = {name: column for name, column in row.items() if name != CENTRE}
        return jnp.dot(jax.lax.stop_gradient(reading.row_slope(theta, own) - row[CENTRE]), theta)

    return replace(reading, term=RowTerm(loss, reading.rows, reading.unit))


# The derived column that carries the largest slope of a row, ``C/‖Aᵀx‖``, to its loss.
SLOPE_CAP = "_slope_cap"


@lru_cache(maxsize=8)
def weighted_slopes(likelihood: Likelihood) -> tuple[RowModel, Callable[..., dict[str, jax.Array]]]:
    """As :func:`weighted_model`, of one affine predictor ``η = x·θ + o`` still, and the column that it reads.

    A row's slope ``ψ'(η, y)`` is multiplied by ``min(1, c/max_y|ψ'(η, y)|)``; ``c = C/‖Aᵀx‖`` is a column
    that a function of ``A``, ``C`` and the row gives.
    """
    reading, ((name, values),) = likelihood.reading, likelihood.outcomes.items()
    if (predictor := reading.predictor) is None:
        raise TypeError("the model has no affine predictor")
    slope = predictor.slope

    def loss(eta: jax.Array, row: Row) -> jax.Array:
        eta, own = eta.reshape(()), {column: row[column] for column in predictor.reads}
        each = at_each(lambda value: slope(eta, {**own, name: value}), jnp.asarray(values))
        weight = jnp.minimum(1.0, row[SLOPE_CAP] / jnp.maximum(jnp.max(jnp.abs(each)), 1e-300))
        return jnp.asarray(jax.lax.stop_gradient(weight * slope(eta, own)) * eta)

    def cap(root: ArrayLike, clip: ArrayLike, row: Row) -> dict[str, jax.Array]:
        norm = jnp.linalg.norm(predictor.designs(row)[0] @ jnp.asarray(root))
        return {SLOPE_CAP: jnp.asarray(clip / jnp.maximum(norm, 1e-300))}

    weighted = replace(predictor, unknown=loss, reads=predictor.reads | {SLOPE_CAP})
    return replace(reading, term=RowTerm(weighted, reading.rows)), cap


REACH = "reach of rows"
# Of the squared budget: of gradients few are long, and noise may pass for them; weights need less.
_REACH_SHARE, _WEIGHTS_SHARE = 0.08, 0.01
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


def reach_share(facts: Facts) -> float:
    """Of the squared budget, for counts."""
    return _WEIGHTS_SHARE if facts.likelihood.few else _REACH_SHARE


def typical_length(facts: Facts, metric: Metric) -> float:
    """Root mean square length of a row's, or person's, gradient in ``metric``, as the model expects it."""
    return math.sqrt(metric.trace / (facts.temper * facts.num_rows))


def counts_reach(facts: Facts, theta: Array, metric: Metric) -> QueryStage | None:
    """How many persons have how long a gradient at ``theta``, or ``None`` where noise would hide it."""
    mechanism = counts_plan(facts)
    if mechanism is None:
        return None
    root = metric.root / typical_length(facts, metric)
    cell = _cell_of(facts.reading, facts.likelihood)
    return QueryStage(REACH, mechanism, partial(cell, np.asarray(theta), root))


def public_counts(facts: Facts) -> tuple[CompletedStage, ...]:
    """The counts, without noise, of synthetic rows at draws of the prior.

    Of weights alone, which rest on no outcome: synthetic outcomes are not the model's. Without them errors
    in 580 runs of Bernoulli models were 1.2 (ε = 10) to 2.5 times (ε = 1) those predicted, by medians.
    """
    if not facts.likelihood.few or counts_plan(facts) is None:
        return ()
    stages = [one for at in facts.references if (one := counts_reach(facts, at, facts.metric)) is not None]
    with blas_of_one_thread(), jax.enable_x64(True):
        cells = np.ravel([np.asarray(of_rows(one.of_row, facts.rows)) for one in stages])
    counts = np.bincount(cells, minlength=CELLS) * np.float64(facts.num_rows / len(cells))
    return (CompletedStage(stages[0], stages[0].released(counts)),)


def counts_plan(facts: Facts) -> SumsPlan | None:
    """What releases how many rows, or persons, are in each cell."""
    found = plan_sums(
        math.sqrt(reach_share(facts)) * facts.budget,
        (Family("influence", CELLS),),
        num_rows=facts.num_rows,
        adjacency=facts.adjacency,
        unit=facts.reading.unit,
        what="counts by cell",
    )
    return None if facts.num_rows < _FEWEST * found.noise.sd else found


def reach_of(facts: Facts, completed: CompletedStage) -> Reach | None:
    """What the counts say, or ``None`` where noise hides most persons."""
    found = Reach(completed.counts, facts.num_rows, facts.adjacency)
    if found.hidden:
        return None
    if facts.likelihood.few:
        return found
    tail = np.array(found.significant)
    last = min(int(np.flatnonzero(tail)[-1]), CELLS - 2)
    beyond = completed.counts.values[0, last + 1 :]
    curves = tail[last] * _FALLS[:, None] ** np.arange(1, len(beyond) + 1)
    off = np.square((beyond - curves) / completed.counts.noise_sd).sum(axis=1) / 2
    tail[last + 1 :] = softmax(-_BELIEVED * off) @ curves
    lengths, weights, stage = np.zeros(1), np.ones(1), completed.stage
    if facts.likelihood.has_centre and isinstance(stage, QueryStage) and isinstance(stage.of_row, partial):
        with jax.enable_x64(True):
            drawn = project_rows(facts.reading.rows, people(facts.reading.rows, _PUBLIC_ROWS, 0))
            each = of_rows(partial(facts.likelihood.lengths, *stage.of_row.args), drawn)
        far, shares = np.ravel(each[0]), np.ravel(each[1]) / _PUBLIC_ROWS
        if 0 < (square := float(shares @ far**2)) < math.inf:
            lengths, weights = far / math.sqrt(square), shares
            tail[_FURTHEST * lengths.max() < MIDDLES] = 0.0
    aligned = min(1.0, _ALIGNED / math.sqrt(facts.reading.dim))
    return replace(found, tail=tail, lengths=lengths, weights=weights, aligned=aligned)


@lru_cache(maxsize=8)
def _cell_of(reading: RowModel, likelihood: Likelihood) -> Callable[[ArrayLike, ArrayLike, Row], jax.Array]:
    """One function for every parameter and metric, so that it is compiled once."""
    score = reading.row_slope

    def cell(theta: ArrayLike, root: ArrayLike, person: Row) -> jax.Array:
        at = jnp.asarray(theta)
        gradients = score(at, person)[None]
        if likelihood.few:
            gradients = at_each(lambda outcome: score(at, {**person, **outcome}), dict(likelihood.outcomes))
        lengths = jnp.linalg.norm(gradients @ jnp.asarray(root), axis=1)
        # A sum that is no number is clipped as a long one.
        return cell_of(jnp.max(jnp.nan_to_num(lengths, nan=jnp.inf)))

    return cell
