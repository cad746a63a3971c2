"""A private lower bound of the data's curvature on the set that a chain is projected on.

Propose–test–release: the set, the metric and the clip are public; how strongly convex the rows make the
potential there is tested with noise; a run may then rely on what the test certifies. The proof is in
``accounting.CurvatureFloor``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from private_mcmc.accounting import Statement, capped, gaussian
from private_mcmc.accounting.assumptions import TESTED_EIGENVALUE
from private_mcmc.accounting.mechanisms import CurvatureFloor
from private_mcmc.accounting.statement import of_unit
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.errors import DeclarationError, NotYetSupported
from private_mcmc.kernels.gradient.clipping import whitening, widened
from private_mcmc.model import Predictor, RowModel
from private_mcmc.preflight.certificates import clip_is_idle, largest_eigenvalue
from private_mcmc.release.noise import FloatArray, GaussianNoise, gaussian_noise
from private_mcmc.schedule import Schedule

_CHUNK = 4096
_UNIT = 2.0**-53
# More than the float64 error of a slope, a curvature or a norm.
_SLACK = 1e-9
_FLOOR = 1e-12
# Where clipping is idle the kernel may hold slopes lower than their bound, by less than this share.
_HELD = 2e-8
# ψ'' is constant, monotone or log-concave in η: on an interval it is least at one of the ends.
_LEAST_AT_ENDS = (
    ("Normal", "identity"),
    ("Bernoulli", "logistic"),
    ("Binomial", "logistic"),
    ("Poisson", "exp"),
    ("NegativeBinomial", "exp"),
)


@dataclass(frozen=True)
class ProposedCurvature:
    """Propose ``λ_min(Σ c_i z_i z_iᵀ) ≥ at_least`` on the kernel's set, test it, run only if it is found.

    The run is accounted for with ``μ = μ_K + w·at_least`` in place of the prior's ``μ_K`` alone. Where the
    test does not find the curvature nothing is run, and the test stays paid for.

    **Guarantee**: that of ``accounting.CurvatureFloor``: of test and run together, for every data set; none
    for the posterior. **Cost**: ``gdp``-GDP, composed with the run, and ``failure``, added to ``δ``.
    ``Expectations`` need an ``epsilon`` of their own that leaves room for it.
    Source: Dwork, Lei 2009.

    Attributes:
        at_least: public proposal, in the preconditioner's metric; not chosen by looking at the rows.
        gdp: price of the test.
        failure: probability that the test finds curvature that is not there.

    Example:
        >>> pmc.ProposedCurvature(at_least=400.0, gdp=0.1, failure=1e-8)
        ProposedCurvature(at_least=400.0, gdp=0.1, failure=1e-08)
    """

    at_least: float
    gdp: float
    failure: float

    def __post_init__(self) -> None:
        for name, value in (("at_least", self.at_least), ("gdp", self.gdp)):
            if not 0 < value < math.inf:
                raise DeclarationError(f"{name}={value}: must be positive and finite.")


@dataclass(frozen=True, eq=False)
class CurvatureTest:
    """The mechanism, known before anything is spent: ``λ_min(Σ c_i z_i z_iᵀ)`` plus Gaussian noise.

    ``z_i`` is the row's design in the schedule's metric. ``c_i`` bounds ``ψ_i''`` from below on the interval
    of predictors that ``K`` allows this row, if its clip is idle there, and is 0 otherwise. Of persons the
    sum is over all their rows, and the clip is proved idle: a clipped sum of rows bends down.

    **Guarantee**: ``gdp``-GDP; the bound it gives exceeds ``λ(D)`` with probability at most ``failure``.
    **Assumptions**: at most ``num_rows`` rows, or persons. Source: Dwork, Lei 2009; Weyl's inequality.

    Attributes:
        schedule: its set, metric, clip, number of rows and adjacency are what the test is for.
        cap: ``κ``, the enforced bound of ``c_i‖z_i‖²``, of a person's sum of them.
        noise: the noise on the eigenvalue.
        failure: ``δ'``.
    """

    predictor: Predictor
    schedule: Schedule
    cap: float
    noise: GaussianNoise
    failure: float

    @property
    def statement(self) -> Statement:
        """The cost of the test."""
        noised = gaussian(
            adjacency=self.schedule.adjacency,
            sensitivity=self.noise.charged_sensitivity,
            scale=self.noise.gaussian_scale,
            what=TESTED_EIGENVALUE,
        )
        return of_unit(capped(noised, self.schedule.num_rows), self.schedule.unit)

    @property
    def margin(self) -> float:
        """``t``: a quantile of the noise, and what rounding may add."""
        return (self.noise.scale * -float(ndtri(self.failure)) + self._rounding) * (1 + _FLOOR)

    @property
    def _rounding(self) -> float:
        # A discrete Gaussian is no further out than a Gaussian and one step (Canonne, Kamath, Steinke 2020).
        return 2 * self.noise.grid + eigenvalue_rounding(self.schedule, self.cap)

    def reached(self, at_least: float) -> CurvatureFloor:
        """The least that is known once the test has found ``at_least``."""
        return self.floor_of((at_least + self.margin) * (1 + _FLOOR))

    def release(self, rows: Mapping[str, jax.Array], present: jax.Array) -> CurvatureFloor:
        """Test the rows (columns in their domains, curator-side, and which of them are present)."""
        return self.floor_of(float(self.noise.release([self.smallest_eigenvalue(rows, present)])[0]))

    def floor_of(self, value: float) -> CurvatureFloor:
        """What a noised eigenvalue certifies."""
        return CurvatureFloor(
            released=value,
            margin=self.margin,
            rounding=self._rounding,
            noise_sd=self.noise.scale,
            failure=self.failure,
        )

    def smallest_eigenvalue(self, rows: Mapping[str, jax.Array], present: jax.Array) -> float:
        """``λ(D)``, curator-side."""
        with jax.enable_x64(True):
            if OWN_ROWS in rows:
                present = (present[:, None] & (rows[OWN_ROWS] > 0)).ravel()
                stacked = {name: column for name, column in rows.items() if name != OWN_ROWS}
                rows = {name: column.reshape(-1, *column.shape[2:]) for name, column in stacked.items()}
            designs, weights = self._certified(widened(rows), present)
        total = np.zeros((self.schedule.dim, self.schedule.dim))
        for first in range(0, len(weights), _CHUNK):
            part = slice(first, first + _CHUNK)
            total += (designs[part] * weights[part, None]).T @ designs[part]
        return float(np.linalg.eigvalsh(total)[0])

    @cached_property
    def _of_rows(self) -> Callable[[Mapping[str, jax.Array]], tuple[jax.Array, jax.Array]]:
        return jax.jit(jax.vmap(self._row))  # type: ignore[no-any-return]

    def _certified(self, rows: Mapping[str, jax.Array], present: jax.Array) -> tuple[FloatArray, FloatArray]:
        """``z_i`` and ``c_i``, shapes ``(n, p)`` and ``(n,)``."""
        designs, weights = self._of_rows(rows)
        usable = present & jnp.all(jnp.isfinite(designs), axis=1) & jnp.isfinite(weights)
        return (
            np.asarray(jnp.where(usable[:, None], designs, 0.0)),
            np.asarray(jnp.where(usable, weights, 0.0)),
        )

    def _row(self, row: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        predictor, schedule = self.predictor, self.schedule
        plain = predictor.design(row)
        design = whitening(schedule.preconditioner, schedule.dim).pull_back(plain)
        norm = jnp.linalg.norm(design)
        if schedule.box is None:
            reach = norm * (schedule.diameter / 2)
        else:
            reach = jnp.abs(plain) @ jnp.asarray(schedule.box)
        centre = predictor.offset(row)
        slack = _SLACK * (1 + jnp.abs(centre) + reach)
        ends = jnp.stack([centre - reach - slack, centre + reach + slack])
        score = jax.vmap(jax.grad(predictor.loss), in_axes=(0, None))(ends, row)
        bends = jax.vmap(jax.grad(jax.grad(predictor.loss)), in_axes=(0, None))(ends, row)
        largest = predictor.family.curvature_bound
        rounding = _FLOOR * largest if largest < math.inf else 0.0
        least = jnp.min(bends) * (1 - _SLACK) - rounding
        # A convex row's slope is largest at an end; the rows kept are those the kernel keeps.
        steepest = jnp.max(jnp.abs(score))
        idle = steepest * norm <= schedule.clip / _rows_each(self.schedule) * (1 - _SLACK)
        idle &= steepest <= predictor.family.score_bound * (1 - _HELD)
        kept = jnp.linalg.norm(plain) <= predictor.radius
        capped = jnp.minimum(
            least, self.cap / _rows_each(self.schedule) * (1 - _SLACK) / (norm * norm + 1e-280)
        )
        return design, jnp.where(idle & kept & (capped > 0), capped, 0.0)


def plan_curvature_test(
    reading: RowModel, schedule: Schedule, *, gdp: float, failure: float
) -> CurvatureTest:
    """Plan a ``gdp``-GDP test of the curvature on the set that ``schedule`` projects on.

    ``NotYetSupported`` unless every row enters through one affine predictor of a family whose curvature is
    least at the ends of an interval; ``DeclarationError`` for a schedule without a set, with minibatches, or
    numbers out of range; of persons, for a clip that their gradients may exceed.
    """
    predictor = (reading.each or reading).predictor
    if predictor is None or (predictor.family.name, predictor.family.link) not in _LEAST_AT_ENDS:
        families = ", ".join(f"{name} ({link})" for name, link in _LEAST_AT_ENDS)
        raise NotYetSupported(f"curvature is tested for one affine predictor of these families: {families}.")
    if not schedule.diameter < math.inf:
        raise DeclarationError("curvature is tested on a bounded set: give the kernel radius= or box=.")
    if schedule.batch is not None or schedule.noise is not None:
        raise DeclarationError("tested curvature is that of all rows, with noise 2γM: no batches, no noise=.")
    if not 0 < failure < 0.5:
        raise DeclarationError(f"failure={failure}: must lie in (0, 1/2).")
    if reading.unit is not None and not clip_is_idle(reading, schedule):
        raise DeclarationError(
            "curvature of persons is tested where no clip acts: a clipped sum of rows bends down. clip= must "
            f"be at least {reading.unit.rows} times the proved bound of a row's gradient."
        )
    radius = math.sqrt(largest_eigenvalue(schedule.preconditioner)) * predictor.radius * (1 + _SLACK)
    each = _rows_each(schedule)
    cap = each * predictor.family.clipped_curvature(radius, schedule.clip / each)
    if not 0 < cap < math.inf:
        raise DeclarationError("nothing bounds the curvature of one row: bound the covariates' domain.")
    if not (allowance := 2 * eigenvalue_rounding(schedule, cap)) < cap:
        raise DeclarationError(
            f"num_rows={schedule.num_rows}: float64 sums of so many rows carry no useful bound."
        )
    return CurvatureTest(predictor, schedule, cap, gaussian_noise(gdp, cap + allowance).confirmed(), failure)


def _rows_each(schedule: Schedule) -> int:
    """That one person may have."""
    return 1 if schedule.unit is None else schedule.unit.rows


def eigenvalue_rounding(schedule: Schedule, cap: float) -> float:
    """Most by which the computed eigenvalue differs from that of the exact sum of the computed terms.

    Entries are sums of ``k`` rounded products, off by ``k u/(1 − k u) Σ c_i|z_ij z_ik|``; the symmetric
    eigenvalue solver is backward stable. Source: Higham 2002, section 3.1.
    """
    rows = schedule.num_rows * _rows_each(schedule)
    additions = min(rows, _CHUNK) + -(-rows // _CHUNK) + 8
    load = additions * _UNIT
    return (load / (1 - load) + schedule.dim * 2.0**-48) * schedule.num_rows * cap
