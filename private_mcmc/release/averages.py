"""What declared expectations cost, before anything is spent, and their release after the run.

With ``e`` the distance between the coupled chains' averages (in ``‖M^{-1/2}·‖``), a value of slope ``a`` in
``θ`` moves by at most ``√(aᵀMa) e``, and one kept in ``[a, b]`` by ``b − a``. Every value is measured in
units of its own bound: centred, scaled and clamped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import (
    AveragedValue,
    Curvature,
    Statement,
    average_sensitivity,
    noised_average,
)
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.mechanisms import gaussian, laplace
from private_mcmc.accounting.rounding import UP_MATRIX
from private_mcmc.errors import DeclarationError
from private_mcmc.model import RowModel
from private_mcmc.release.expectations import Expectations
from private_mcmc.release.noise import FloatArray, GaussianNoise, LaplaceNoise, gaussian_noise, laplace_noise
from private_mcmc.release.released import ReleasedExpectations, ReleasedValue
from private_mcmc.release.site_functions import (
    ROUNDING_SHARE,
    Observed,
    Slopes,
    observed,
)
from private_mcmc.schedule import Average, Matrix, Schedule
from private_mcmc.target import Target

# The share of a slope that rounding may take: well inside ``UP_MATRIX``.
_LOST = 1e-10


@dataclass(frozen=True, eq=False)
class Movement:
    """What one row can change.

    Attributes:
        units: each value's own sensitivity, shape ``(d,)``.
        slopes: each value's Lipschitz constant in ``‖M^{-1/2}·‖``, shape ``(d,)``; ``inf`` if unknown.
        l1: joint L1 sensitivity of the values divided by their units.
        l2: the same in L2.
    """

    units: FloatArray
    slopes: FloatArray
    l1: float
    l2: float


def movement(schedule: Schedule, distance: float, part: Slopes | None, ranges: FloatArray) -> Movement:
    """Sensitivities of one declared item; ``ranges`` holds each value's ``b − a`` (``inf`` if none)."""
    gram, slopes = None, np.full(len(ranges), math.inf)
    if part is not None:
        inner = _in_metric(part.matrix, schedule.preconditioner)
        gram = inner @ inner.T
        slopes = np.sqrt(np.diag(gram)) * UP_MATRIX
    # What is no number bounds nothing.
    slopes = np.where(slopes >= 0, slopes, math.inf)
    # A constant value moves by nothing, however far the chains are apart.
    moves = np.where(slopes == 0, 0.0, np.where(slopes > 0, slopes, 1.0) * distance)
    if part is not None:
        # Where floats lose more than a share of what moves, the slope is that of real arithmetic alone.
        kept = (moves == 0) | (part.lost <= ROUNDING_SHARE / 2 * moves)
        slopes, moves = np.where(kept, slopes, math.inf), np.where(kept, moves, math.inf)
    bounds = np.minimum(moves, ranges)
    if not np.all(bounds < math.inf):
        raise DeclarationError(
            "nothing bounds how far one row moves this expectation: the chain has no proved contraction, or "
            "the function adds numbers so large that floats lose what moves. "
            "Give bounds=(a, b): the value is clamped to them."
        )
    units = np.where(bounds > 0, bounds, max(float(bounds.max()), np.finfo(float).tiny ** 0.5))
    capped = ranges < moves
    if gram is not None:
        free = np.flatnonzero(~capped)
        scale = np.where(slopes > 0, slopes, 1.0)[free]
        correlation = gram[np.ix_(free, free)] / np.outer(scale, scale) * UP_MATRIX**2
        l1, l2 = _coordinatewise(correlation)
        count = int(capped.sum())
        return Movement(units, slopes, (l1 + count) * UP_MATRIX, math.hypot(l2, math.sqrt(count)) * UP_MATRIX)
    count = len(units)
    return Movement(units, slopes, count * UP_MATRIX, math.sqrt(count) * UP_MATRIX)


def together(movements: tuple[Movement, ...]) -> Movement:
    """Several items side by side."""
    return Movement(
        np.concatenate([m.units for m in movements]),
        np.concatenate([m.slopes for m in movements]),
        math.fsum(m.l1 for m in movements) * UP_MATRIX,
        math.sqrt(math.fsum(m.l2**2 for m in movements)) * UP_MATRIX,
    )


