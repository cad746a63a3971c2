"""Scores of outputs: those that know the mechanism, and those learned from half of the outputs.

The former are likelihood ratios of a path, noise used twice, and the differing row's loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.accounting.langevin.sensitivity import batch_factor
from private_mcmc.auditing.confidence import FloatArray
from private_mcmc.auditing.mechanism import DataSet, Pair, Score, length, present_slots
from private_mcmc.domains.columns import blank
from private_mcmc.kernels.gradient.clipped import schedule_gradient
from private_mcmc.kernels.gradient.clipping import whitening
from private_mcmc.model import RowModel
from private_mcmc.schedule import Schedule

# Steps this far apart are compared for noise that was used twice.
_MOST_LAGS = 64


class Side(NamedTuple):
    """One hypothesis: rows in their slots, which slots hold one, and which do besides the differing row's."""

    columns: dict[str, jax.Array]
    present: jax.Array
    others: jax.Array


# A row and its weight: zero where the data set lacks it.
WeightedRow = tuple[dict[str, jax.Array], jax.Array]


class Terms(NamedTuple):
    """Of every step, ``−|x_{k+1} − E x_{k+1}|²/(4γ)`` without and with the differing row, and the residual.

    The residual ``(x_{k+1} − E x_{k+1})/√(2γ)`` is with the row.
    """

    without: jax.Array
    including: jax.Array
    residual: jax.Array


