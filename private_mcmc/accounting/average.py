"""How far one row moves a Monte Carlo average of states, surely."""

from __future__ import annotations

import math

from private_mcmc.accounting.curvature import Curvature, moduli
from private_mcmc.accounting.sensitivity import ROUNDING_SLACK, sensitivity
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average, Schedule


def average_sensitivity(schedule: Schedule, curvature: Curvature) -> float:
    """``η/ℓ``: the largest distance between the averages of two coupled chains on adjacent data.

    With the same start and the same noise, ``|X_n − Y_n| ≤ e_n`` surely, ``e_n = min φ(e_{n−1})``,
    ``e_0 = 0``, so the averages of an ``ℓ``-Lipschitz ``f`` (in ``‖M^{-1/2}·‖``, on the unconstrained
    space) over the kept steps differ by at most ``ℓ · mean(e_n)``. Averages over several chains
    have the same bound. ``inf`` when no modulus is proved.

    Source: Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7, with the synchronous coupling.

    Raises:
        DeclarationError: unless the schedule releases an ``Average`` of full-batch states.
    """
    if not isinstance(schedule.release, Average):
        raise DeclarationError(f"release={schedule.release!r}: the schedule releases states, not an average.")
    if schedule.batch is not None:
        raise DeclarationError(
            f"batch={schedule.batch.scheme!r}: no average sensitivity for minibatches yet."
        )
    delta = sensitivity(schedule)
    bound = min(curvature.gradient_bound, schedule.temper * schedule.num_rows * schedule.clip)
    steps = {size: moduli(size, curvature, delta, bound) for size in set(schedule.step_sizes)}
    distance, kept = 0.0, []
    for index, size in enumerate(schedule.step_sizes, start=1):
        reach = min((step.rho * distance + step.shift for step in steps[size]), default=math.inf)
        distance = min(reach, schedule.diameter)
        if index >= schedule.release.first:
            kept.append(distance)
    total = math.inf if math.inf in kept else math.fsum(kept)
    return total / len(kept) * (1 + ROUNDING_SLACK)
