"""What declared expectations cost: sensitivities of all of them together, noise, and the statement."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from private_mcmc.accounting import Statement, capped, stepwise
from private_mcmc.accounting.composition.noise import gaussian, laplace
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.transfer import AverageByConvergence
from private_mcmc.errors import DeclarationError
from private_mcmc.release.expectations.declared import Expectations
from private_mcmc.release.expectations.functions import Function
from private_mcmc.release.expectations.observed import ROUNDING_SHARE
from private_mcmc.release.expectations.sensitivities import Movement, movement, together
from private_mcmc.release.noise import GaussianNoise, LaplaceNoise, gaussian_noise, laplace_noise
from private_mcmc.schedule import Schedule
from private_mcmc.target import Target

COUPLING = (
    "two chains on adjacent data that share start and noise stay within the synchronous-coupling distance of "
    "each other surely (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7)"
)


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
        noise, statement = _laplace(epsilon, moved.l1 + size * ROUNDING_SHARE, size, target, what)
        statement = _with_failures(statement, epsilon, assumed, len(assumed) == len(items), what)
    elif assumed:
        raise DeclarationError("by_convergence goes with noise='laplace': its failures add to δ.")
    else:
        noise, statement = _gaussian(moved.l2 + math.sqrt(size) * ROUNDING_SHARE, size, target, what)
    stated = tuple(f.assumption for f in functions if f.assumption is not None)
    coupling = (COUPLING,) if len(assumed) < len(items) else ()
    quoted = _quoting(statement, (*coupling, *stated))
    return Price(moved, noise, capped(quoted, schedule.num_rows))


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


def _with_failures(
    statement: Statement, epsilon: float, assumed: dict[str, AverageByConvergence], alone: bool, what: str
) -> Statement:
    """``(ε, Σ 2δ̃ − δ̃²)``: the noise's statement, but for runs in which a convergence bound fails.

    That takes independent chains. Beside items that rest on the synchronous coupling (``alone`` false)
    the two chains are dependent, and the union bound ``2δ̃`` takes its place.
    """
    if not assumed:
        return statement
    steps = {"noise": (epsilon, 0.0)}
    quoted = []
    for name, bound in assumed.items():
        failure = bound.guarantee(0.0, 0.0)[1] if alone else min(1.0, 2 * bound.failure)
        steps[f"{name} off by more than C"] = (0.0, failure)
        quoted.append(
            f"for every data set the average of {name}, clamped as here, is within C = {bound.accuracy:g} "
            f"of its posterior mean with probability 1 - {bound.failure:g}, and one row moves that mean by "
            f"at most {bound.posterior_change:g} (stated, not proved)"
        )
    return stepwise(
        steps,
        adjacency=statement.adjacency,
        theorem="Laplace noise on averages near their limits (Bertazzi, Johnston, Roberts, Durmus, 3.10)",
        assumptions=(what, *quoted),
    )


def _quoting(statement: Statement, lines: tuple[str, ...]) -> Statement:
    argument = statement.argument
    return replace(statement, argument=replace(argument, assumptions=(*argument.assumptions, *lines)))
