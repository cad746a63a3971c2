"""Certificates of exact posteriors, for models that are proved to be of a conjugate family."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from private_mcmc.accounting import Statement, posterior_strongly_log_concave
from private_mcmc.accounting.conjugate import posterior_conjugate
from private_mcmc.model import RowModel
from private_mcmc.model.bounds import bounds, function_of_rows, is_whole
from private_mcmc.model.flatten import row_shapes, trace
from private_mcmc.model.likelihoods import find_link
from private_mcmc.model.program import Output, Variable, name_of
from private_mcmc.model.refusals import synthetic_rows
from private_mcmc.potential.families import Interval
from private_mcmc.potential.rowwise import abstract
from private_mcmc.target import Target

# Where the curve of an exact posterior is evaluated, in units of the target's ε.
_FACTORS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 12.0, 30.0)
# Where an interval of ε is cut, and how often: the last one is 1/125 as long as the first.
_CUTS, _ROUNDS = (0.2, 0.4, 0.6, 0.8), 3
_RESHAPING = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy")


class Conjugate(NamedTuple):
    """A conjugate family, and the constants of its exact statement."""

    family: str
    constants: Mapping[str, Any]


def conjugate(row_model: RowModel) -> Conjugate | None:
    """The family of a model, if it is proved to be of one.

    The family of the one latent and of the one observed site, and how the latent enters it, are read
    from the program; the prior's parameters are public constants of it.
    """
    finder = _FINDERS.get(row_model.sites[0].family) if _is_one_of_each(row_model) else None
    return None if finder is None else finder(row_model)


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


def _is_one_of_each(row_model: RowModel) -> bool:
    """One latent site, with no term of the prior beside it, and per row one factor of one observed number
    without a weight.

    A value that is broadcast against its distribution is as many factors as the two together have.
    """
    if len(row_model.sites) != 1 or len(row_model.observations) != 1 or row_model.prior.terms:
        return False
    if math.prod(row_model.observations[0].shape) != 1:
        return False
    # Of a Dirichlet NumPyro's own density runs, of all others the table's form, whatever attributes say.
    site = row_model.sites[0]
    if not (site.name in row_model.prior.forms or (site.family, site.support) == ("Dirichlet", "simplex")):
        return False
    program, name = row_model.program, row_model.observations[0].name
    return not program.parts("weight", name) and program.size(program.outputs[Output("observed", name)]) == 1


def _row_free(row_model: RowModel, part: str) -> float:
    """The value of a one-dimensional design or offset that is proved equal for all rows, else NaN."""
    found = function_of_rows(getattr(row_model.predictor, part), row_model.rows)
    if found is None or np.any(found.slope) or np.ptp(found.value):
        return math.nan
    return float(found.value.flat[0])


def _constant(row_model: RowModel, site: str, parameter: str) -> np.ndarray | None:
    """A parameter of a site that reads neither rows nor the latent."""
    variable = row_model.program.outputs.get(Output("given", site, parameter))
    if variable is None or row_model.program.reads([variable]):
        return None
    with jax.enable_x64(True):
        return np.asarray(row_model.program.run([variable], {})[0], dtype=np.float64)


def _number(row_model: RowModel, parameter: str, *, observed: bool = False) -> float | None:
    """A parameter of the latent (or the observed site) that is one public constant."""
    sites = row_model.observations if observed else row_model.sites
    value = _constant(row_model, sites[0].name, parameter)
    if value is None or not np.all(value == np.ravel(value)[0]):
        return None
    return float(np.ravel(value)[0])


def _observed(row_model: RowModel) -> Interval:
    """Ends of the observed value over the row domain."""
    found = bounds(row_model.program, row_model.rows, [_target(row_model)])
    return found[0] if found else Interval(np.full(1, -np.inf), np.full(1, np.inf))


def _target(row_model: RowModel) -> Variable:
    return row_model.program.outputs[Output("observed", row_model.observations[0].name)]


def _is_whole_up_to(row_model: RowModel, largest: float) -> bool:
    """Every observed value is a whole number in ``[0, largest]``."""
    value, whole = _observed(row_model), is_whole(row_model.program, _target(row_model))
    return whole and value.lowest >= 0 and value.highest <= largest == round(largest)


def _is_probability(row_model: RowModel, *families: str) -> bool:
    """The observed site is of such a family, its ``probs`` the latent's own value, at most reshaped."""
    program, observed = row_model.program, row_model.observations[0]
    variable = program.outputs.get(Output("given", observed.name, "probs"))
    while variable in program.producers and name_of(program.producers[variable]) in _RESHAPING:
        variable = program.producers[variable].invars[0]
    own = variable == program.outputs[Output("value", row_model.sites[0].name)]
    return observed.family in families and own


