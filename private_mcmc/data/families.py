"""Families of outcomes and priors, by the words of bambi and brms.

Families have their links and what coefficients mean; priors are on the user's scale, and the same in others.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

from private_mcmc.data.fields import Field, is_number
from private_mcmc.errors import DeclarationError

Array: TypeAlias = npt.NDArray[np.float64]
Kind: TypeAlias = Literal["two", "count", "number", "positive", "share", "levels", "ordered"]

_WANTED: Mapping[Kind, str] = {
    "two": "two levels (constraints.enum), type boolean, or an integer 0 to 1; for more take the family "
    "categorical, or cumulative where they have an order",
    "count": "type integer with a minimum of 0 or more (of 0 for zi_… and hurdle_…) and a maximum",
    "number": "type number with a minimum and a maximum",
    "positive": "type number with a minimum above 0 and a maximum",
    "share": "type number with a minimum above 0 and a maximum below 1",
    "levels": "three levels or more (constraints.enum); for two take bernoulli",
    "ordered": "three levels or more in order (constraints.enum); for two take bernoulli",
}


_MOST_SIGNS = 1_000


class Parameter(NamedTuple):
    """A parameter beside the mean: its name, and its value if nothing is said of it.

    With a ``law`` it is estimated, and ``usual`` are the law's numbers in halves of the outcome's range.
    ``words`` say how other programs have it.
    """

    name: str
    usual: tuple[float, ...]
    law: str = ""
    words: str = ""

    def prior(self, half: float) -> Prior:
        """What it is if nothing is said, on the outcome's scale, half of whose range is ``half``."""
        usual = Prior(self.law, self.usual)
        return usual.in_units(half) if self.law else usual

    def check(self, prior: Prior) -> None:
        """Refuse a prior whose values the parameter cannot have."""
        check_sign(self.name, prior, real=self.law == "normal")
        share = self.law == "beta"
        if prior.numbers[0] >= 1 if prior.is_stated and share else share != (prior.law == "beta"):
            wanted = "is a probability: beta(a, b), or a number below 1" if share else "is none: no beta"
            raise DeclarationError(f"prior of {self.name!r}: it {wanted}.")


class Scales(NamedTuple):
    """Sds of default priors in units of the predictor.

    Of the intercept; of an effect: of a level, or of a quarter of a number's range; of a group's levels.
    """

    intercept: float
    effect: float
    group: float


@dataclass(frozen=True)
class Family:
    """A distribution of outcomes.

    Attributes:
        name: bambi's word for it.
        kind: of the outcome.
        likelihood: the NumPyro distribution; ``eta`` is the predictor, ``mu`` is it in the outcome's units.
        inverse_link: from the predictor to the outcome's mean (of one trial).
        ratio: what ``exp`` of a coefficient is, or empty.
        mean: what a prediction is.
        sds: of default priors.
        parameters: beside the mean.
        log_hazard, cumulative: of a ``time`` until an event that may be cut off, its log hazard and its
            cumulative hazard, in the place of a distribution: a row's term is the first, if the event was
            seen, less the second. NumPyro's log survival is clamped, without a slope, where it is small.
    """

    name: str
    kind: Kind
    likelihood: str
    inverse_link: Callable[[Array], Array]
    ratio: str
    mean: str
    sds: Scales
    parameters: tuple[Parameter, ...] = ()
    log_hazard: str = ""
    cumulative: str = ""

    @property
    def is_linear(self) -> bool:
        """Whether effects are in the outcome's units."""
        return self.kind == "number"

    def check(self, outcome: Field) -> None:
        """Raise unless the outcome's declaration fits."""
        if not self._fits(outcome):
            raise _unfit(outcome, self, _WANTED[self.kind])
        if outcome.indicator or (outcome.is_category and outcome.missing == "indicator"):
            raise _unfit(
                outcome, self, "no indicator of missing values: missing is refuse, drop, middle, or a value"
            )

    def _fits(self, outcome: Field) -> bool:
        if outcome.is_category:
            levels = len(outcome.all_levels)
            # An event counts as 1.
            two = self.kind == "two" or self.name == "poisson"
            return levels == 2 if two else self.kind in ("levels", "ordered") and levels > 2
        low, high = outcome.range
        whole = outcome.type == "integer"
        fits: Mapping[Kind, bool] = {
            "two": whole and (low, high) == (0, 1),
            "count": whole and (low == 0 or (low > 0 and not self._of_zeros)) and high < 2**31,
            "number": True,
            "positive": low > 0,
            "share": 0 < low < high < 1,
        }
        return fits.get(self.kind, False)

    @property
    def _of_zeros(self) -> bool:
        """Whether zeros have a share of their own."""
        return any(one.law == "beta" for one in self.parameters)

    def outcome_scale(self, outcome: Field, centred: bool = True) -> tuple[float, float]:
        """Centre and half range of the outcome, in whose units the model's predictor is."""
        if not self.is_linear:
            return 0.0, 1.0
        low, high = outcome.range
        return ((low + high) / 2, (high - low) / 2) if centred else (0.0, max(abs(low), abs(high)))


