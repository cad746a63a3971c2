"""Likelihoods: what is proved of a row's loss as a function of its predictor, a line of a closed table each.

A line names a distribution of NumPyro's, the parameter that a predictor makes and the link by which it does;
its loss ``ψ(η)``, in a form that is smooth for every real ``η``; and bounds of ``ψ'`` and ``ψ''`` with their
proof. The form is what runs: NumPyro's own clamps probabilities, and so is flat, hence not convex, far out,
and its rates overflow. ``tests/model/test_families.py`` compares every line with NumPyro's log density and
with numeric derivatives on grids. What has no line runs as NumPyro computes it, and nothing is proved of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.accounting.rounding import product_up, up
from private_mcmc.potential import losses
from private_mcmc.potential.losses import Given


class Interval(NamedTuple):
    """Ends of an array, elementwise, within which it is held at every row; ``inf`` for none."""

    lo: np.ndarray
    hi: np.ndarray

    @property
    def lowest(self) -> float:
        """The smallest of all ends, whichever way round they were given."""
        return float(np.min(np.minimum(self.lo, self.hi), initial=np.inf))

    @property
    def highest(self) -> float:
        """The largest of all ends."""
        return float(np.max(np.maximum(self.lo, self.hi), initial=-np.inf))

    def hold(self, value: jax.Array) -> jax.Array:
        """``value`` within the ends; what is not a number is at the lower one."""
        return jnp.where(value > self.lo, jnp.minimum(value, self.hi), self.lo)


# Of the parameters of a distribution, their ends over all rows.
Domains: TypeAlias = Mapping[str, Interval]
Loss: TypeAlias = Callable[[jax.Array, jax.Array, Given], jax.Array]


@dataclass(frozen=True)
class LikelihoodFamily:
    """What is proved of a row's loss ``ψ`` for every row of the domain and every real ``η``.

    ``η`` is a number, or a vector for families with several predictors; then derivatives are measured in
    the Euclidean norm. What is not proved is ``inf`` (or not convex).

    Attributes:
        name: distribution class, ``unknown`` if not recognised.
        convex: ``ψ'' ≥ 0``.
        score_bound: ``‖ψ'‖ ≤ score_bound``.
        curvature_bound: ``‖ψ''‖ ≤ curvature_bound``.
        growth: ``(a, b)`` with ``ψ'' ≤ a + b|ψ'|``, for a convex ``ψ``.
    """

    name: str = "unknown"
    convex: bool = False
    score_bound: float = math.inf
    curvature_bound: float = math.inf
    growth: tuple[float, float] = (math.inf, math.inf)

    def clipped_curvature(self, radius: float, clip: float) -> float:
        """Bound on the curvature ``‖x‖²ψ''`` that one row adds, ``‖x‖ ≤ radius``, clipped at ``clip``.

        Clipping ``|ψ'|·‖x‖`` at ``C`` leaves ``ψ''`` where ``|ψ'| < C/‖x‖`` and zero elsewhere, hence at
        most ``a‖x‖² + bC‖x‖``. Infinite unless ``ψ`` is convex.
        """
        if not (self.convex and radius >= 0 and clip >= 0):
            return math.inf
        a, b = self.growth
        grown = product_up(a, radius * radius) + product_up(b, clip * radius)
        return min(product_up(radius * radius, self.curvature_bound), grown)

    def weighted(self, largest: float) -> LikelihoodFamily:
        """The same for ``c·ψ`` with any weight ``0 ≤ c ≤ largest``."""
        score, bend = product_up(self.score_bound, largest), product_up(self.curvature_bound, largest)
        growth = product_up(self.growth[0], largest), self.growth[1]
        return replace(self, score_bound=score, curvature_bound=bend, growth=growth)


UNKNOWN = LikelihoodFamily()


def together(families: Sequence[LikelihoodFamily], apart: bool) -> LikelihoodFamily:
    """What is proved of ``Σ ψ_s(η_s)``, a function of the vector of all ``η_s``, or of one ``η`` of them all.

    ``apart``, the gradient is the vector of scores, the Hessian block diagonal. Slopes of one ``η`` may
    cancel, so that no growth is proved.
    """
    if len(families) == 1:
        return families[0]
    scores = [family.score_bound for family in families]
    bends = [family.curvature_bound for family in families]
    return LikelihoodFamily(
        name=" + ".join(dict.fromkeys(family.name for family in families)),
        convex=all(family.convex for family in families),
        score_bound=up(math.hypot(*scores) if apart else math.fsum(scores)),
        curvature_bound=up(max(bends, default=0.0) if apart else math.fsum(bends)),
    )


# A number, or a function of the bounds of the outcome and of the other parameters.
Bound: TypeAlias = float | Callable[[Interval, Domains], float]


@dataclass(frozen=True)
class Line:
    """A distribution and a link.

    Attributes:
        name: of the distribution, as it is reported.
        loss: ``(η, y, parameters) ↦ ψ``, elementwise; ``joint`` ones over the last axis of ``η``.
        holds: on which outcomes and parameters the proof rests.
        why: the proof.
        score: bound of ``|ψ'|``.
        curvature: bound of ``|ψ''|``.
        growth: ``(a, b)`` with ``ψ'' ≤ a + b|ψ'|``, of convex losses.
        convex: ``ψ'' ≥ 0``.
        needs: parameters other than the predictor's.
        joint: the predictor is a vector.
        scaled: the parameter may be any public or row's multiple of the link.
    """

    name: str
    loss: Loss
    holds: Callable[[Interval, Domains], bool]
    why: str
    score: Bound = math.inf
    curvature: Bound = math.inf
    growth: tuple[Bound, Bound] = (math.inf, math.inf)
    convex: bool = True
    needs: tuple[str, ...] = ()
    joint: bool = False
    scaled: bool = False

    def family(self, y: Interval, others: Domains) -> LikelihoodFamily | None:
        """What is proved for outcomes and parameters within these bounds; ``None`` where the proof fails."""
        try:
            if not self.holds(y, others):
                return None
            score, curvature, a, b = (
                up(float(bound(y, others))) if callable(bound) else bound
                for bound in (self.score, self.curvature, *self.growth)
            )
        except ArithmeticError:  # Of a scale whose square no float holds, nothing is proved.
            return None
        if any(math.isnan(bound) for bound in (score, curvature, a, b)):
            return None
        return LikelihoodFamily(self.name, self.convex, score, curvature, (a, b))


def _trials(others: Domains) -> Interval:
    return others.get("total_count", Interval(np.ones(()), np.ones(())))


def _counts(y: Interval, largest: float = math.inf) -> bool:
    return y.lowest >= 0 and y.highest <= largest


def _positive(others: Domains, *names: str) -> bool:
    return all(others[name].lowest > 0 for name in names)


def _cuts_rise(y: Interval, others: Domains) -> bool:
    cuts = others["cutpoints"]
    rise = bool((cuts.lo[..., 1:] > cuts.lo[..., :-1]).all())
    return bool(np.all(cuts.lo == cuts.hi)) and rise and _counts(y, cuts.lo.shape[-1])


def _shares(y: Interval, others: Domains) -> bool:
    k, multiplier = others["concentration"], others["multiplier"]
    known = 0 < k.lowest == k.highest < math.inf
    whole = all(math.isclose(end, k.highest) for end in (multiplier.lowest, multiplier.highest))
    return known and whole and y.lowest > 0 and y.highest < 1


def _beta_score(y: Interval, others: Domains) -> float:
    farthest = max(math.log((1 - y.lowest) / y.lowest), math.log(y.highest / (1 - y.highest)))
    return 1 + others["concentration"].highest * (0.224 + farthest / 4 + 1e-9)


_BINOMIAL = Line(
    "Binomial",
    losses.binomial,
    lambda y, others: y.lowest >= 0 and _trials(others).lowest >= 0,
    "ψ = N log(1+e^η) − yη with 0 ≤ y ≤ N: ψ' = Nσ − y, |ψ'| ≤ N, ψ'' = Nσ(1−σ) ≤ N/4",
    score=lambda y, others: _trials(others).highest,
    curvature=lambda y, others: _trials(others).highest / 4,
    needs=("total_count",),
)
_BINOMIAL_PROBIT = replace(
    _BINOMIAL,
    loss=losses.binomial_probit,
    why=(
        "ψ = −y log Φ(η) − (N−y) log Φ(−η), 0 ≤ y ≤ N: −(log Φ)'' is 1 less the variance of a truncated "
        "standard normal, in (0, 1), so that ψ'' is in (0, N); ψ' unbounded"
    ),
    score=math.inf,
    curvature=lambda y, others: _trials(others).highest,
)
_BERNOULLI = replace(_BINOMIAL, name="Bernoulli", needs=())
_BERNOULLI_PROBIT = replace(_BINOMIAL_PROBIT, name="Bernoulli", needs=())
_POISSON = Line(
    "Poisson",
    losses.poisson,
    lambda y, others: _counts(y),
    "ψ = e^t − yt + log y!, t affine in η: ψ'' = e^t = y + ψ', unbounded unless clipped",
    growth=(lambda y, others: y.highest, 1.0),
    scaled=True,
)
_NEGATIVE_BINOMIAL = Line(
    "NegativeBinomial",
    losses.negative_binomial,
    lambda y, others: _counts(y) and _positive(others, "concentration"),
    "ψ = (k+y) log(1+e^t) − kt, ψ' = (k+y)σ(t) − k: |ψ'| ≤ max(y, k), ψ'' ≤ (k+y)/4",
    score=lambda y, others: max(y.highest, others["concentration"].highest),
    curvature=lambda y, others: (others["concentration"].highest + y.highest) / 4,
    needs=("concentration",),
    scaled=True,
)
# ½: for a unit vector u, uᵀψ''u is the variance under p of a variable with values u_k, at most a quarter of
# their squared range, which is at most 2.
_CATEGORICAL = Line(
    "Categorical",
    losses.categorical,
    lambda y, others: _counts(y, others["classes"].lowest - 1),
    "ψ = log Σ e^{η_k} − η_y: ‖softmax(η) − e_y‖ ≤ √2, Hessian diag p − ppᵀ ≼ 1/2",
    score=up(math.sqrt(2)),
    curvature=0.5,
    joint=True,
)
# P(y) = σ(a) − σ(b) = σ(a)σ(−b)(1 − e^{b−a}) with a = c_y − η, b = c_{y−1} − η, and a − b free of η.
_ORDERED = Line(
    "OrderedLogistic",
    losses.ordered,
    _cuts_rise,
    "ψ = log(1+e^{η−c_y}) + log(1+e^{c_{y−1}−η}) + const, fixed cutpoints: |ψ'| ≤ 1, ψ'' ≤ 1/2",
    score=1.0,
    curvature=0.5,
    needs=("cutpoints",),
)
_NORMAL = Line(
    "Normal",
    losses.normal,
    lambda y, others: _positive(others, "scale"),
    "ψ = (y−η)²/2s² with s > 0 free of the latents: ψ'' = 1/s², ψ' unbounded",
    curvature=lambda y, others: 1 / others["scale"].lowest ** 2,
    needs=("scale",),
)
_LOG_NORMAL = replace(
    _NORMAL,
    loss=lambda eta, y, given: losses.normal(eta, jnp.log(y), given) + jnp.log(y),
    holds=lambda y, others: _positive(others, "scale") and y.lowest > 0,
)
# ψ'' = (ν+1)(νs²−r²)/(νs²+r²)². (ν+1)/√ν is largest at an end of its range; all else falls as ν and s grow.
_STUDENT = Line(
    "StudentT",
    losses.student_t,
    lambda y, others: _positive(others, "scale", "df") and others["df"].highest < math.inf,
    "ψ = ½(ν+1) log(1+r²/νs²): |ψ'| ≤ (ν+1)/(2s√ν), |ψ''| ≤ (ν+1)/(νs²); not convex",
    score=lambda y, others: (
        max((nu + 1) / math.sqrt(nu) for nu in (others["df"].lowest, others["df"].highest))
        / (2 * others["scale"].lowest)
    ),
    curvature=lambda y, others: (1 + 1 / others["df"].lowest) / others["scale"].lowest ** 2,
    convex=False,
    needs=("df", "scale"),
)
_GAMMA = Line(
    "Gamma",
    losses.gamma,
    lambda y, others: y.lowest >= 0 and ("concentration" not in others or _positive(others, "concentration")),
    "ψ = ye^t − at, t affine in η: ψ'' = ye^t = a + ψ', unbounded unless clipped",
    growth=(lambda y, others: others["concentration"].highest, 1.0),
    needs=("concentration",),
    scaled=True,
)
_EXPONENTIAL = replace(_GAMMA, name="Exponential", growth=(1.0, 1.0), needs=())
_WEIBULL = Line(
    "Weibull",
    losses.weibull,
    lambda y, others: y.lowest > 0 and _positive(others, "concentration"),
    "ψ = z + at, z = (ye^{−t})^a: ψ'' = a²z = a(a − dψ/dt), unbounded unless clipped",
    growth=(
        lambda y, others: others["concentration"].highest ** 2,
        lambda y, others: others["concentration"].highest,
    ),
    needs=("concentration",),
    scaled=True,
)
# With F the digamma function ψ' = κσ(1−σ)(F(a) − F(b) − logit y). From log x − 1/x < F(x) < log x − 1/(2x),
# log a − log b = η and σ(1−σ)|η| < 0.224 follows the bound s of |ψ'|; from F'(x) < 1/x + 1/x² follows
# |ψ''| ≤ |1−2σ||ψ'| + κσ(1−σ) + (1−σ)² + σ² ≤ s + κ/4 + 1.
_BETA = Line(
    "Beta",
    losses.beta,
    _shares,
    "ψ = log B(κσ, κ(1−σ)) − κσ logit y, κ public: |ψ'| ≤ 1 + κ(0.224 + |logit y|/4); not convex",
    score=_beta_score,
    curvature=lambda y, others: _beta_score(y, others) + others["concentration"].highest / 4 + 1,
    convex=False,
    needs=("concentration",),
    scaled=True,
)


_LOG = ("exp", "exp_neg")
# By distribution class and parameter: the line of every link that makes its loss. A class that takes
# probabilities is another function of its parameter than one that takes logits.
TABLE: dict[tuple[str, str], Mapping[str, Line]] = {
    ("BernoulliLogits", "logits"): {"identity": _BERNOULLI},
    ("BernoulliProbs", "probs"): {"logistic": _BERNOULLI, "ndtr": _BERNOULLI_PROBIT},
    ("BinomialLogits", "logits"): {"identity": _BINOMIAL},
    ("BinomialProbs", "probs"): {"logistic": _BINOMIAL, "ndtr": _BINOMIAL_PROBIT},
    ("Poisson", "rate"): dict.fromkeys(_LOG, _POISSON),
    ("GammaPoisson", "rate"): dict.fromkeys(_LOG, _NEGATIVE_BINOMIAL),
    ("NegativeBinomial2", "rate"): dict.fromkeys(_LOG, _NEGATIVE_BINOMIAL),
    ("NegativeBinomialLogits", "rate"): dict.fromkeys(_LOG, _NEGATIVE_BINOMIAL),
    ("CategoricalLogits", "logits"): dict.fromkeys(("identity", "log_softmax"), _CATEGORICAL),
    ("CategoricalProbs", "probs"): {"softmax": _CATEGORICAL},
    ("OrderedLogistic", "predictor"): {"identity": _ORDERED},
    ("Normal", "loc"): {"identity": _NORMAL},
    ("LogNormal", "loc"): {"identity": _LOG_NORMAL},
    ("StudentT", "loc"): {"identity": _STUDENT},
    ("Gamma", "rate"): dict.fromkeys(_LOG, _GAMMA),
    ("Exponential", "rate"): dict.fromkeys(_LOG, _EXPONENTIAL),
    ("Weibull", "scale"): dict.fromkeys(_LOG, _WEIBULL),
    # NumPyro keeps the product of mean and concentration.
    ("BetaProportion", "concentration1"): {"logistic": _BETA},
}


def in_table(line: Line) -> bool:
    """Whether it is one of the table's: of any other nothing is proved."""
    return any(line is one for lines in TABLE.values() for one in lines.values())