def _is_plain_categorical(row_model: RowModel) -> bool:
    """Whether the observed site's density is, operation by operation, what its class makes of ``probs``.

    The class remembers logits beside probabilities, and its density reads those: they may be others, and
    others for some rows alone, which no comparison at points would see.
    """
    program, name = row_model.program, row_model.observations[0].name
    p, y = (program.outputs[Output(*key)] for key in (("given", name, "probs"), ("observed", name)))
    with jax.enable_x64(True):
        shapes = {of: abstract(program.shape(v), v.aval.dtype) for of, v in (("p", p), ("y", y))}
        plain = trace(lambda p, y: {"density": dist.CategoricalProbs(p).log_prob(y)}, **shapes)
    own = program.text([program.outputs[Output("density", name)]], {p: "p", y: "y"})
    return own == plain.text([plain.outputs["density"]])


# Where what runs is compared with the law of the table: moderate ones, at which no density clamps.
_PLACES, _TOLERANCE = np.array([0.0, 0.3, -0.8, 1.4]), 1e-6
Log: TypeAlias = Callable[..., jax.Array]


def _runs_as(row_model: RowModel, log_prior: Log, log_likelihood: Log) -> bool:
    """Whether prior and rows that run have these log densities of the latent's value, up to constants.

    A distribution holds what its density reads apart from the parameters that it shows, as logits beside
    probabilities: names and parameters tell of it only where nobody changed one of them.
    """
    site, observed = row_model.sites[0], Output("observed", row_model.observations[0].name)
    data = synthetic_rows(row_model.rows, 4)

    def gaps(theta: jax.Array, **row: jax.Array) -> dict[str, jax.Array]:
        def value(theta: jax.Array) -> jax.Array:
            return row_model.constrain(theta)[site.name]

        program, p = row_model.program, value(theta)
        inputs = {program.inputs[name]: column for name, column in row.items()}
        y = jnp.reshape(program.run([program.outputs[observed]], inputs)[0], ())
        # Of a point of the simplex the last entry follows from the others.
        slopes = jax.jacfwd(value)(theta).reshape(-1, row_model.dim)[: row_model.dim]
        prior = log_prior(p) + jnp.linalg.slogdet(slopes)[1] + row_model.neg_log_prior(theta)
        return {"prior": prior, "row": row_model.row_loss(theta, row) + log_likelihood(p, y)}

    with jax.enable_x64(True):
        shapes = row_shapes(row_model.rows)
        program = trace(gaps, theta=abstract((row_model.dim,), np.float64), **shapes)
        theta = np.tile(_PLACES[:, None] * np.cos(np.arange(row_model.dim)), (4, 1))
        repeated = {name: np.repeat(column, 4, axis=0) for name, column in data.items()}
        found = program.evaluate_each(["prior", "row"], theta=theta, **repeated)
    return all(bool(np.all(np.ptp(each.reshape(4, 4), axis=1) <= _TOLERANCE)) for each in found)


