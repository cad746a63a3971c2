"""Proved constants of the losses of counts.

Every loss is written in a stable form that is smooth for every real ``η``. NumPyro's own clamps
probabilities, and so is flat, hence not convex, far out; the form here is what runs and what is proved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, log_ndtr

from private_mcmc.model.ir.interval import Interval, up
from private_mcmc.model.likelihoods.family import (
    Bounds,
    Entry,
    Given,
    LikelihoodFamily,
    Recognised,
    Recogniser,
)
from private_mcmc.model.likelihoods.positive import log_rate


@jax.custom_jvp
def softplus(x: jax.Array) -> jax.Array:
    """``log(1 + e^x)``; its derivative is computed as ``σ(x)``, several times faster in a chain's step."""
    return jax.nn.softplus(x)


softplus.defjvps(lambda tangent, value, x: jax.nn.sigmoid(x) * tangent)


def is_count(observed: Interval, largest: float = math.inf) -> bool:
    """Whole numbers from 0 to ``largest``."""
    return observed.whole and observed.lowest >= 0 and observed.highest <= largest


def _bernoulli_logistic(observed: Interval, link: str) -> Recognised | None:
    """``ψ = log(1+e^η) − yη``: ``ψ' = σ(η) − y ∈ [−1, 1]``, ``ψ'' = σ(1−σ) ∈ [0, ¼]``."""
    family = LikelihoodFamily(
        name="Bernoulli",
        link="logistic",
        convex=True,
        score_bound=1.0,
        curvature_bound=0.25,
        growth=(0.25, 0.0),
        why="ψ = log(1+e^η) − yη with y in {0, 1}: ψ' = σ(η) − y, ψ'' = σ(1−σ) ≤ 1/4",
    )
    return Recognised(family, lambda eta, y, given: softplus(eta) - y * eta)


def _bernoulli_probit(observed: Interval, link: str) -> Recognised | None:
    """``ψ = −log Φ(sη)``, ``s = 2y−1``: convex, ``ψ'' ∈ (0, 1)``, ``|ψ'| ~ |η|`` on the wrong side.

    With ``h = φ/Φ``: ``ψ'' = h(η)(η + h(η))`` (``s = 1``), which is one minus the variance of a standard
    normal truncated to the half-line, hence in ``(0, 1)``.
    """
    family = LikelihoodFamily(
        name="Bernoulli",
        link="probit",
        convex=True,
        curvature_bound=1.0,
        growth=(1.0, 0.0),
        why="ψ = −log Φ(±η): ψ'' = 1 − the variance of a truncated standard normal, in (0, 1); ψ' unbounded",
    )
    return Recognised(family, lambda eta, y, given: -log_ndtr((2 * y - 1) * eta))


