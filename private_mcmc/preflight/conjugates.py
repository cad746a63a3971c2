"""Certificates of exact posteriors, for models that are proved to be of a conjugate family."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from private_mcmc.accounting import Statement, posterior_strongly_log_concave
from private_mcmc.accounting.conjugate import posterior_conjugate
from private_mcmc.model import RowModel
from private_mcmc.model.bounds import bounds, function_of_rows, is_whole
from private_mcmc.model.program import Output
from private_mcmc.records import RUN_ONCE
from private_mcmc.target import Target

# Where the curve of an exact posterior is evaluated, in units of the target's ε.
_FACTORS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 12.0, 30.0)
# Where an interval of ε is cut, and how often: the last one is 1/125 as long as the first.
_CUTS, _ROUNDS = (0.2, 0.4, 0.6, 0.8), 3


class Conjugate(NamedTuple):
    """A conjugate family, and the constants of its exact statement."""

    family: str
    constants: Mapping[str, Any]


Log: TypeAlias = Callable[..., jax.Array]


def conjugate(row_model: RowModel) -> Conjugate | None:
    """The family of a model, if it is proved to be of one.

    One latent site, with no term of the prior beside it, and per row one factor of one observed number,
    without a weight, into whose density a row enters through that number alone. What runs is compared with
    the laws of the family.
    """
    if len(row_model.sites) != 1 or len(row_model.observations) != 1 or row_model.prior.terms:
        return None
    # A value that is broadcast against its distribution is as many factors as the two together have.
    if math.prod(row_model.observations[0].shape) != 1:
        return None
    program, name = row_model.program, row_model.observations[0].name
    observed = program.outputs[Output("observed", name)]
    density = program.outputs[Output("density", name)]
    if (
        program.parts("weight", name)
        or program.size(observed) != 1
        or not program.reads([density], [observed]) <= {"theta"}
    ):
        return None
    finder = _FINDERS.get(row_model.sites[0].family)
    found = None if finder is None else finder(row_model)
    return found[0] if found is not None and _runs_as(row_model, *found[1:]) else None


def conjugate_certificate(
    found: Conjugate, *, n: int, temper: float, target: Target, whole_curve: bool = True
) -> Statement | None:
    """The exact statement, of a row replaced.

    Without ``whole_curve`` it covers the target's ε alone; with it, its points are dense where the curve
    meets the target's δ.
    """
    if target.adjacency != "replace_one":
        return None
    if found.family == "normal":
        return _normal_mean(n, temper, **found.constants)

    def at(epsilons: tuple[float, ...]) -> Statement:
        return posterior_conjugate(found.family, epsilons=epsilons, n=n, temper=temper, **found.constants)

    epsilons = tuple(target.epsilon * factor for factor in (_FACTORS if whole_curve else (1.0,)))
    statement = at(epsilons)
    for _ in range(_ROUNDS if whole_curve else 0):
        met = statement.epsilon(target.delta)
        above = [epsilon for epsilon in epsilons if epsilon >= met * (1 - 1e-9)]
        if not above:
            break
        low = max((epsilon for epsilon in epsilons if epsilon < met * (1 - 1e-9)), default=0.0)
        cuts = (low + (min(above) - low) * share for share in _CUTS)
        epsilons = tuple(sorted({*epsilons, *cuts}))
        statement = at(epsilons)
    return statement


def _row_free(row_model: RowModel, part: str) -> float:
    """The value of a one-dimensional design or offset that is proved equal for all rows, else NaN."""
    found = function_of_rows(getattr(row_model.predictor, part), row_model.rows)
    if found is None or np.any(found.slope) or np.ptp(found.value):
        return math.nan
    return float(found.value.flat[0])


def _constant(row_model: RowModel, parameter: str, *, observed: bool = False) -> np.ndarray | None:
    """A parameter of the latent (or the observed site) that reads neither rows nor the latent, flat."""
    site = (row_model.observations if observed else row_model.sites)[0]
    variable = row_model.program.outputs.get(Output("given", site.name, parameter))
    if variable is None or row_model.program.reads([variable]):
        return None
    with jax.enable_x64(True):
        return np.ravel(np.asarray(row_model.program.run([variable], {})[0], dtype=np.float64))


def _number(row_model: RowModel, parameter: str, *, observed: bool = False) -> float | None:
    """Such a parameter that is one public constant."""
    value = _constant(row_model, parameter, observed=observed)
    return None if value is None or not np.all(value == value[0]) else float(value[0])


def _ends(row_model: RowModel, *, whole: bool = True) -> tuple[float, float] | None:
    """The least and the largest observed value over the row domain, ``whole`` numbers from 0 on."""
    target = row_model.program.outputs[Output("observed", row_model.observations[0].name)]
    found = bounds(row_model.program, row_model.rows, [target])
    if found is None or not -math.inf < found[0].lowest <= found[0].highest < math.inf:
        return None
    if whole and not (is_whole(row_model.program, target) and found[0].lowest >= 0):
        return None
    return found[0].lowest, found[0].highest


# Where what runs is compared with the law of the table: moderate ones, at which no density clamps.
_PLACES, _ROWS, _TOLERANCE = np.array([0.0, 0.3, -0.8, 1.4]), 64, 1e-6


def _runs_as(row_model: RowModel, log_prior: Log, log_likelihood: Log) -> bool:
    """Whether prior and rows that run have these log densities of the latent's value, up to constants.

    A distribution holds what its density reads apart from the parameters that it shows, as logits beside
    probabilities: names and parameters tell of it only where nobody changed one of them.
    """
    site, observed = row_model.sites[0], Output("observed", row_model.observations[0].name)
    program = row_model.program

    def gaps(theta: jax.Array, row: Mapping[str, jax.Array]) -> jax.Array:
        def value(theta: jax.Array) -> jax.Array:
            return row_model.constrain(theta)[site.name]

        p, known = value(theta), program.columns(row)
        y = jnp.reshape(program.run([program.outputs[observed]], known)[0], ())
        # Of a point of the simplex the last entry follows from the others.
        slopes = jax.jacfwd(value)(theta).reshape(-1, row_model.dim)[: row_model.dim]
        prior = log_prior(p) + jnp.linalg.slogdet(slopes)[1] + row_model.neg_log_prior(theta)
        return jnp.stack([prior, row_model.row_loss(theta, row) + log_likelihood(p, y)])

    with jax.enable_x64(True):
        rows = row_model.rows.project(row_model.rows.synthetic(0, _ROWS))
        thetas = jnp.asarray(_PLACES[:, None] * np.cos(np.arange(row_model.dim)))
        every = jax.jit(jax.vmap(jax.vmap(gaps, (0, None)), (None, 0)), compiler_options=RUN_ONCE)
        found = np.asarray(every(thetas, rows))
    return bool(np.all(np.ptp(found, axis=1) <= _TOLERANCE))


Found: TypeAlias = tuple[Conjugate, Log, Log]


def _beta(row_model: RowModel) -> Found | None:
    if row_model.sites[0].family == "Uniform":
        # Uniform(0, 1) is Beta(1, 1).
        on_unit = (_number(row_model, "low"), _number(row_model, "high")) == (0.0, 1.0)
        a = b = 1.0 if on_unit else None
    else:
        a, b = _number(row_model, "concentration1"), _number(row_model, "concentration0")
    family, ends = row_model.observations[0].family, _ends(row_model)
    trials = 1.0 if family == "BernoulliProbs" else _number(row_model, "total_count", observed=True)
    if a is None or b is None or trials is None or ends is None or not ends[1] <= trials == round(trials):
        return None
    return (
        Conjugate("beta_binomial", {"a": a, "b": b, "trials": int(trials)}),
        lambda p: jnp.sum((a - 1) * jnp.log(p) + (b - 1) * jnp.log1p(-p)),
        lambda p, y: jnp.sum(y * jnp.log(p) + (trials - y) * jnp.log1p(-p)),
    )


def _gamma(row_model: RowModel) -> Found | None:
    shape, rate = _number(row_model, "concentration"), _number(row_model, "rate")
    ends, program, site = _ends(row_model), row_model.program, row_model.sites[0].name
    of = program.outputs.get(Output("given", row_model.observations[0].name, "rate"))
    if row_model.dim != 1 or shape is None or rate is None or ends is None or ends[1] < 1:
        return None
    if of is None or program.reads([of]) != {"theta"}:
        return None
    with jax.enable_x64(True):
        at = jnp.zeros(1)
        exposure = jnp.ravel(
            program.run([of], {program.inputs["theta"]: at})[0] / row_model.constrain(at)[site]
        )
    return (
        Conjugate("gamma_poisson", {"shape": shape, "largest": int(ends[1])}),
        lambda p: jnp.sum((shape - 1) * jnp.log(p) - rate * p),
        lambda p, y: jnp.sum(y * jnp.log(exposure * p) - exposure * p) - gammaln(y + 1),
    )


def _dirichlet(row_model: RowModel) -> Found | None:
    alphas, ends = _constant(row_model, "concentration"), _ends(row_model)
    if (
        alphas is None
        or ends is None
        or len(alphas) != row_model.sites[0].shape[-1]
        or ends[1] >= len(alphas)
    ):
        return None
    return (
        Conjugate("dirichlet_categorical", {"concentration": tuple(map(float, alphas))}),
        lambda p: jnp.sum((alphas - 1) * jnp.log(jnp.ravel(p))),
        lambda p, y: jnp.log(jnp.ravel(p))[y.astype(int)],
    )


def _normal(row_model: RowModel) -> Found | None:
    """A mean of Normal rows: Gaussian posteriors of one curvature, whatever the prior."""
    noise, site, ends = (
        _number(row_model, "scale", observed=True),
        row_model.sites[0],
        _ends(row_model, whole=False),
    )
    sd = _number(row_model, "scale") if site.family == "Normal" else math.inf
    if row_model.dim != 1 or row_model.predictor is None or site.support != "real":
        return None
    # An offset that changes with the row changes the residual, whatever the bounds of the outcome are.
    slope, offset = _row_free(row_model, "design"), _row_free(row_model, "offset")
    if noise is None or sd is None or ends is None or math.isnan(offset) or not 0 < abs(slope) < math.inf:
        return None
    known = {"slope": abs(slope), "width": ends[1] - ends[0], "noise": noise, "precision": 1 / sd**2}
    centre = _number(row_model, "loc") or 0.0
    return (
        Conjugate("normal", known),
        lambda p: -jnp.sum(((p - centre) / sd) ** 2) / 2,
        lambda p, y: -jnp.sum((y - slope * p - offset) ** 2) / (2 * noise**2),
    )


def _normal_mean(
    n: int, temper: float, slope: float, width: float, noise: float, precision: float
) -> Statement | None:
    each = temper / noise**2
    gain = each * slope**2
    if not 0 < gain < math.inf:
        return None
    curvature = (precision + n * gain) * (1 - 1e-12)
    return posterior_strongly_log_concave(each * slope * width * (1 + 1e-12), curvature, "replace_one", n)


_FINDERS = {
    "Beta": _beta,
    "Uniform": _beta,
    "Gamma": _gamma,
    "Dirichlet": _dirichlet,
    "Normal": _normal,
    "ImproperUniform": _normal,
}
