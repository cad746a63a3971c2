"""Ready NumPyro models: each with its row domain, what preflight says of it, and numbers that say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import ndtr
from numpy.typing import NDArray

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Real, Rows
from private_mcmc.target import Target
from tests.zoo import models
from tests.zoo.models import logits, one_number, regression

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Pair:
    """One number's posterior on two adjacent data sets, by NumPyro's densities on a grid.

    Attributes:
        others: log density of the number given all rows but one, or the sd of its Normal prior, where the
            other rows say nothing of it.
        likelihood: law of the one row's outcome at the number.
        outcomes: of that row on the first and on the second.
        clip: of the row's slope.
        temper: power of the row's likelihood.
        reach: the range holds all but a negligible part of both, or half of it in sds of the prior.
    """

    others: Callable[[Array], Array] | float
    likelihood: Callable[[Any], Any]
    outcomes: tuple[float, float]
    clip: float | None = None
    temper: float = 1.0
    reach: tuple[float, float] | float = 12.0

    def laws(self) -> tuple[Array, Array]:
        low, high = self.reach if isinstance(self.reach, tuple) else (-self.reach, self.reach)
        sd = 1.0 if callable(self.others) else self.others
        t = np.linspace(sd * low, sd * high, 100_001)
        others = self.others(t) if callable(self.others) else -((t / sd) ** 2) / 2
        found = []
        for outcome in self.outcomes:
            with jax.enable_x64(True):
                row = np.asarray(self.likelihood(jnp.asarray(t)).log_prob(outcome))
            if self.clip is not None:
                slope = np.clip(np.diff(row) / (t[1] - t[0]), -self.clip, self.clip)
                row = np.concatenate([[0.0], np.cumsum(slope) * (t[1] - t[0])])
            log = others + self.temper * row
            values = np.exp(log - log.max())
            assert max(values[0], values[-1]) < 1e-9
            found.append(values / values.sum())
        return found[0], found[1]


@dataclass(frozen=True)
class Entry:
    """A model with its row domain, and what is expected of preflight.

    Attributes:
        verdict: what preflight answers.
        witness: a ``Pair`` whose exact divergence agrees with the verdict, or words that the report uses.
    """

    name: str
    model: Callable[..., Any]
    rows: Rows
    verdict: Literal["private", "not private", "unknown"]
    witness: Pair | str
    n: int = 500
    target: Target = Target(1.0, 1e-6)  # noqa: RUF009
    temper: float = 1.0
    clip: float | None = None
    model_args: Mapping[str, Any] = field(default_factory=dict)


def beta(a: float, b: float) -> Callable[[Array], Array]:
    """Log density of log odds whose probability is Beta."""
    return lambda t: -a * np.logaddexp(0, -t) - b * np.logaddexp(0, t)


def gamma(shape: float, rate: float) -> Callable[[Array], Array]:
    """Log density of the logarithm of a Gamma variable."""
    return lambda u: shape * u - rate * np.exp(u)


# The law of one row's outcome, given its predictor.
law = SimpleNamespace(
    normal=lambda t: dist.Normal(t, 1.0),
    student=lambda t: dist.StudentT(4.0, t, 1.0),
    poisson=lambda t: dist.Poisson(jnp.exp(t)),
    dispersed=lambda t: dist.NegativeBinomial2(jnp.exp(t), 2.0),
    binomial=lambda t: dist.Binomial(10, logits=t),
    inflated=lambda t: dist.ZeroInflatedPoisson(0.3, jnp.exp(t)),
    ordered=lambda t: dist.OrderedLogistic(t, jnp.array([-1.0, 1.0])),
    probit=lambda t: dist.Bernoulli(probs=ndtr(t)),
    waiting=lambda t: dist.Exponential(jnp.exp(-t)),
)


def _of(domain: Any, dim: int = 2, **columns: Any) -> Rows:
    return Rows(X=Ball(1.0, dim=dim), **columns, y=domain)


def _coin(a: float) -> Callable[..., None]:
    return one_number(dist.Bernoulli, dist.Beta(a, a))


def _die(a: float) -> Callable[..., None]:
    return one_number(dist.Categorical, dist.Dirichlet(jnp.full(3, a)))


def _counts(a: float, b: float) -> Callable[..., None]:
    return one_number(dist.Poisson, dist.Gamma(a, b))


def _entry(name: str, model: Any, rows: Rows, verdict: Any, witness: Any, **rest: Any) -> Entry:
    """Temper and clip of an entry are those of its witness's row."""
    if isinstance(witness, Pair):
        rest = {"temper": witness.temper, "clip": witness.clip} | rest
    return Entry(name, model, rows, verdict, witness, **rest)