def _beta(row_model: RowModel) -> Conjugate | None:
    if row_model.sites[0].family == "Uniform":
        # Uniform(0, 1) is Beta(1, 1).
        on_unit = (_number(row_model, "low"), _number(row_model, "high")) == (0.0, 1.0)
        a = b = 1.0 if on_unit else None
    else:
        a, b = _number(row_model, "concentration1"), _number(row_model, "concentration0")
    if a is None or b is None or not _is_probability(row_model, "BernoulliProbs", "BinomialProbs"):
        return None
    single = row_model.observations[0].family == "BernoulliProbs"
    trials = 1.0 if single else _number(row_model, "total_count", observed=True)
    if trials is None or not _is_whole_up_to(row_model, trials):
        return None
    if not _runs_as(
        row_model,
        lambda p: jnp.sum((a - 1) * jnp.log(p) + (b - 1) * jnp.log1p(-p)),
        lambda p, y: jnp.sum(y * jnp.log(p) + (trials - y) * jnp.log1p(-p)),
    ):
        return None
    return Conjugate("beta_binomial", {"a": a, "b": b, "trials": int(trials)})


def _gamma(row_model: RowModel) -> Conjugate | None:
    predictor, program = row_model.predictor, row_model.program
    if predictor is None or predictor.family.name != "Poisson" or row_model.dim != 1:
        return None
    # The predictor is the unconstrained latent itself, whatever the row.
    if (_row_free(row_model, "design"), _row_free(row_model, "offset")) != (1.0, 0.0):
        return None
    rate = program.outputs[Output("given", row_model.observations[0].name, "rate")]
    link = find_link(program, row_model.rows, rate)
    # A rate c/θ is exp(−u) of the same predictor, and not conjugate.
    if link is None or link.name != "exp" or program.reads([rate]) != {"theta"}:
        return None
    shape, slowness = _number(row_model, "concentration"), _number(row_model, "rate")
    largest = _observed(row_model).highest
    if shape is None or slowness is None or not 1 <= largest < math.inf:
        return None
    if not _is_whole_up_to(row_model, largest):
        return None
    return Conjugate("gamma_poisson", {"shape": shape, "largest": int(largest)})


def _dirichlet(row_model: RowModel) -> Conjugate | None:
    site = row_model.sites[0]
    concentration = _constant(row_model, site.name, "concentration")
    if concentration is None or not _is_probability(row_model, "CategoricalProbs"):
        return None
    alphas = tuple(float(alpha) for alpha in np.ravel(concentration))
    if len(alphas) != site.shape[-1] or not _is_whole_up_to(row_model, len(alphas) - 1):
        return None
    if not _is_plain_categorical(row_model):
        return None
    powers = np.ravel(concentration) - 1
    if not _runs_as(
        row_model,
        lambda p: jnp.sum(powers * jnp.log(jnp.ravel(p))),
        lambda p, y: jnp.log(jnp.ravel(p))[y.astype(int)],
    ):
        return None
    return Conjugate("dirichlet_categorical", {"concentration": alphas})


def _normal(row_model: RowModel) -> Conjugate | None:
    """A mean of Normal rows: Gaussian posteriors of one curvature, whatever the prior."""
    predictor, noise = row_model.predictor, _number(row_model, "scale", observed=True)
    if row_model.dim != 1 or predictor is None or noise is None:
        return None
    site, family = row_model.sites[0], row_model.observations[0].family
    prior = _number(row_model, "scale") if site.family == "Normal" else math.inf
    if family != "Normal" or predictor.family.link != "identity" or prior is None or site.support != "real":
        return None
    # An offset that changes with the row changes the residual, whatever the bounds of the outcome are.
    slope, offset = _row_free(row_model, "design"), _row_free(row_model, "offset")
    low, high = _observed(row_model).lowest, _observed(row_model).highest
    if math.isnan(offset) or not 0 < abs(slope) < math.inf or not -math.inf < low <= high < math.inf:
        return None
    return Conjugate(
        "normal", {"slope": abs(slope), "width": high - low, "noise": noise, "precision": 1 / prior**2}
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
