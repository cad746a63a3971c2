"""Declared functions as one bounded vector that a chain can average: centred, scaled, clamped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DeclarationError
from private_mcmc.release.expectations.functions import Function
from private_mcmc.release.expectations.sensitivities import FloatArray
from private_mcmc.schedule import Average, Schedule

_UNIT = 2.0**-53
# Share of a value's own sensitivity that rounding of the running sums may add; it sets the window.
ROUNDING_SHARE = 2.0**-14


@dataclass(frozen=True, eq=False)
class Observed:
    """The ``d`` declared values in units of their own sensitivities.

    Values are clamped to ``[low, high]``: the declared bounds, and a window so wide that only a running
    sum of larger values could lose more than ``ROUNDING_SHARE`` of a unit to rounding.

    Attributes:
        functions: the declared items, in order.
        centres, units, low, high: shape ``(d,)``; ``low`` and ``high`` in units.
        constrain: the model's map from the flat vector to its sites.
    """

    functions: tuple[Function, ...]
    centres: FloatArray
    units: FloatArray
    low: FloatArray
    high: FloatArray
    constrain: Callable[[jax.Array], Any]

    def __call__(self, theta: jax.Array) -> jax.Array:
        """``(f(θ) − centre)/unit`` of shape ``(d,)``, clamped; NaN counts as ``a`` (as 0 without bounds)."""
        sites = self.constrain(theta)
        parts = []
        for function in self.functions:
            value = jnp.ravel(jnp.asarray(function.evaluate(sites), dtype=theta.dtype))
            parts.append(jnp.where(jnp.isnan(value), _fallback(function), value))
        scaled = (jnp.concatenate(parts) - self.centres) / self.units
        return jnp.clip(scaled, self.low, self.high)

    def averages(self, given: npt.ArrayLike) -> FloatArray:
        """Averages of this vector as a chain computed them, with what is not a number mapped.

        Raises:
            DeclarationError: for a wrong shape; never about values.
        """
        array = np.asarray(given, dtype=np.float64)
        if array.shape != self.units.shape:
            raise DeclarationError(f"averages of shape {array.shape}, {self.units.shape} were planned.")
        lowest = (np.concatenate([_fallback(f) for f in self.functions]) - self.centres) / self.units
        mapped: FloatArray = np.clip(np.where(np.isnan(array), lowest, array), self.low, self.high)
        return mapped

    def split(self, values: FloatArray) -> list[FloatArray]:
        """A ``(d,)`` vector item by item, each in its own shape."""
        cuts = np.cumsum([function.size for function in self.functions])[:-1]
        return [
            part.reshape(function.shape)
            for part, function in zip(np.split(values, cuts), self.functions, strict=True)
        ]


def observed(
    functions: tuple[Function, ...],
    units: FloatArray,
    schedule: Schedule,
    constrain: Callable[[jax.Array], Any],
) -> Observed:
    """The vector of ``functions`` in these units, fit for the running sums of ``schedule``."""
    low, high = (np.concatenate([getattr(f, end) for f in functions]) for end in ("low", "high"))
    known = np.isfinite(high - low)
    centres = np.where(known, (np.where(known, low, 0.0) + np.where(known, high, 0.0)) / 2, 0.0)
    half = np.minimum((high - low) / 2 / units, _window(schedule))
    return Observed(functions, centres, units, -half, half, constrain)


def _fallback(function: Function) -> FloatArray:
    """What NaN counts as: the lower end, or 0 where there is none."""
    return np.where(np.isfinite(function.low), function.low, 0.0)


def _window(schedule: Schedule) -> float:
    """Largest value, in units, whose running sum over steps and chains rounds by less than the share."""
    first = schedule.release.first if isinstance(schedule.release, Average) else 1
    additions = (schedule.num_steps - first + 1) * schedule.num_chains + 16
    load = additions * _UNIT
    return ROUNDING_SHARE * (1 - load) / (2 * load)
