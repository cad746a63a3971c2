"""The calculator's options as a schedule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Batch, Release, Schedule
from private_mcmc.target import Adjacency, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.accounting import Curvature


def chain_schedule(
    curvature: Curvature,
    *,
    step_size: float,
    num_steps: int,
    sensitivity: float,
    diameter: float,
    release: Release,
    adjacency: str,
    num_rows: int | None,
    num_chains: int = 1,
    batch: Batch | None = None,
) -> Schedule:
    """A schedule with this Δ: untempered, every row clipped at Δ/2 (``replace_one``) or Δ.

    Without ``num_rows`` the schedule has as many rows as the gradient bound allows, since a clipped sum
    over ``n`` rows bounds the data gradient too.
    """
    relation: Adjacency = check_adjacency(adjacency)
    clip = sensitivity / 2 if relation == "replace_one" else sensitivity
    if num_rows is None:
        if math.isfinite(curvature.prior_smoothness) and not math.isfinite(curvature.gradient_bound):
            raise DeclarationError(
                "the prior's constants help only with a bound on the data gradient: --gradient-bound, or "
                "--num-rows with rows clipped."
            )
        bound = curvature.gradient_bound
        num_rows = max(1, math.ceil(bound / clip)) if math.isfinite(bound) and clip > 0 else 1
    return Schedule(
        adjacency=relation,
        num_rows=num_rows,
        dim=1,
        step_size=step_size,
        num_steps=num_steps,
        clip=clip,
        num_chains=num_chains,
        batch=batch,
        diameter=diameter,
        release=release,
    )


def chain_batch(sampling: str, size: int, cap: int | None, rows: int) -> Batch:
    """The batch scheme that the options describe; Poisson rates are ``batch_size/num_rows``."""
    if (sampling == "truncated_poisson") != (cap is not None):
        raise DeclarationError("--batch-cap belongs to --sampling truncated_poisson, and only to it.")
    if not (size >= 1 and rows >= 1):
        raise DeclarationError(f"--batch-size {size}, --num-rows {rows}: at least 1.")
    if sampling == "poisson":
        return Batch(scheme="poisson", rate=size / rows)
    if sampling == "truncated_poisson":
        return Batch(scheme="truncated_poisson", rate=size / rows, size=cap)
    if sampling == "fixed":
        return Batch(scheme="fixed", size=size)
    if sampling == "cyclic":
        return Batch(scheme="cyclic", size=size)
    raise DeclarationError(f"--sampling {sampling}: choose poisson, truncated_poisson, fixed or cyclic.")


def released_states(text: str) -> Release:
    """``last``, ``path``, or steps separated by commas."""
    if text == "last":
        return "last"
    if text == "path":
        return "path"
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise DeclarationError(f"--release {text!r}: last, path, or steps such as 10,20,50.") from error