def _bernoulli_cloglog(observed: Interval, link: str) -> Recognised | None:
    """``t = e^η``; ``y = 0``: ``ψ = t = ψ' = ψ''``. ``y = 1``: ``ψ = −log(1−e^{−t})``.

    For ``y = 1``: ``ψ' = −t/(e^t−1) ∈ (−1, 0)`` and ``ψ'' = t²e^t/(e^t−1)² − t/(e^t−1)``, which is at
    least 0 (``te^t ≥ e^t−1``) and at most 1 (``sinh(t/2) ≥ t/2``).
    """
    family = LikelihoodFamily(
        name="Bernoulli",
        link="cloglog",
        convex=True,
        growth=(1.0, 1.0),
        why="ψ = e^η (y = 0) or −log(1−exp(−e^η)) (y = 1): 0 ≤ ψ'' ≤ 1 + |ψ'|",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        rate = jnp.exp(eta)
        # Below, 1 − e^{−t} is t(1 − t/2 + …): the logarithm would lose all digits.
        small = eta < -20
        usual = -jnp.log(-jnp.expm1(-jnp.where(small, 1.0, rate)))
        return jnp.where(y > 0.5, jnp.where(small, 0.5 * rate - eta, usual), rate)

    return Recognised(family, loss)


_BERNOULLI = {"logistic": _bernoulli_logistic, "ndtr": _bernoulli_probit, "cloglog": _bernoulli_cloglog}


def _bernoulli(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    rule = _BERNOULLI.get(link)
    return rule(observed, link) if rule and is_count(observed, 1) else None


def _binomial(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``ψ = N log(1+e^η) − yη − log C(N, y)``: ``ψ' = Nσ − y``, ``ψ'' = Nσ(1−σ)``, ``0 ≤ y ≤ N``."""
    trials = others["total_count"]
    largest = math.inf if "capped" in others else trials.lowest
    if link != "logistic" or not is_count(observed, largest) or not (trials.whole and trials.lowest >= 0):
        return None
    most = trials.highest
    family = LikelihoodFamily(
        name="Binomial",
        link="logistic",
        convex=True,
        score_bound=most,
        curvature_bound=up(most / 4),
        growth=(up(most / 4), 0.0),
        why=f"ψ = N log(1+e^η) − yη with 0 ≤ y ≤ N ≤ {most:g}: |ψ'| ≤ N, ψ'' ≤ N/4",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        n = given["total_count"]
        ways = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
        return n * jax.nn.softplus(eta) - y * eta - ways

    return Recognised(family, loss)


def _geometric(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``ψ = (1+y) log(1+e^η) − η``: ``ψ' = (1+y)σ − 1 ∈ (−1, y)``, ``ψ'' ≤ (1+y)/4``."""
    if link != "logistic" or not is_count(observed):
        return None
    most = observed.highest
    family = LikelihoodFamily(
        name="Geometric",
        link="logistic",
        convex=True,
        score_bound=max(1.0, most),
        curvature_bound=up((1 + most) / 4),
        growth=(up((1 + most) / 4), 0.0),
        why=f"ψ = (1+y) log(1+e^η) − η with y ≤ {most:g}: |ψ'| ≤ max(1, y), ψ'' ≤ (1+y)/4",
    )
    return Recognised(family, lambda eta, y, given: (1 + y) * jax.nn.softplus(eta) - eta)


def _poisson(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``λ = c e^{±η}``, ``ψ = λ − y log λ + log y!``: ``ψ'' = λ = y ± ψ'``."""
    if link not in ("exp", "exp_neg") or not is_count(observed):
        return None
    family = LikelihoodFamily(
        name="Poisson",
        link="exp",
        convex=True,
        growth=(observed.highest, 1.0),
        why=f"ψ = e^η − yη + log y!, y ≤ {observed.highest:g}: ψ'' = e^η = y + ψ', unbounded unless clipped",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t = log_rate(eta, given)
        return jnp.exp(t) - y * t + gammaln(y + 1)

    return Recognised(family, loss)


def _negative_binomial(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Gamma–Poisson of concentration ``k``, rate ``β = c e^{±η}``, ``t = log β``.

    ``ψ = (k+y) log(1+e^t) − kt + const``: ``ψ' = ±((k+y)σ(t) − k)``, between ``−k`` and ``y`` up to the
    sign; ``ψ'' = (k+y)σ(1−σ) ≤ (k+y)/4``.
    """
    shape = others["concentration"]
    if link not in ("exp", "exp_neg") or not is_count(observed) or not shape.lowest > 0:
        return None
    most, k = observed.highest, shape.highest
    family = LikelihoodFamily(
        name="NegativeBinomial",
        link="exp",
        convex=True,
        score_bound=max(most, k),
        curvature_bound=up((k + most) / 4),
        growth=(up((k + most) / 4), 0.0),
        why=f"ψ = (k+y) log(1+e^t) − kt, y ≤ {most:g}, k ≤ {k:g}: |ψ'| ≤ max(y, k), ψ'' ≤ (k+y)/4",
    )

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t, k = log_rate(eta, given), given["concentration"]
        constant = gammaln(k + y) - gammaln(k) - gammaln(y + 1)
        return (k + y) * jax.nn.softplus(t) - k * t - constant

    return Recognised(family, loss)


def _through(link: str, rule: Recogniser) -> Recogniser:
    """For a class whose parameter is already on the scale of the link."""
    return lambda found, observed, others: rule(link, observed, others) if found == "identity" else None


WHOLE: Mapping[tuple[str, str], Entry] = {
    ("BernoulliLogits", "logits"): Entry(_through("logistic", _bernoulli)),
    ("BernoulliProbs", "probs"): Entry(_bernoulli),
    ("BinomialLogits", "logits"): Entry(_through("logistic", _binomial), ("total_count",)),
    ("BinomialProbs", "probs"): Entry(_binomial, ("total_count",)),
    ("GeometricLogits", "logits"): Entry(_through("logistic", _geometric)),
    ("GeometricProbs", "probs"): Entry(_geometric),
    ("Poisson", "rate"): Entry(_poisson),
    ("GammaPoisson", "rate"): Entry(_negative_binomial, ("concentration",)),
    ("NegativeBinomial2", "rate"): Entry(_negative_binomial, ("concentration",)),
    ("NegativeBinomialLogits", "rate"): Entry(_negative_binomial, ("concentration",)),
}