class ChainAttacks:
    """Attacks on the released states of ``schedule``, whose chains start at ``start``, shape ``(p,)``.

    Compiled once; the data sets of a pair are arguments.
    """

    def __init__(self, model: RowModel, schedule: Schedule, start: FloatArray) -> None:
        self._model, self._schedule, self._start = model, schedule, start
        self._known = schedule.batch is None
        self._of_paths = jax.jit(self._path_scores)
        self._of_losses = jax.jit(self._losses)

    def __call__(self, pair: Pair) -> dict[str, Score]:
        """Scores by name, larger where the second data set is likelier."""
        sides = self._sides(pair)
        rows = [self._row(side) for side in sides]

        def of_path(name: str) -> Score:
            return self._on_states(lambda theta: self._of_paths(theta, *sides)[name])

        scores = {"loss of the row": self._on_states(lambda theta: self._of_losses(theta, *rows))}
        if self._schedule.release == "path":
            known = ["likelihood ratio", "noise used twice"]
            names = known if self._known else [_window_name(size) for size in self._windows()]
            scores |= {name: of_path(name) for name in names}
        return scores

    def _sides(self, pair: Pair) -> tuple[Side, Side]:
        places = pair.differing(self._schedule.adjacency)
        one, two = (
            _side(self._model, self._schedule.num_rows, data, place)
            for data, place in zip((pair.first, pair.second), places, strict=True)
        )
        return one, two

    def _row(self, side: Side) -> WeightedRow:
        """The differing row, or any one with weight zero."""
        weight = jnp.sum(side.present) - jnp.sum(side.others)
        place = int(np.argmax(np.asarray(side.present & ~side.others)))
        return {name: column[place] for name, column in side.columns.items()}, weight

    def _losses(self, theta: jax.Array, first: WeightedRow, second: WeightedRow) -> jax.Array:
        """``v(θ, d) − v(θ, d')`` summed over released states: membership inference by the row's own loss."""

        def loss(state: jax.Array, row: dict[str, jax.Array], weight: jax.Array) -> jax.Array:
            return jnp.where(weight > 0, self._model.row_loss(state, row), 0.0)

        states = theta.reshape(theta.shape[0], -1, self._model.dim)
        return jax.vmap(jax.vmap(lambda t: loss(t, *first) - loss(t, *second)))(states).sum(axis=-1)

    def _windows(self) -> tuple[int, ...]:
        """Numbers of steps over which a batch might be kept: powers of two, and the whole run."""
        steps = self._schedule.num_steps
        return tuple(sorted({1, steps, *(2**power for power in range(1, 12) if 2**power < steps)}))

    def _path_scores(self, theta: jax.Array, first: Side, second: Side) -> dict[str, jax.Array]:
        """Every attack on paths ``(runs, chains, steps, p)``, from each step's law under both data sets.

        *Likelihood ratio*: ``Σ_k log p'(x_{k+1} | x_k) − log p(x_{k+1} | x_k)``, each step Gaussian given the
        last state and the batch. With every row at every step, or batches in turn, and noise ``2γM`` no test
        of the path can beat it (Neyman, Pearson). With random batches the differing row is in with
        probability ``q`` and out otherwise, all others in with weight ``q``, drawn anew for every so many
        steps: one step as declared, more as a fault might have it. Other noise and projections are left out
        of the formula. *Noise used twice*: under the true data set two steps would have left equal
        residuals; which data set brings two of them closer together?
        """
        change = whitening(self._schedule.preconditioner, self._model.dim)
        u = change.from_parameter(theta)
        origin = jnp.broadcast_to(change.from_parameter(jnp.asarray(self._start)), u[..., :1, :].shape)
        before = jnp.concatenate([origin, u[..., :-1, :]], axis=-2)
        one, two = (self._terms(before, u, side) for side in (first, second))
        if not self._known:
            return {
                _window_name(size): self._mixture(two, size) - self._mixture(one, size)
                for size in self._windows()
            }
        ratio = (two.including - one.including).sum(axis=(-1, -2))
        return {"likelihood ratio": ratio, "noise used twice": _nearest(one) - _nearest(two)}

    def _terms(self, before: jax.Array, after: jax.Array, side: Side) -> Terms:
        model, schedule = self._model, self._schedule
        change = whitening(schedule.preconditioner, model.dim)
        gradient = schedule_gradient(model, change, schedule)
        prior = jax.grad(lambda u: model.neg_log_prior(change.to_parameter(u)))
        share, factor = self._share(), batch_factor(schedule)
        rows = gradient.prepare(side.columns, side.present)

        def of_step(u: jax.Array, then: jax.Array, gamma: jax.Array, k: jax.Array) -> Terms:
            common_rows = gradient.total(u, rows._replace(present=rows.present & side.others))
            everyone = gradient.total(u, rows)
            others = prior(u) + schedule.temper * share * factor * common_rows
            row = schedule.temper * factor * (everyone - common_rows)
            apart = then - u + gamma * jnp.stack([others, others + row])
            without, including = -jnp.sum(apart**2, axis=-1) / (4 * gamma)
            return Terms(without, including, apart[1] / jnp.sqrt(2 * gamma))

        gammas = jnp.asarray(schedule.step_sizes)
        of_path = jax.vmap(of_step, (0, 0, 0, 0))
        steps = jnp.arange(schedule.num_steps)
        return jax.vmap(jax.vmap(lambda b, a: of_path(b, a, gammas, steps)))(before, after)

    def _mixture(self, terms: Terms, size: int) -> jax.Array:
        """Log density of paths whose batches are drawn for ``size`` steps at a time, up to a constant."""
        steps = self._schedule.num_steps
        pairs = jnp.stack([terms.without, terms.including], axis=-1)
        padded = jnp.pad(pairs, [(0, 0), (0, 0), (0, -steps % size), (0, 0)])
        kept = padded.reshape(*padded.shape[:2], -1, size, 2).sum(axis=-2)
        share = self._share()
        weights = jnp.log(jnp.asarray([max(1 - share, 0.0), share]))
        return jax.scipy.special.logsumexp(weights + kept, axis=-1).sum(axis=(-1, -2))

    def _share(self) -> float:
        """Probability that a row is in a step's batch, which is 1 where it is known to be."""
        batch = self._schedule.batch
        if batch is None or self._known:
            return 1.0
        return batch.rate if batch.rate is not None else (batch.size or 0) / self._schedule.num_rows

    def _on_states(self, of_runs: Callable[[jax.Array], jax.Array]) -> Score:
        """A score of flat outputs from a function of states; what is not finite becomes finite."""
        kept = -1 if self._schedule.release != "path" else self._schedule.num_steps
        shape = self._schedule.num_chains, kept, self._model.dim

        def score(outputs: FloatArray) -> FloatArray:
            with jax.enable_x64(True):
                values = of_runs(jnp.asarray(outputs.reshape(len(outputs), *shape)))
            return np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64)), -1e30, 1e30)

        return score


