"""Proved constants of families that are made of others: mixtures, counts with extra zeros, censored values,
and rates ``c·log(1+e^η)``.

Of a softplus rate, ``s = log(1+e^η)``, ``σ = s'`` and ``h = −(log s)''``: ``σ ≤ s``, hence ``0 ≤ (log s)' =
σ/s ≤ 1``; with ``q = 1 − σ``, ``s = −log q``, ``h = σ(σ + q log q)/s²``. There ``0 ≤ σ + q log q ≤ σ²`` (from
``1 − 1/q ≤ log q ≤ q − 1``) and ``s ≥ 2(1−q)/(1+q)``, so ``0 ≤ h ≤ (1−q)(1+q)²/4 ≤ 8/27``: bounded where
``e^η`` is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from private_mcmc.model.ir.interval import Interval, up
from private_mcmc.model.likelihoods.continuous import (
    CENTRED,
    POSITIVE,
    REAL,
    SHARES,
    TRUNCATED,
    happened,
    log_ndtr,
    log_rate,
)
from private_mcmc.model.likelihoods.discrete import DISCRETE
from private_mcmc.model.likelihoods.family import (
    Bounds,
    Entry,
    Given,
    LikelihoodFamily,
    Recognised,
    Recogniser,
    recognised,
    times,
)

T = TypeVar("T")
_Key: TypeAlias = tuple[str, str]


def _without(prefix: str, values: Mapping[str, T]) -> dict[str, T]:
    return {name.removeprefix(prefix): value for name, value in values.items()}


_BEND = 8 / 27


def _softplus_family(name: str, weight: float, power: float) -> LikelihoodFamily:
    """``ψ = us − v log s``, ``0 ≤ u ≤ weight``, ``0 ≤ v ≤ power``: ``ψ'' = uσ(1−σ) + vh``."""
    return LikelihoodFamily(
        name=name,
        link="softplus",
        convex=True,
        score_bound=max(weight, power),
        curvature_bound=up(weight / 4 + times(power, _BEND)),
        why=f"ψ = us − v log s, s = log(1+e^η), u ≤ {weight:g}, v ≤ {power:g}: −v ≤ ψ' ≤ u, "
        "0 ≤ ψ'' ≤ u/4 + 8v/27",
    )


def _softplus_poisson(observed: Interval, others: Bounds) -> LikelihoodFamily:
    return _softplus_family("Poisson", others["multiplier"].highest, observed.highest)


def _softplus_exponential(observed: Interval, others: Bounds) -> LikelihoodFamily:
    """Rate ``r = cs``, ``ψ = yr − log r``."""
    return _softplus_family("Exponential", times(observed.highest, others["multiplier"].highest), 1.0)


def _softplus_gamma(observed: Interval, others: Bounds) -> LikelihoodFamily:
    """Rate ``r = cs``, ``ψ = yr − a log r + const``."""
    weight = times(observed.highest, others["multiplier"].highest)
    return _softplus_family("Gamma", weight, others["concentration"].highest)


def _softplus_negative_binomial(observed: Interval, others: Bounds) -> LikelihoodFamily:
    """Gamma–Poisson of concentration ``k`` and rate ``c/s``, mean ``ks/c``.

    ``ψ = (k+y) log(s+c) − y log s + const``: ``ψ' = kσ/(s+c) − (yσ/s)·c/(s+c)``, between ``−y`` and
    ``k min(1, 1/c)``; ``ψ'' = (k+y)(σ(1−σ)/(s+c) − σ²/(s+c)²) + yh``, where both fractions are at most
    ``min(1, 1/4c)`` (by ``(s+c)² ≥ 4sc`` and ``σ ≤ s``). Not convex.
    """
    most, k, smallest = observed.highest, others["concentration"].highest, others["multiplier"].lowest
    return LikelihoodFamily(
        name="NegativeBinomial",
        link="softplus",
        score_bound=max(most, up(k * min(1.0, 1 / smallest))),
        curvature_bound=up((k + most) * min(1.0, 0.25 / smallest) + times(most, _BEND)),
        why=f"ψ = (k+y) log(s+c) − y log s, s = log(1+e^η), y ≤ {most:g}, k ≤ {k:g}, c ≥ {smallest:g}: "
        "|ψ'| ≤ max(y, k min(1, 1/c)), |ψ''| ≤ (k+y) min(1, 1/4c) + 8y/27; not convex",
    )


_SOFTPLUS: Mapping[_Key, tuple[str, Callable[[Interval, Bounds], LikelihoodFamily]]] = {
    ("Poisson", "rate"): ("softplus", _softplus_poisson),
    ("Exponential", "rate"): ("softplus", _softplus_exponential),
    ("Gamma", "rate"): ("softplus", _softplus_gamma),
    ("GammaPoisson", "rate"): ("one_over_softplus", _softplus_negative_binomial),
    ("NegativeBinomial2", "rate"): ("one_over_softplus", _softplus_negative_binomial),
}


def _with_softplus(key: _Key, own: Recogniser) -> Recogniser:
    """The loss is the same function of the log of the rate; what is proved of it is another."""
    wanted, proved = _SOFTPLUS[key]

    def build(link: str, observed: Interval, others: Bounds) -> Recognised | None:
        if "softplus" not in link:
            return own(link, observed, others)
        found = own("exp", observed, others)
        return None if found is None or link != wanted else replace(found, family=proved(observed, others))

    return build


def log_softplus(eta: jax.Array) -> jax.Array:
    """``log s``; far below zero ``s`` is ``e^η(1 − e^η/2 + …)``, whose logarithm would lose all digits."""
    small = eta < -20
    usual = jnp.log(jax.nn.softplus(jnp.where(small, 0.0, eta)))
    return jnp.where(small, eta - 0.5 * jnp.exp(jnp.where(small, eta, 0.0)), usual)


def _inflated(rule: Recogniser, prefix: str = "base.") -> Recogniser:
    """A share ``g`` of zeros: ``ψ = ψ_c − log(1−g)`` of a count, ``−log(g + (1−g)e^{−ψ_c})`` of a zero.

    Of a zero, with ``w`` the probability that it is the family's: ``ψ' = wψ_c'`` and
    ``ψ'' = wψ_c'' − w(1−w)ψ_c'²``.
    """

    def build(link: str, observed: Interval, others: Bounds) -> Recognised | None:
        inner, gate = rule(link, observed, _without(prefix, others)), others["gate"]
        if inner is None or inner.joint or not (gate.lowest >= 0 and gate.highest < 1):
            return None

        def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
            count = inner.loss(eta, y, _without(prefix, given)) - jnp.log1p(-given["gate"])
            return jnp.where(y == 0, -jnp.logaddexp(jnp.log(given["gate"]), -count), count)

        family, score = inner.family, inner.family.score_bound
        return recognised(
            f"zero-inflated {family.name}",
            family.link,
            loss,
            f"{family.why}; a share of extra zeros shrinks a zero's score; not convex",
            score=score,
            curvature=up(family.curvature_bound + times(score, score) / 4),
            convex=False,
        )

    return build


def _mixture(rule: Recogniser) -> Recogniser:
    """``ψ = −log Σ_k π_k e^{−ψ_k(η_k)}``, ``η_k`` apart or one for all.

    With posterior weights ``w_k``: the score is ``(w_kψ_k')_k``, of norm at most ``max|ψ_k'|``; the
    Hessian is ``diag(w_k(ψ_k'' − ψ_k'²)) + (wψ')(wψ')ᵀ``, of norm at most ``max|ψ_k''| + max ψ_k'²``. For
    one ``η``, the sums of these: ``E ψ_k'`` and ``E ψ_k'' − Var ψ_k'``, with the same bounds.
    """

    def build(link: str, observed: Interval, others: Bounds) -> Recognised | None:
        inner = rule(link, observed, _without("component.", others))
        if inner is None or inner.joint or not others["weights"].lowest >= 0:
            return None

        def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
            parts = inner.loss(eta, y[..., None], _without("component.", given))
            return -jax.nn.logsumexp(jnp.log(given["weights"]) - parts, axis=-1)

        family, score = inner.family, inner.family.score_bound
        return recognised(
            f"mixture of {family.name}",
            family.link,
            loss,
            f"components: {family.why}; a mixture averages scores, adds their variance; not convex",
            score=score,
            curvature=up(family.curvature_bound + times(score, score)),
            convex=False,
            joint=True,
        )

    return build


# Of a censored value only an end is known: its loss is ``−log S(y)`` (right) or ``−log F(y)`` (left). All of
# them are convex in the predictor of the four bases here, and no bound of a censored row's curvature is above
# that of a row that was seen. NumPyro's own ``log(1 − F)`` is flat where ``F`` rounds to 1; what runs is
# ``log S`` itself.

# ``(η, y, parameters of the base) ↦`` the log of the cumulative hazard, or the standardised value.
_Inner: TypeAlias = Callable[[jax.Array, jax.Array, Given], jax.Array]
_End: TypeAlias = Callable[[jax.Array], jax.Array]

# The loss of a value censored from the right and from the left: of times the first is ``z`` (the linear part
# of the density's loss is dropped), of locations ``−log Φ(∓z)``, of a curvature in (0, 1).
_OF_TIMES: tuple[_End, _End] = (jnp.exp, happened)
_OF_LOCATIONS: tuple[_End, _End] = (lambda z: -log_ndtr(-z), lambda z: -log_ndtr(z))


def _standardised(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
    return (y - eta) / given["scale"]


# By family and its parameter: what its censored loss is a function of, and whether values must be positive.
_CENSORED: Mapping[_Key, tuple[_Inner, tuple[_End, _End], bool]] = {
    ("Exponential", "rate"): (lambda eta, y, given: jnp.log(y) + log_rate(eta, given), _OF_TIMES, True),
    ("Weibull", "scale"): (
        lambda eta, y, given: given["concentration"] * (jnp.log(y) - log_rate(eta, given)),
        _OF_TIMES,
        True,
    ),
    ("Normal", "loc"): (_standardised, _OF_LOCATIONS, False),
    ("LogNormal", "loc"): (lambda eta, y, given: _standardised(eta, jnp.log(y), given), _OF_LOCATIONS, True),
}


def _censored(rule: Recogniser, inner: _Inner, end: _End, positive: bool) -> Recogniser:
    def build(link: str, observed: Interval, others: Bounds) -> Recognised | None:
        found = rule(link, observed, _without("base.", others))
        if found is None or (positive and not observed.lowest > 0):
            return None

        def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
            own = _without("base.", given)
            hidden = own["censored"] > 0
            # A side that is not taken may not overflow: its slope is no number, and neither is 0 times that.
            one, other = (
                jax.tree.map(lambda leaf, here=here: jnp.where(here, leaf, 1.0), (eta, y, own))
                for here in (hidden, ~hidden)
            )
            return jnp.where(hidden, end(inner(*one)), found.loss(*other))

        why = f"{found.family.why}; where censored ψ'' has the same bound"
        return Recognised(replace(found.family, name=f"censored {found.family.name}", why=why), loss)

    return build


def _entries(
    outer: str,
    prefix: str,
    extra: str,
    families: Mapping[_Key, Entry],
    made: Callable[[Recogniser], Recogniser],
) -> dict[_Key, Entry]:
    """The entries of ``outer`` of each family, whose parameters have a prefix, with one more of its own."""
    return {
        (f"{outer}({name})", prefix + parameter): Entry(
            made(entry.rule), (*(prefix + need for need in entry.needs), extra)
        )
        for (name, parameter), entry in families.items()
    }


_OWN = {**DISCRETE, **REAL, **POSITIVE}
_PLAIN = {
    key: replace(entry, rule=_with_softplus(key, entry.rule)) if key in _SOFTPLUS else entry
    for key, entry in _OWN.items()
}
FAMILIES: dict[_Key, Entry] = {
    **_PLAIN,
    **SHARES,
    **TRUNCATED,
    **{
        key: entry
        for base, (inner, ends, positive) in _CENSORED.items()
        for side, end in zip(("Right", "Left"), ends, strict=True)
        for key, entry in _entries(
            f"{side}CensoredDistribution",
            "base.",
            "censored",
            {base: _OWN[base]},
            partial(_censored, inner=inner, end=end, positive=positive),
        ).items()
    },
    **_entries("MixtureSameFamily", "component.", "weights", _PLAIN, _mixture),
    **_entries("ZeroInflatedProbs", "base.", "gate", {key: _PLAIN[key] for key in DISCRETE}, _inflated),
    ("ZeroInflatedPoisson", "rate"): Entry(_inflated(_PLAIN[("Poisson", "rate")].rule, ""), ("gate",)),
    **CENTRED,
}