def _unfit(outcome: Field, family: Family, wanted: str) -> DeclarationError:
    return DeclarationError(f"family {family.name!r}: the outcome {outcome.name!r} needs {wanted}.")


def ordered_start(levels: int) -> tuple[list[float], list[float]]:
    """Means and sds of the first threshold and of the logarithms of the gaps to the next ones."""
    gaps = levels - 2
    return [-gaps / 2, *[0.0] * gaps], [1.5, *[0.7] * gaps]


def _softmax(eta: Array) -> Array:
    """The first level's logit is 0."""
    return np.asarray(softmax(np.pad(eta, [(0, 0)] * (eta.ndim - 1) + [(1, 0)]), axis=-1))


def _from_one(eta: Array) -> Array:
    """The mean of a Poisson count that is not zero."""
    rate = np.exp(eta)
    return np.asarray(rate / -np.expm1(-rate))


_ODDS, _RATES, _MEANS, _MEDIANS = "odds ratio", "rate ratio", "ratio of means", "ratio of medians"
_OF_ODDS, _OF_LOGS = Scales(5.0, 2.5, 1.0), Scales(3.0, 1.0, 0.5)
_OF_HALVES, _OF_LEVELS = Scales(1.0, 1.0, 0.5), Scales(3.0, 1.5, 1.0)
_SIGMA, _OF_THE_LOG = Parameter("sigma", (0.5,), "halfnormal"), Parameter("sigma", (1.0,))
_NU, _SHAPE = Parameter("nu", (4.0,)), Parameter("alpha", (1.0,))
# The probability that a count is zero whatever its mean is, and log ratios of a hazard to its first step's.
_ZI, STEPS = Parameter("zi", (1.0, 1.0), "beta"), "steps"
_STEPS = Parameter(STEPS, (0.0, 1.0), "normal")
# And the probability of zero where all others are counts from 1 on.
_HU = Parameter("hu", (1.0, 1.0), "beta")
# Of counts the variance is mean + mean²/alpha.
_SIZE = Parameter("alpha", (1.0,), words="size or theta in R, shape in brms, 1/alpha in statsmodels")
_KAPPA = Parameter("kappa", (10.0,))
_COUNTS = "dist.NegativeBinomial2(jnp.exp(eta), alpha)"
_GAMMA = "dist.Gamma(alpha, alpha * jnp.exp(-eta))"
# Of the mean e^eta: the scale is the mean divided by Γ(1 + 1/alpha).
_WEIBULL = "dist.Weibull(jnp.exp(eta - jax.scipy.special.gammaln(1 + 1 / alpha)), alpha)"
_EXPONENTIAL = "dist.Exponential(jnp.exp(-eta))"
_LOGNORMAL = "dist.LogNormal(eta, sigma)"
_SHARES = "dist.BetaProportion(jax.nn.sigmoid(eta), kappa)"
_ZI_POISSON = "dist.ZeroInflatedPoisson(zi, jnp.exp(eta))"
_HURDLE = "dist.HurdlePoisson(hu, jnp.exp(eta))"
_ZI_COUNTS = "dist.ZeroInflatedNegativeBinomial2(jnp.exp(eta), alpha, gate=zi)"
# The first level's logit is 0.
_LEVELS = "dist.Categorical(logits=jnp.pad(eta, [(0, 0)] * (eta.ndim - 1) + [(1, 0)]))"
_ORDERED = "dist.OrderedLogistic(eta, thresholds)"
FAMILIES: Mapping[str, Family] = {
    one.name: one
    for one in (
        Family("bernoulli", "two", "dist.Bernoulli(logits=eta)", expit, _ODDS, "probability", _OF_ODDS),
        Family("binomial", "count", "dist.Binomial(trials, logits=eta)", expit, _ODDS, "share", _OF_ODDS),
        Family("poisson", "count", "dist.Poisson(jnp.exp(eta))", np.exp, _RATES, "mean count", _OF_LOGS),
        Family("negativebinomial", "count", _COUNTS, np.exp, _RATES, "mean count", _OF_LOGS, (_SIZE,)),
        Family("zi_poisson", "count", _ZI_POISSON, np.exp, _RATES, "mean count", _OF_LOGS, (_ZI,)),
        Family(
            "zi_negativebinomial", "count", _ZI_COUNTS, np.exp, _RATES, "mean count", _OF_LOGS, (_ZI, _SIZE)
        ),
        Family("hurdle_poisson", "count", _HURDLE, _from_one, _RATES, "mean count", _OF_LOGS, (_HU,)),
        Family("gaussian", "number", "dist.Normal(mu, sigma)", np.asarray, "", "mean", _OF_HALVES, (_SIGMA,)),
        Family(
            "t", "number", "dist.StudentT(nu, mu, sigma)", np.asarray, "", "mean", _OF_HALVES, (_SIGMA, _NU)
        ),
        Family("gamma", "positive", _GAMMA, np.exp, _MEANS, "mean", _OF_LOGS, (_SHAPE,)),
        Family("exponential", "positive", _EXPONENTIAL, np.exp, _MEANS, "mean", _OF_LOGS),
        Family("weibull", "positive", _WEIBULL, np.exp, _MEANS, "mean", _OF_LOGS, (_SHAPE,)),
        Family("lognormal", "positive", _LOGNORMAL, np.exp, _MEDIANS, "median", _OF_LOGS, (_OF_THE_LOG,)),
        Family("beta", "share", _SHARES, expit, _ODDS, "mean", _OF_LOGS, (_KAPPA,)),
        Family("categorical", "levels", _LEVELS, _softmax, _ODDS, "probability", _OF_LEVELS),
        Family("cumulative", "ordered", _ORDERED, np.asarray, _ODDS, "probability", _OF_LEVELS),
    )
}
_HAZARDS, _MEDIAN, _LATER = "hazard ratio", "median", "jnp.exp(eta) * "
# Where the hazard is ``e^{eta + hazards}`` between ``cuts``; at a cut it is that of the time before.
_STEP = "eta + hazards[..., jnp.sum(time[:, None] > cuts, axis=-1)]"
_INSIDE = "jnp.clip(jnp.minimum(time[:, None], jnp.append(cuts, jnp.inf)) - jnp.append(0.0, cuts), 0.0, None)"
# Of times until an event, ``surv(time, event)``. Scores of hazards are bounded in time: of a Weibull hazard
# time is in units of the ``longest``, so that whatever its shape is the cumulative hazard is at most e^eta.
EVENTS: Mapping[str, Family] = {
    name: Family(name, "positive", "", np.exp, ratio, _MEDIAN, _OF_LOGS, parameters, log_hazard, cumulative)
    for name, ratio, parameters, log_hazard, cumulative in (
        ("exponential", _HAZARDS, (), "eta", _LATER + "time"),
        (
            "weibull",
            _HAZARDS,
            (Parameter("alpha", (0.0, 0.5), "lognormal"),),
            "eta + jnp.log(alpha / longest) + (alpha - 1) * jnp.log(time / longest)",
            _LATER + "(time / longest) ** alpha",
        ),
        (
            "lognormal",
            _MEDIANS,
            (_OF_THE_LOG,),
            "dist.LogNormal(eta, sigma).log_prob(time) + cumulative",
            "-jax.scipy.special.log_ndtr((eta - jnp.log(time)) / sigma)",
        ),
        ("cox", _HAZARDS, (_STEPS,), _STEP, f"{_LATER}jnp.sum(jnp.exp(hazards) * {_INSIDE}, axis=-1)"),
    )
}
_OTHERS = (
    "Others are models of your own: --show-model prints one to edit, and --model runs it. Times until an "
    "event that may be cut off are surv(time, event) ~ …."
)


