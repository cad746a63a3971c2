"""The set that a kernel's states are projected on, as the schedule records it."""

from __future__ import annotations

import math

from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.base import Parts
from private_mcmc.schedule import Matrix, box_diameter


def check_set(radius: float | None, box: float | tuple[float, ...] | None) -> None:
    """Raise ``DeclarationError`` for two sets at once, or a radius that is not positive and finite."""
    if radius is not None and box is not None:
        raise DeclarationError("radius= and box=: project on one set, not on both.")
    if radius is not None and not 0 < radius < math.inf:
        raise DeclarationError(f"radius={radius}: must be positive and finite.")


def set_parts(
    radius: float | None, box: float | tuple[float, ...] | None, preconditioner: Matrix | None, dim: int
) -> Parts:
    """Diameter (rounded up) in ``‖M^{-1/2}·‖``, and the box where there is one."""
    if radius is not None:
        return Parts(diameter=2 * radius)
    if box is None:
        return Parts()
    halves = tuple(float(half) for half in box) if isinstance(box, tuple) else (float(box),) * dim
    return Parts(diameter=box_diameter(halves, preconditioner), box=halves)
