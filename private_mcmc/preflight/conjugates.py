"""Certificates of exact posteriors, for models that are proved to be of a conjugate family."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import jax
import numpy as np

from private_mcmc.accounting import Statement, posterior_strongly_log_concave
from private_mcmc.accounting.conjugate import (
    posterior_beta_binomial,
    posterior_dirichlet_categorical,
    posterior_gamma_poisson,
)
from private_mcmc.accounting.normal import (
    posterior_normal_mean,
    posterior_normal_ratio,
    posterior_normal_regression,
)
from private_mcmc.domains import Ratio
from private_mcmc.model import RowModel
from private_mcmc.model.ir.dependence import Level, affinity
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.interval import Interval
from private_mcmc.model.ir.intervals import bounds, row_values
from private_mcmc.model.ir.program import Output, Program, Variable
from private_mcmc.model.likelihoods.terms import find_link
from private_mcmc.model.predictor import row_bounds
from private_mcmc.target import Adjacency, Target

_RESHAPING = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy")


@dataclass(frozen=True)
class Asked:
    """Number of rows, temper, where the curve is wanted, and the adjacency."""

    n: int
    temper: float
    epsilons: tuple[float, ...]
    adjacency: Adjacency


def is_one_of_each(row_model: RowModel) -> bool:
    """One latent site, and per row one factor of one observed number without a weight.

    A value that is broadcast against its distribution is as many factors as the two together have.
    """
    if len(row_model.sites) != 1 or len(row_model.observations) != 1:
        return False
    if math.prod(row_model.observations[0].shape) != 1:
        return False
    program, name = row_model.program, row_model.observations[0].name
    return not program.parts("weight", name) and program.size(program.outputs[Output("observed", name)]) == 1


def slope_of(row_model: RowModel) -> float:
    """The design of a one-dimensional model if it is the same for every row, else NaN."""
    return row_free(row_model, "design")


def has_no_offset(row_model: RowModel) -> bool:
    """The predictor's offset is proved to be 0 for every row."""
    return row_free(row_model, "offset") == 0.0


def row_free(row_model: RowModel, part: str) -> float:
    """The value of a one-dimensional design or offset that is proved equal for all rows, else NaN."""
    with jax.enable_x64(True):
        value = row_bounds(getattr(row_model.predictor, part), row_model.rows)
    return value.lowest if value.is_point else math.nan


def number_of(row_model: RowModel, parameter: str, *, observed: bool = False) -> float | None:
    """A parameter of the latent (or the observed site) that is one public constant."""
    site = row_model.observations[0].name if observed else row_model.sites[0].name
    value = constant_of(row_model, row_model.program.outputs.get(Output("given", site, parameter)))
    if value is None or not np.all(value == np.ravel(value)[0]):
        return None
    return float(np.ravel(value)[0])


def value_of(row_model: RowModel, variable: Variable) -> float:
    """A scalar of the program at ``θ = 0`` that reads no row."""
    program = row_model.program
    if not program.reads([variable]) <= {"theta"}:
        return math.nan
    with jax.enable_x64(True):
        origin = {program.inputs["theta"]: np.zeros(row_model.dim)}
        return float(np.ravel(program.run([variable], origin)[0])[0])


def constant_of(row_model: RowModel, variable: Variable | None) -> np.ndarray | None:
    """What a variable is that reads neither rows nor the parameter."""
    if variable is None or row_model.program.reads([variable]):
        return None
    with jax.enable_x64(True):
        return np.asarray(row_model.program.run([variable], {})[0], dtype=np.float64)


def observed(row_model: RowModel) -> Interval:
    """Bounds of the observed value over the row domain."""
    program = row_model.program
    target = program.outputs[Output("observed", row_model.observations[0].name)]
    (value,) = bounds(program, row_values(program, row_model.rows), [target])
    return value


def is_whole_up_to(row_model: RowModel, largest: float) -> bool:
    """Every observed value is a whole number in ``[0, largest]``."""
    value = observed(row_model)
    return value.whole and value.lowest >= 0 and value.highest <= largest == round(largest)


def is_handed_on(row_model: RowModel, parameter: str) -> bool:
    """The observed site's parameter is the latent's own value, at most reshaped."""
    program = row_model.program
    variable = program.outputs.get(Output("given", row_model.observations[0].name, parameter), -1)
    while variable in program.producers and program.producers[variable].name in _RESHAPING:
        variable = program.producers[variable].inputs[0]
    return variable == program.outputs[Output("value", row_model.sites[0].name)]


def normal(row_model: RowModel, asked: Asked) -> Statement | None:
    """Mean: Gaussian posteriors of one curvature, or of two next to an absent row. Else: regression."""
    facts, (n, temper) = normal_facts(row_model), (asked.n, asked.temper)
    if facts is None:
        return None
    if facts.slope is not None:
        return _normal_mean(facts, facts.slope, asked)
    if facts.ratio is not None and facts.mean == 0 and asked.adjacency == "replace_one":
        return posterior_normal_ratio(
            facts.precision, temper * facts.noise, **asdict(facts.ratio), n=n, epsilons=asked.epsilons
        )
    response = max(abs(facts.low), abs(facts.high))
    if facts.mean != 0 or not facts.precision > 0 or not 0 < facts.radius * response < math.inf:
        return None
    return posterior_normal_regression(
        facts.precision,
        temper * facts.noise,
        radius=facts.radius,
        response=response,
        n=n,
        epsilons=asked.epsilons,
        adjacency=asked.adjacency,
    )