def _coordinatewise(correlation: FloatArray) -> tuple[float, float]:
    """L1 and L2 norms of ``D^{-1/2} A M^{1/2}`` over the unit ball, given ``D^{-1/2} A M Aᵀ D^{-1/2}``.

    ``max_s ‖M^{1/2}AᵀD^{-1/2}s‖²`` over sign vectors ``s`` is at most ``Σ|correlation_ij|``.
    """
    if correlation.size == 0:
        return 0.0, 0.0
    largest = max(0.0, float(np.linalg.eigvalsh(correlation)[-1]))
    total = float(np.abs(correlation).sum())
    return math.sqrt(total), math.sqrt(min(total, largest * UP_MATRIX))


def _in_metric(matrix: FloatArray, metric: Matrix | None) -> FloatArray:
    """``A·M^{1/2}``, with the very factor of ``M`` that the chain uses.

    Not ``A M Aᵀ``, in which what ``A`` meets of a small direction is lost beside the large ones.
    """
    if metric is None:
        return matrix
    array = np.asarray(metric, dtype=np.float64)
    if array.ndim == 1:
        return np.asarray(matrix * np.sqrt(array))
    root = np.linalg.cholesky(array)
    product: FloatArray = matrix @ root
    lost = np.linalg.norm(np.abs(matrix) @ np.abs(root), axis=1) * len(array) * 2.0**-52
    if not np.all(lost <= _LOST * np.linalg.norm(product, axis=1)):
        raise DeclarationError(
            "expectations: in the metric of the preconditioner float64 does not tell how far these values "
            "move; take a preconditioner that is better conditioned."
        )
    return product


def plan_expectations(
    expectations: Expectations, model: RowModel, schedule: Schedule, curvature: Curvature, target: Target
) -> ExpectationsPlan:
    """Sensitivities, noise, expected error and cost of ``expectations`` under ``schedule``.

    ``curvature`` holds constants proved for every data set of the domain, in the schedule's metric.
    """
    if not isinstance(schedule.release, Average):
        raise DeclarationError(f"release={schedule.release!r}: expectations need a schedule of averages.")
    if schedule.adjacency != target.adjacency:
        raise DeclarationError(f"schedule under {schedule.adjacency!r}, target under {target.adjacency!r}.")
    functions = expectations.bind(model)
    distance = average_sensitivity(schedule, curvature)
    moved = together(tuple(movement(schedule, distance, f.slopes, f.high - f.low) for f in functions))
    size = len(moved.units)
    names = ", ".join(f.name for f in functions)
    what = f"averages of {names}, each in units of its own sensitivity"
    if expectations.noise == "laplace":
        epsilon = target.epsilon if expectations.epsilon is None else expectations.epsilon
        joint = moved.l1 + size * ROUNDING_SHARE
        noise, statement = _laplace(epsilon, joint, size, target, what)
    else:
        joint = moved.l2 + math.sqrt(size) * ROUNDING_SHARE
        noise, statement = _gaussian(joint, size, target, what)
    ranges = np.concatenate([f.high - f.low for f in functions])
    parts = moved.slopes.tolist(), ranges.tolist(), moved.units.tolist()
    averaged = noised_average(
        statement,
        schedule,
        curvature,
        distance=distance,
        values=(AveragedValue(slope, limit, unit, unit) for slope, limit, unit in zip(*parts, strict=True)),
        norm="L1" if expectations.noise == "laplace" else "L2",
        joint=joint,
    )
    chain_sd, slopes = monte_carlo_sd(schedule, curvature), moved.slopes
    sampling = np.minimum(np.where(slopes > 0, slopes * chain_sd, 0.0), ranges / 2)
    return ExpectationsPlan(observed(functions, moved.units, schedule), noise, averaged, sampling)


def _laplace(
    epsilon: float, l1: float, size: int, target: Target, what: str
) -> tuple[LaplaceNoise | GaussianNoise, Statement]:
    noise = laplace_noise(epsilon, l1, size).confirmed()
    return noise, laplace(
        epsilon,
        adjacency=target.adjacency,
        sensitivity=noise.sensitivity,
        scale=noise.scale,
        grid=noise.grid,
        dim=size,
        what=what,
    )


