"""The statements of what a Langevin run releases: states, and noised averages of hidden states."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from private_mcmc.accounting.curves.curve import Curve
from private_mcmc.accounting.langevin import bounds
from private_mcmc.accounting.langevin.curvature import Curvature, check_scheme
from private_mcmc.accounting.langevin.record import chain_constants, read_chain
from private_mcmc.accounting.langevin.sensitivity import Run, sensitivity
from private_mcmc.accounting.rounding import TINY, product_up, up
from private_mcmc.accounting.statement import Argument, Statement, of_unit
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constant, Constants
from private_mcmc.schedule import Average, Schedule
from private_mcmc.target import Adjacency, Unit


def langevin_statement(schedule: Schedule, curvature: Curvature | None = None) -> Statement:
    """The statement of the states released by a run: every bound that is proved for it.

    ``path``: ``m² = chains · Σ γ_k Δ²/2``. ``last`` and declared steps: less, where ``curvature`` proves that
    steps keep chains together; each stretch between releases starts again from distance 0. Minibatches: the
    composed loss of the sampled steps, beside the bound for known batches. Independent chains compose. An
    average is refused (it needs noise of its own), as is a batch scheme for which nothing is proved under
    this adjacency.

    **Guarantee**: every curve, under ``schedule.adjacency``. **Assumptions**: quoted in its argument.
    """
    bounds.check_states(schedule)
    # The states of a path are released: nothing about the potential enters.
    known = Curvature() if curvature is None or schedule.release == "path" else curvature
    constants: dict[str, Constant] = chain_constants(schedule, known)
    constants["bounds"] = bounds.applicable(schedule, known)
    adjacency, unit = schedule.adjacency, schedule.unit
    argument = Argument.of("langevin", adjacency, constants, unit=unit)
    return Statement(adjacency, langevin_curves(adjacency, constants, (), unit), argument, unit=unit)


def langevin_curves(
    adjacency: Adjacency, c: Constants, parts: tuple[Statement, ...], unit: Unit | None
) -> tuple[Curve, ...]:
    """The curve of every recorded bound of released states, computed from the record alone."""
    run, known = read_chain(adjacency, c, c["release"], unit)
    if run.release == "path" and known != Curvature():
        raise DeclarationError("a path has no constants of the potential: nothing in it rests on them.")
    if len(c["bounds"]) > len(set(c["bounds"])):
        raise DeclarationError("a bound is given twice.")
    return tuple(bounds.curve(run, known, kind) for kind in c["bounds"])


Norm = Literal["L1", "L2"]

_MECHANISM: dict[Norm, str] = {"L1": "noise.laplace", "L2": "noise.gaussian"}


def average_sensitivity(schedule: Run, curvature: Curvature) -> float:
    """``η/ℓ``: the largest distance between the averages of two coupled chains on adjacent data.

    With the same start, noise and batches ``|X_n − Y_n| ≤ e_n`` surely, where ``e_n = ρe_{n−1} + γΔ`` and
    ``e_0 = 0``: averages of an ``ℓ``-Lipschitz ``f`` (in ``‖M^{-1/2}·‖``, unconstrained) over the kept steps,
    and over chains, differ by at most ``ℓ · mean(e_n)``. ``inf`` where steps may part the chains.

    Source: Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7, with the synchronous coupling.
    """
    release = _average(schedule)
    check_scheme(schedule)
    change = sensitivity(schedule)
    steps = {
        size: (max(curvature.gap(size), -1.0), product_up(size, change)) for size in set(schedule.step_sizes)
    }
    if not all(gap >= 0 for gap, _ in steps.values()):
        return math.inf
    distance, total = 0.0, 0.0
    for index, size in enumerate(schedule.step_sizes, start=1):
        gap, push = steps[size]
        distance = up((1.0 - gap) * distance + push) + TINY
        if index >= release.first:
            total += distance
    kept = schedule.num_steps - release.first + 1
    worst = product_up(total, over=(float(kept),))
    # Summing T positive terms errs by at most T units in the last place.
    return product_up(worst, 1 + schedule.rounding + kept * 2.0**-52)


def _average(schedule: Run) -> Average:
    if not isinstance(schedule.release, Average):
        raise DeclarationError(f"release={schedule.release!r}: the schedule releases states, not an average.")
    return schedule.release


def noised_average(
    noise: Statement,
    schedule: Schedule,
    curvature: Curvature,
    *,
    distance: float,
    values: Iterable[tuple[float, float, float]],
    norm: Norm,
    joint: float,
) -> Statement:
    """The statement of averages of a run, released by the mechanism that ``noise`` speaks of.

    **Guarantee**: that of ``noise``, fit for values that one row moves by ``joint`` in ``norm`` after
    division by their units.
    **Assumptions**: quoted; ``joint`` and the slopes are facts about the declared functions.

    Args:
        noise: by ``laplace`` (``norm="L1"``) or ``gaussian`` (``"L2"``); refused where it is not fit for
            the values.
        schedule, curvature: of the run, whose release is an ``Average``; constants proved for every data set.
        distance: ``average_sensitivity`` of both.
        values: ``(slope, limit, unit)`` of each ``f`` that is averaged: its Lipschitz constant in
            ``‖M^{-1/2}·‖``, ``inf`` where none is known; ``b − a`` where it is kept in ``[a, b]``; what it is
            divided by, at least the lesser of ``slope·distance`` and ``limit``. Equal ones count once.
        norm, joint: how far all values together move, and in which norm.
    """
    chain = {name: value for name, value in chain_constants(schedule, curvature).items() if name != "release"}
    constants: dict[str, Constant] = {
        **chain,
        "first": _average(schedule).first,
        "distance": distance,
        "values": tuple(dict.fromkeys(values)),
        "norm": norm,
        "joint": joint,
    }
    adjacency, unit, parts = schedule.adjacency, schedule.unit, (of_unit(noise, schedule.unit),)
    argument = Argument.of("average", adjacency, constants, 1, unit)
    curves = average_curves(adjacency, constants, parts, unit)
    return Statement(adjacency, curves, argument, parts=parts, unit=unit)


def average_curves(
    adjacency: Adjacency, c: Constants, parts: tuple[Statement, ...], unit: Unit | None
) -> tuple[Curve, ...]:
    """The curves of the noise, if it is fit for how far one row moves the averages of the recorded run."""
    (noise,) = parts
    run, known = read_chain(adjacency, c, Average(c["first"]), unit)
    distance, mechanism = c["distance"], noise.argument
    fit = mechanism.rule == _MECHANISM[c["norm"]]
    fit = fit and 1 - 1e-12 <= c["joint"] <= float(mechanism.constants["sensitivity"])
    fit = fit and distance >= average_sensitivity(run, known) * (1 - 1e-12)
    moves = [(min(slope * distance, limit) if slope > 0 else 0.0, unit) for slope, limit, unit in c["values"]]
    if not (fit and all(move <= unit for move, unit in moves)):
        raise DeclarationError("the noise is not fit for how far one row moves these averages.")
    return noise.curves