def family(name: str) -> Family:
    """A family by its name.

    Raises:
        DeclarationError: for another one; each has one link.
    """
    found = {**EVENTS, **FAMILIES}.get(str(name))
    if found is None:
        raise DeclarationError(f"family {name!r}: one of {', '.join({**FAMILIES, **EVENTS})}. {_OTHERS}")
    return found


_PRIOR = re.compile(r"^(?P<name>.+?)\s*~\s*(?P<law>[A-Za-z_]+)\s*\((?P<numbers>[^()]*)\)\s*$")
_STATED = re.compile(r"^(?P<name>\w+)\s*=\s*(?P<number>\S+)\s*$")


class _Law(NamedTuple):
    """NumPyro's class, the words for its parameters, and the unit of each."""

    distribution: str
    parameters: str
    units: str


# A parameter's unit: "l" a location, "s" a scale, "r" a rate, "m" the location of a logarithm, "-" none.
_LAWS = {
    "normal": _Law("Normal", "mean, sd", "ls"),
    "studentt": _Law("StudentT", "nu, mean, scale", "-ls"),
    "cauchy": _Law("Cauchy", "mean, scale", "ls"),
    "laplace": _Law("Laplace", "mean, scale", "ls"),
    "halfnormal": _Law("HalfNormal", "sd", "s"),
    "halfcauchy": _Law("HalfCauchy", "scale", "s"),
    "exponential": _Law("Exponential", "rate", "r"),
    "gamma": _Law("Gamma", "shape, rate", "-r"),
    "lognormal": _Law("LogNormal", "mean, sd", "m-"),
    "beta": _Law("Beta", "a, b", "--"),
    # Of the correlation of two effects.
    "lkj": _Law("Beta", "eta", "-"),
}
_REAL = ("normal", "studentt", "cauchy", "laplace")


