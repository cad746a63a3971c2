"""Noised averages of hidden states: how far one row moves them, and the statement of releasing them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from private_mcmc.accounting import assumptions
from private_mcmc.accounting.composition import capped
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import ExceptWithProbability
from private_mcmc.accounting.langevin.langevin_statement import chain_assumptions, chain_constants
from private_mcmc.accounting.langevin.sensitivity import ROUNDING_SLACK
from private_mcmc.accounting.langevin.steps import Curvature, check_scheme, largest_change, modulus, period
from private_mcmc.accounting.rounding import TINY, product_up, sum_up, up
from private_mcmc.accounting.statement import Argument, Statement, of_unit
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average, Schedule

Norm = Literal["L1", "L2", "each"]

THEOREM = "noise on averages of coupled chains (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7)"
CONVERGENCE = "noise on averages near their limits (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7 and 3.10)"
_MECHANISM: dict[Norm, str] = {"L1": "noise.laplace", "L2": "noise.gaussian", "each": "stepwise"}
_UP = 1 + 1e-12


def average_sensitivity(schedule: Schedule, curvature: Curvature) -> float:
    """``η/ℓ``: the largest distance between the averages of two coupled chains on adjacent data.

    With the same start, noise and batches, ``|X_n − Y_n| ≤ e_n`` surely, ``e_n = φ(e_{n−1})``,
    ``e_0 = 0``, so the averages of an ``ℓ``-Lipschitz ``f`` (in ``‖M^{-1/2}·‖``, on the unconstrained
    space) over the kept steps differ by at most ``ℓ · mean(e_n)``. Averages over several chains
    have the same bound. Cyclic batches: the worst position of the row. ``inf`` when no modulus is
    proved.

    Source: Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7, with the synchronous coupling.

    Raises:
        DeclarationError: unless the schedule releases an ``Average``, or where its batches are refused.
    """
    release = _average(schedule)
    check_scheme(schedule)
    change, passes = largest_change(schedule), period(schedule)
    sizes = set(schedule.step_sizes)
    used = {size: modulus(schedule, curvature, size, change) for size in sizes}
    idle = used if passes == 1 else {size: modulus(schedule, curvature, size, 0.0) for size in sizes}
    # A row whose turn never comes moves nothing.
    positions = np.arange(min(passes, schedule.num_steps))
    distance = np.zeros(len(positions))
    total = np.zeros(len(positions))
    for index, size in enumerate(schedule.step_sizes, start=1):
        here = (index - 1) % passes == positions
        reach = np.where(here, used[size].value(distance), idle[size].value(distance))
        distance = np.minimum(up(reach) + np.where(reach > 0, TINY, 0.0), schedule.diameter)
        if index >= release.first:
            total = total + distance
    kept = schedule.num_steps - release.first + 1
    worst = product_up(float(np.max(total)), over=(float(kept),))
    # Summing T positive terms errs by at most T units in the last place.
    return product_up(worst, 1 + ROUNDING_SLACK + kept * 2.0**-52)


def _average(schedule: Schedule) -> Average:
    if not isinstance(schedule.release, Average):
        raise DeclarationError(f"release={schedule.release!r}: the schedule releases states, not an average.")
    return schedule.release


@dataclass(frozen=True)
class AverageByConvergence:
    """What BJRD Proposition 3.10 needs, supplied by the user and quoted in the statement.

    Attributes:
        accuracy: ``C``: the average is within ``C`` of ``π_D(f)`` with probability ``1 − failure``,
            for every ``D`` (Assumption 3.8).
        failure: ``δ̃``.
        posterior_change: ``γ_f ≥ |π_D(f) − π_{D'}(f)|`` for adjacent ``D, D'`` (Assumption 3.9).

    Example:
        >>> pmc.AverageByConvergence(accuracy=0.01, failure=1e-8, posterior_change=0.02).sensitivity
        0.04
    """

    accuracy: float
    failure: float
    posterior_change: float

    def __post_init__(self) -> None:
        for name in ("accuracy", "posterior_change"):
            if not 0 <= getattr(self, name) < math.inf:
                raise DeclarationError(f"{name}={getattr(self, name)}: must be non-negative and finite.")
        gdp.check_delta(self.failure)

    @property
    def sensitivity(self) -> float:
        """``η = 2C + γ_f``: what the noise must be fit for."""
        return sum_up((self.accuracy, self.accuracy, self.posterior_change))


@dataclass(frozen=True)
class AveragedValue:
    """One released value ``f``, and how far one row may move its average.

    Attributes:
        slope: Lipschitz constant of ``f`` in ``‖M^{-1/2}·‖``; ``inf`` where none is known.
        limit: what else bounds the move: ``b − a`` where ``f`` is kept in ``[a, b]``, or ``2C + γ_f``.
        bound: the move that the noise was fit for, at least ``min(slope·distance, limit)``.
        unit: the noise is added to ``f/unit``.
    """

    slope: float
    limit: float
    bound: float
    unit: float

    def rests_on_coupling(self, distance: float) -> bool:
        """Whether the slope is what bounds the move."""
        return self.slope > 0 and self.slope * distance < self.limit

    def move(self, distance: float) -> float:
        """``min(slope·distance, limit)``."""
        return min(self.slope * distance, self.limit) if self.slope > 0 else 0.0


def noised_average(
    noise: Statement,
    schedule: Schedule,
    curvature: Curvature,
    *,
    distance: float,
    values: Iterable[AveragedValue],
    norm: Norm,
    joint: float,
    failures: tuple[float, ...] = (),
    stated: tuple[str, ...] = (),
) -> Statement:
    """The statement of averages of a run, released by the mechanism that ``noise`` speaks of.

    **Guarantee**: that of ``noise``, fit for values that one row moves by ``joint`` in ``norm`` after
    division by their units; where convergence bounds may fail with probability ``δ̃`` each, ``δ(ε)`` grows by
    ``2δ̃ − δ̃²``, or by ``2δ̃`` beside values that rest on the coupling (then the chains are dependent).
    **Assumptions**: quoted; ``joint`` and the slopes are facts about the declared functions.

    Args:
        noise: by ``laplace`` (``norm="L1"``), ``gaussian`` (``"L2"``), or the ``stepwise`` statement of a
            selection (``"each"``).
        schedule: of the run; its release is an ``Average``.
        curvature: constants proved for every data set.
        distance: ``average_sensitivity`` of both.
        values: what is averaged; equal ones count once.
        norm: in which ``joint`` is measured.
        joint: how far all values together move.
        failures: ``δ̃`` of every convergence bound that is used.
        stated: what a caller assumes beyond this.

    Raises:
        DeclarationError: where the noise is not fit for the values.
    """
    first, chosen = _average(schedule).first, tuple(dict.fromkeys(values))
    mechanism = noise.argument
    fit = mechanism.rule == _MECHANISM[norm] and noise.adjacency == schedule.adjacency
    fit = fit and noise.unit in (None, schedule.unit)
    fit = fit and (norm == "each" or joint <= float(mechanism.constants["sensitivity"]))
    held = all(value.move(distance) <= value.bound <= joint * value.unit * _UP for value in chosen)
    if not (fit and chosen and held):
        raise DeclarationError("the noise is not fit for how far one row moves these averages.")
    coupled = any(value.rests_on_coupling(distance) for value in chosen)
    missed = sum_up(product_up(failure, 2.0 if coupled else sum_up((2.0, -failure))) for failure in failures)
    lines = [assumptions.moved_together(norm, joint), assumptions.RELATION[schedule.adjacency]]
    lines += [*chain_assumptions(schedule), *stated]
    lines += assumptions.BATCHES[schedule.batch.scheme] if schedule.batch else ()
    if coupled:
        lines += [assumptions.COUPLING, assumptions.EVERY_POTENTIAL]
        lines += [assumptions.NEAREST_POINT] if math.isfinite(schedule.diameter) else []
        lines += [f"the constants are proved by {curvature.source}"] if curvature.source else []
    chain = {name: value for name, value in chain_constants(schedule, curvature).items() if name != "release"}
    constants = {
        **chain,
        "first": first,
        "distance": distance,
        "values": tuple((value.slope, value.limit, value.bound, value.unit) for value in chosen),
        "norm": norm,
        "joint": joint,
        "failures": failures,
    }
    theorem = CONVERGENCE if failures else THEOREM
    argument = Argument(theorem, tuple(dict.fromkeys(lines)), constants, "average")
    curves = noise.curves
    if missed > 0:
        curves = tuple(ExceptWithProbability(curve, min(1.0, missed)) for curve in curves)
    unit = schedule.unit
    statement = Statement(schedule.adjacency, curves, argument, parts=(of_unit(noise, unit),), unit=unit)
    return of_unit(capped(statement, schedule.num_rows), unit)
