"""Possible outcomes of rows, persons and factors: losses at each of them, and the information of rows.

Everything is drawn with fixed keys from the declared row domain, so that it depends on nothing private.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.domains import Binary, Rows
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.errors import NotYetSupported
from private_mcmc.model import RowModel
from private_mcmc.model.integrated import OwnLatents
from private_mcmc.model.synthetic import has_factors, outcome_columns
from private_mcmc.potential.rowwise import at_each
from private_mcmc.records import Record
from private_mcmc.system import RUN_ONCE

Columns: TypeAlias = Record
_MOST_OUTCOMES = 257
FEW_OUTCOMES = 8


def candidates(rows: Rows, names: tuple[str, ...]) -> Columns:
    """Possible values of the outcome columns: all of them, an even grid, or public random ones."""
    with jax.enable_x64(True):
        if len(names) == 1 and rows.columns[names[0]].event_shape == ():
            domain = rows.columns[names[0]]
            low, high = (float(bound) for bound in domain.interval())
            if math.isfinite(high - low):
                whole = np.issubdtype(domain.dtype, np.integer)
                count = min(int(high - low) + 1, _MOST_OUTCOMES) if whole else _MOST_OUTCOMES
                even = np.linspace(low, high, count)
                return {names[0]: domain.project(np.unique(even.round()) if whole else even)}
        drawn = rows.synthetic(2, _MOST_OUTCOMES)
        return {name: drawn[name] for name in names}


_TRIED = 6
_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class EventTimes:
    """The columns of a censored time.

    Attributes:
        time: name of the column of the time.
        event: name of the column that tells whether the event was seen.
    """

    time: str
    event: str

    def slope(
        self, score: Callable[[jax.Array, Record], jax.Array], theta: jax.Array, row: Record
    ) -> jax.Array:
        """``d ∇log λ(t)`` of the row's own time ``t`` and flag ``d``, ``(p,)``.

        Over times that the model draws its squares have the mean of those of the score: ``Λ − ∫log λ dN`` has
        the information ``E∫∇log λ ∇log λᵀ dN`` (Andersen, Borgan, Gill, Keiding 1993, VI.1). It is bounded
        where the score, which adds up a hazard, is not.
        """
        seen = jnp.asarray(row[self.event])
        sides = ({**row, self.event: jnp.full_like(seen, flag)} for flag in (0, 1))
        without, at = (score(theta, side) for side in sides)
        return jnp.asarray(seen * (without - at))

    def drawn(self, reading: RowModel, theta: jax.Array, row: Record, share: jax.Array) -> Record:
        """The row with a time that the model draws: where ``e^{−Λ}`` falls to ``share``, or cut off.

        ``Λ``, what the loss of no event until then adds, is followed over the declared range.
        """
        low, high = (float(end) for end in reading.rows.columns[self.time].interval())
        flags, times = row[self.event], low + (high - low) * jnp.linspace(0.0, 1.0, _MOST_OUTCOMES) ** 3
        none = row | {self.event: jnp.zeros_like(flags)}
        hazard = at_each(lambda time: reading.row_loss(theta, none | {self.time: time}), times)
        hazard, wanted = hazard - hazard[0], -jnp.log(share)
        time = jnp.interp(wanted, hazard, times).astype(row[self.time].dtype)
        return row | {self.time: time, self.event: (wanted < hazard[-1]).astype(flags.dtype)}


def event_times(reading: RowModel) -> EventTimes | None:
    """The columns of ``reading``, of one row, that are a time to an event and its flag, if two are."""
    if not any(site.family == "Unit" or "Censored" in site.family for site in reading.observations):
        return None
    columns = reading.rows.columns
    flags = [name for name, domain in columns.items() if isinstance(domain, Binary)]
    times = [
        name
        for name, domain in columns.items()
        if domain.event_shape == ()
        and np.issubdtype(domain.dtype, np.floating)
        and np.all(np.isfinite(domain.interval()))
    ]
    pairs = ((time, event) for event in flags for time in times)
    return next((EventTimes(*pair) for pair in pairs if _is_hazard(reading, *pair)), None)


def _is_hazard(reading: RowModel, time: str, event: str) -> bool:
    with jax.enable_x64(True):
        rows = reading.rows.synthetic(5, _TRIED)
        low, high = (float(end) for end in reading.rows.columns[time].interval())
        # Inside, where no end of the domain and no public cut is likely to be.
        share = np.linspace(0.137, 0.861, _TRIED)
        thetas = jnp.asarray(0.4 * np.random.default_rng(0).normal(size=(_TRIED, reading.dim)))

        def sides(theta: jax.Array, row: Record, at: jax.Array) -> tuple[jax.Array, jax.Array]:
            def loss(time_: jax.Array, seen: int) -> jax.Array:
                flag = jnp.asarray(seen, jnp.asarray(row[event]).dtype)
                return jnp.asarray(reading.row_loss(theta, {**row, time: time_, event: flag}))

            rate = jnp.exp(loss(at, 0) - loss(at, 1))
            return jax.grad(loss)(at, 0), rate

        every = jax.jit(partial(at_each, sides), compiler_options=RUN_ONCE)
        slope, rate = map(np.asarray, every(thetas, rows, low + (high - low) * share))
    with np.errstate(invalid="ignore"):
        return bool(np.all(rate > 0) and np.all(np.abs(slope - rate) <= _TOLERANCE * (1 + rate)))


# Where an outcome has many values: quantiles in the middle of strata, and the strata's widths.
_EDGES = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 1.0)
_QUANTILES, _WIDTHS = zip(*(((low + high) / 2, high - low) for low, high in pairwise(_EDGES)), strict=True)
_LARGEST = 1e100


# The derived column that carries a row's centre. Nodes are quantiles of ever better approximations of its
# outcome's law, at probabilities with evenly spaced logits; rounds of reweighting.
CENTRE = "_centre"
_LEVELS = 1 / (1 + np.exp(-np.linspace(-14.0, 14.0, 129)))
_ZOOMS, _ROUNDS = 3, 12


def _nodes(values: jax.Array, below: jax.Array) -> jax.Array:
    """Quantiles of a law that has probability ``below`` up to the end of each value's cell."""
    inner = (values[1:] + values[:-1]) / 2
    edges = jnp.concatenate([values[:1], inner, values[-1:]])
    nodes = jnp.interp(jnp.asarray(_LEVELS), jnp.concatenate([jnp.zeros(1), below]), edges)
    return jnp.round(nodes).astype(values.dtype) if jnp.issubdtype(values.dtype, jnp.integer) else nodes


