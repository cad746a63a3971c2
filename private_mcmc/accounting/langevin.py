"""The statements of what a Langevin run releases: states, and noised averages of hidden states."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from private_mcmc.accounting import bounds
from private_mcmc.accounting.rounding import TINY, product_up, up
from private_mcmc.accounting.statement import RULES, Statement, of_unit, stated
from private_mcmc.accounting.steps import Curvature, kept_rounding, sensitivity
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record
from private_mcmc.schedule import Average, Schedule

# Of every value: slope, limit, unit.
Values = Iterable[tuple[float, float, float]]


def langevin_statement(schedule: Schedule, curvature: Curvature | None = None) -> Statement:
    """The statement of the states released by a run: every bound that is proved for it.

    ``path``: ``m² = chains · Σ γ_k Δ²/2``. ``last`` and declared steps: less, where ``curvature`` proves that
    steps keep chains together; each stretch between releases starts again from distance 0. Minibatches: the
    composed loss of the sampled steps, beside the bound for known batches. Independent chains compose. An
    average is refused (it needs noise of its own).

    **Guarantee**: every curve, under ``schedule.adjacency``. **Assumptions**: quoted in its argument.
    """
    # The states of a path are released: nothing about the potential enters.
    known = Curvature() if curvature is None or schedule.release == "path" else curvature
    _check(schedule, known)
    found = bounds.curves(schedule, known)
    words = [_of_bound(kind, schedule) for kind in found]
    lines = [*_of_chain(schedule, "hidden" in found), *(line for _, each in words for line in each)]
    theorem = "; and ".join(dict.fromkeys(each for each, _ in words))
    constants = _constants(schedule, known)
    return stated("langevin", theorem, lines, constants, *found.values(), **_protected(schedule))


def _protected(schedule: Schedule) -> dict[str, Any]:
    return {"adjacency": schedule.adjacency, "num_rows": schedule.num_rows, "unit": schedule.unit}


def _constants(schedule: Schedule, known: Curvature) -> Record:
    """The whole schedule, but for what every statement has, and what is proved of its potentials."""
    given = {**vars(schedule), **vars(known)}
    if isinstance(schedule.release, Average):
        given["release"] = asdict(schedule.release)
    left = ("adjacency", "unit")
    return {name: value for name, value in given.items() if value is not None and name not in left}


def _check(schedule: Schedule, known: Curvature) -> None:
    """Refuse boxes in which rounding moves more than is charged."""
    if not schedule.within < math.inf:
        return
    if schedule.release == "path":
        raise DeclarationError("a path has no hidden states to be kept in a box.")
    if not kept_rounding(schedule, known) <= schedule.rounding * (1 + 1e-12):
        raise DeclarationError(
            f"within={schedule.within:g}: in this box rounding moves a step by more than "
            f"{schedule.rounding:g} of what one row does, or no slope of the prior is proved there."
        )


def average_sensitivity(schedule: Schedule, curvature: Curvature) -> float:
    """``η/ℓ``: the largest distance between the averages of two coupled chains on adjacent data.

    With the same start, noise and batches ``|X_n − Y_n| ≤ e_n`` surely, where ``e_n = ρe_{n−1} + γΔ`` and
    ``e_0 = 0``: averages of an ``ℓ``-Lipschitz ``f`` (in ``‖M^{-1/2}·‖``, unconstrained) over the kept steps,
    and over chains, differ by at most ``ℓ · mean(e_n)``. ``inf`` where steps may part the chains.

    Source: Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7, with the synchronous coupling.
    """
    if not isinstance(schedule.release, Average):
        raise DeclarationError(f"release={schedule.release!r}: the schedule releases states, not an average.")
    _check(schedule, curvature)
    change = sensitivity(schedule)
    steps = {size: (curvature.gap(size), product_up(size, change)) for size in set(schedule.step_sizes)}
    if not all(gap >= 0 for gap, _ in steps.values()):
        return math.inf
    distance, total = 0.0, 0.0
    for index, size in enumerate(schedule.step_sizes, start=1):
        gap, push = steps[size]
        distance = up((1.0 - gap) * distance + push) + TINY
        if index >= schedule.release.first:
            total += distance
    kept = schedule.num_steps - schedule.release.first + 1
    # Summing T positive terms errs by at most T units in the last place.
    return product_up(product_up(total, over=(kept,)), 1 + schedule.rounding + kept * 2.0**-52)


def noised_average(
    noise: Statement,
    schedule: Schedule,
    curvature: Curvature,
    *,
    distance: float,
    values: Values,
    joint: float,
) -> Statement:
    """The statement of averages of a run, released by the mechanism that ``noise`` speaks of.

    **Guarantee**: that of ``noise``, fit for values that one row moves by ``joint`` in the L1 norm after
    division by their units.
    **Assumptions**: quoted; ``joint`` and the slopes are facts about the declared functions.

    Args:
        noise: by ``laplace``; refused where it is not fit for the values.
        schedule, curvature: of the run, whose release is an ``Average``; constants proved for every data set.
        distance: ``average_sensitivity`` of both.
        values: ``(slope, limit, unit)`` of each ``f`` that is averaged: its Lipschitz constant in
            ``‖M^{-1/2}·‖``, ``inf`` where none is known; ``b − a`` where it is kept in ``[a, b]``; what it is
            divided by, at least the lesser of ``slope·distance`` and ``limit``. Equal ones count once.
        joint: how far all values together move.
    """
    found = tuple(dict.fromkeys(values))
    fit = noise.argument.rule == "noise.laplace"
    fit = fit and 1 - 1e-12 <= joint <= float(noise.argument.constants["sensitivity"])
    fit = fit and distance >= average_sensitivity(schedule, curvature) * (1 - 1e-12)
    for slope, limit, unit in found:
        move = min(slope * distance, limit) if slope > 0 else 0.0
        fit = fit and slope >= 0 and limit >= 0 and move <= unit and 0 < unit < math.inf
    if not (fit and found):
        raise DeclarationError("the noise is not fit for how far one row moves these averages.")
    moved = f"all in their units move by at most {joint:.12g} in L1"
    coupled = any(slope > 0 and slope * distance < limit for slope, limit, _ in found)
    lines = [f"where each value moves by at most its unit, {moved}", *_of_chain(schedule, coupled)]
    lines += [] if schedule.rate is None else [_DRAWN]
    lines += [COUPLING, EVERY_POTENTIAL] if coupled else []
    constants = _constants(schedule, curvature) | {"distance": distance, "values": found, "joint": joint}
    theorem = "noise on averages of coupled chains (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7)"
    parts = (of_unit(noise, schedule.unit),)
    return stated("average", theorem, lines, constants, *noise.curves, parts=parts, **_protected(schedule))


EVERY_POTENTIAL = "the constants hold for every potential of the row domain"
COUPLING = (
    "two chains on adjacent data that share start and noise stay within the synchronous-coupling distance of "
    "each other surely (Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7)"
)
_CHAIN = (
    "data enter the potential only through the clipped rows",
    "the start is drawn from a law that does not depend on the data",
    "the chain's noise is exactly Gaussian, independent of the data and never reused",
)
_DRAWN = "each row enters a batch independently with the declared probability"
# 9e-10, over the 2u√p by which float64 moves two steps apart: ``steps.rounding_box``.
_ROUNDED = "rounding after the sum moves a step by at most 1e-09 of its sensitivity, "
_BOX = "|θ|_∞ + 4γ|∇U|_∞ ≤ 4.05e6 γΔ/√p in whitened coordinates"
_HIDDEN = "shifted interpolation (Bok, Su, Altschuler 2024) of steps that keep chains together"
_BOX_PATH = "path of Gaussian mechanisms, rows in a box: m² = Σ_k γ_k²w² Σ_j (2M_jj C_j)²/S_jj"
_PATH = "path of Gaussian mechanisms: m² = Σ γΔ²/2 (Bertazzi, Johnston, Roberts, Durmus, Thm 5.4)"


def _of_chain(schedule: Schedule, contracts: bool) -> list[str]:
    """What every statement of a run rests on; ``contracts``: on steps that keep chains together, too."""
    rounded = f"{_ROUNDED}because every coordinate of the whitened gradient is clamped so that {_BOX}"
    if schedule.within < math.inf:
        rounded = (
            f"rounding after the sum moves a step by at most {schedule.rounding:.3g} of its sensitivity, "
            f"because states are kept in |θ|_∞ ≤ {schedule.within:.12g} in whitened coordinates"
        )
    elif contracts:
        # No run has such a statement: its hidden states are kept in a box.
        rounded = f"{_ROUNDED}as it does while {_BOX}"
    return [*_CHAIN, rounded]


def _of_bound(kind: str, schedule: Schedule) -> tuple[str, tuple[str, ...]]:
    """The theorem of one bound of a run's states, and what it needs beside what all of them do."""
    if kind == "hidden":
        return _HIDDEN, (EVERY_POTENTIAL,)
    if kind == "box path":
        return _BOX_PATH, ("every coordinate of a row's gradient is clipped apart, at its declared bound",)
    if kind == "path":
        return _PATH + ("" if schedule.release == "path" else ", charged for hidden states too"), ()
    theorem = "Poisson-sampled Gaussian steps" + " under replacement" * (schedule.adjacency == "replace_one")
    return f"{theorem}, composed by their privacy loss", (_DRAWN, "which rows were drawn stays hidden")


def _again(statement: Statement) -> Statement:
    given: dict[str, Any] = dict(statement.argument.constants)
    known = Curvature(**{name: given.pop(name) for name in vars(Curvature())})
    if isinstance(given.get("release"), Mapping):
        given["release"] = Average(**given["release"])
    of_run = {name: given.pop(name) for name in Schedule.__dataclass_fields__ if name in given}
    schedule = Schedule(adjacency=statement.adjacency, unit=statement.unit, **of_run)
    if statement.argument.rule == "langevin":
        return langevin_statement(schedule, known)
    (noise,) = statement.parts
    return noised_average(noise, schedule, known, **given)


RULES |= {"langevin": _again, "average": _again}