CENSUS, REAL, COUNTS = _of(Binary(), 9), _of(Box(-1, 1), 3), _of(Counts(10))
TRUE, TRUE3, THREE = _of(Binary()), _of(Binary(), 3), _of(Categories(3))
GROUPS = Rows(group=Categories(4), y=Binary())
ANSWERS = Rows(person=Categories(10), item=Categories(5), y=Binary())
OUTCOMES, COINS, DICE, WAITS = Rows(y=Box(-1, 1)), Rows(y=Binary()), Rows(y=Categories(3)), _of(Box(0.1, 5.0))
TARGET, ODD, ENDS = Target(3.0, 1e-6), (1, 0), (1, -1)
SQUARE, FIVE = Rows(x=Box(-1, 1), y=Box(-1, 1)), Rows(y=Counts(5))
FEW: dict[str, Any] = {"n": 50, "target": Target(1.0, 1e-4)}
THOUSAND: dict[str, Any] = {"n": 1000, "target": TARGET}
UNPROVED = "no likelihood of one affine predictor with proved constants"
NORMAL = one_number(law.normal, dist.Normal(0, 1))
TENS, FIVES, LONG = (10, 0), (5, 0), (5.0, 0.1)
FLAT = dist.ImproperUniform(dist.constraints.real, (), ())
YES, NO, UNKNOWN = "private", "not private", "unknown"
TEMPERED = Pair(2.0, logits, ODD, temper=0.16)
ADULTS: dict[str, Any] = {"n": 32_561, "target": TARGET}

