"""Certificates of exact posteriors, for models that are proved to be of a conjugate family."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from private_mcmc.accounting import Statement, posterior_conjugate, posterior_strongly_log_concave
from private_mcmc.errors import UnsupportedModel
from private_mcmc.model import RowModel, read
from private_mcmc.model.bounds import bounds, function_of_rows, is_whole
from private_mcmc.model.program import Output
from private_mcmc.potential.families import TABLE, UNKNOWN
from private_mcmc.potential.potential import model_marks
from private_mcmc.potential.predictor import MULTIPLIER, OUTCOME, WEIGHT, Term
from private_mcmc.potential.prior import TABLE as PRIORS
from private_mcmc.system import RUN_ONCE
from private_mcmc.target import Target

# Where the curve of an exact posterior is evaluated, in units of the target's ε.
_FACTORS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 12.0, 30.0)
# Where an interval of ε is cut, and how often: the last one is 1/125 as long as the first.
_CUTS, _ROUNDS = (0.2, 0.4, 0.6, 0.8), 3


class Conjugate(NamedTuple):
    """A conjugate family, and the constants of its exact statement."""

    family: str
    constants: Mapping[str, Any]


def conjugate(row_model: RowModel) -> Conjugate | None:
    """The family of a model, if what runs is proved to be of one.

    One latent site, with no term of the prior beside it, and per row one factor of one observed number,
    without a weight: a line of the table whose predictor is the latent, whatever the row. A point of the
    simplex has no line; its program is compared.
    """
    if len(row_model.sites) != 1 or len(row_model.observations) != 1 or row_model.prior.terms:
        return None
    # A value that is broadcast against its distribution is as many factors as the two together have.
    if math.prod(row_model.observations[0].shape) != 1:
        return None
    several = row_model.predictors
    if several is None or row_model.predictor is None or len(several.terms) != 1:
        return _dirichlet(row_model)
    # The family is that of what runs, in place of which no other function does.
    if several.family.name == UNKNOWN.name or not several.proved or row_model.dim != 1:
        return None
    term, slope, offset = (
        several.terms[0][0],
        _row_free(row_model, "designs"),
        _row_free(row_model, "offsets"),
    )
    # An offset that changes with the row changes the residual, whatever the bounds of the outcome are.
    if WEIGHT in term.ends or math.isnan(offset) or not 0 < abs(slope) < math.inf:
        return None
    if term.line is TABLE["Normal", "loc"]["identity"]:
        return _normal(row_model, term, slope)
    own = row_model.prior.own
    if (slope, offset, term.falling, len(own)) != (1.0, 0.0, False, 1):
        return None
    given, ends = [float(value.flat[0]) for value in own[0].given], term.ends[OUTCOME]
    if not (_is_whole(row_model) and 0 <= ends.lowest <= ends.highest < math.inf):
        return None
    if term.line is TABLE["Poisson", "rate"]["exp"] and own[0].line is PRIORS["Gamma", "positive"]:
        # A rate that a row multiplies by its own exposure adds to the posterior's rate, too.
        if _one_of(term, MULTIPLIER) is None or ends.highest < 1:
            return None
        return Conjugate("gamma_poisson", {"shape": given[0], "largest": int(ends.highest)})
    if term.line in (
        TABLE["BernoulliProbs", "probs"]["logistic"],
        TABLE["BinomialProbs", "probs"]["logistic"],
    ):
        # Uniform on an interval of which the predictor is the logit is Beta(1, 1).
        uniform = own[0].line is PRIORS["Uniform", "interval"]
        a, b = (1.0, 1.0) if uniform else given
        trials = _one_of(term, "total_count") if "total_count" in term.ends else 1.0
        known = uniform or own[0].line is PRIORS["Beta", "unitinterval"]
        if not known or trials is None or not ends.highest <= trials == round(trials):
            return None
        return Conjugate("beta_binomial", {"a": a, "b": b, "trials": int(trials)})
    return None


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
    """The value of a one-dimensional design or offset that reads no column, else NaN.

    Equal values do not do: in ``1e17 + x`` rounding hides what ``x`` adds.
    """
    found = function_of_rows(getattr(row_model.predictor, part), row_model.rows)
    if found is None or found.columns or found.value.size != 1:
        return math.nan
    return float(found.value.flat[0])


def _one_of(term: Term, name: str) -> float | None:
    """A parameter that is one number for all rows."""
    ends = term.ends[name]
    return ends.lowest if ends.lowest == ends.highest else None


def _is_whole(row_model: RowModel) -> bool:
    program = row_model.program
    return is_whole(program, program.outputs[Output("observed", row_model.observations[0].name)])


def _normal(row_model: RowModel, term: Term, slope: float) -> Conjugate | None:
    """A mean of Normal rows: posteriors of at least one curvature, whatever the prior."""
    noise, ends = _one_of(term, "scale"), term.ends[OUTCOME]
    width, precision = ends.highest - ends.lowest, float(row_model.prior.lower[0])
    if noise is None or not (width < math.inf and precision >= 0):
        return None
    known = {"slope": abs(slope), "width": width, "noise": noise, "precision": precision}
    return Conjugate("normal", known)


# Where what runs is compared with the law of the table: moderate places, at which no density clamps.
_PLACES, _ROWS, _TOLERANCE = np.array([0.0, 0.3, -0.8, 1.4]), 64, 1e-6


def _dirichlet(row_model: RowModel) -> Conjugate | None:
    """Categories of a point of the simplex under a Dirichlet prior, for which there is no line.

    Prior and rows that run are, operation by operation, those of the model that is written here: no
    comparison at points sees what a distribution remembers beside the probabilities that it shows, or what
    is other far out. Points show that NumPyro's classes have the densities of their names.
    """
    site, observed, program = row_model.sites[0], row_model.observations[0], row_model.program
    outcome = program.outputs[Output("observed", observed.name)]
    alpha = program.outputs.get(Output("given", site.name, "concentration"))
    if (site.family, observed.family) != ("Dirichlet", "CategoricalProbs") or alpha is None:
        return None
    column, ends = program.reads([outcome]), bounds(program, row_model.rows, [outcome])
    if program.reads([alpha]) or len(column) != 1 or ends is None or not _is_whole(row_model):
        return None
    shape = program.shape(program.outputs[Output("given", observed.name, "probs")])
    with jax.enable_x64(True):
        # NumPyro raises to α − 1 as α's own type rounds it: of 1e-9 in float32 to −1, of no law at all.
        alphas = 1.0 + np.ravel(np.asarray(program.run([alpha], {})[0] - 1.0, dtype=np.float64))
    if not np.all(alphas > 0) or not 0 <= ends[0].lowest <= ends[0].highest < len(alphas) == site.shape[-1]:
        return None

    def law(array: Callable[[Any], Any], **row: jax.Array) -> None:
        p = numpyro.sample(site.name, dist.Dirichlet(array(program.run([alpha], {})[0])))
        y = row[min(column)]
        with numpyro.plate(f"rows of {site.name} and {observed.name}", y.shape[0]):
            numpyro.sample(observed.name, dist.CategoricalProbs(jnp.broadcast_to(p, shape)), obs=y)

    try:
        # What NumPyro computes of NumPy's arrays is computed when a model is traced, and no operation.
        laws = (read(partial(law, array), row_model.rows, n=1) for array in (jnp.asarray, np.asarray))
        same = model_marks(row_model) in map(model_marks, laws)
    except UnsupportedModel:
        return None  # Of other shapes: one that runs, and no such law.
    if not (same and _has_law(row_model, alphas)):
        return None
    return Conjugate("dirichlet_categorical", {"concentration": tuple(map(float, alphas))})


def _has_law(row_model: RowModel, alphas: np.ndarray) -> bool:
    """Whether prior and rows that run have the family's densities, up to constants, at some points."""
    program, name = row_model.program, row_model.observations[0].name

    def gaps(theta: jax.Array, row: Mapping[str, jax.Array]) -> jax.Array:
        def value(theta: jax.Array) -> jax.Array:
            return jnp.ravel(row_model.constrain(theta)[row_model.sites[0].name])

        log = jnp.log(value(theta))
        y = jnp.reshape(program.run([program.outputs[Output("observed", name)]], program.columns(row))[0], ())
        # Of a point of the simplex the last entry follows from the others.
        jacobian = jnp.linalg.slogdet(jax.jacfwd(value)(theta)[: row_model.dim])[1]
        prior = jnp.sum((alphas - 1) * log) + jacobian + row_model.neg_log_prior(theta)
        return jnp.stack([prior, row_model.row_loss(theta, row) + log[y.astype(int)]])

    with jax.enable_x64(True):
        rows = row_model.rows.synthetic(0, _ROWS)
        thetas = jnp.asarray(_PLACES[:, None] * np.cos(np.arange(row_model.dim)))
        every = jax.jit(jax.vmap(jax.vmap(gaps, (0, None)), (None, 0)), compiler_options=RUN_ONCE)
        found = np.asarray(every(thetas, rows))
    return bool(np.all(np.ptp(found, axis=1) <= _TOLERANCE))


def _normal_mean(
    n: int, temper: float, slope: float, width: float, noise: float, precision: float
) -> Statement | None:
    each = temper / noise**2
    gain = each * slope**2
    if not 0 < gain < math.inf:
        return None
    curvature = (precision + n * gain) * (1 - 1e-12)
    return posterior_strongly_log_concave(each * slope * width * (1 + 1e-12), curvature, "replace_one", n)
