"""The statements of what a Langevin run releases: states, and noised averages of hidden states."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from private_mcmc.accounting import assumptions
from private_mcmc.accounting.composition import capped
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import ExceptWithProbability
from private_mcmc.accounting.langevin import bounds
from private_mcmc.accounting.langevin.moduli import (
    Curvature,
    check_scheme,
    kept_rounding,
    modulus,
)
from private_mcmc.accounting.langevin.sensitivity import (
    condition_number,
    gradient_limit,
    noise_ratio,
    rounding_box,
    sensitivity,
)
from private_mcmc.accounting.rounding import TINY, product_up, sum_up, up
from private_mcmc.accounting.statement import Argument, Statement, of_unit
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constant
from private_mcmc.schedule import Average, Schedule


def langevin_statement(schedule: Schedule, curvature: Curvature | None = None) -> Statement:
    """The statement of the states released by a run: every bound that is proved for it.

    ``path``: ``m² = chains · Σ γ_k Δ²/2``. ``last`` and declared steps: the shift bound with every modulus
    that ``curvature`` proves, each stretch between releases starting again from distance 0. Minibatches:
    the composed loss of the sampled steps, for a last state also combined with shifts. Independent chains
    compose. An average is refused (it needs noise of its own), as is a batch scheme for which nothing is
    proved under this adjacency.

    **Guarantee**: every curve, under ``schedule.adjacency``. **Assumptions**: quoted in its argument.
    """
    bounds.check_states(schedule)
    check_scheme(schedule)
    curvature = curvature or Curvature()
    _check_kept(schedule, curvature)
    best = bounds.whole_path(schedule) if schedule.clips is None else bounds.box_path(schedule)
    shifted = bounds.shifted(schedule, curvature)
    if shifted is not None and shifted.curve.zcdp < best.curve.zcdp:
        best = shifted
    elif shifted is not None:
        best = replace(
            best, theorem=f"{best.theorem}, charged for hidden states too: {_expansion(schedule, curvature)}"
        )
    found = [*bounds.sampled_path(schedule), *bounds.sampled_last(schedule, curvature), best]
    lines = [*chain_assumptions(schedule), *(line for bound in found for line in bound.assumptions)]
    argument = Argument(
        "; and ".join(dict.fromkeys(bound.theorem for bound in found)),
        tuple(dict.fromkeys(lines)),
        {
            **chain_constants(schedule, curvature),
            "bounds": tuple(dict(bound.record) for bound in found),
        },
        "langevin",
    )
    curves = tuple(bound.curve for bound in found)
    return of_unit(capped(Statement(schedule.adjacency, curves, argument), schedule.num_rows), schedule.unit)


def chain_assumptions(schedule: Schedule) -> tuple[str, ...]:
    """What every statement of a chain rests on."""
    lines = [assumptions.CLIPPED_ROWS, assumptions.PUBLIC_START, assumptions.GAUSSIAN_NOISE]
    if schedule.adjacency != "replace_one":
        # A replaced row counts twice in the sensitivity; the two kinds of presence have equal numbers.
        lines.append(assumptions.RELATION[schedule.adjacency])
    if schedule.within < math.inf:
        return (*lines, assumptions.kept_within(schedule.rounding, schedule.within))
    number = gradient_limit(schedule) if schedule.release == "path" else rounding_box(schedule)
    return (*lines, assumptions.rounding(schedule.release, f"{number:.3g}"))


def _check_kept(schedule: Schedule, curvature: Curvature) -> None:
    """Refuse a box in which float64 may round off more than the schedule says."""
    if schedule.within < math.inf and not kept_rounding(schedule, curvature) <= schedule.rounding:
        raise DeclarationError(
            f"within={schedule.within:g}: in this box rounding moves a step by more than "
            f"{schedule.rounding:g} of what one row does, or no slope of the prior is proved there."
        )


def _expansion(schedule: Schedule, curvature: Curvature) -> str:
    """Why no shorter bound was found, in words."""
    largest = max(schedule.step_sizes)
    if not curvature.smoothness < float("inf"):
        return "no smoothness of the potential is proved"
    if not curvature.convex:
        return "no convexity of the potential is proved"
    if not largest * curvature.smoothness < 2:
        return f"the step size {largest:g} is not below 2/L = {2 / curvature.smoothness:g}"
    return "the proved contraction does not help over so few steps"


def chain_constants(schedule: Schedule, curvature: Curvature) -> dict[str, Constant]:
    """The numbers of a chain from which ``verify`` recomputes its moduli."""
    batch, release = schedule.batch, schedule.release
    proved = {key: value for key, value in asdict(curvature).items() if key not in ("source", "prior_slope")}
    if schedule.within < math.inf:
        kept = {"within": schedule.within, "rounding": schedule.rounding}
        proved |= {**kept, "prior_slope": curvature.prior_slope}
    return {
        "step_size": schedule.step_size,
        "num_steps": schedule.num_steps,
        "num_chains": schedule.num_chains,
        "num_rows": schedule.num_rows,
        "dim": schedule.dim,
        "release": None if isinstance(release, Average) else release,
        "clip": schedule.clip,
        "temper": schedule.temper,
        "batch": None if batch is None else asdict(batch),
        "condition_number": condition_number(schedule),
        "noise_ratio": noise_ratio(schedule)[0],
        "sensitivity": sensitivity(schedule),
        "diameter": schedule.diameter,
        **({} if schedule.clips is None else {"clips": schedule.clips}),
        **proved,
    }


Norm = Literal["L1", "L2"]

THEOREM = "noise on averages of coupled chains (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7)"
CONVERGENCE = "noise on averages near their limits (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7 and 3.10)"
_MECHANISM: dict[Norm, str] = {"L1": "noise.laplace", "L2": "noise.gaussian"}
_UP = 1 + 1e-12


def average_sensitivity(schedule: Schedule, curvature: Curvature) -> float:
    """``η/ℓ``: the largest distance between the averages of two coupled chains on adjacent data.

    With the same start, noise and batches, ``|X_n − Y_n| ≤ e_n`` surely, ``e_n = φ(e_{n−1})``, ``e_0 = 0``:
    averages of an ``ℓ``-Lipschitz ``f`` (in ``‖M^{-1/2}·‖``, unconstrained) over the kept steps, and over
    chains, differ by at most ``ℓ · mean(e_n)``. ``inf`` when no modulus is proved.

    Source: Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7, with the synchronous coupling.
    """
    release = _average(schedule)
    check_scheme(schedule)
    change = sensitivity(schedule)
    steps = {size: modulus(schedule, curvature, size, change) for size in set(schedule.step_sizes)}
    distance, total = np.zeros(1), 0.0
    for index, size in enumerate(schedule.step_sizes, start=1):
        reach = steps[size].value(distance)
        distance = np.minimum(up(reach) + np.where(reach > 0, TINY, 0.0), schedule.diameter)
        if index >= release.first:
            total += float(distance[0])
    kept = schedule.num_steps - release.first + 1
    worst = product_up(total, over=(float(kept),))
    # Summing T positive terms errs by at most T units in the last place.
    return product_up(worst, 1 + schedule.rounding + kept * 2.0**-52)


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
        noise: by ``laplace`` (``norm="L1"``) or ``gaussian`` (``"L2"``); refused where it is not fit for
            the values.
        schedule, curvature: of the run, whose release is an ``Average``; constants proved for every data set.
        distance: ``average_sensitivity`` of both.
        values: what is averaged; equal ones count once.
        norm, joint: how far all values together move, and in which norm.
        failures: ``δ̃`` of every convergence bound that is used.
        stated: what a caller assumes beyond this.
    """
    first, chosen = _average(schedule).first, tuple(dict.fromkeys(values))
    _check_kept(schedule, curvature)
    mechanism = noise.argument
    fit = mechanism.rule == _MECHANISM[norm] and noise.adjacency == schedule.adjacency
    fit = fit and noise.unit in (None, schedule.unit)
    fit = fit and joint <= float(mechanism.constants["sensitivity"])
    held = all(value.move(distance) <= value.bound <= joint * value.unit * _UP for value in chosen)
    if not (fit and chosen and held):
        raise DeclarationError("the noise is not fit for how far one row moves these averages.")
    coupled = any(value.slope > 0 and value.slope * distance < value.limit for value in chosen)
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
