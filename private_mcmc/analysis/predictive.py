"""What released draws say of one row: the distribution of its outcome under each draw, of the row alone.

Effects of groups that the formula names are those of the draws; of each person's own effects, which are never
released, every draw has one from their law.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import betainc, gammaincc

from private_mcmc.data.design import THRESHOLDS, Design
from private_mcmc.data.effects import Array
from private_mcmc.data.families import STEPS
from private_mcmc.data.fields import identifier
from private_mcmc.errors import NotYetSupported
from private_mcmc.records import Fields, Record

# Draws that are enough for means of them, and that a record has room for.
MOST_DRAWS = 100
_HALVINGS = 40


@dataclass(frozen=True, eq=False)
class Predictive:
    """The law of the outcome of a row, under each of the ``draws`` of the model's sites.

    Raises:
        NotYetSupported: for fields whose missing values are summed over.
    """

    design: Design
    draws: Mapping[str, Array]

    def __post_init__(self) -> None:
        formula, schema = self.design.formula, self.design.schema
        if summed := [name for name in formula.fields if schema[name].missing == "marginal"]:
            raise NotYetSupported(
                f"fields {summed}: missing: marginal is not for checks and comparisons; fit with indicator."
            )

    @cached_property
    def whole(self) -> dict[str, Array]:
        """The draws, with effects of a person's own from their law."""
        count = len(next(iter(self.draws.values())))
        random = np.random.default_rng(count)
        own = (effect for effect in self.design.effects if effect.term.own)
        return {**self.draws, **{one.name: random.normal(size=(count, *one.shape)) for one in own}}

    def _given(self, row: Fields) -> Record:
        """What a line of the family table reads, ``(draws, …)``."""
        design = self.design
        profile = {
            **row,
            **{name: row[identifier(name)].astype(float) for name in design.formula.covariates},
        }
        # Everybody is one person of whom nothing else is known.
        profile |= {design.schema.person: 0.0}
        value = design.predictor(self.whole, profile, jnp)
        given: Record = {"eta": value, "mu": value, "dist": dist, "jnp": jnp, "jax": jax}
        given |= {name: jnp.asarray(each) for name, each in design.values(self.draws).items()}
        if design.thresholds:
            given[THRESHOLDS] = jnp.asarray(self.draws[THRESHOLDS])
        if design.formula.trials:
            given["trials"] = row[identifier(design.formula.trials)].astype(int)
        return given

    def law(self, row: Fields) -> Any:
        """NumPyro's distribution of the row's outcome, one for each draw."""
        # One of the family table's own lines, which models have too.
        return eval(self.design.family.likelihood, self._given(row))

    def hazards(self, row: Fields, time: Any) -> tuple[Any, Any]:
        """The log hazard at a time of each draw and the cumulative one until then, ``(draws,)``."""
        design, public = self.design, {"dist": dist, "jnp": jnp, "jax": jax, "longest": self.design.longest}
        moving = {name: each for name, each in self._given(row).items() if isinstance(each, jax.Array)}
        moving |= {"time": jnp.broadcast_to(time, moving["eta"].shape)}
        if STEPS in moving:
            public["cuts"] = jnp.asarray(design.formula.cuts)
            moving["hazards"] = jnp.pad(moving.pop(STEPS), [(0, 0), (1, 0)])
        moving = {
            name: jnp.broadcast_to(one, (len(moving["eta"]), *one.shape[1:])) for name, one in moving.items()
        }

        def of_draw(one: Record) -> tuple[Any, Any]:
            # Lines are of rows: here of one.
            given = public | one | {name: one[name][None] for name in ("eta", "time")}
            given["cumulative"] = eval(design.family.cumulative, given)
            return eval(design.family.log_hazard, given)[0], given["cumulative"][0]

        return jax.vmap(of_draw)(moving)

    def drawn(self, row: Fields, key: jax.Array) -> dict[str, Any]:
        """An outcome of the row under each draw, of the same chance for all: columns ``(draws,)``.

        Of a time to an event it is followed as long as the declaration allows.
        """
        formula = self.design.formula
        name = identifier(formula.outcome)
        if not formula.event:
            return {name: self.law(row).sample(key)}
        low, high = (jnp.log(end) for end in self.design.schema[formula.outcome].range)
        until = jax.random.exponential(key)

        def halved(_: int, ends: tuple[Any, Any]) -> tuple[Any, Any]:
            middle = (ends[0] + ends[1]) / 2
            later = self.hazards(row, jnp.exp(middle))[1] < until
            return jnp.where(later, middle, ends[0]), jnp.where(later, ends[1], middle)

        ends = tuple(jnp.broadcast_to(end, (len(next(iter(self.draws.values()))),)) for end in (low, high))
        time = jnp.exp(jax.lax.fori_loop(0, _HALVINGS, halved, ends)[1])
        seen = self.hazards(row, jnp.exp(high))[1] >= until
        return {name: time, identifier(formula.event): seen.astype(float)}

    def outcome(self, row: Fields) -> Any:
        """The row's own outcome."""
        value = row[identifier(self.design.formula.outcome)]
        return value.astype(int) if self.discrete else value.astype(float)

    @property
    def discrete(self) -> bool:
        """Whether outcomes are whole numbers."""
        return self.design.family.kind in ("two", "count", "levels", "ordered")

    def probability(self, row: Fields) -> Any:
        """Of an outcome with two levels that it is the second, averaged over draws."""
        return jnp.mean(self.law(row).mean)

    def log_density(self, row: Fields) -> Any:
        """The log of the density of the row's own outcome, averaged over draws."""
        if self.design.formula.event:
            hazard, cumulative = self.hazards(row, self.outcome(row))
            found = row[identifier(self.design.formula.event)] * hazard - cumulative
        else:
            found = self.law(row).log_prob(self.outcome(row))
        return jax.scipy.special.logsumexp(found) - jnp.log(len(found))

    def pit(self, row: Fields, uniform: Any) -> Any:
        """``F(y−) + V(F(y) − F(y−))`` of the averaged distribution; uniform where the model is right.

        Of a time that was cut off ``F(y) + V(1 − F(y))``: uniform where what cuts off says nothing else.
        """
        if self.design.formula.event:
            below = 1 - jnp.mean(jnp.exp(-self.hazards(row, self.outcome(row))[1]))
            seen = row[identifier(self.design.formula.event)]
            return below + (1 - seen) * uniform * (1 - below)
        law, value = self.law(row), self.outcome(row)
        above = jnp.mean(_cdf(law, value))
        if not self.discrete:
            return above
        below = jnp.where(value > 0, jnp.mean(_cdf(law, jnp.maximum(value - 1, 0))), 0.0)
        return below + uniform * (above - below)


