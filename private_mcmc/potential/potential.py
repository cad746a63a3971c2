"""``U = K(θ) + w Σ_i v(θ, d_i)``: a row's term and a prior, each with what is proved of it.

Kernels take any term and any prior, whoever made them, as functions of one row (``rowwise``); the path that
they run is clipped, and its price rests on no fact about either. Prices of hidden states rest on constants,
which are made here of the very program that runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.accounting import Curvature
from private_mcmc.accounting.rounding import UP_LONG, product_up
from private_mcmc.accounting.steps import batch_factor
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.domains.rows import Rows
from private_mcmc.potential.families import UNKNOWN
from private_mcmc.potential.predictor import Predictor, Row
from private_mcmc.potential.prior import PriorConstants, Site
from private_mcmc.potential.rowwise import abstract, at_each, program_mark, row_shapes, rowwise
from private_mcmc.schedule import Matrix, Schedule
from private_mcmc.target import Unit

RowLoss = Callable[[jax.Array, Row], jax.Array]


@dataclass(frozen=True)
class RowConstants:
    """What holds of ``v(θ, row)`` for every row and every ``θ``, as kernels run it, in Euclidean norm.

    In the metric of a preconditioner ``M`` the gradient bound grows by ``λ_max(M)^{1/2}`` and the
    curvature bound by ``λ_max(M)``.

    Attributes:
        convex: ``v`` is convex in ``θ``.
        gradient_bound: ``‖∇v‖ ≤ gradient_bound``.
        curvature_bound: ``‖∇²v‖ ≤ curvature_bound``.
        proved: kernels change no row of the domain, so that it holds of the model itself.
    """

    convex: bool = False
    gradient_bound: float = math.inf
    curvature_bound: float = math.inf
    proved: bool = False


# The column in which kernels give a row's term the weight ``share(row)``.
SHARE = " share"


@dataclass(frozen=True, eq=False)
class RowTerm:
    """Minus the log likelihood of one row, or of one person, with what is proved of it.

    Constants are those of affine predictors that run: of any other function nothing is proved.

    Attributes:
        of: the affine predictors of a row, of which a person's term is a sum; or a function ``(θ, row) ↦ v``,
            ``row`` mapping column names to values of the domains' event shapes.
        rows: the domain into which rows are mapped.
        unit: where a person with several rows is one row: who that is.
    """

    of: RowLoss | Predictor = field(repr=False)
    rows: Rows
    unit: Unit | None = None

    def of_persons(self, rows: Rows) -> RowTerm:
        """``V = Σ_j v(θ, row_j)`` over the rows that a person has; columns are ``(k, …)``."""
        of = self.of if isinstance(self.of, Predictor) else _summed(self.of)
        return RowTerm(of, rows.persons, rows.unit)

    @property
    def written_out(self) -> RowTerm:
        """The same with products of the array of designs, whose rounding is known."""
        of = replace(self.of, written_out=True) if isinstance(self.of, Predictor) else self.of
        return replace(self, of=of)

    @property
    def _persons(self) -> int | None:
        """How many rows a person may have, ``None`` where the term is of a row."""
        own = self.rows.columns.get(OWN_ROWS)
        return None if own is None else own.event_shape[0]

    @cached_property
    def loss(self) -> RowLoss:
        """``(θ, row) ↦ v``, under the weight of the row where it has one."""
        if not isinstance(self.of, Predictor):
            return self.of
        row_loss = self.of.row_loss

        def loss(theta: jax.Array, row: Row) -> jax.Array:
            value = row_loss(theta, row)
            return value * row[SHARE] if SHARE in row else value

        return loss if self._persons is None else _summed(loss)

    @property
    def share(self) -> Callable[[Row], jax.Array] | None:
        """Weights of the terms, which kernels give them: the constants are of the weighted terms."""
        of = self.of
        if not isinstance(of, Predictor) or of.radius == math.inf or of.family.name == UNKNOWN.name:
            return None
        return of.share if self._persons is None else lambda person: jax.vmap(of.share)(_own(person))

    @property
    def predictors(self) -> Predictor | None:
        """All affine predictors of the row as one vector, if it has some."""
        return self.of if isinstance(self.of, Predictor) and self._persons is None else None

    @property
    def predictor(self) -> Predictor | None:
        """The row's one affine predictor, if it has one."""
        several = self.predictors
        return several if several is not None and several.size == 1 else None

    @cached_property
    def constants(self) -> RowConstants:
        """Of ``v`` in ``θ``, before clipping: ``‖∇v‖ ≤ ‖A‖·‖ψ'‖``, ``‖∇²v‖ ≤ ‖A‖²·‖ψ''‖``.

        Every bound of a person is that of all ``k`` rows, none of a difference of rows: two persons may
        differ in how many rows they have, so that what the rows of both have in common does not cancel.
        """
        several = self.of
        if not isinstance(several, Predictor) or several.family.name == UNKNOWN.name:
            return RowConstants()
        family, radius = several.family, several.radius
        count = 1 if self._persons is None else self._persons * (1 + 2.0**-50)
        return RowConstants(
            convex=family.convex,
            gradient_bound=count * product_up(radius, family.score_bound),
            curvature_bound=count * product_up(product_up(radius, radius), family.curvature_bound),
            proved=several.proved,
        )


