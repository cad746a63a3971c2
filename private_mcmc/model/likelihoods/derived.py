"""Proved constants of NumPyro's censored families: of a censored value only an end is known.

A row's loss is ``−log S(y)`` (right) or ``−log F(y)`` (left) where it is censored, else minus the log
density. All of them are convex in the predictor of the four bases here, and no bound of a censored row's
curvature is above that of a row that was seen. NumPyro's own ``log(1 − F)`` is flat where ``F`` rounds
to 1; what runs is ``log S`` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import jax
import jax.numpy as jnp

from private_mcmc.model.ir.interval import Interval
from private_mcmc.model.likelihoods.continuous import POSITIVE, REAL, happened, log_ndtr, log_rate
from private_mcmc.model.likelihoods.family import Entry, Recognised, Recogniser

Given: TypeAlias = Mapping[str, jax.Array]
# ``(η, y, parameters of the base) ↦`` the log of the cumulative hazard, or the standardised value.
_Inner: TypeAlias = Callable[[jax.Array, jax.Array, Given], jax.Array]


def _survived(log_hazard: jax.Array) -> jax.Array:
    """``z``: of right-censored times; the linear part of the density's loss is dropped."""
    return jnp.exp(log_hazard)


def _times(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    return jnp.log(y) + log_rate(eta, given)


def _weibull_times(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    return given["concentration"] * (jnp.log(y) - log_rate(eta, given))


def _standardised(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    return (y - eta) / given["scale"]


def _log_standardised(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    return _standardised(eta, jnp.log(y), given)


def _above(z: jax.Array) -> jax.Array:
    """``−log Φ(−z)``, of a curvature in (0, 1)."""
    return -log_ndtr(-z)


def _below(z: jax.Array) -> jax.Array:
    return -log_ndtr(z)


def _rule(
    base: Recogniser, inner: _Inner, end: Callable[[jax.Array], jax.Array], positive: bool
) -> Recogniser:
    def rule(link: str, observed: Interval, others: Mapping[str, Interval]) -> Recognised | None:
        found = base(link, observed, {_bare(name): value for name, value in others.items()})
        if found is None or (positive and not observed.lowest > 0):
            return None

        def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
            own = {_bare(name): value for name, value in given.items()}
            hidden = own["censored"] > 0
            # A side that is not taken may not overflow: its slope is no number, and neither is 0 times that.
            one, other = (
                jax.tree.map(lambda leaf, here=here: jnp.where(here, leaf, 1.0), (eta, y, own))
                for here in (hidden, ~hidden)
            )
            return jnp.where(hidden, end(inner(*one)), found.loss(*other))

        family = replace(found.family, name=f"censored {found.family.name}")
        return Recognised(replace(family, why=f"{family.why}; where censored ψ'' has the same bound"), loss)

    return rule


def _bare(name: str) -> str:
    return name.removeprefix("base.")


# By family and its parameter: what its censored loss is a function of, and whether values must be positive.
_BASES: Mapping[tuple[str, str], tuple[_Inner, bool]] = {
    ("Exponential", "rate"): (_times, True),
    ("Weibull", "scale"): (_weibull_times, True),
    ("Normal", "loc"): (_standardised, False),
    ("LogNormal", "loc"): (_log_standardised, True),
}


def _entry(key: tuple[str, str], right: bool) -> Entry:
    plain = {**POSITIVE, **REAL}[key]
    inner, positive = _BASES[key]
    ends = (_above, _below) if key[1] == "loc" else (_survived, happened)
    needs = ("censored", *(f"base.{name}" for name in plain.needs))
    return Entry(_rule(plain.rule, inner, ends[0 if right else 1], positive), needs)


CENSORED: Mapping[tuple[str, str], Entry] = {
    (f"{side}CensoredDistribution({name})", f"base.{parameter}"): _entry((name, parameter), side == "Right")
    for name, parameter in _BASES
    for side in ("Left", "Right")
}