@dataclass(frozen=True)
class Prior:
    """One of the laws above with its numbers; without a law, a number that is stated and not estimated."""

    law: str
    numbers: tuple[float, ...]

    @property
    def is_stated(self) -> bool:
        """Whether it is one number."""
        return not self.law

    def in_units(self, factor: float, shift: float = 0.0) -> Prior:
        """The law of ``factor·(x − shift)``."""
        change = {
            "l": lambda x: (x - shift) * factor,
            "s": lambda x: x * factor,
            "r": lambda x: x / factor,
            "m": lambda x: x + math.log(factor),
            "-": lambda x: x,
        }
        units = _LAWS[self.law].units
        return Prior(self.law, tuple(change[u](x) for u, x in zip(units, self.numbers, strict=True)))

    def source(self) -> str:
        """As NumPyro's distribution, or as a number."""
        if self.is_stated:
            return repr(self.numbers[0])
        if self.law == "lkj":
            return f"dist.Beta({self.numbers[0]!r}, {self.numbers[0]!r})"
        return f"dist.{_LAWS[self.law].distribution}({', '.join(map(repr, self.numbers))})"

    def __str__(self) -> str:
        shown = ", ".join(f"{number:.4g}" for number in self.numbers)
        return f"{self.law}({shown})" if self.law else shown


def normal(mean: float, sd: float) -> Prior:
    """A Normal prior."""
    return Prior("normal", (mean, sd))


def read_priors(texts: Sequence[str]) -> Mapping[str, Prior]:
    """``age ~ normal(0, 0.1)``, ``sd(1 | region) ~ halfnormal(1)`` or ``sigma = 12``, by name."""
    if any(not isinstance(text, str) or len(text) > _MOST_SIGNS for text in texts):
        raise DeclarationError(f"priors: texts of at most {_MOST_SIGNS} signs, as 'age ~ normal(0, 0.1)'.")
    found: dict[str, Prior] = {}
    for text in texts:
        name, prior = _read(text.strip())
        if name in found:
            raise DeclarationError(f"prior {text!r}: {name!r} has one already.")
        found[name] = prior
    return found


def check_sign(name: str, prior: Prior, *, real: bool) -> None:
    """Refuse a law of positive numbers for an effect, and one of all numbers for an sd."""
    if prior.is_stated and not real:
        return
    if (prior.law in _REAL) != real:
        kinds = "normal, student_t, cauchy, laplace" if real else "halfnormal, halfcauchy, exponential, gamma"
        raise DeclarationError(f"prior of {name!r}: {prior} does not fit it; take one of {kinds}.")


def unknown_priors(given: Collection[str], every: Sequence[str]) -> DeclarationError:
    """For priors of terms that there are not; ``every`` are those that priors are for."""
    near = difflib.get_close_matches(min(given).partition("[")[0], every, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}? A prior is of a term, with all its levels." if near else ""
    return DeclarationError(f"prior of {sorted(given)}: there is no such term; priors are for {every}.{hint}")


def _read(text: str) -> tuple[str, Prior]:
    if (stated := _STATED.match(text)) and is_number(stated["number"]) and float(stated["number"]) > 0:
        return stated["name"], Prior("", (float(stated["number"]),))
    match = _PRIOR.match(text)
    name = "" if match is None else " ".join(re.sub(r"(\|+)", r" \1 ", match["name"]).split())
    law = "" if match is None else match["law"].lower().replace("_", "")
    if match is None or law not in _LAWS:
        raise DeclarationError(
            f"prior {text!r}: TERM ~ normal(mean, sd), as in 'age ~ normal(0, 0.1)', or NAME = NUMBER, as in "
            f"'sigma = 12'. There are {', '.join(_LAWS)}. Others: edit the model that --show-model prints."
        )
    words = [word.strip() for word in match["numbers"].split(",") if word.strip()]
    # As in `normal(mean=0, sd=1)`.
    values = [word.rpartition("=")[2].strip() for word in words]
    wanted = _LAWS[law]
    if len(values) != len(wanted.units) or not all(map(is_number, values)):
        raise DeclarationError(f"prior {text!r}: {match['law']}({wanted.parameters}), all of them numbers.")
    numbers = tuple(float(value) for value in values)
    positive = [number for number, unit in zip(numbers, wanted.units, strict=True) if unit not in "lm"]
    if not all(number > 0 for number in positive):
        raise DeclarationError(f"prior {text!r}: sds, scales, rates and shapes are positive.")
    return name, Prior(law, numbers)