def _own(person: Row) -> Row:
    return {name: column for name, column in person.items() if name != OWN_ROWS}


def _summed(row_loss: RowLoss) -> RowLoss:
    def loss(theta: jax.Array, person: Row) -> jax.Array:
        losses = at_each(partial(row_loss, theta), _own(person))
        return jnp.sum(jnp.where(person[OWN_ROWS] > 0, losses, 0.0))

    return loss


@dataclass(frozen=True, eq=False, kw_only=True)
class Potential:
    """A model as kernels take it: pure functions, free of the data. ``θ`` is the flat vector of all latents.

    They are evaluated in float64 (``jax.enable_x64``), as in every run: of them, there, everything is proved.

    Attributes:
        term: of one row, or of one person.
        prior: ``K``, on NumPyro's unconstrained space.
        sites: the latent sites and where they lie in ``θ``.
        constrain: ``θ ↦`` constrained values of the sites, and deterministic sites that read no row.
        elements: how many numbers are alive while the gradient of one row is formed; ``p`` if left out.
    """

    term: RowTerm = field(repr=False)
    prior: PriorConstants = field(repr=False)
    sites: tuple[Site, ...]
    constrain: Callable[[jax.Array], dict[str, jax.Array]] = field(repr=False)
    elements: int = 0

    @property
    def dim(self) -> int:
        """``p``, the length of ``θ``."""
        return len(self.prior.lower)

    @cached_property
    def row_slope(self) -> RowLoss:
        """``(θ, row) ↦ ∇v``, one program from its first use on: nobody's own derivative is asked again."""
        return rowwise(jax.grad(rowwise(self.term.loss)))

    @cached_property
    def prior_slope(self) -> Callable[[jax.Array], jax.Array]:
        """``θ ↦ ∇K``, likewise."""
        return rowwise(jax.grad(rowwise(self.prior.potential)))

    @property
    def types(self) -> tuple[jax.ShapeDtypeStruct, dict[str, jax.ShapeDtypeStruct]]:
        """Shapes and types of ``θ`` and of a row."""
        with jax.enable_x64(True):
            return abstract((self.dim,), np.float64), row_shapes(self.term.rows)


# A clip at the proved bound itself is idle: the rounding of the bound is not part of it. Kernels scale no
# row whose norm is within that of the clip, as long as the rounding of the norm, too, is within CLIP_SLACK.
_BOUND_ROUNDING = 1e-11
_LARGEST_DIM = 100_000
# Designs are held at the radius but for rounding, up to 2e-9 of it.
_LONGER = (1 + 2e-9) ** 2


