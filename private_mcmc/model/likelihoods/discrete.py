"""Proved constants of the losses of counts and of categories.

Every loss is written in a stable form that is smooth for every real ``η``. NumPyro's own clamps
probabilities, and so is flat, hence not convex, far out; the form here is what runs and what is proved. A
class that takes probabilities is another function of its parameter than one that takes logits: each entry
names the links that make the loss it states, and no other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from private_mcmc.model.ir.interval import Interval, up
from private_mcmc.model.likelihoods.continuous import LOG_LINKS, happened, log_ndtr, log_rate
from private_mcmc.model.likelihoods.family import Bounds, Entry, Given, Recognised, Recogniser, recognised


@jax.custom_jvp
def softplus(x: jax.Array) -> jax.Array:
    """``log(1 + e^x)``; its derivative is computed as ``σ(x)``, several times faster in a chain's step."""
    return jax.nn.softplus(x)


softplus.defjvps(lambda tangent, value, x: jax.nn.sigmoid(x) * tangent)


def _is_count(observed: Interval, largest: float = math.inf) -> bool:
    """Whole numbers from 0 to ``largest``."""
    return observed.whole and observed.lowest >= 0 and observed.highest <= largest


def _by(links: tuple[str, ...], rule: Recogniser) -> Recogniser:
    """The rule for a parameter that one of these links makes, and no other."""
    return lambda link, observed, others: rule(link, observed, others) if link in links else None


def _through(link: str, rule: Recogniser) -> Recogniser:
    """For a class whose parameter is already on the scale of the link."""
    return _by(("identity",), lambda _, observed, others: rule(link, observed, others))