@dataclass(frozen=True, eq=False)
class Likelihood:
    """A row's loss with every possible outcome put in place of the row's own; ``temper`` is its weight."""

    reading: RowModel
    outcomes: Columns
    temper: float = 1.0
    times: EventTimes | None = None

    @property
    def of_one(self) -> bool:
        """Whether the outcome is one number, whose law given the row is the model's."""
        # Of factors no probabilities are known, and of persons all rows together take too many.
        one = len(self.outcomes) == 1 and next(iter(self.outcomes.values())).ndim == 1
        return type(self) is Likelihood and self.times is None and one

    @property
    def few(self) -> bool:
        """Whether it takes so few values that all can be gone through."""
        return self.of_one and len(next(iter(self.outcomes.values()))) <= FEW_OUTCOMES

    def synthetic(self, thetas: ArrayLike, rows: Columns) -> list[tuple[ArrayLike, Columns]]:
        """Parameters ``(k, p)`` and public rows to ask information of: with times of each parameter's own.

        Outcomes that rows have by chance are none that a parameter explains, and events far out in a law's
        tail say hundreds of times as much.
        """
        if (times := self.times) is None:
            return [(thetas, rows)]
        shares = np.random.default_rng(4).uniform(size=len(rows[times.time]))
        draw = jax.jit(lambda at, *each: at_each(partial(times.drawn, self.reading, at), *each))
        each = np.asarray(thetas)
        return [(np.tile(at, (len(each), 1)), draw(jnp.asarray(at), rows, shares)) for at in each]

    def information(self, thetas: ArrayLike, root: ArrayLike, row: Columns) -> jax.Array:
        """``V`` with ``VᵀV ≈ w Aᵀ mean_j E_y[∇v ∇vᵀ] A`` at ``thetas``, ``(states, p)``; ``(vectors, p)``.

        The expectation is over outcomes of the model given the row's covariates: the row's own outcome is
        not used. ``root`` is ``A``.
        """
        vectors = at_each(lambda theta: self._vectors(theta, row), jnp.asarray(thetas))
        flat = vectors.reshape(-1, vectors.shape[-1]) * jnp.sqrt(self.temper / len(vectors))
        white = flat @ jnp.asarray(root)
        # 0 for what has no square in float64.
        return jnp.where(jnp.abs(white) < _LARGEST, white, 0.0)

    @property
    def has_centre(self) -> bool:
        """Whether it takes many values."""
        return self.of_one and not self.few

    def centre(
        self, theta: ArrayLike, root: ArrayLike, clip: ArrayLike, row: Columns
    ) -> dict[str, jax.Array]:
        """``a`` with ``E_θ h(∇v − a) = 0``, ``h`` the clip at ``C`` in the metric of ``root``; ``(p,)``.

        Of all functions with this bound whose mean is zero under the model ``h(∇v − a)`` has the most of the
        score in it (Hampel 1968; given covariates: Künsch, Stefanski, Carroll 1989). The row's own outcome is
        not used.
        """
        shares, scores, _ = self._law(jnp.asarray(theta), row)
        root = jnp.asarray(root)
        white = scores @ root

        def step(_: int, centre: jax.Array) -> jax.Array:
            length = jnp.linalg.norm(white - centre @ root, axis=1)
            kept = shares * jnp.minimum(1.0, clip / jnp.maximum(length, 1e-300))
            return kept @ scores / jnp.sum(kept)

        return {CENTRE: jax.lax.fori_loop(0, _ROUNDS, step, jnp.zeros(scores.shape[1]))}

    def lengths(self, theta: ArrayLike, root: ArrayLike, row: Columns) -> tuple[jax.Array, jax.Array]:
        """Of a row's gradients in the metric of ``root``, and their probabilities, both ``(k,)``.

        Those of the first and the last outcome that was declared are the last two, with none.
        """
        shares, scores, ends = self._law(jnp.asarray(theta), row)
        lengths = jnp.linalg.norm(jnp.concatenate([scores, ends]) @ jnp.asarray(root), axis=1)
        return lengths, jnp.concatenate([shares, jnp.zeros(2)])

    def _law(self, theta: jax.Array, row: Columns) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Probabilities ``(k,)`` of outcomes given the row, scores ``(k, p)``, and those of the ends."""
        ((name, values),), score = self.outcomes.items(), self.reading.row_slope

        # A loop, so that it is compiled once.
        def zoomed(_: int, last: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            shares = self._shares(theta, row, name, last[0])
            return _nodes(last[0], jnp.cumsum(shares)), last[0], shares

        nodes = _nodes(values, jnp.cumsum(self._shares(theta, row, name, values)))
        _, nodes, shares = jax.lax.fori_loop(0, _ZOOMS, zoomed, (nodes, nodes, jnp.zeros(len(nodes))))
        every = jnp.concatenate([nodes, jnp.stack([values[0], values[-1]])])
        scores = jnp.nan_to_num(at_each(lambda value: score(theta, {**row, name: value}), every))
        # Their mean is zero; what is left of it is the sum's error.
        return shares, scores[:-2] - shares @ scores[:-2], scores[-2:]

    def _shares(self, theta: jax.Array, row: Columns, name: str, values: jax.Array) -> jax.Array:
        """Probabilities of the cells around ``values``, which ascend."""
        ends = 0.5 if jnp.issubdtype(values.dtype, jnp.integer) else 0.0
        gaps = jnp.diff(values) / 2.0
        widths = jnp.concatenate([gaps, jnp.full(1, ends)]) + jnp.concatenate([jnp.full(1, ends), gaps])
        logits = self._logits(theta, row, {name: values})
        return jax.nn.softmax(jnp.where(widths > 0, logits + jnp.log(jnp.maximum(widths, 1e-300)), -1e30))

    def _logits(self, theta: jax.Array, row: Columns, outcomes: Columns) -> jax.Array:
        losses = at_each(lambda outcome: self.reading.row_loss(theta, row | outcome), outcomes)
        return jnp.where(jnp.isfinite(losses), -losses, -1e30)

    def score(self, theta: jax.Array, row: Columns) -> tuple[jax.Array, jax.Array]:
        """``E_y ∇v``, which is 0 unless declared outcomes are not all that are possible, and ``E_y‖∇v‖²``."""
        score = self.reading.row_slope
        gradients = at_each(lambda outcome: score(theta, row | outcome), self.outcomes)
        shares = jax.nn.softmax(self._logits(theta, row, self.outcomes))
        return shares @ gradients, shares @ jnp.sum(gradients**2, axis=1)

    def _vectors(self, theta: jax.Array, row: Columns) -> jax.Array:
        """``U``, ``(vectors, p)``, with ``UᵀU`` the row's information at one ``θ``."""
        if self.times is not None:
            return self.times.slope(self.reading.row_slope, theta, row)[None]
        probabilities = jax.nn.softmax(self._logits(theta, row, self.outcomes))
        if self.few:
            chosen, weights = self.outcomes, probabilities
        else:
            index = jnp.searchsorted(jnp.cumsum(probabilities)[:-1], jnp.asarray(_QUANTILES))
            chosen = {name: values[index] for name, values in self.outcomes.items()}
            weights = jnp.asarray(_WIDTHS)
        score = self.reading.row_slope
        if self.reading.predictor is not None:
            # Of outcomes that a declared range cuts off squared scores say less than curvature does, or more.
            design = self.reading.predictor.designs(row)[0]

            def curvature(outcome: Columns) -> jax.Array:
                _, moved = jax.jvp(lambda at: score(at, row | outcome), (theta,), (design,))
                return jnp.asarray(moved @ design / jnp.maximum(design @ design, 1e-300) ** 2)

            mean = jnp.maximum(weights @ at_each(curvature, chosen), 0.0)
            return jnp.asarray(jnp.sqrt(mean) * design[None])
        gradients = at_each(lambda outcome: score(theta, row | outcome), chosen)
        return jnp.asarray(jnp.sqrt(weights)[:, None] * gradients)