def largest_eigenvalue(preconditioner: Matrix | None) -> float:
    """``λ_max(M)``, rounded up; 1 for the identity."""
    if preconditioner is None:
        return 1.0
    metric = np.asarray(preconditioner, dtype=np.float64)
    if metric.ndim == 1:
        return float(np.max(metric))
    return float(np.linalg.eigvalsh(metric)[-1]) + float(np.linalg.norm(metric)) * len(metric) * 2.0**-48


def never_clips(free: float, clip: float, row_model: Potential) -> bool:
    """Whether a row's gradients, of norm at most ``free``, pass a kernel's clip as they are."""
    unit = row_model.term.unit
    entries = row_model.dim * (1 if unit is None else unit.rows)
    return free <= clip * (1 + _BOUND_ROUNDING) and entries <= _LARGEST_DIM


def curvature(row_model: Potential, schedule: Schedule) -> Curvature:
    """Constants of ``U_D``, for every ``D`` of the row domain, in the units of ``schedule.preconditioner``.

    The prior gives ``μ_K`` and ``L_K``; each of the rows that one step sums, with its public factor, adds
    at most ``λ_max(M)`` times its own curvature. A row of one affine predictor stays convex when its
    gradient is clipped (a Huberised loss), and its curvature falls. The clipped gradient of any other row is
    no gradient. Kernels hold designs at ``R``, so that nothing need be known of the longest row.
    Rows that are not convex may bend ``U`` down by as much as up. Without ``μ_K > 0`` there is no box that
    chains have no reason to leave, so that nothing bounds what float64 rounds off: nothing is proved.

    **Guarantee**: every field holds for every data set with at most ``schedule.num_rows`` rows and, for
    minibatches, for every batch, of what kernels run: it rests on the tables of families and priors.

    Source: Bertazzi, Johnston, Roberts, Durmus, Assumption 5.1 and Theorem 5.2.
    """
    prior_mu, prior_smooth = row_model.prior.in_metric(schedule.preconditioner)
    if schedule.clips is not None or not prior_mu > 0:
        # Clipped coordinate by coordinate, the rows' terms are no gradients and need not be monotone.
        return Curvature(prior_smoothness=prior_smooth)
    rows, single = row_model.term.constants, row_model.term.predictor
    widest = largest_eigenvalue(schedule.preconditioner)
    longest = math.sqrt(widest) * UP_LONG
    gradient = product_up(longest, rows.gradient_bound)
    bend = product_up(widest * UP_LONG, rows.curvature_bound)
    if single is not None and rows.convex:
        radius = product_up(longest, single.radius)
        bend = min(bend, single.family.clipped_curvature(radius, schedule.clip))
    bend = product_up(bend, _LONGER)
    idle = never_clips(gradient, schedule.clip, row_model)
    total = product_up(schedule.temper * schedule.num_rows * batch_factor(schedule), bend)
    smooth = (prior_smooth + total) * UP_LONG
    if rows.convex and row_model.prior.convex and (idle or single is not None):
        return Curvature(prior_mu, smooth, prior_smooth)
    mu = prior_mu - total * UP_LONG if idle or single is not None else 0.0
    return Curvature(mu, smooth, prior_smooth) if mu > 0 else Curvature(prior_smoothness=prior_smooth)


# No data that a prior is meant for take a chain so many of its sds away from its mode.
_SDS = 100.0
# Roundings of a slope ``ψ'`` of a given ``η``, and more than logarithms of outcomes and of multiples of a
# link are.
_ROUNDINGS, _LARGEST_LOG = 32, 750.0