LOGISTIC_UNBOUNDED = Pair(2.0, lambda t: logits(1e3 * t), ODD)
LOGISTIC_INTERCEPT = Pair(lambda t: beta(500, 500)(t) - 12.5 * t**2, logits, ODD, reach=(-1.5, 1.5))
LOGISTIC_CAUCHY = Pair(lambda s: -np.log(np.cosh(s)), lambda s: logits(jnp.sinh(s)), ODD, reach=(-40.0, 40.0))
UNBOUNDED = Rows(X=Real(dim=9), y=Binary())
LOGISTIC_LAPLACE = regression(logits, prior=dist.Laplace(0, 0.1))
NOT_STRONG = "not strongly log-concave"
LOGISTIC = (
    # Convex rows of gradient at most 0.16 under a prior of precision 1/4: 0.64-GDP.
    _entry("logistic_tempered", regression(logits, 2.0), CENSUS, YES, TEMPERED, **ADULTS),
    _entry("weighted", models.weighted, _of(Binary(), 9, weight=Box(0, 1)), YES, TEMPERED, **ADULTS),
    _entry("missing", models.missing, _of(Binary(), 9, seen=Binary()), YES, TEMPERED, **ADULTS),
    # One row can move a weight of prior sd 2 by its whole scale; of unbounded features it decides its sign.
    _entry("logistic", regression(logits, 2.0), CENSUS, NO, Pair(2.0, logits, ODD), **ADULTS),
    _entry("logistic_unbounded", regression(logits, 2.0), UNBOUNDED, NO, LOGISTIC_UNBOUNDED, **ADULTS),
    _entry("logistic_flat", regression(logits, prior=FLAT), CENSUS, NO, "improper", **ADULTS),
    # Designs of norm √2 under a prior of precision 25: 2√2/5-GDP. All other rows are balanced.
    _entry("logistic_intercept", models.with_intercept, TRUE3, YES, LOGISTIC_INTERCEPT, **THOUSAND),
    # Under a heavy-tailed prior one row's label decides the sign of a large weight; on the scale of asinh.
    _entry(
        "logistic_cauchy", regression(logits, prior=dist.Cauchy(0, 1)), TRUE3, NO, LOGISTIC_CAUCHY, **THOUSAND
    ),
    # No theorem here covers a prior that is convex but not strongly.
    _entry("logistic_laplace", LOGISTIC_LAPLACE, TRUE3, UNKNOWN, NOT_STRONG, target=TARGET),
)
MEAN = Pair(lambda t: -500 * t**2, law.normal, ENDS, reach=(-0.4, 0.4))
MEAN_UNBOUNDED = Pair(lambda t: -500 * t**2, law.normal, (1e3, -1e3), reach=(-3.0, 3.0))
MEAN_FLAT = Pair(lambda t: -499.5 * t**2, law.normal, ENDS, reach=(-0.4, 0.4))
ONE_NORMAL = Pair(1.0, law.normal, ENDS)
LINEAR = (
    # A normal score grows without bound; clipped at 0.1 it is Huber's: 0.2-GDP; a prior of sd 1 hides no 2.
    _entry("linear", regression(law.normal), REAL, NO, ONE_NORMAL),
    _entry("linear_clipped", regression(law.normal), REAL, YES, Pair(1.0, law.normal, ENDS, clip=0.1)),
    # Gaussian posteriors of bounded rows differ by a small shift and a small change of scale.
    _entry("heller_fetaya", models.slope, SQUARE, UNKNOWN, Pair(0.1, law.normal, ENDS, temper=0.5), **FEW),
    _entry("heller_fetaya_weak_prior", models.slope, SQUARE, NO, ONE_NORMAL, **FEW, model_args={"sd": 1.0}),
    # An outlier among inliers is told by the scale of the errors.
    _entry("linear_latent_scale", models.latent_scale, REAL, UNKNOWN, "no certificate", n=100),
    # Scores at most 1.25; a prior of precision 400 outweighs 100 rows that bend down by at most 1.25.
    _entry("student", regression(law.student, 0.05), REAL, YES, Pair(0.05, law.student, ENDS), n=100),
    _entry("laplace", regression(lambda t: dist.Laplace(t, 1.0), 0.1), REAL, UNKNOWN, UNPROVED),
    # All posteriors are normal with precision 1001; a row moves the gradient by at most 2: 0.0632-GDP.
    _entry("mean", NORMAL, OUTCOMES, YES, MEAN, n=1000),
    _entry("mean_unbounded", NORMAL, Rows(y=Real()), NO, MEAN_UNBOUNDED, n=1000),
    # The number of rows is public: 2/√1000 = 0.0632-GDP.
    _entry("mean_flat", one_number(law.normal, FLAT), OUTCOMES, YES, MEAN_FLAT, n=1000),
    _entry("mean_and_scale", models.mean_and_scale, OUTCOMES, UNKNOWN, "no certificate", n=100),
)
NEGATIVE_BINOMIAL = Pair(0.5, law.dispersed, TENS, temper=0.02)
BINOMIAL_BY_ROW = Pair(1.0, law.binomial, TENS, temper=0.01)
UNKNOWN_CUTS = "cutpoints and predictor of OrderedLogistic"
OTHERS = (
    # Scores without bound, and clipped at 0.1: 0.2-GDP.
    _entry("poisson", regression(law.poisson), COUNTS, NO, Pair(1.0, law.poisson, TENS)),
    _entry("poisson_clipped", regression(law.poisson), COUNTS, YES, Pair(1.0, law.poisson, TENS, clip=0.1)),
    _entry("zero_inflated", regression(law.inflated), COUNTS, NO, Pair(1.0, law.inflated, TENS)),
    _entry("exponential", regression(law.waiting), WAITS, NO, Pair(1.0, law.waiting, LONG)),
    _entry(
        "exponential_clipped", regression(law.waiting), WAITS, YES, Pair(1.0, law.waiting, LONG, clip=0.1)
    ),
    _entry("probit", regression(law.probit), TRUE, NO, Pair(1.0, law.probit, ODD)),
    _entry("probit_clipped", regression(law.probit), TRUE, YES, Pair(1.0, law.probit, ODD, clip=0.1)),
    # Scores at most 10 times a temper: 2·10·0.02·0.5 and 2·10·0.01·1, 0.2-GDP.
    _entry("negative_binomial", regression(law.dispersed, 0.5), COUNTS, YES, NEGATIVE_BINOMIAL),
    _entry("binomial", regression(law.binomial), COUNTS, YES, Pair(1.0, law.binomial, TENS, temper=0.01)),
    _entry("binomial_by_row", models.trials_by_row, _of(Counts(10), trials=Counts(10)), YES, BINOMIAL_BY_ROW),
    # Convex rows with scores at most 1 under a prior of precision 100: 0.2-GDP.
    _entry("ordered", regression(law.ordered, 0.1), THREE, YES, Pair(0.1, law.ordered, (0, 2))),
    # Convex rows of gradient at most √2·0.07 under a prior of precision 1: 0.198-GDP.
    _entry("softmax_tempered", models.softmax, THREE, YES, "strongly log-concave", temper=0.07),
    _entry("softmax", models.softmax, THREE, UNKNOWN, "", model_args={"sd": 3.0}),
    _entry("unknown_dispersion", models.unknown_dispersion, COUNTS, UNKNOWN, "no certificate", n=100),
    _entry("unknown_cut_points", models.unknown_cuts, _of(Categories(4)), UNKNOWN, UNKNOWN_CUTS, n=100),
    _entry("mixture_weight", models.mixture_weight, OUTCOMES, UNKNOWN, UNPROVED),
    _entry("mixture_means", models.mixture_means, OUTCOMES, UNKNOWN, "no certificate", n=50),
    _entry("network", models.network, TRUE, UNKNOWN, "no bound on one row's gradient"),
)
COIN_UNIFORM = Pair(beta(1, 100), logits, ODD, reach=(-45.0, 5.0))
COIN_STRONG_PRIOR = Pair(beta(200, 299), logits, ODD, reach=(-2.0, 1.5))
DIE_STRONG_PRIOR = Pair(beta(200, 200), logits, ODD, reach=(-1.5, 1.5))
GAMMA_POISSON = Pair(gamma(5000, 1999), law.poisson, FIVES, reach=(0.3, 1.5))
GAMMA_POISSON_WEAK_PRIOR = Pair(gamma(2, 1000), law.poisson, FIVES, reach=(-34.0, 2.0))
BINOMIAL_RATE = Pair(beta(2000, 2995), lambda t: dist.Binomial(5, logits=t), FIVES, reach=(-2.0, 0.0))
RATE = one_number(lambda p: dist.Binomial(5, probs=p), dist.Beta(2000.0, 2000.0))
# A strong prior hides one outcome, whose exact divergence is small; under a weak one it shows.
CONJUGATE = (
    _entry("coin_uniform", _coin(1.0), COINS, NO, COIN_UNIFORM, n=100, target=Target(0.5, 1e-3)),
    _entry("coin_strong_prior", _coin(200.0), COINS, YES, COIN_STRONG_PRIOR, n=100, target=Target(0.5, 1e-6)),
    _entry("die_strong_prior", _die(200.0), DICE, YES, DIE_STRONG_PRIOR, n=100),
    _entry("die_uniform", _die(1.0), DICE, UNKNOWN, "", n=100),
    _entry("gamma_poisson", _counts(5000.0, 1000.0), FIVE, YES, GAMMA_POISSON, n=1000),
    _entry("gamma_poisson_weak_prior", _counts(2.0, 1.0), FIVE, NO, GAMMA_POISSON_WEAK_PRIOR, n=1000),
    _entry("binomial_rate", RATE, FIVE, YES, BINOMIAL_RATE, n=200),
)
GROUPS_WITH_SLOPES = Pair(0.2, logits, ODD, temper=0.3)
PUBLIC_CURVE = Pair(lambda t: beta(124.5, 124.5)(t) - t**2 / 0.08, logits, ODD, temper=0.5, reach=(-2.5, 2.5))
BRADLEY_TERRY = Pair(0.02**0.5, logits, ODD, temper=0.5)
WITH_SLOPES = Rows(x=Box(-1, 1), group=Categories(4), y=Binary())
PLAYERS = Rows(home=Categories(6), away=Categories(6), y=Binary())
GROUPED = (
    # Each row has one group's effect as its predictor: 2·0.5·0.2 = 0.2-GDP.
    _entry(
        "groups_known_spread", models.groups_known_spread, GROUPS, YES, Pair(0.2, logits, ODD, temper=0.5)
    ),
    # Mean and effects are jointly normal with precision at least 4.28: 2·0.2/√4.28 = 0.193-GDP.
    _entry(
        "groups_around_a_mean", models.groups_around_a_mean, GROUPS, YES, "strongly log-concave", temper=0.2
    ),
    _entry("groups_centred", models.groups_centred, GROUPS, UNKNOWN, NOT_STRONG),
    _entry("groups_noncentred", models.groups_noncentred, GROUPS, UNKNOWN, "no bound on one row's gradient"),
    # A row's design is (1, x) in its group's place: 2·0.3·√2·0.2 = 0.17-GDP.
    _entry("groups_with_slopes", models.groups_with_slopes, WITH_SLOPES, YES, GROUPS_WITH_SLOPES),
    # Each row picks one public row, of norm 1, of a matrix of norm 7: 0.2-GDP. All other rows are balanced.
    _entry("public_curve", models.public_curve, Rows(cell=Categories(50), y=Binary()), YES, PUBLIC_CURVE),
    # Three powers of x in [−1, 1], of norm √3, are 0.173-GDP: powers of a column are proved nothing of.
    _entry(
        "cubic", models.cubic, Rows(x=Box(-1, 1), y=Binary()), UNKNOWN, "columns of their own", temper=0.25
    ),
    # Two strengths enter with signs, of norm at most 2: 2·0.5·2·0.1 = 0.2-GDP.
    _entry("bradley_terry", models.bradley_terry, PLAYERS, YES, BRADLEY_TERRY),
    # One ability and one difficulty enter, of norm √2: 2·0.7·√2·0.1 = 0.2-GDP.
    _entry("rasch", models.rasch, ANSWERS, YES, Pair(0.02**0.5, logits, ODD, temper=0.7)),
    _entry("discriminating_items", models.discriminating, ANSWERS, UNKNOWN, "logits of BernoulliLogits"),
)
ZOO = (*LOGISTIC, *LINEAR, *OTHERS, *CONJUGATE, *GROUPED)