def _gaussian(
    l2: float, size: int, target: Target, what: str
) -> tuple[LaplaceNoise | GaussianNoise, Statement]:
    if not target.delta > 0:
        raise DeclarationError(
            "Gaussian noise never gives δ = 0: use noise='laplace' or a target with δ > 0."
        )
    noise = gaussian_noise(gdp.budget(target.epsilon, target.delta), l2, size).confirmed()
    return noise, gaussian(
        adjacency=target.adjacency,
        sensitivity=noise.charged_sensitivity,
        scale=noise.gaussian_scale,
        dim=size,
        what=what,
    )


def monte_carlo_sd(schedule: Schedule, curvature: Curvature) -> float:
    """``σ/((1 − ρ)√(Nc))``: bounds the sd of the average of a 1-Lipschitz function (in ``‖M^{-1/2}·‖``).

    The average is a Lipschitz function of the independent Gaussian noises, so its variance is at most
    the sum of squares of its slopes (Poincaré inequality). It says nothing about the bias of the
    burn-in and of the step size. ``inf`` unless the potential is strongly convex and smooth.

    Source: Bertazzi, Johnston, Roberts, Durmus, Assumption 3.8; Dalalyan, Karagulyan 2019 (``ρ``).
    """
    if not isinstance(schedule.release, Average) or schedule.batch is not None or schedule.noise is not None:
        return math.inf
    kept = schedule.num_steps - schedule.release.first + 1
    slopes: list[float] = []
    ahead = 0.0
    sizes = schedule.step_sizes
    for index in range(schedule.num_steps, 0, -1):
        step = sizes[index - 1]
        # Slope of the sum of kept states in the state after this step, then in this step's noise.
        ahead += 1.0 if index >= schedule.release.first else 0.0
        slopes.append(2 * step * ahead * ahead)
        ahead *= _contraction(step, curvature)
    variance = math.fsum(slopes) / kept**2 / schedule.num_chains
    return math.sqrt(variance) if variance < math.inf else math.inf


def _contraction(step: float, curvature: Curvature) -> float:
    low, high = curvature.strong_convexity, curvature.smoothness
    if not (low > 0 and high < math.inf):
        return math.inf
    return max(abs(1 - step * low), abs(1 - step * high))


@dataclass(frozen=True, eq=False)
class ExpectationsPlan:
    """Declared averages with their noise; every number in it is public.

    Attributes:
        observable: what runs inside the chain: the declared values in units of their own sensitivity.
        noise: noise on the averages in their units.
        statement: what the release costs.
        monte_carlo: data-free bound on the sd of each average from its finite length; ``inf`` if unproved.
    """

    observable: Observed
    noise: LaplaceNoise | GaussianNoise
    statement: Statement
    monte_carlo: FloatArray

    @property
    def units(self) -> FloatArray:
        """Sensitivity of each value, shape ``(d,)``."""
        return self.observable.units

    @property
    def noise_sd(self) -> FloatArray:
        """Standard deviation of the noise on each value."""
        return self.noise.sd * self.units

    @property
    def expected_error(self) -> FloatArray:
        """Mean absolute error that the noise adds to each value."""
        return self.noise.mean_absolute_error * self.units

    def describe(self) -> str:
        """What will be released, its expected error and its price, in a few lines."""
        lines = []
        split = self.observable.split
        for function, error, sampling in zip(
            self.observable.functions, split(self.expected_error), split(self.monte_carlo), strict=True
        ):
            many = "" if function.size == 1 else f" (largest of {function.size})"
            chain = f", Monte Carlo sd at most {sampling.max():.3g}" if math.isfinite(sampling.max()) else ""
            lines.append(f"{function.name}: expected error {error.max():.3g} from the noise{many}{chain}")
        return "\n".join([*lines, str(self.statement)])

    def release(self, averages: npt.ArrayLike, provenance: Mapping[str, str]) -> ReleasedExpectations:
        """Add the noise to the averages of ``observable`` (curator-side, shape ``(d,)``).

        ``provenance`` says where the run's keys came from (``RunKeys.provenance.to_dict()``).
        """
        seen = self.observable
        values = self.noise.release(seen.averages(averages)) * seen.units + seen.centres
        total = np.hypot(self.noise_sd, self.monte_carlo)
        parts = zip(seen.functions, *map(seen.split, (values, self.noise_sd, total)), strict=True)
        released = tuple(ReleasedValue(f.name, value, sd, error) for f, value, sd, error in parts)
        return ReleasedExpectations(released, self.statement, dict(provenance))
