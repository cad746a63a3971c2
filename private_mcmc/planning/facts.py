"""What is public of a general policy: the model, draws of its prior, a first metric."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to
from scipy.optimize import minimize

from private_mcmc import accounting
from private_mcmc.accounting.mechanisms import second_moments_sensitivity
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.domains.rows import project_rows
from private_mcmc.errors import NotYetSupported
from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import prior_draws, scale_of
from private_mcmc.planning.estimates import floored, prior_curvature, root_of, spectral_norm
from private_mcmc.planning.outcomes import Columns, Likelihood, PersonLikelihood, likelihood_of
from private_mcmc.planning.stages import Array
from private_mcmc.potential.rowwise import at_each, of_rows
from private_mcmc.release import SecondMomentsPlan, plan_second_moments
from private_mcmc.system import RUN_ONCE, blas_of_one_thread
from private_mcmc.target import Adjacency

PRIOR_DRAWS = 400
# Scores whose mean is this share of their mean square are of outcomes that the declared range cuts off.
_CUT_OFF = 0.1
_HALVINGS, _ROWS = 6, 64
# Logarithms and log odds are vague if wider than this.
_VAGUE, _NO_LOGS = 5.0, ("real", "ordered")
_HESSIANS = 60
# Of a metric's directions, over the widest, in sds of the prior.
_LEAST_SD = 1e-6


@dataclass(frozen=True, eq=False)
class Prior:
    """Draws of the prior on the unconstrained space.

    Attributes:
        draws: shape ``(draws, p)``.
        centre: coordinatewise medians, shape ``(p,)``.
        scale: coordinatewise interquartile ranges in units of a standard Normal's, shape ``(p,)``.
        precision: what the prior adds to curvature, coordinatewise: medians over the draws of the diagonal
            of its Hessian, at least ``1/scale²``; shape ``(p,)``.
        hessians: of ``K`` at some of the draws, shape ``(few, p, p)``.
    """

    draws: Array
    centre: Array
    scale: Array
    precision: Array
    hessians: Array

    def stiffness(self, root: Array) -> float:
        """What the largest curvature of ``K`` in the metric of ``root`` rarely exceeds (one draw in ten)."""
        largest = np.linalg.eigvalsh(root.T @ self.hessians @ root)[:, -1]
        return float(np.quantile(largest, 0.9))

    def shrunk(self, index: int, share: float) -> Array:
        """A draw, pulled towards the centre to ``share`` of its distance."""
        return np.asarray(self.centre + share * (self.draws[index % len(self.draws)] - self.centre))


@dataclass(frozen=True, eq=False)
class Metric:
    """``M = AAᵀ`` and the sum over all rows of ``w E‖Aᵀ∇v‖²``, about the number of parameters."""

    root: Array
    trace: float


def next_metric(prior: Prior, root: Array, information: Array) -> Metric:
    """``M = (P + F)^{-1}`` from ``AᵀFA``, the information in the coordinates of ``root``; ``P`` diagonal."""
    precision = root.T @ (root * prior.precision[:, None])
    found = root_of(precision + information)
    trace = float(np.sum(found * (information @ found)))
    # No release makes a metric that float64 cannot factor.
    outer, sizes, inner = np.linalg.svd(root @ found / prior.scale[:, None])
    root = prior.scale[:, None] * (outer * np.maximum(sizes, _LEAST_SD * sizes[0])) @ inner
    return Metric(np.asarray(root, dtype=np.float64), max(trace, 0.05 * len(root)))


def flattened(metric: Metric, prior: Prior, weight: float) -> Metric:
    """Of the likelihood to the power ``weight``: of so much of the information that it was made for."""
    if weight == 1:
        return metric
    information = np.eye(len(metric.root)) - metric.root.T @ (metric.root * prior.precision[:, None])
    return next_metric(prior, metric.root, weight * floored((information + information.T) / 2, 0.0))


@lru_cache(maxsize=8)
def prior_of(reading: RowModel) -> Prior:
    """Draws from the prior by running the model, made once for each.

    Raises:
        NotYetSupported: for a prior that cannot be drawn from.
    """
    if reading.improper:
        raise NotYetSupported(
            f"plans draw synthetic data from the prior, and that of {', '.join(reading.improper)} is "
            "improper: give it a proper prior, or run the model with PrivateMCMC(PrivateULA(model, …), …)."
        )
    draws = prior_draws(reading, PRIOR_DRAWS)
    centre, scale = scale_of(draws)
    with jax.enable_x64(True):
        each = [np.asarray(prior_curvature(reading, theta)) for theta in draws[:_HESSIANS]]
    hessians = np.nan_to_num(np.stack(each))
    curvatures = np.median(np.diagonal(hessians, axis1=1, axis2=2), axis=0)
    return Prior(draws, centre, scale, np.maximum(curvatures, 1 / scale**2), hessians)


# Draws and public rows at which it is seen whether components may be exchanged, and what sums round off.
_PLACES, _SEEN, _SAME = 2, 256, 1e-9


@lru_cache(maxsize=8)
def exchangeable(reading: RowModel) -> bool:
    """Whether rows are as likely with the first two components of a mixture exchanged, at draws of the prior.

    Of sites whose last axes are as long as the number of components two elements are exchanged, and a single
    probability ``w`` of the first of two is ``1 − w``.
    """
    if not any("Mixture" in site.family for site in reading.observations):
        return False
    with jax.enable_x64(True):
        rows = reading.rows.synthetic(5, _SEEN)
        loss = jax.jit(lambda at: jnp.sum(at_each(partial(reading.row_loss, at), rows)))

        def same(theta: Array, count: int) -> bool:
            there = _exchanged(reading, jnp.asarray(theta), count)
            return bool(np.any(there != theta) and abs(loss(there) / loss(theta) - 1) < _SAME)

        counts = {site.shape[-1] for site in reading.sites if site.shape} - {1}
        return any(all(same(theta, count) for theta in prior_of(reading).draws[:_PLACES]) for count in counts)


def _exchanged(reading: RowModel, theta: jax.Array, count: int) -> jax.Array:
    """``θ`` with the first two of ``count`` components exchanged; NaN where a support does not allow it."""
    values = reading.constrain(theta)
    for site in reading.sites:
        value, support = values[site.name], site.constraint
        if site.shape and site.shape[-1] == count:
            value = value[..., jnp.asarray([1, 0, *range(2, count)])]
        elif not site.shape and count == 2 and site.support.startswith("unit"):
            value = 1 - value
        else:
            continue
        if support is None or not np.all(support(value)):
            return jnp.full_like(theta, jnp.nan)
        theta = theta.at[site.slice].set(jnp.ravel(biject_to(support).inv(value)))
    return theta


def plausible(prior: Prior, likelihood: Likelihood, rows: Columns, index: int, share: float) -> Array:
    """A draw of ``prior``, pulled towards the centre to ``share`` of its distance.

    Halfway again until it leaves the outcomes of public ``rows`` within their declared range.
    """
    each = likelihood.each if isinstance(likelihood, PersonLikelihood) else likelihood
    if type(each) is not Likelihood or each.times is not None or each.few:
        return prior.shrunk(index, share)
    rows = {name: jnp.asarray(column)[:_ROWS] for name, column in rows.items() if name != OWN_ROWS}
    if each is not likelihood:
        rows = {name: column[:, 0] for name, column in rows.items()}
    tried = np.stack([prior.shrunk(index, share * 0.5**k) for k in range(_HALVINGS)])
    with jax.enable_x64(True):
        fits = np.asarray(_cut_off(each, jnp.asarray(tried), rows)) <= _CUT_OFF
    return np.asarray(tried[np.argmax(fits) if fits.any() else -1])


def told_of(reading: RowModel, prior: Prior, rows: Columns) -> Prior:
    """``prior`` with vague logarithms and log odds around where they are likeliest given public ``rows``.

    A prior Gamma(0.01, 0.01), say, has the median 1e-30, where rows tell nothing, or everything: paths whose
    first metric was made there run away.
    """
    logs = np.zeros(reading.dim, dtype=bool)
    for site in reading.sites:
        logs[site.slice] = not any(word in site.support for word in _NO_LOGS)
    vague = logs & (prior.scale > _VAGUE)
    if not np.any(vague):
        return prior
    some = {name: jnp.asarray(column)[:_ROWS] for name, column in rows.items()}

    def potential(at: Array) -> tuple[float, Array]:
        value, slope = _potential(reading, jnp.asarray(at), some)
        return float(np.nan_to_num(value, nan=np.inf)), np.nan_to_num(np.asarray(slope))

    start = min(prior.draws, key=lambda draw: potential(draw)[0])
    mode = minimize(potential, start, jac=True, method="L-BFGS-B").x
    around = mode + (prior.draws - prior.centre) / prior.scale
    return replace(
        prior,
        draws=np.where(vague, around, prior.draws),
        centre=np.where(vague, mode, prior.centre),
        scale=np.where(vague, _VAGUE, prior.scale),
        precision=np.where(vague, np.maximum(prior.precision, _VAGUE**-2), prior.precision),
    )


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _potential(reading: RowModel, theta: jax.Array, rows: Columns) -> tuple[jax.Array, jax.Array]:
    """That of ``rows``, and its slope."""

    def value(at: jax.Array) -> jax.Array:
        return reading.neg_log_prior(at) + jnp.sum(at_each(partial(reading.row_loss, at), rows))

    return jax.value_and_grad(value)(theta)


@partial(jax.jit, static_argnums=0)
def _cut_off(likelihood: Likelihood, thetas: jax.Array, rows: Columns) -> jax.Array:
    """``Σ_i ‖E ∇v‖²`` over ``Σ_i E‖∇v‖²``, over the outcomes that were declared, at every ``θ``."""

    def at(theta: jax.Array) -> jax.Array:
        means, squares = at_each(partial(likelihood.score, theta), rows)
        return jnp.nan_to_num(jnp.sum(means**2) / jnp.maximum(jnp.sum(squares), 1e-300), nan=1.0)

    return jnp.asarray(jax.lax.map(at, thetas))


# Balls leave the noise, in spectral norm, a quarter of a typical eigenvalue; they are no smaller than this
# multiple of the rows' root mean square norm, since too tight a ball loses rare directions. Noise widens an
# sd by its square, a ball that is too tight by what it loses: chosen on synthetic rows with rare indicators.
_NOISE = 0.25
_LEAST_MULTIPLE, USUAL_MULTIPLE, LARGEST_MULTIPLE = 1.5, 2.5, 4.0
# A query takes what leaves this noise at the usual multiple, between these shares of the squared budget.
_AFFORDED_NOISE = 0.3
_LEAST_SHARE, _MOST_SHARE = 0.01, 0.05
# Its noise may be as large as the information that the metric is made for, twice over: what it says of
# directions that have more is worth it, most for intervals, which without a matrix are the path's alone.
_MOST_NOISE = 2.0
SYNTHETIC_ROWS = 512
_WIDEST = 200
# Parameters that the information is averaged over.
REFERENCES = 4


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything public that the stages are made from.

    Attributes:
        reading: the model as it was read.
        num_rows: ``n`` or its public bound.
        budget: of all stages together, in GDP.
        prior: draws of it.
        rows: synthetic, of the declared domain.
        likelihood: losses at possible outcomes.
        references: parameters that stage one asks about, shape ``(REFERENCES, p)``.
        vectors: how many a row adds to the information at that many parameters.
        metric: a guess from synthetic rows of the declared domain.
        temper: weight of the likelihood.
    """

    reading: RowModel
    num_rows: int
    adjacency: Adjacency
    budget: float
    prior: Prior
    rows: Columns
    likelihood: Likelihood
    references: Array
    vectors: int
    metric: Metric
    temper: float

    def _noise(self, radius: float) -> float:
        """Of a query at 1-GDP, whose ball has this radius, in spectral norm."""
        dim = self.reading.dim
        return spectral_norm(second_moments_sensitivity(radius, dim, self.adjacency), dim)

    def information_share(self, metric: Metric, multiple: float = USUAL_MULTIPLE) -> float:
        """Of the squared budget, for a query: enough for little noise where that costs little."""
        noise = self._noise(multiple * math.sqrt(metric.trace))
        share = (noise / (self.num_rows * self.budget) / _AFFORDED_NOISE) ** 2
        return min(max(share, _LEAST_SHARE), _MOST_SHARE)

    def query(self, metric: Metric, multiple: float = USUAL_MULTIPLE) -> SecondMomentsPlan | None:
        """The information of all rows in ``metric``, or ``None`` where its noise would hide it.

        Rows have the mean square norm ``trace/n`` there; the ball holds all vectors of one together.
        """
        dim, n = self.reading.dim, self.num_rows
        if dim > _WIDEST:
            return None
        gdp = self.budget * math.sqrt(self.information_share(metric, multiple))
        even = math.sqrt(_NOISE * gdp * n / self._noise(math.sqrt(metric.trace)))
        mechanism = plan_second_moments(
            gdp,
            radius=min(max(even, _LEAST_MULTIPLE), LARGEST_MULTIPLE) * math.sqrt(metric.trace / n),
            dim=dim,
            num_rows=n,
            adjacency=self.adjacency,
            vectors=self.vectors,
        )
        stated = accounting.of_unit(mechanism.statement, self.reading.unit)
        useful = spectral_norm(mechanism.noise.sd, dim) < _MOST_NOISE
        return replace(mechanism, statement=stated) if useful else None


def facts_of(
    reading: RowModel,
    n: int,
    adjacency: Adjacency,
    budget: float,
    temper: float = 1.0,
    people: Columns | None = None,
) -> Facts:
    """Draw what is synthetic, once; columns that ``people`` have take its place."""
    prior = prior_of(reading)
    likelihood = likelihood_of(reading, temper)
    with blas_of_one_thread(), jax.enable_x64(True):
        rows = reading.rows.synthetic(3, SYNTHETIC_ROWS)
        rows = rows if people is None else project_rows(reading.rows, {**rows, **people})
        prior = told_of(reading, prior, rows)
        references = np.stack([plausible(prior, likelihood, rows, k, 0.5) for k in range(REFERENCES)])
        asked, root = likelihood.synthetic(references, rows), np.diag(prior.scale)
        each = [np.asarray(of_rows(partial(likelihood.information, at, root), some)) for at, some in asked]
        information = sum(np.einsum("nki,nkj->ij", one, one, optimize=True) for one in each)
        information = np.asarray(information) * (n / (SYNTHETIC_ROWS * len(asked)))
        metric = next_metric(prior, root, information)
    most = each[0].shape[1]
    return Facts(reading, n, adjacency, budget, prior, rows, likelihood, references, most, metric, temper)