def reach_of_prior(row_model: Potential, schedule: Schedule) -> tuple[float, float]:
    """A half-width of a box, in whitened coordinates, that chains have no reason to leave; and ``|∇K(0)|_*``.

    For a strongly convex prior. The slope is an upper bound; any box would do.
    """
    prior, metric = row_model.prior, schedule.preconditioner
    with jax.enable_x64(True):
        slopes = np.abs(np.asarray(row_model.prior_slope(jnp.zeros(row_model.dim))))
    mu = prior.in_metric(metric)[0]
    scales = np.ones(row_model.dim) if metric is None else np.asarray(metric, dtype=np.float64)
    if scales.ndim == 1:
        steepest = float(np.linalg.norm(np.sqrt(scales) * slopes))
    else:
        steepest = float(np.linalg.norm(slopes)) * math.sqrt(largest_eigenvalue(metric))
    if scales.ndim == 1 and prior.factorised:
        far = (slopes / prior.lower + _SDS / np.sqrt(prior.lower)) / np.sqrt(scales)
        return float(np.max(far)), steepest * UP_LONG
    return steepest / mu + _SDS / math.sqrt(mu), steepest * UP_LONG


def rounding_of_slopes(row_model: Potential, schedule: Schedule, half: float, steepest: float) -> float:
    """What float64 rounds off the gradients of rows and prior where ``|u|_∞ ≤ half``, over ``6u``.

    Without it steps would contract that jump: of ``o = y = 10¹⁶`` the difference from ``x·u + o`` is 0, or at
    least 2. Constants that have no ``θ`` in them (designs, offsets, logarithms of outcomes) may be rounded in
    any way: they are those of another row.

    *Rows.* Of ``k`` predictors ``η = A·u + o`` is off by ``m u√k(‖A‖‖u‖ + |o| + ℓ)``, ``m`` its operations
    and ``ℓ`` logarithms in it, a slope by ``ψ''`` times that and by a few units of itself, and its product
    with ``A`` by ``m u√k‖A‖|ψ'|``: kernels form both products of the array ``A`` where states are hidden, so
    that nothing cancels. *Prior.* Where hidden states have constants it is Gaussian in every coordinate, a
    product with ``p`` terms a coordinate at most. *Change of variables.* By a matrix, ``θ`` is off by
    ``pu√p‖M^{1/2}‖‖u‖``, and so is what is pulled back.
    """
    term, dim = row_model.term, row_model.dim
    several = term.of
    if not isinstance(several, Predictor):
        return math.inf
    family, clip, apart = several.family, schedule.clip, math.sqrt(several.size)
    # Of one predictor kernels whiten the design, once a run.
    single, turned = term.predictor is not None, np.ndim(schedule.preconditioner or 0.0) == 2
    longest = math.sqrt(largest_eigenvalue(schedule.preconditioner)) * UP_LONG
    sums = (dim + several.size) * (1.0 if single or not turned else 2 * math.sqrt(dim)) + _ROUNDINGS
    radius = product_up(longest, several.radius)
    bend = product_up(radius, family.curvature_bound)
    if single:
        bend = min(bend, product_up(family.growth[0], radius) + product_up(family.growth[1], clip))
    logs = 1.0 + _LARGEST_LOG * any(one.line.scaled for one, _ in several.terms)
    reach = math.sqrt(dim) * half
    score = product_up(radius, family.score_bound)
    slope = max(clip, score if score < math.inf else 0.0)
    row = product_up(sums * bend, apart * (product_up(radius, reach) + several.farthest + logs))
    row += slope * (_ROUNDINGS if single else sums * apart)
    many = 1 if term.unit is None else term.unit.rows
    rows = schedule.temper * schedule.num_rows * batch_factor(schedule) * many * row
    prior = row_model.prior
    if turned or prior.gaussian is not None:
        own = (3 * dim + 12) * math.sqrt(dim) * (longest**2 * prior.in_metric(None)[1] * reach + steepest)
    else:
        own = 12 * (prior.in_metric(schedule.preconditioner)[1] * reach + steepest)
    return (rows + own) / 6 * UP_LONG


def model_marks(model: Potential) -> list[str]:
    """Of the prior and of a row's loss, with their slopes: a function may come with its own derivative."""
    types = model.types
    prior = program_mark(lambda theta: (model.prior.potential(theta), model.prior_slope(theta)), types[0])
    return [prior, program_mark(lambda *at: (model.term.loss(*at), model.row_slope(*at)), *types)]
