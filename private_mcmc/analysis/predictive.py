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
from private_mcmc.data.fields import identifier
from private_mcmc.errors import NotYetSupported
from private_mcmc.records import Fields, Record

# Draws that are enough for means of them, and that a record has room for.
MOST_DRAWS = 100


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
        if formula.event:
            raise NotYetSupported(
                f"outcome {formula.outcome!r}: checks and comparisons are not for times that may be cut off. "
                "Fit whether the event was seen until one time, a field of two levels, and check that."
            )
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

    def law(self, row: Fields) -> Any:
        """NumPyro's distribution of the row's outcome, one for each draw."""
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
        # One of the family table's own lines, which models have too.
        return eval(design.family.likelihood, given)

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
        found = self.law(row).log_prob(self.outcome(row))
        return jax.scipy.special.logsumexp(found) - jnp.log(len(found))

    def pit(self, row: Fields, uniform: Any) -> Any:
        """``F(y−) + V(F(y) − F(y−))`` of the averaged distribution; uniform where the model is right."""
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
