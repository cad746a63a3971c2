"""Priors whose potential is a sum over coordinates, and the public parameters they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from private_mcmc.model.ir.program import Program
from private_mcmc.model.sites import Site

Potential = Callable[[jax.Array], Any]


@dataclass(frozen=True, eq=False)
class Separable:
    """``K = Σ_j k_j(u_j)`` with ``lower_j ≤ k_j'' ≤ upper_j``; ``potential`` of ``u`` in its own shape."""

    potential: Potential
    lower: np.ndarray
    upper: np.ndarray
    why: str


Rule = Callable[[Program, Site], Separable | None]


def parameter(program: Program, site: Site, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """A parameter of the prior that is a public constant, broadcast to the site; NaN if it is not one."""
    target = site.shape if shape is None else shape
    variable = program.outputs.get(f"given:{site.name}:{name}")
    if variable is None or program.reads([variable]):
        return np.full(target, np.nan)
    return np.broadcast_to(np.asarray(program.run([variable], {})[0], np.float64), target)


def bounded(
    potential: Potential,
    lower: np.ndarray | float,
    upper: np.ndarray | float,
    shape: tuple[int, ...],
    why: str,
) -> Separable | None:
    """Broadcast the bounds to the site; ``None`` if one is not a number."""
    lows, highs = (np.broadcast_to(np.asarray(end, np.float64), shape) for end in (lower, upper))
    if np.any(np.isnan(lows) | np.isnan(highs)):
        return None
    return Separable(potential, lows, highs, why)


def positive(*values: np.ndarray) -> bool:
    """All numbers of all arrays are positive and finite; a parameter that is not public is not."""
    return all(bool(np.all((value > 0) & np.isfinite(value))) for value in values)