def _normal_mean(facts: NormalFacts, slope: float, asked: Asked) -> Statement | None:
    """Under ``replace_one`` rows alone make the posterior proper, whatever the prior."""
    gain = asked.temper * facts.noise * slope**2
    if slope == 0 or not -math.inf < facts.low <= facts.high < math.inf or not 0 < gain < math.inf:
        return None
    if asked.adjacency == "replace_one":
        steep = asked.temper * abs(slope) * facts.noise * (facts.high - facts.low) * (1 + 1e-12)
        curvature = (facts.precision + asked.n * gain) * (1 - 1e-12)
        return posterior_strongly_log_concave(steep, curvature, "replace_one", asked.n)
    if not facts.precision > 0:
        return None
    return posterior_normal_mean(
        facts.precision,
        gain,
        low=facts.low,
        high=facts.high,
        center=slope * facts.mean + facts.offset,
        slope=slope,
        n=asked.n,
        epsilons=asked.epsilons,
        adjacency=asked.adjacency,
    )


@dataclass(frozen=True)
class NormalFacts:
    """``y ~ N(x·θ + o, 1/noise)``, ``θ ~ N(mean, 1/precision)`` in one dimension, ``o`` equal for all rows.

    ``slope`` is ``x`` where it is the same for every row, otherwise ``o = 0``; ``radius`` bounds ``|x|``;
    ``low ≤ y ≤ high``; ``ratio`` is the domain of ``(x, y)`` where they are the two entries of its column.
    A flat prior has ``precision = 0``.
    """

    mean: float
    precision: float
    noise: float
    slope: float | None
    offset: float
    radius: float
    low: float
    high: float
    ratio: Ratio | None = None


def normal_facts(row_model: RowModel) -> NormalFacts | None:
    """The facts of a model that is proved to be a one-dimensional normal mean or regression."""
    predictor = row_model.predictor
    if row_model.dim != 1 or predictor is None or not is_one_of_each(row_model):
        return None
    prior, noise = _normal_prior(row_model), number_of(row_model, "scale", observed=True)
    if prior is None or noise is None or row_model.observations[0].family != "Normal":
        return None
    if predictor.family.link != "identity":
        return None
    slope, offset = slope_of(row_model), row_free(row_model, "offset")
    # An offset that changes with the row changes the residual, whatever the bounds of the outcome are.
    if math.isnan(offset) or (math.isnan(slope) and offset != 0):
        return None
    low, high = observed(row_model).lowest, observed(row_model).highest
    known = None if math.isnan(slope) else slope
    ratio = _ratio(row_model) if known is None and prior[1] > 0 else None
    return NormalFacts(*prior, 1 / noise**2, known, offset, predictor.radius, low, high, ratio)


def _ratio(row_model: RowModel) -> Ratio | None:
    """The one column, if the design is its first entry and the outcome its second."""
    (name, domain), *others = row_model.rows.items
    if others or not isinstance(domain, Ratio) or row_model.predictor is None:
        return None
    design = row_model.predictor.design
    with jax.enable_x64(True):
        program = trace(lambda **row: {"value": design(row)}, **{name: abstract((2,), domain.dtype)})
    outcome = row_model.program.outputs[Output("observed", row_model.observations[0].name)]
    firsts = _entry(program, program.outputs["value"], name)
    return domain if (firsts, _entry(row_model.program, outcome, name)) == (0, 1) else None


def _entry(program: Program, variable: Variable, name: str) -> int | None:
    """Which entry of the pair ``name`` it is: proved affine in it, evaluated at 0 and on both axes."""
    if not program.reads([variable]) <= {name} or affinity(program, name)[variable] is Level.UNKNOWN:
        return None
    with jax.enable_x64(True):
        points = [program.run([variable], {program.inputs[name]: at})[0] for at in ([0, 0], [1, 0], [0, 1])]
    values = [float(np.ravel(value)[0]) for value in points]
    entries = ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    return entries.index(values) if values in entries else None


def _normal_prior(row_model: RowModel) -> tuple[float, float] | None:
    """Mean and precision of a Normal prior, ``(0, 0)`` of a flat one on the real line."""
    site = row_model.sites[0]
    if site.family == "ImproperUniform" and site.support == "real":
        return 0.0, 0.0
    mean, sd = number_of(row_model, "loc"), number_of(row_model, "scale")
    if site.family != "Normal" or mean is None or sd is None:
        return None
    return mean, 1 / sd**2


# Where an interval of ε is cut, and how often: the last one is 1/125 as long as the first.
_CUTS, _ROUNDS = (0.2, 0.4, 0.6, 0.8), 3