def _cdf(law: Any, value: Any) -> Any:
    if isinstance(law, dist.CategoricalProbs | dist.CategoricalLogits):
        return jnp.cumsum(law.probs, axis=-1)[:, value]
    if isinstance(law, dist.BinomialLogits | dist.BinomialProbs):
        trials = law.total_count
        inside = betainc(jnp.maximum(trials - value, 1e-6).astype(float), value + 1.0, 1 - law.probs)
        return jnp.where(value >= trials, 1.0, inside)
    if isinstance(law, dist.ZeroInflatedProbs):
        return law.gate + (1 - law.gate) * _cdf(law.base_dist, value)
    if isinstance(law, dist.HurdleProbs):
        zero, until = _cdf(law.base_dist, jnp.zeros_like(value)), _cdf(law.base_dist, value)
        return law.gate + (1 - law.gate) * (until - zero) / (1 - zero)
    if isinstance(law, dist.Poisson):
        return gammaincc(value + 1.0, law.rate)
    return law.cdf(value)


def thinned(draws: Mapping[str, Any]) -> dict[str, list[Any]]:
    """At most ``MOST_DRAWS`` draws of each site, evenly spaced: plain lists, for a record."""
    found = {name: np.asarray(values, dtype=np.float64) for name, values in draws.items()}
    count = len(next(iter(found.values())))
    chosen = np.unique(np.linspace(0, count - 1, min(count, MOST_DRAWS)).astype(int))
    return {name: values[chosen].tolist() for name, values in found.items()}
