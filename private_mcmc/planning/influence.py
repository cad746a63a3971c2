"""How a row's influence on the gradient is bounded, and what the bound costs.

Clipping a slope ``ψ'(η, y)`` at ``c`` makes its expectation under the model differ from zero, and the
posterior's mode drifts by many posterior sds when rows are many; where gradients grow with the parameters,
as in networks and products of latents, the chain runs away. A factor ``min(1, c/max_y|ψ'(η, y)|)`` bounds
the slope too, and does not depend on the outcome: at the true parameter the expectation stays zero
(conditionally unbiased bounded influence: Künsch, Stefanski, Carroll 1989).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.optimize import isotonic_regression
from scipy.special import softmax

from private_mcmc.domains import Rows
from private_mcmc.model import Predictor, RowModel
from private_mcmc.model.synthetic import people
from private_mcmc.planning.estimates import NOISE
from private_mcmc.planning.outcomes import Columns, with_outcomes
from private_mcmc.planning.stages import Array, CountsStage, Row, Stage, of_rows
from private_mcmc.potential.potential import RowTerm
from private_mcmc.records import RUN_ONCE
from private_mcmc.release import Family, Sums, SumsPlan, plan_sums
from private_mcmc.target import Adjacency, Unit

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
# The square of what weights cost if the model is right is taken so many times: once more for a wrong model,
# whose mode they move, and more the more rows there are. On 22 tables these two chose the clips of least
# error, 0.99 of that expected (``python -m benchmarks.misfit``). Nonlinear effects may cost 40.
_WITH_MISFIT, _ROWS_THAT_SHOW_MISFIT = 2.0, 50_000
# Synthetic people are of so many kinds of tables, so many of each.
_KINDS, _EACH = 4, 128


def cell_of(influence: jax.Array) -> jax.Array:
    """The cell of a row's influence: an integer from 0 to ``CELLS − 1``."""
    position = jnp.log(jnp.maximum(influence, 1e-300) / _LEAST) / math.log(_RATIO)
    return jnp.clip(jnp.floor(jnp.nan_to_num(position)) + 1, 0, CELLS - 1).astype(int)


def counts_of_influence(
    gdp: float, num_rows: int, adjacency: Adjacency, unit: Unit | None = None
) -> SumsPlan:
    """What releases how many rows, or persons, are in each cell, at a cost of ``gdp``-GDP."""
    family = Family("influence", CELLS)
    return plan_sums(gdp, (family,), num_rows=num_rows, adjacency=adjacency, unit=unit, what="counts by cell")


def people_counted(counts: Sums, num_rows: int, adjacency: Adjacency) -> float:
    """About how many rows are there, at most: those counted and two sds, where slots may be empty."""
    if adjacency == "replace_one":
        return float(num_rows)
    noise = 2 * counts.noise_sd * math.sqrt(counts.values.size)
    return min(max(float(np.sum(counts.values)), 0.0) + noise, float(num_rows))