def sharpened(
    found: Statement,
    epsilons: tuple[float, ...],
    delta: float,
    asked: Callable[[tuple[float, ...]], Statement | None],
) -> Statement:
    """``found`` with more points where its curve meets ``delta``, so that ``ε(δ)`` is near the exact one."""
    for _ in range(_ROUNDS):
        met = found.epsilon(delta)
        above = [at for at in epsilons if at >= met * (1 - 1e-9)]
        below = [at for at in epsilons if at < met * (1 - 1e-9)]
        if not above:
            return found
        low, high = max(below, default=0.0), min(above)
        cuts = tuple(low + (high - low) * share for share in _CUTS)
        finer = asked(tuple(sorted({*epsilons, *cuts})))
        if finer is None:
            return found
        found, epsilons = finer, tuple(sorted({*epsilons, *cuts}))
    return found


# Where the curve of an exact posterior is evaluated, in units of the target's ε.
_FACTORS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 12.0, 30.0)


def conjugate_certificates(
    row_model: RowModel, *, n: int, temper: float, target: Target, whole_curve: bool = True
) -> tuple[Statement, ...]:
    """The exact statement of a conjugate model, if the model is proved to be one.

    The family of the one latent and of the one observed site, and how the latent enters it, are read
    from the program; the prior's parameters are public constants of it. Without ``whole_curve`` the
    statement covers the target's ε alone.
    """
    if not is_one_of_each(row_model):
        return ()
    finders = {
        "Beta": _beta,
        "Uniform": _uniform,
        "Gamma": _gamma,
        "Dirichlet": _dirichlet,
        "Normal": normal,
        "ImproperUniform": normal,
    }
    finder = finders.get(row_model.sites[0].family)
    if finder is None:
        return ()

    def asked(epsilons: tuple[float, ...]) -> Statement | None:
        return finder(row_model, Asked(n, temper, epsilons, target.adjacency))

    epsilons = tuple(target.epsilon * factor for factor in (_FACTORS if whole_curve else (1.0,)))
    found = asked(epsilons)
    if found is not None and whole_curve:
        found = sharpened(found, epsilons, target.delta, asked)
    return () if found is None else (found,)


def _beta(row_model: RowModel, asked: Asked) -> Statement | None:
    a, b = number_of(row_model, "concentration1"), number_of(row_model, "concentration0")
    return None if a is None or b is None else _beta_binomial(row_model, a, b, asked)


def _uniform(row_model: RowModel, asked: Asked) -> Statement | None:
    """Uniform(0, 1) is Beta(1, 1)."""
    on_unit = (number_of(row_model, "low"), number_of(row_model, "high")) == (0.0, 1.0)
    return _beta_binomial(row_model, 1.0, 1.0, asked) if on_unit else None


def _beta_binomial(row_model: RowModel, a: float, b: float, asked: Asked) -> Statement | None:
    family = row_model.observations[0].family
    if family not in ("BernoulliProbs", "BinomialProbs") or not is_handed_on(row_model, "probs"):
        return None
    trials = 1.0 if family == "BernoulliProbs" else number_of(row_model, "total_count", observed=True)
    if trials is None or not is_whole_up_to(row_model, trials):
        return None
    return posterior_beta_binomial(a, b, trials=int(trials), **vars(asked))


def _gamma(row_model: RowModel, asked: Asked) -> Statement | None:
    predictor = row_model.predictor
    if predictor is None or predictor.family.name != "Poisson" or not _is_identity(row_model):
        return None
    program = row_model.program
    rate = program.outputs[Output("given", row_model.observations[0].name, "rate")]
    link = find_link(program, affinity(program, "theta"), rate)
    # A rate c/θ is exp(−u) of the same predictor, and not conjugate.
    if link is None or link.name != "exp":
        return None
    shape, slowness = number_of(row_model, "concentration"), number_of(row_model, "rate")
    exposure, largest = value_of(row_model, rate), observed(row_model).highest
    if shape is None or slowness is None or not exposure > 0:
        return None
    if program.reads([rate]) != {"theta"} or not 1 <= largest < math.inf:
        return None
    if not is_whole_up_to(row_model, largest):
        return None
    # The posterior's rate is that of the prior plus one exposure for each row.
    return posterior_gamma_poisson(shape, slowness / exposure, largest=int(largest), **vars(asked))


def _dirichlet(row_model: RowModel, asked: Asked) -> Statement | None:
    program, site, observed = row_model.program, row_model.sites[0], row_model.observations[0]
    concentration = constant_of(row_model, program.outputs.get(Output("given", site.name, "concentration")))
    direct = is_handed_on(row_model, "probs")
    if observed.family != "CategoricalProbs" or not direct or concentration is None:
        return None
    alphas = tuple(float(alpha) for alpha in np.ravel(concentration))
    if len(alphas) != site.shape[-1] or not is_whole_up_to(row_model, len(alphas) - 1):
        return None
    return posterior_dirichlet_categorical(alphas, **vars(asked))


def _is_identity(row_model: RowModel) -> bool:
    """The predictor is the unconstrained latent itself, whatever the row."""
    predictor = row_model.predictor
    return (
        predictor is not None
        and row_model.dim == 1
        and slope_of(row_model) == 1.0
        and has_no_offset(row_model)
    )