def _bernoulli(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    rules = {"logistic": _bernoulli_logistic, "ndtr": _bernoulli_probit, "cloglog": _bernoulli_cloglog}
    return rules[link]() if link in rules and _is_count(observed, 1) else None


def _bernoulli_logistic() -> Recognised:
    """``ψ = log(1+e^η) − yη``: ``ψ' = σ(η) − y ∈ [−1, 1]``, ``ψ'' = σ(1−σ) ∈ [0, ¼]``."""
    return recognised(
        "Bernoulli",
        "logistic",
        lambda eta, y, given: softplus(eta) - y * eta,
        "ψ = log(1+e^η) − yη with y in {0, 1}: ψ' = σ(η) − y, ψ'' = σ(1−σ) ≤ 1/4",
        score=1.0,
        curvature=0.25,
    )


def _bernoulli_probit() -> Recognised:
    """``ψ = −log Φ(sη)``, ``s = 2y−1``: convex, ``ψ'' ∈ (0, 1)``, ``|ψ'| ~ |η|`` on the wrong side.

    With ``h = φ/Φ``: ``ψ'' = h(η)(η + h(η))`` (``s = 1``), which is one minus the variance of a standard
    normal truncated to the half-line, hence in ``(0, 1)``.
    """
    return recognised(
        "Bernoulli",
        "probit",
        lambda eta, y, given: -log_ndtr((2 * y - 1) * eta),
        "ψ = −log Φ(±η): ψ'' = 1 − the variance of a truncated standard normal, in (0, 1); ψ' unbounded",
        curvature=1.0,
    )


def _bernoulli_cloglog() -> Recognised:
    """``t = e^η``; ``y = 0``: ``ψ = t = ψ' = ψ''``. ``y = 1``: ``ψ = −log(1−e^{−t})``.

    For ``y = 1``: ``ψ' = −t/(e^t−1) ∈ (−1, 0)`` and ``ψ'' = t²e^t/(e^t−1)² − t/(e^t−1)``, which is at
    least 0 (``te^t ≥ e^t−1``) and at most 1 (``sinh(t/2) ≥ t/2``).
    """

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        one = y > 0.5
        return jnp.where(one, happened(eta), jnp.exp(jnp.where(one, 0.0, eta)))

    why = "ψ = e^η (y = 0) or −log(1−exp(−e^η)) (y = 1): 0 ≤ ψ'' ≤ 1 + |ψ'|"
    return recognised("Bernoulli", "cloglog", loss, why, growth=(1.0, 1.0))


def _binomial(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``ψ = N log(1+e^η) − yη − log C(N, y)``: ``ψ' = Nσ − y``, ``ψ'' = Nσ(1−σ)``, ``0 ≤ y ≤ N``."""
    trials = others["total_count"]
    largest = math.inf if "capped" in others else trials.lowest
    if link != "logistic" or not _is_count(observed, largest) or not (trials.whole and trials.lowest >= 0):
        return None
    most = trials.highest

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        n = given["total_count"]
        ways = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
        return n * jax.nn.softplus(eta) - y * eta - ways

    why = f"ψ = N log(1+e^η) − yη with 0 ≤ y ≤ N ≤ {most:g}: |ψ'| ≤ N, ψ'' ≤ N/4"
    return recognised("Binomial", "logistic", loss, why, score=most, curvature=up(most / 4))


def _geometric(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``ψ = (1+y) log(1+e^η) − η``: ``ψ' = (1+y)σ − 1 ∈ (−1, y)``, ``ψ'' ≤ (1+y)/4``."""
    if link != "logistic" or not _is_count(observed):
        return None
    most = observed.highest
    return recognised(
        "Geometric",
        "logistic",
        lambda eta, y, given: (1 + y) * jax.nn.softplus(eta) - eta,
        f"ψ = (1+y) log(1+e^η) − η with y ≤ {most:g}: |ψ'| ≤ max(1, y), ψ'' ≤ (1+y)/4",
        score=max(1.0, most),
        curvature=up((1 + most) / 4),
    )


def _poisson(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``λ = c e^{±η}``, ``ψ = λ − y log λ + log y!``: ``ψ'' = λ = y ± ψ'``."""
    if link not in LOG_LINKS or not _is_count(observed):
        return None
    most = observed.highest

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t = log_rate(eta, given)
        return jnp.exp(t) - y * t + gammaln(y + 1)

    why = f"ψ = e^η − yη + log y!, y ≤ {most:g}: ψ'' = e^η = y + ψ', unbounded unless clipped"
    return recognised("Poisson", "exp", loss, why, growth=(most, 1.0))


def _negative_binomial(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Gamma–Poisson of concentration ``k``, rate ``β = c e^{±η}``, ``t = log β``.

    ``ψ = (k+y) log(1+e^t) − kt + const``: ``ψ' = ±((k+y)σ(t) − k)``, between ``−k`` and ``y`` up to the
    sign; ``ψ'' = (k+y)σ(1−σ) ≤ (k+y)/4``.
    """
    shape = others["concentration"]
    if link not in LOG_LINKS or not _is_count(observed) or not shape.lowest > 0:
        return None
    most, k = observed.highest, shape.highest

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        t, k = log_rate(eta, given), given["concentration"]
        constant = gammaln(k + y) - gammaln(k) - gammaln(y + 1)
        return (k + y) * jax.nn.softplus(t) - k * t - constant

    why = f"ψ = (k+y) log(1+e^t) − kt, y ≤ {most:g}, k ≤ {k:g}: |ψ'| ≤ max(y, k), ψ'' ≤ (k+y)/4"
    return recognised("NegativeBinomial", "exp", loss, why, score=max(most, k), curvature=up((k + most) / 4))


def _categorical(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``ψ = log Σ e^{η_k} − η_y``: ``ψ' = p − e_y``, ``‖ψ'‖ ≤ √2``, ``ψ'' = diag p − ppᵀ ≼ ½``.

    ``½``: for a unit vector ``u``, ``uᵀψ''u`` is the variance under ``p`` of a variable with values
    ``u_k``, at most a quarter of their squared range, which is at most 2.
    """
    if not _is_count(observed, others["classes"].lowest - 1):
        return None

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        index = jnp.broadcast_to(y.astype(jnp.int32)[..., None], (*eta.shape[:-1], 1))
        chosen = jnp.take_along_axis(eta, index, axis=-1)[..., 0]
        return jax.nn.logsumexp(eta, axis=-1) - chosen

    why = "ψ = log Σ e^{η_k} − η_y: ‖softmax(η) − e_y‖ ≤ √2, Hessian ≼ 1/2"
    return recognised("Categorical", "softmax", loss, why, score=up(math.sqrt(2)), curvature=0.5, joint=True)


def _multinomial(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Logits ``η``: ``ψ = N log Σ e^{η_k} − y·η``, ``ψ' = Np − y``, ``N`` times the categorical Hessian.

    Only ``y_k ≥ 0`` is known of the data, not ``Σ y_k = N``: ``‖Np − y‖ ≤ N + ‖y‖``.
    """
    trials = others["total_count"]
    if not _is_count(observed) or not trials.lowest >= 0:
        return None
    most = trials.highest
    return recognised(
        "Multinomial",
        "softmax",
        lambda eta, y, given: _multinomial_loss(eta, y, given["total_count"], given["total_count"]),
        f"ψ = N log Σ e^η − y·η, N ≤ {most:g}: ‖Np − y‖ ≤ N + ‖y‖, Hessian ≼ N/2",
        score=up(most + observed.norm),
        curvature=up(most / 2),
        joint=True,
    )


def _multinomial_normalised(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """Normalised ``log p = η − log Σ e^{η_k}``: ``ψ = −y·log p``, so ``N`` above is ``S = Σ y_k``."""
    if not _is_count(observed):
        return None
    most = float(np.max(np.sum(observed.hi, axis=-1), initial=0.0))
    return recognised(
        "Multinomial",
        "softmax",
        lambda eta, y, given: _multinomial_loss(eta, y, jnp.sum(y, axis=-1), given["total_count"]),
        f"ψ = S log Σ e^η − y·η, S = Σ y_k ≤ {most:g}: ‖Sp − y‖ ≤ √2·S, Hessian ≼ S/2",
        score=up(math.sqrt(2) * most),
        curvature=up(most / 2),
        joint=True,
    )


def _multinomial_loss(eta: jax.Array, y: jax.Array, count: jax.Array, trials: jax.Array) -> jax.Array:
    ways = gammaln(trials + 1) - jnp.sum(gammaln(y + 1), axis=-1)
    return count * jax.nn.logsumexp(eta, axis=-1) - jnp.sum(y * eta, axis=-1) - ways


def _multinomial_of_logits(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    return (_multinomial if link == "identity" else _multinomial_normalised)(link, observed, others)


def _ordered_logistic(link: str, observed: Interval, others: Bounds) -> Recognised | None:
    """``P(y) = σ(a) − σ(b)``, ``a = c_y − η``, ``b = c_{y−1} − η``, fixed increasing cutpoints.

    ``σ(a) − σ(b) = σ(a)σ(−b)(1 − e^{b−a})`` and ``a − b`` is free of ``η``, so
    ``ψ = log(1+e^{−a}) + log(1+e^b) + const``: ``ψ' = σ(−a) − σ(b) ∈ (−1, 1)`` and
    ``ψ'' = σ'(a) + σ'(b) ∈ (0, ½]``; the end categories have one of the two terms.
    """
    cuts = others["cutpoints"]
    rising = cuts.is_point and bool((cuts.lo[..., 1:] > cuts.lo[..., :-1]).all())
    if not rising or not _is_count(observed, cuts.shape[-1]):
        return None

    def loss(eta: jax.Array, y: jax.Array, given: Given) -> jax.Array:
        cutpoints = given["cutpoints"]
        count = cutpoints.shape[-1]
        index = jnp.broadcast_to(y.astype(jnp.int32), eta.shape)[..., None]
        spread = jnp.broadcast_to(cutpoints, (*eta.shape, count))
        above = jnp.take_along_axis(spread, jnp.minimum(index, count - 1), axis=-1)[..., 0]
        below = jnp.take_along_axis(spread, jnp.maximum(index - 1, 0), axis=-1)[..., 0]
        first, last = index[..., 0] == 0, index[..., 0] == count
        gap = jnp.where(first | last, 1.0, above - below)
        upper = jnp.where(last, 0.0, jax.nn.softplus(eta - above))
        lower = jnp.where(first, 0.0, jax.nn.softplus(below - eta))
        return upper + lower - jnp.where(first | last, 0.0, jnp.log(-jnp.expm1(-gap)))

    why = "ψ = log(1+e^{η−c_y}) + log(1+e^{c_{y−1}−η}) + const, fixed cutpoints: |ψ'| ≤ 1, ψ'' ≤ 1/2"
    return recognised("OrderedLogistic", "identity", loss, why, score=1.0, curvature=0.5)


# Logits less their log-sum-exp are the logarithms of the same probabilities.
_LOGITS, _PROBABILITIES = ("identity", "log_softmax"), ("softmax",)

DISCRETE: Mapping[tuple[str, str], Entry] = {
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
    ("CategoricalLogits", "logits"): Entry(_by(_LOGITS, _categorical)),
    ("CategoricalProbs", "probs"): Entry(_by(_PROBABILITIES, _categorical)),
    ("MultinomialLogits", "logits"): Entry(_by(_LOGITS, _multinomial_of_logits), ("total_count",)),
    ("MultinomialProbs", "probs"): Entry(_by(_PROBABILITIES, _multinomial_normalised), ("total_count",)),
    ("OrderedLogistic", "predictor"): Entry(_by(("identity",), _ordered_logistic), ("cutpoints",)),
}