@dataclass(frozen=True, eq=False)
class InfluenceCounts:
    """Released counts of rows by influence, of ``num_rows`` rows: what a clip keeps, and what it costs.

    ``skew``: the share of what rows lose beyond the clip that moves the mean; 0 where they lose weight.
    ``dispersion``: how much larger the squared slopes are than the model says.
    ``cells``: rows are in the first of so many.
    ``people``: how many of the rows are no empty slots, as far as that is known; all if left out.
    """

    counts: Sums
    num_rows: int
    skew: float
    dispersion: float = 1.0
    cells: int = CELLS
    people: float | None = None

    @cached_property
    def _significant(self) -> Array:
        kept, significant = np.zeros(CELLS), False
        for cell, count in enumerate(self.counts.values[0]):
            significant = bool(count > (_BESIDE if significant else _ALONE) * self.counts.noise_sd)
            kept[cell] = count if significant else 0.0
        return kept

    @cached_property
    def tail(self) -> Array:
        """The counts, made to fall beyond the fullest cell: a tail is more than its cells show.

        Counts times influence fall, so that the noise of the outermost cells, each of whose rows counts for
        a hundred others, is judged by all cells before them. On four tables of skewed outcomes (eight
        simulated runs each, ε = 1 and 3) errors were 0.23 to 0.77 times those with counts that fall.
        """
        counts = np.array(self.counts.values[0, : self.cells])
        peak = int(np.argmax(counts))
        scale = MIDDLES[peak : self.cells]
        falling = isotonic_regression(counts[peak:] * scale, weights=scale**-2, increasing=False).x / scale
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
        ``E[ω²]/E[ω]² − 1``. The mode of a model that is a little wrong moves with the weights as much again,
        and more so the more rows there are. Slopes that are clipped on one side lose at most their excess.
        """
        weighting = self._inequality(clip)
        # What scatters more than a model says has a mean, too, that it misses.
        weighting *= self.dispersion**2 * (_WITH_MISFIT + self.num_rows / _ROWS_THAT_SHOW_MISFIT)
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


Bound: TypeAlias = Literal["weights", "clip"]
# The derived column that carries the largest slope of a row, ``c = C/‖Aᵀx‖``, to its loss.
SLOPE_CAP = "_slope_cap"
_FEW = 8
# Where weights come first, they leave a typical slope this share of the clip or more.
_NEAR = 4.0


def weighted_model(
    reading: RowModel, outcomes: Mapping[str, jax.Array], root: ArrayLike, clip: float | jax.Array
) -> RowModel:
    """The model whose rows have the gradient ``min(1, C / max_y ‖Aᵀ∇v(θ, x, y)‖) ∇v``.

    The maximum is over ``outcomes``, shape ``(values, …)`` by name; ``root`` is ``A``, ``clip`` is ``C``. The
    loss's value means nothing, and rows are no longer functions of an affine predictor.
    """
    score = jax.grad(reading.row_loss)

    def weighted(theta: jax.Array, row: Row) -> jax.Array:
        fixed = jax.lax.stop_gradient(theta)
        gradients = jax.vmap(lambda outcome: score(fixed, {**row, **outcome}))(dict(outcomes))
        largest = jnp.max(jnp.linalg.norm(gradients @ jnp.asarray(root, dtype=gradients.dtype), axis=-1))
        weight = jnp.minimum(1.0, clip / jnp.maximum(largest, 1e-30))
        return jax.lax.stop_gradient(weight) * reading.row_loss(theta, row)

    return replace(reading, term=RowTerm(weighted, reading.rows, reading.unit))


@dataclass(frozen=True, eq=False)
class Influence:
    """The influence of rows with one affine predictor ``η = x·θ + o``: ``|ψ'(η, y)|·‖Aᵀx‖``.

    Attributes:
        model: the model as it was read.
        predictor: its one predictor.
        outcomes: possible values of the outcome column, by name.
    """

    model: RowModel
    predictor: Predictor
    outcomes: Mapping[str, np.ndarray]

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """How the influence may be bounded, the way to begin with first.

        By weights where outcomes are few. Else by whatever is predicted to err less: weights do no harm but
        count rows by the worst outcome that was declared. They come first where that is not far away.
        """
        if len(self._values) <= _FEW:
            return ("weights",)
        return ("weights", "clip") if self._reach <= _NEAR else ("clip", "weights")

    @cached_property
    def _reach(self) -> float:
        """The largest slope over a typical one, ``√ψ''``, where predictor and outcome are in the middle.

        Curvature is that of the middle outcome: at the ends, far from what the predictor says, that of heavy
        tails is negative.
        """
        if not self.symmetric:
            return math.inf
        middle, step = float(self._values[len(self._values) // 2]), 1e-6 * float(np.ptp(self._values))
        largest = float(np.abs(self._slopes(np.full(1, middle), self._values)).max())
        ahead, behind = self._slopes(middle + np.array([step, -step]), np.full(2, middle))
        return largest / math.sqrt(max(float(ahead - behind) / (2 * step), 1e-12))

    @cached_property
    def symmetric(self) -> bool:
        """Whether ``ψ'(η, η + d) = −ψ'(η, η − d)``, as for a location: what clips take then cancels."""
        if len(self._values) <= _FEW:
            return False
        span = float(np.ptp(self._values)) or 1.0
        # Within the ends, at which terms hold outcomes.
        shift = np.linspace(0.01, 0.25, 16) * span
        eta = np.linspace(-0.25, 0.25, 5)[:, None] * span + float(np.mean(self._values))
        if not np.issubdtype(self._values.dtype, np.floating):
            shift, eta = np.ceil(shift), eta.round()
        up, down = (self._slopes(eta, eta + sign * shift) for sign in (1.0, -1.0))
        with np.errstate(over="ignore"):
            return bool(np.allclose(up, -down, rtol=1e-6, atol=1e-9 * max(1.0, float(np.abs(up).max()))))

    def believed(self, bound: Bound) -> bool:
        """Whether the model's own slopes say enough of rows': of skewed outcomes people's are longer."""
        return bound == "weights" or self.symmetric

    @property
    def _name(self) -> str:
        return next(iter(self.outcomes))

    @property
    def _values(self) -> np.ndarray:
        return self.outcomes[self._name]

    @cached_property
    def _extreme(self) -> np.ndarray:
        """Outcomes among which the largest slope is found: the two ends, wherever it is at one of them."""
        if len(self._values) <= _FEW:
            return self._values
        ends = self._values[[0, -1]]
        eta = np.linspace(-8.0, 8.0, 33)[:, None]
        every, two = (np.abs(self._slopes(eta, some)).max(axis=-1) for some in (self._values, ends))
        return ends if np.all(two >= every * (1 - 1e-9)) else self._values

    def _slopes(self, eta: Array, outcomes: np.ndarray) -> Array:
        """``ψ'`` of one synthetic row with other predictors and outcomes: ``(…, outcomes)``."""
        return np.nan_to_num(self._of_outcomes(eta, outcomes, jax.grad(self.predictor.loss)))

    def _of_outcomes(
        self, eta: Array, outcomes: np.ndarray, function: Callable[[ArrayLike, Row], ArrayLike] | None = None
    ) -> Array:
        """``ψ``, or another function, of one synthetic row with other predictors and outcomes."""
        # The first one who asks may be tracing a step.
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            rows = self.model.rows
            row = jax.tree.map(lambda leaf: leaf[0], rows.project(rows.synthetic(0, 1)))
            dtype = row[self._name].dtype

            def of(eta: jax.Array, outcome: jax.Array) -> jax.Array:
                asked = self.predictor.loss if function is None else function
                return jnp.asarray(asked(eta, {**row, self._name: outcome.astype(dtype)}))

            each = jax.jit(jnp.vectorize(of))(*np.broadcast_arrays(eta, outcomes))
            return np.asarray(each, dtype=np.float64)

    @cached_property
    def largest_curvature(self) -> float:
        """The largest ``E[ψ''(η, y)]`` over outcomes of the model at ``η``, of one synthetic row."""
        values, ends = self._values, self._values[[0, -1]]
        eta = np.concatenate(
            [np.linspace(-8.0, 8.0, 65), np.linspace(float(ends.min()), float(ends.max()), 33)]
        )[:, None]
        step = 1e-5
        curvatures = (self._slopes(eta + step, values) - self._slopes(eta - step, values)) / (2 * step)
        logits = -self._of_outcomes(eta, values)
        expected = (softmax(logits, axis=1) * curvatures).sum(axis=1)
        return max(float(expected.max()), 1e-300)

    def largest_slope(self, eta: jax.Array, row: Row, bound: Bound = "weights") -> jax.Array:
        """``max_y |ψ'(η, y)|`` over the possible outcomes for weights, the row's own ``|ψ'|`` for a clip."""
        slope = jax.grad(self.predictor.loss)
        if bound == "clip":
            return jnp.abs(slope(eta, row))
        choices = jnp.asarray(self._extreme)
        each = jnp.abs(jax.vmap(lambda choice: slope(eta, {**row, self._name: choice}))(choices))
        # An outcome at which the model has no slope leaves rows no weight.
        return jnp.max(jnp.where(jnp.isnan(each), jnp.inf, each))

    @cached_property
    def weighted(self) -> RowModel:
        """The model of weighted slopes: its rows carry ``SLOPE_CAP``, and its loss's value means nothing."""

        def loss(eta: jax.Array, row: Row) -> jax.Array:
            eta = eta.reshape(())
            slope = jax.grad(self.predictor.loss)(eta, row)
            largest = jnp.maximum(self.largest_slope(eta, row), 1e-300)
            weight = jnp.minimum(1.0, row[SLOPE_CAP] / largest)
            return jnp.asarray(jax.lax.stop_gradient(weight * slope) * eta)

        several = self.predictor.only
        several = replace(several, unknown=loss, reads=several.reads | {SLOPE_CAP})
        return replace(self.model, term=RowTerm(several, self.model.rows))

    def slope_cap(self, root: ArrayLike, clip: ArrayLike, row: Row) -> dict[str, jax.Array]:
        """``C/‖Aᵀx‖``, the largest slope that keeps the row's gradient within the clip."""
        norm = jnp.linalg.norm(self.design(root, row))
        return {SLOPE_CAP: jnp.asarray(clip / jnp.maximum(norm, 1e-300))}

    def design(self, root: ArrayLike, row: Row) -> jax.Array:
        """``Aᵀx``, shape ``(p,)``."""
        return jnp.asarray(self.predictor.design(row) @ jnp.asarray(root))

    def curvature(self, temper: ArrayLike, theta: ArrayLike, root: ArrayLike, row: Row) -> jax.Array:
        """``√(w ψ''(η)) Aᵀx`` at ``θ``: second moments of such vectors are the data's Hessian."""
        second = jax.grad(jax.grad(self.predictor.loss))
        weight = jnp.sqrt(temper * jnp.maximum(second(self._eta(theta, row), row), 0.0))
        return jnp.asarray(weight * self.design(root, row))

    def _eta(self, theta: ArrayLike, row: Row) -> jax.Array:
        return self.predictor.design(row) @ jnp.asarray(theta) + self.predictor.offset(row)

    def cells(self, bound: Bound, theta: Array, root: Array) -> Callable[[Row], jax.Array]:
        """``row ↦`` the cell of ``‖Aᵀx‖`` times the largest slope at ``θ``: what bounds its gradient."""
        return partial(self._weights_cell if bound == "weights" else self._clip_cell, theta, root)

    def _weights_cell(self, theta: ArrayLike, root: ArrayLike, row: Row) -> jax.Array:
        return self._cell("weights", theta, root, row)

    def _clip_cell(self, theta: ArrayLike, root: ArrayLike, row: Row) -> jax.Array:
        return self._cell("clip", theta, root, row)

    def _cell(self, bound: Bound, theta: ArrayLike, root: ArrayLike, row: Row) -> jax.Array:
        largest = self.largest_slope(self._eta(theta, row), row, bound)
        return cell_of(jnp.asarray(jnp.linalg.norm(self.design(root, row)) * largest))


