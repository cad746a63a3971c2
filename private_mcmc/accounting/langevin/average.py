"""How far one row moves a Monte Carlo average of states, surely."""

from __future__ import annotations

import numpy as np

from private_mcmc.accounting.langevin.curvature import Curvature
from private_mcmc.accounting.langevin.sensitivity import ROUNDING_SLACK
from private_mcmc.accounting.langevin.steps import check_scheme, largest_change, modulus, period
from private_mcmc.accounting.rounding import TINY, product_up, up
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average, Schedule


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
    if not isinstance(schedule.release, Average):
        raise DeclarationError(f"release={schedule.release!r}: the schedule releases states, not an average.")
    check_scheme(schedule)
    change, passes = largest_change(schedule), period(schedule)
    sizes = set(schedule.step_sizes)
    used = {size: modulus(schedule, curvature, size, change) for size in sizes}
    idle = used if passes == 1 else {size: modulus(schedule, curvature, size, 0.0) for size in sizes}
    positions = np.arange(passes)
    distance = np.zeros(passes)
    total = np.zeros(passes)
    for index, size in enumerate(schedule.step_sizes, start=1):
        here = (index - 1) % passes == positions
        reach = np.where(here, used[size].value(distance), idle[size].value(distance))
        distance = np.minimum(up(reach) + np.where(reach > 0, TINY, 0.0), schedule.diameter)
        if index >= schedule.release.first:
            total = total + distance
    kept = schedule.num_steps - schedule.release.first + 1
    worst = product_up(float(np.max(total)), over=(float(kept),))
    # Summing T positive terms errs by at most T units in the last place.
    return product_up(worst, 1 + ROUNDING_SLACK + kept * 2.0**-52)