# Of more parameters a root of every row's curvature costs too much.
_MOST = 32


@dataclass(frozen=True, eq=False)
class FactorLikelihood(Likelihood):
    """A row's term with another value of its whole-numbered columns in place of its own.

    For a likelihood that is a ``numpyro.factor``, where no density of an outcome is known, and for outcomes
    of several numbers, which no grid is fine enough for.
    Information is curvature, which needs no outcome; of an event and the time until it, see ``EventTimes``.
    """

    def _vectors(self, theta: jax.Array, row: Columns) -> jax.Array:
        """Of ``[∇²v(θ)]₊``, the row's own outcome included."""
        if self.times is not None:
            return super()._vectors(theta, row)
        hessian = jnp.nan_to_num(jax.jacfwd(self.reading.row_slope)(theta, row), posinf=0.0, neginf=0.0)
        values, vectors = jnp.linalg.eigh(hessian)
        return jnp.asarray(jnp.sqrt(jnp.maximum(values, 0.0))[:, None] * vectors.T)


@dataclass(frozen=True, eq=False, kw_only=True)
class PersonLikelihood(Likelihood):
    """Of persons: what ``each``, of one row, says of each of theirs."""

    each: Likelihood

    def information(self, thetas: ArrayLike, root: ArrayLike, row: Columns) -> jax.Array:
        """The rows' own, one after the other: what a person says is the sum of it."""
        rows = {name: column for name, column in row.items() if name != OWN_ROWS}
        own = at_each(partial(self.each.information, thetas, root), rows)
        there = jnp.where(row[OWN_ROWS][:, None, None] > 0, own, 0.0)
        return there.reshape(-1, own.shape[-1])