def _window_name(size: int) -> str:
    return "likelihood ratio" if size == 1 else f"likelihood ratio, batches kept for {size} steps"


def _side(model: RowModel, slots: int, data: DataSet, place: int | None) -> Side:
    present = present_slots(data, slots)
    others = present.copy()
    if place is not None:
        others[place] = False
    missing = slots - length(data)

    def filled(column: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.concatenate([column, np.zeros((missing, *column.shape[1:]), column.dtype)])

    with jax.enable_x64(True):
        columns = {
            name: jnp.asarray(filled(blank(np.asarray(data[name]), present[: length(data)])))
            for name, _ in model.rows.items
        }
        projected = model.rows.project(columns)
        return Side(projected, jnp.asarray(present), jnp.asarray(others))


def _nearest(terms: Terms) -> jax.Array:
    """Log distance of the two closest residuals of a run, all its chains' steps in a row."""
    residuals = terms.residual.reshape(terms.residual.shape[0], -1, terms.residual.shape[-1])
    count = residuals.shape[1]
    closest = [
        jnp.min(jnp.linalg.norm(residuals[:, lag:] - residuals[:, :-lag], axis=-1), axis=-1)
        for lag in range(1, min(count - 1, _MOST_LAGS) + 1)
    ]
    if not closest:
        return jnp.zeros(residuals.shape[0])
    return jnp.log(jnp.min(jnp.stack(closest), axis=0) + 1e-12)


_MOST_SQUARED = 40
_NEWTON_STEPS = 25


def linear(first: FloatArray, second: FloatArray) -> Score:
    """The direction ``S^{-1}(x̄_2 − x̄_1)``, ``S`` the pooled covariance: best for Gaussians that share it."""
    centre, scale = _standards(first, second)
    one, two = (first - centre) / scale, (second - centre) / scale
    pooled = (np.cov(one, rowvar=False) + np.cov(two, rowvar=False)).reshape(one.shape[1], -1) / 2
    ridge = 1e-9 * np.eye(len(pooled))
    direction = np.linalg.lstsq(pooled + ridge, two.mean(0) - one.mean(0), rcond=None)[0]
    return lambda outputs: (outputs - centre) / scale @ direction


def logistic(first: FloatArray, second: FloatArray) -> Score:
    """Log density ratio by logistic regression on the outputs and (up to 40 of them) their squares."""
    centre, scale = _standards(first, second)

    def features(outputs: FloatArray) -> FloatArray:
        # Bounded, so that one far output cannot decide the fit.
        z = np.clip((outputs - centre) / scale, -6.0, 6.0)
        squares = [z**2, np.abs(z)] if z.shape[1] <= _MOST_SQUARED else []
        return np.concatenate([np.ones((len(z), 1)), z, *squares], axis=1)

    inputs = np.concatenate([features(first), features(second)])
    labels = np.concatenate([np.zeros(len(first)), np.ones(len(second))])
    weights = np.zeros(inputs.shape[1])
    ridge = 1e-3 * np.eye(len(weights))
    for _ in range(_NEWTON_STEPS):
        # Damped weights keep the Newton matrix from vanishing on separable data.
        probability = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        curvature = np.maximum(probability * (1 - probability), 1e-6)
        gradient = inputs.T @ (labels - probability) - ridge @ weights
        step = np.linalg.solve((inputs * curvature[:, None]).T @ inputs + ridge, gradient)
        length = float(np.linalg.norm(step))
        weights = weights + step * min(1.0, 5.0 / max(length, 1e-300))
        if length < 1e-6:
            break
    return lambda outputs: features(outputs) @ weights


LEARNED = {"linear direction": linear, "logistic density ratio": logistic}


def _standards(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centre and spread of every output, resistant to heavy tails; constant outputs have spread 1."""
    both = np.concatenate([first, second])
    low, middle, high = np.quantile(both, (0.1, 0.5, 0.9), axis=0)
    spread = np.where(high > low, (high - low) / 2.5, both.std(axis=0))
    return middle, np.where(spread > 0, spread, 1.0)
