"""The price of hidden states: from what is declared and proved to a statement. No preflight is asked.

It rests on constants of prior and rows, and on a box in which float64 rounds little. Of averages: with ``e``
the distance between those of coupled chains (in ``‖M^{-1/2}·‖``), a coordinate ``θ_i`` moves by at most
``√M_ii e``, and a value kept in ``[a, b]`` by ``b − a``; every value is measured in units of its own bound:
centred, scaled, clamped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.distributions import biject_to, transforms

from private_mcmc import accounting
from private_mcmc.accounting import Curvature, Statement, average_sensitivity, noised_average
from private_mcmc.accounting.mechanisms import laplace
from private_mcmc.accounting.rounding import UP_MATRIX
from private_mcmc.errors import DeclarationError
from private_mcmc.potential.potential import Potential, curvature, reach_of_prior, rounding_of_slopes
from private_mcmc.potential.prior import Site
from private_mcmc.potential.rowwise import rowwise
from private_mcmc.release.noise import FloatArray, LaplaceNoise, laplace_noise
from private_mcmc.release.released import Bounds, Expectations, ReleasedExpectations, ReleasedValue, What
from private_mcmc.schedule import ROUNDING, Average, Matrix, Schedule
from private_mcmc.target import Target

# Share of a value's own sensitivity that rounding may add: of the value, half, and of the running sums, half,
# which sets the window.
ROUNDING_SHARE = 2.0**-14
_UNIT = 2.0**-53


@dataclass(frozen=True, eq=False)
class Function:
    """One declared item: ``d`` values computed from the constrained sites.

    Attributes:
        name: as declared.
        shape: shape of the value.
        evaluate: from the flat unconstrained vector to the values, shape ``(d,)``.
        first: where the values are coordinates of ``θ``, clamped or not, the first of them; else ``None``.
        low, high: what they are clamped to; infinite if nothing.
    """

    name: str
    shape: tuple[int, ...]
    evaluate: Callable[[jax.Array], jax.Array]
    first: int | None
    low: float
    high: float

    @property
    def size(self) -> int:
        """Number of values ``d``."""
        return math.prod(self.shape)

    @property
    def width(self) -> float:
        """``b − a`` of what they are clamped to."""
        return self.high - self.low

    @property
    def fallback(self) -> float:
        """What NaN counts as: the lower end, or 0 where there is none."""
        return self.low if self.low > -math.inf else 0.0


def bind(model: Potential, name: str, what: What, bounds: Bounds | None) -> Function:
    """A declared item as a function of the flat unconstrained vector, with what is known of it.

    ``DeclarationError`` for an unknown site, or a function that nothing bounds.
    """

    def values(theta: jax.Array) -> jax.Array:
        sites = model.constrain(theta)
        if isinstance(what, str) and what not in sites:
            raise DeclarationError(f"expectation of {what!r}: the model's sites are {sorted(sites)}.")
        return jnp.asarray(sites[what] if isinstance(what, str) else what(sites))

    result = jax.eval_shape(values, jnp.zeros(model.dim))
    if not any(jnp.issubdtype(result.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise DeclarationError(f"expectation {name!r}: the function returns {result.dtype}, not numbers.")
    first, low, high = None, -math.inf, math.inf
    for site in model.sites:
        if site.name == what:
            first, low, high = _of_transform(site)
    if result.dtype == jnp.bool_:
        low, high = 0.0, 1.0
    low, high = bounds or (low, high)
    if first is None and not high - low < math.inf:
        raise DeclarationError(
            f"expectation {name!r}: nothing bounds how far a row moves it. Give bounds={{{name!r}: (a, b)}}, "
            "to which values are clamped. Sites on the real line or on an interval need none."
        )
    shape = tuple(result.shape)

    def evaluate(theta: jax.Array) -> jax.Array:
        # Coordinates are read where they lie, whatever else the model computes.
        found = values(theta) if first is None else theta[first : first + math.prod(shape)]
        return jnp.ravel(found).astype(theta.dtype)

    traced = rowwise(evaluate)
    if jax.eval_shape(traced, jnp.zeros(model.dim)).size != math.prod(shape):  # what runs is looked at here
        raise DeclarationError(f"expectation {name!r}: the function does not return the same shape twice.")
    return Function(name, shape, traced, first, low, high)


def _of_transform(site: Site) -> tuple[int | None, float, float]:
    """The first coordinate that a site's value is, by NumPyro's transform, or the interval it lies in."""
    given: Any = None if site.constraint is None else biject_to(site.constraint)
    while isinstance(given, transforms.IndependentTransform):
        given = given.base_transform
    if type(given) is transforms.IdentityTransform:
        return site.slice.start, -math.inf, math.inf
    parts = list(given.parts) if isinstance(given, transforms.ComposeTransform) else [given]
    kinds = [type(part) for part in parts]
    if kinds == [transforms.SigmoidTransform]:
        return None, 0.0, 1.0
    if kinds == [transforms.SigmoidTransform, transforms.AffineTransform]:
        low, width = np.broadcast_arrays(parts[1].loc, parts[1].scale)
        return None, float(np.min(low)), float(np.nextafter(np.max(low + width), np.inf))
    return None, -math.inf, math.inf


class Movement(NamedTuple):
    """What one row can change.

    Attributes:
        units: each value's own sensitivity, shape ``(d,)``.
        slopes: each value's Lipschitz constant in ``‖M^{-1/2}·‖``, shape ``(d,)``; ``inf`` if unknown.
        l1: joint sensitivity of the values divided by their units.
    """

    units: FloatArray
    slopes: FloatArray
    l1: float


def movement(functions: tuple[Function, ...], distance: float, metric: Matrix | None) -> Movement:
    """Sensitivities of all values together, for averages that are ``distance`` apart.

    Where values are coordinates, their joint L1 norm in their units is at most the root of the sum of all
    ``|M_ij|/√(M_ii M_jj)``.
    """
    ranges = np.repeat([f.width for f in functions], [f.size for f in functions])
    # -1: no coordinate.
    at = np.concatenate(
        [np.full(f.size, -1) if f.first is None else f.first + np.arange(f.size) for f in functions]
    )
    shape = np.ones(int(at.max()) + 1) if metric is None else np.asarray(metric, dtype=np.float64)
    scales = np.sqrt(shape if shape.ndim == 1 else np.diag(shape)) * UP_MATRIX
    slopes = np.where(at >= 0, np.append(scales, math.inf)[at], math.inf)
    moves = slopes * distance if distance > 0 else np.full(len(at), math.inf)
    units = np.minimum(moves, ranges)
    if not np.all(units < math.inf):
        raise DeclarationError(
            "nothing bounds how far one row moves this expectation: the chain has no proved contraction. "
            "Give bounds=(a, b): the value is clamped to them."
        )
    free = at[moves <= ranges]
    spread = np.equal.outer(free, free) if shape.ndim == 1 else shape[np.ix_(free, free)]
    correlation = spread / (1.0 if shape.ndim == 1 else np.outer(scales[free], scales[free]) / UP_MATRIX**3)
    l1 = math.sqrt(float(np.abs(correlation).sum())) + (len(at) - len(free))
    return Movement(units, slopes, l1 * UP_MATRIX)


@dataclass(frozen=True, eq=False)
class ExpectationsPlan:
    """Declared averages with their noise; every number in it is public.

    What runs inside the chain is the plan itself: the ``d`` declared values in units of their own
    sensitivities, clamped to ``[−half, half]`` around their centres: the declared bounds, and a window
    so wide that only a running sum of larger values could lose more than ``ROUNDING_SHARE`` of a unit to
    rounding.

    Attributes:
        functions: the declared items, in order.
        centres, units, half: shape ``(d,)``; ``half`` in units.
        noise: noise on the averages in their units.
        statement: what the release costs.
    """

    functions: tuple[Function, ...]
    centres: FloatArray
    units: FloatArray
    half: FloatArray
    noise: LaplaceNoise
    statement: Statement

    def __call__(self, theta: jax.Array) -> jax.Array:
        """``(f(θ) − centre)/unit`` of shape ``(d,)``, clamped; NaN counts as ``a`` (as 0 without bounds)."""
        found = [(function.evaluate(theta), function.fallback) for function in self.functions]
        values = jnp.concatenate([jnp.where(jnp.isnan(value), instead, value) for value, instead in found])
        return jnp.clip((values - self.centres) / self.units, -self.half, self.half)

    @property
    def noise_sd(self) -> FloatArray:
        """Standard deviation of the noise on each value."""
        return self.noise.sd * self.units

    def release(self, averages: npt.ArrayLike, provenance: Mapping[str, str]) -> ReleasedExpectations:
        """Add the noise to the averages that a chain computed of this (curator-side, shape ``(d,)``).

        ``provenance`` says where the run's keys came from (``Provenance.to_dict()``).
        """
        array = np.asarray(averages, dtype=np.float64)
        if array.shape != self.units.shape:
            raise DeclarationError(f"averages of shape {array.shape}, {self.units.shape} were planned.")
        lowest = np.concatenate([np.full(f.size, f.fallback) for f in self.functions])
        mapped = np.where(np.isnan(array), (lowest - self.centres) / self.units, array)
        noised = self.noise.release(np.clip(mapped, -self.half, self.half)) * self.units + self.centres
        cuts = np.cumsum([function.size for function in self.functions])[:-1]
        parts = zip(self.functions, np.split(noised, cuts), np.split(self.noise_sd, cuts), strict=True)
        released = tuple(ReleasedValue(f.name, v.reshape(f.shape), sd.reshape(f.shape)) for f, v, sd in parts)
        return ReleasedExpectations(released, self.statement, dict(provenance))


def plan_expectations(
    expectations: Expectations, model: Potential, schedule: Schedule, curvature: Curvature, target: Target
) -> ExpectationsPlan:
    """Sensitivities, noise and cost of ``expectations`` under ``schedule``.

    ``curvature`` holds constants proved for every data set of the domain, in the schedule's metric.
    """
    if not isinstance(schedule.release, Average):
        raise DeclarationError(f"release={schedule.release!r}: expectations need a schedule of averages.")
    if schedule.adjacency != target.adjacency:
        raise DeclarationError(f"schedule under {schedule.adjacency!r}, target under {target.adjacency!r}.")
    with jax.enable_x64(True):
        functions = tuple(
            bind(model, name, what, expectations.bounds.get(name)) for name, what in expectations.items
        )
    distance = average_sensitivity(schedule, curvature)
    moved = movement(functions, distance, schedule.preconditioner)
    size = len(moved.units)
    epsilon = target.epsilon if expectations.epsilon is None else expectations.epsilon
    # In a box of half-width ``b``, coordinates ``(Au)_i`` of a matrix ``A`` round off ``p^{3/2}ub√M_ii``.
    box = schedule.within if np.ndim(schedule.preconditioner or 0) == 2 and distance < math.inf else 0.0
    joint = moved.l1 + size * (ROUNDING_SHARE + 2 * schedule.dim**1.5 * _UNIT * UP_MATRIX * box / distance)
    noise = laplace_noise(epsilon, joint, size).confirmed()
    cost = laplace(
        epsilon,
        adjacency=target.adjacency,
        sensitivity=noise.sensitivity,
        scale=noise.scale,
        grid=noise.grid,
        dim=size,
        what=f"averages of {', '.join(f.name for f in functions)}, each in units of its own sensitivity",
        num_rows=schedule.num_rows,
    )
    sizes = [f.size for f in functions]
    ranges = np.repeat([f.width for f in functions], sizes)
    values = zip(moved.slopes.tolist(), ranges.tolist(), moved.units.tolist(), strict=True)
    statement = noised_average(cost, schedule, curvature, distance=distance, values=values, joint=joint)
    load = ((schedule.num_steps - schedule.release.first + 1) * schedule.num_chains + 16) * _UNIT
    # A running sum of larger values would round by more than the share.
    half = np.minimum(ranges / 2 / moved.units, ROUNDING_SHARE / 2 * (1 - load) / (2 * load))
    middles = np.repeat([(f.low + f.high) / 2 if f.width < math.inf else 0.0 for f in functions], sizes)
    return ExpectationsPlan(functions, middles, moved.units, half, noise, statement)


def price(
    reading: Potential, schedule: Schedule, target: Target, expectations: Expectations | None = None
) -> tuple[Statement, Schedule, ExpectationsPlan | None]:
    """The statement of one run of ``schedule`` with hidden states, which ``expectations`` average, if given.

    With the schedule to run, which has got the box that states are kept in, and the plan of expectations. A
    path has no hidden states: it is priced by its schedule, and no constant of the model is part of that.

    **Guarantee**: what the statement says, of that schedule, for every data set of the declared rows.

    Raises:
        DeclarationError: where rounding hides what one row moves, or an average's chain may not contract.
    """
    schedule, proved = _within_box(schedule, reading)
    if expectations is not None:
        # An average of a chain that does not contract has a sensitivity that grows without bound.
        limit = 2 / proved.smoothness if proved.strong_convexity > 0 else math.inf
        if not max(schedule.step_sizes) < limit:
            raise DeclarationError(
                f"step_size={max(schedule.step_sizes):g}: the chain contracts only for step sizes below 2/L "
                f"= {limit:.4g} (L = {proved.smoothness:.4g}, for every data set of the declared rows)."
            )
        planned = plan_expectations(expectations, reading, schedule, proved, target)
        return planned.statement, schedule, planned
    return accounting.langevin_statement(schedule, proved), schedule, None


# The largest share of what one row moves that rounding may move a step.
_LARGEST_SHARE = 1e-3


def _within_box(schedule: Schedule, reading: Potential) -> tuple[Schedule, Curvature]:
    """The schedule with a box that hidden states are kept in, so that what rounding moves there is charged.

    Chains that are not known to contract have none: they are clamped and charged as paths are.
    """
    proved = curvature(reading, schedule)
    if not proved.smoothness < math.inf:
        return schedule, Curvature()
    half, slope = reach_of_prior(reading, schedule)
    slope += rounding_of_slopes(reading, schedule, half, slope)
    proved, kept = replace(proved, prior_slope=slope), replace(schedule, within=half)
    share = accounting.kept_rounding(kept, proved)
    if not share <= _LARGEST_SHARE:
        raise DeclarationError(
            f"float64 rounds off {share:.3g} of what one row moves a step, where |θ| ≤ {half:.3g}: nothing "
            "would be proved. Take a larger product of clip, temper and step_size, or release='path'."
        )
    return replace(kept, rounding=max(share, ROUNDING)), proved
