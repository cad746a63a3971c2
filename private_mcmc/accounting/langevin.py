"""The statement of the states that a Langevin run releases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from private_mcmc.accounting import affine
from private_mcmc.accounting.curvature import Affine, Curvature, moduli
from private_mcmc.accounting.curves import Gaussian
from private_mcmc.accounting.metric import condition_number, noise_ratio
from private_mcmc.accounting.sensitivity import ROUNDING_SLACK, sensitivity
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average, Schedule

PATH = "path of Gaussian mechanisms: m² = Σ γΔ²/2 (Bertazzi, Johnston, Roberts, Durmus, Thm 5.4)"
SHIFT = "shifted interpolation (Bok, Su, Altschuler 2024) with an affine modulus of the Langevin map"
BASE = (
    "data enter the potential only through the clipped rows",
    "the start is drawn from a law that does not depend on the data",
    "the chain's noise is exactly Gaussian, independent of the data and never reused",
    f"rounding after the sum moves a step by at most {ROUNDING_SLACK:g} of the step's sensitivity",
)


@dataclass(frozen=True)
class _Bound:
    square: float
    theorem: str
    assumptions: tuple[str, ...]
    rule: str


def released_steps(schedule: Schedule) -> tuple[int, ...]:
    """The steps whose states leave the curator's side, for ``"last"`` and tuples."""
    if isinstance(schedule.release, Average):
        raise DeclarationError(
            "an average of hidden states is private only with noise: use average_sensitivity and laplace."
        )
    if isinstance(schedule.release, tuple):
        return schedule.release
    if schedule.release == "last":
        return (schedule.num_steps,)
    return tuple(range(1, schedule.num_steps + 1))


def run(schedule: Schedule, curvature: Curvature | None = None) -> Statement:
    """The statement of the states released by a full-batch run: the best bound that is proved.

    ``path``: ``m² = chains · Σ γ_k Δ²/2``. ``last`` and declared steps: the shift bound with every
    modulus that ``curvature`` proves, each stretch between releases starting again from distance 0.
    Independent chains add in ``m²``.

    **Guarantee**: ``m``-GDP under ``schedule.adjacency``. **Assumptions**: quoted in the argument.

    Raises:
        DeclarationError: for an average (it needs noise of its own) or a minibatch schedule.
    """
    released_steps(schedule)
    if schedule.batch is not None:
        raise DeclarationError(f"batch={schedule.batch.scheme!r}: no statement for minibatches yet.")
    curvature = curvature or Curvature()
    ratio, proportional = noise_ratio(schedule)
    delta = sensitivity(schedule)
    best = _path(schedule, delta, ratio)
    if proportional and schedule.release != "path":
        for bound in _shifted(schedule, curvature, delta, ratio):
            if bound.square < best.square:
                best = bound
    square = best.square * schedule.num_chains * (1 + ROUNDING_SLACK) ** 2
    argument = Argument(
        best.theorem, BASE + best.assumptions, _constants(schedule, curvature, delta, ratio), best.rule
    )
    return Statement(schedule.adjacency, (Gaussian(math.sqrt(square) * (1 + 1e-15)),), argument)


def _path(schedule: Schedule, delta: float, ratio: float) -> _Bound:
    last = released_steps(schedule)[-1]
    time = (
        math.fsum(schedule.step_sizes[:last])
        if isinstance(schedule.step_size, tuple)
        else last * schedule.step_size
    )
    return _Bound(time * delta**2 / (2 * ratio) * (1 + 1e-14), PATH, (), "langevin.path")


def _shifted(schedule: Schedule, curvature: Curvature, delta: float, ratio: float) -> list[_Bound]:
    bound = min(curvature.gradient_bound, schedule.temper * schedule.num_rows * schedule.clip)
    sizes = schedule.step_sizes
    per_step = {size: moduli(size, curvature, delta, bound) for size in set(sizes)}
    names = [item.theorem for item in next(iter(per_step.values()))]
    found = []
    for name in names:
        maps = {size: [item for item in items if item.theorem == name] for size, items in per_step.items()}
        if not all(maps.values()):
            continue
        chosen = {size: items[0] for size, items in maps.items()}
        square = _segments(schedule, chosen, ratio)
        assumptions = [f"every potential of the row domain is {name}"]
        if curvature.source:
            assumptions.append(f"the constants are proved by {curvature.source}")
        if math.isfinite(schedule.diameter):
            assumptions.append("the projection is the nearest point in the norm ‖M^{-1/2}·‖")
        found.append(_Bound(square, SHIFT, tuple(assumptions), "langevin.affine"))
    return found


def _segments(schedule: Schedule, chosen: dict[float, Affine], ratio: float) -> float:
    """Sum over the stretches between releases, each started afresh at distance 0."""
    total = 0.0
    sizes = schedule.step_sizes
    for begin, end in pairwise((0, *released_steps(schedule))):
        stretch = sizes[begin:end]
        if len(set(stretch)) == 1:
            step = chosen[stretch[0]]
            variance = 2 * stretch[0] * ratio
            total += affine.with_diameter(step.gap, step.shift, variance, end - begin, schedule.diameter)
        else:
            steps = [chosen[size] for size in stretch]
            total += affine.varying(
                [step.rho for step in steps],
                [step.shift for step in steps],
                [2 * size * ratio for size in stretch],
            )
    return total


def _constants(schedule: Schedule, curvature: Curvature, delta: float, ratio: float) -> dict[str, Any]:
    return {
        "step_size": schedule.step_size,
        "num_steps": schedule.num_steps,
        "num_chains": schedule.num_chains,
        "num_rows": schedule.num_rows,
        "release": schedule.release,
        "clip": schedule.clip,
        "condition_number": condition_number(schedule),
        "temper": schedule.temper,
        "sensitivity": delta,
        "noise_ratio": ratio,
        "diameter": schedule.diameter,
        "strong_convexity": curvature.strong_convexity,
        "smoothness": curvature.smoothness,
        "prior_strong_convexity": curvature.prior_strong_convexity,
        "prior_smoothness": curvature.prior_smoothness,
        "convex": curvature.convex,
        "gradient_bound": curvature.gradient_bound,
    }
