"""What declared expectations cost: sensitivities of all of them together, noise, and the statement."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from private_mcmc.accounting import AverageByConvergence, AveragedValue, Curvature, Statement, noised_average
from private_mcmc.accounting.composition.noise import gaussian, laplace
from private_mcmc.accounting.curves import gdp
from private_mcmc.errors import DeclarationError
from private_mcmc.release.expectations.declared import Expectations
from private_mcmc.release.expectations.functions import Function
from private_mcmc.release.expectations.observed import ROUNDING_SHARE
from private_mcmc.release.expectations.sensitivities import Movement, movement, together
from private_mcmc.release.noise import GaussianNoise, LaplaceNoise, gaussian_noise, laplace_noise
from private_mcmc.schedule import Schedule
from private_mcmc.target import Target


@dataclass(frozen=True, eq=False)
class Price:
    """Sensitivities, noise and statement of all declared expectations."""

    moved: Movement
    noise: LaplaceNoise | GaussianNoise
    statement: Statement


def price(
    expectations: Expectations,
    functions: tuple[Function, ...],
    schedule: Schedule,
    curvature: Curvature,
    distance: float,
    target: Target,
) -> Price:
    """The price when one row moves the coupled averages by ``distance``.

    Raises:
        DeclarationError: where nothing bounds an expectation, or Gaussian noise cannot meet the target.
    """
    items = [_moved(function, schedule, distance) for function in functions]
    moved = together(tuple(item for item, _ in items))
    assumed = {f.name: c for f, (_, c) in zip(functions, items, strict=True) if c is not None}
    size = len(moved.units)
    names = ", ".join(f.name for f in functions)
    what = f"averages of {names}, each in units of its own sensitivity"
    if expectations.noise == "laplace":
        epsilon = target.epsilon if expectations.epsilon is None else expectations.epsilon
        joint = moved.l1 + size * ROUNDING_SHARE
        noise, statement = _laplace(epsilon, joint, size, target, what)
    elif assumed:
        raise DeclarationError("by_convergence goes with noise='laplace': its failures add to δ.")
    else:
        joint = moved.l2 + math.sqrt(size) * ROUNDING_SHARE
        noise, statement = _gaussian(joint, size, target, what)
    stated = [f.assumption for f in functions if f.assumption is not None]
    stated += [_convergence(name, bound) for name, bound in assumed.items()]
    limits = [
        f.high - f.low if c is None else np.full(f.size, c.sensitivity)
        for f, (_, c) in zip(functions, items, strict=True)
    ]
    parts = moved.slopes.tolist(), np.concatenate(limits).tolist(), moved.units.tolist()
    averaged = noised_average(
        statement,
        schedule,
        curvature,
        distance=distance,
        values=(AveragedValue(slope, limit, unit, unit) for slope, limit, unit in zip(*parts, strict=True)),
        norm="L1" if expectations.noise == "laplace" else "L2",
        joint=joint,
        failures=tuple(bound.failure for bound in assumed.values()),
        stated=tuple(stated),
    )
    return Price(moved, noise, averaged)


def _moved(
    function: Function, schedule: Schedule, distance: float
) -> tuple[Movement, AverageByConvergence | None]:
    """The item's sensitivities, and the caller's convergence bound where it is needed for them."""
    ranges = function.high - function.low
    by_hand = function.by_convergence
    if by_hand is None:
        return movement(schedule, distance, function.slopes, ranges), None
    try:
        proved = movement(schedule, distance, function.slopes, ranges)
    except DeclarationError:
        proved = None
    if proved is not None and float(proved.units.max()) <= by_hand.sensitivity:
        return proved, None
    size = function.size
    units = np.full(size, by_hand.sensitivity)
    slopes = np.full(size, math.inf) if proved is None else proved.slopes
    return Movement(units, slopes, float(size), math.sqrt(size)), by_hand


def _laplace(
    epsilon: float, l1: float, size: int, target: Target, what: str
) -> tuple[LaplaceNoise | GaussianNoise, Statement]:
    noise = laplace_noise(epsilon, l1, size)
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
    noise = gaussian_noise(gdp.budget(target.epsilon, target.delta), l2, size)
    return noise, gaussian(
        adjacency=target.adjacency,
        sensitivity=noise.charged_sensitivity,
        scale=noise.gaussian_scale,
        dim=size,
        what=what,
    )


def _convergence(name: str, bound: AverageByConvergence) -> str:
    return (
        f"for every data set the average of {name}, clamped as here, is within C = {bound.accuracy:g} "
        f"of its posterior mean with probability 1 - {bound.failure:g}, and one row moves that mean by "
        f"at most {bound.posterior_change:g} (stated, not proved)"
    )