def expected_counts(influence: Influence, stage: Stage, count: float) -> Array:
    """How many of ``count`` synthetic people are in each cell of the stage, with outcomes of the model.

    A cell is that of a row's influence at a parameter and in a metric, which the stage's function is given.
    """
    if not (isinstance(stage, CountsStage) and isinstance(stage.cell, partial)):
        raise TypeError("the rows are counted by a function of a parameter, a metric and the row")
    theta, choices = np.asarray(stage.cell.args[0]), dict(influence.outcomes)
    with jax.enable_x64(True):
        rows, design, offset = _people(influence.predictor, influence.model.rows)
        logits = -np.asarray(losses(influence.predictor, choices, rows, design @ theta + offset))
        each = count / len(logits)
        rows, weights = with_outcomes(rows, choices, logits, each, 0)
        cells = of_rows(stage.cell, rows)
    return np.asarray(np.bincount(np.asarray(cells), weights, minlength=CELLS), dtype=np.float64)


@lru_cache(maxsize=8)
def _people(predictor: Predictor, domains: Rows) -> tuple[Columns, jax.Array, jax.Array]:
    kinds = [people(domains, _EACH, seed) for seed in range(_KINDS)]
    drawn = {name: np.concatenate([kind[name] for kind in kinds]) for name in kinds[0]}
    made: tuple[Columns, jax.Array, jax.Array] = laid_out(predictor, domains, drawn)
    return made


@partial(jax.jit, static_argnums=(0, 1), compiler_options=RUN_ONCE)
def laid_out(predictor: Predictor, domains: Rows, drawn: Columns) -> tuple[Columns, jax.Array, jax.Array]:
    """Rows in their domains, their designs and their offsets."""
    rows = domains.project(drawn)
    return rows, jax.vmap(predictor.design)(rows), jax.vmap(predictor.offset)(rows)


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def losses(
    predictor: Predictor, choices: Mapping[str, np.ndarray], rows: Columns, eta: jax.Array
) -> jax.Array:
    """Of every row with every outcome: ``(rows, values)``."""

    def of_row(eta: jax.Array, row: Columns) -> jax.Array:
        return jnp.asarray(jax.vmap(lambda choice: predictor.loss(eta, {**row, **choice}))(choices))

    return jnp.asarray(jax.vmap(of_row)(eta, rows))