_DRAWS = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnLatentsLikelihood(FactorLikelihood):
    """Of persons whose own latents ``own`` are integrated out: ``reading`` is that of persons.

    A person's curvature is negative for many outcomes, so that its positive part says half as much again.
    """

    own: OwnLatents

    def _vectors(self, theta: jax.Array, row: Columns) -> jax.Array:
        """Scores at outcomes drawn from the model given the covariates, with fixed keys."""
        keys, score = jax.random.split(jax.random.key(11), _DRAWS), self.reading.row_slope
        scores = at_each(lambda key: score(theta, self._drawn(theta, row, key)), keys)
        return jnp.asarray(scores / math.sqrt(_DRAWS))

    def _drawn(self, theta: jax.Array, person: Columns, key: jax.Array) -> Columns:
        """The person with other outcomes in all rows: its latents are drawn, and rows given them."""
        first, second = jax.random.split(key)
        atoms, log_weights = self.own.atoms(theta, {})
        chosen = jax.random.categorical(first, log_weights)
        latents = {name: values[chosen] for name, values in atoms.items()}

        def of_row(row: Columns, key: jax.Array) -> Columns:
            losses = at_each(lambda outcome: self.own.term(theta, latents, row | outcome), self.outcomes)
            chosen = jax.random.categorical(key, jnp.where(jnp.isfinite(losses), -losses, -1e30))
            return {name: options[chosen] for name, options in self.outcomes.items()}

        rows = {name: column for name, column in person.items() if name != OWN_ROWS}
        count = len(next(iter(rows.values())))
        return {**person, **at_each(of_row, rows, jax.random.split(second, count))}


@functools.lru_cache(maxsize=8)
def likelihood_of(reading: RowModel, temper: float) -> Likelihood:
    """Losses of rows, or of the rows of persons, at possible outcomes; one for a model, as programs are."""
    single = reading.each or reading
    if not (names := outcome_columns(single)):
        raise NotYetSupported(
            f"sites {[site.name for site in single.observations]}: plans need an outcome, which is a column "
            "that is observed, or that a numpyro.factor reads and its predictors do not. Without one, give "
            "PrivateMCMC a kernel and numbers of your own."
        )
    outcomes = candidates(single.rows, names)
    times = event_times(single)
    if reading.own is not None:
        # No law of censored times is known: of them it is curvature.
        if times is not None:
            return FactorLikelihood(reading, outcomes, temper)
        return OwnLatentsLikelihood(reading, outcomes, temper, own=reading.own)
    of_factors = (has_factors(single) or not Likelihood(single, outcomes).of_one) and single.dim <= _MOST
    each = (FactorLikelihood if of_factors else Likelihood)(single, outcomes, temper, times)
    if reading.unit is None:
        return each
    return PersonLikelihood(single, outcomes, temper, each=each)
