"""The price of declared expectations before anything is spent, and their release after the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import Curvature, Statement, average_sensitivity
from private_mcmc.errors import DeclarationError
from private_mcmc.modeling import RowModel
from private_mcmc.release.expectations import Expectations
from private_mcmc.release.expectations_price import price
from private_mcmc.release.functions import Function
from private_mcmc.release.monte_carlo import monte_carlo_sd
from private_mcmc.release.noise import FloatArray, GaussianNoise, LaplaceNoise
from private_mcmc.release.released_expectations import ReleasedExpectations, ReleasedValue
from private_mcmc.schedule import Average, Schedule
from private_mcmc.target import Target

_UNIT = 2.0**-53
# Share of a coordinate's own sensitivity that rounding of the running sums may add; it sets the window.
_ROUNDING_SHARE = 2.0**-14


@dataclass(frozen=True, eq=False)
class ExpectationsPlan:
    """Declared averages with their noise; every number in it is public.

    Coordinates are centred, divided by their own sensitivity (``units``) and clamped to ``[low, high]``:
    in these units ``observable`` runs inside the chain and the noise has one scale.

    Attributes:
        functions: the declared items, in order.
        centres, units, low, high: shape ``(d,)``.
        noise: noise on the ``d`` averages in their units.
        statement: what the release costs.
        monte_carlo: data-free bound on the sd of each average from its finite length; ``inf`` if unproved.
        model_constrain: the model's map from the flat vector to its sites.
    """

    functions: tuple[Function, ...]
    centres: FloatArray
    units: FloatArray
    low: FloatArray
    high: FloatArray
    noise: LaplaceNoise | GaussianNoise
    statement: Statement
    monte_carlo: FloatArray
    model_constrain: Callable[[jax.Array], Any]

    def observable(self, theta: jax.Array) -> jax.Array:
        """``(f(θ) − centre)/unit`` of shape ``(d,)``, clamped; NaN counts as ``a`` (as 0 without bounds)."""
        sites = self.model_constrain(theta)
        parts = []
        for function in self.functions:
            value = jnp.ravel(jnp.asarray(function.evaluate(sites), dtype=theta.dtype))
            parts.append(jnp.where(jnp.isnan(value), _fallback(function), value))
        scaled = (jnp.concatenate(parts) - self.centres) / self.units
        return jnp.clip(scaled, self.low, self.high)

    @property
    def noise_sd(self) -> FloatArray:
        """Standard deviation of the noise on each value."""
        return self.noise.sd * self.units

    @property
    def expected_error(self) -> FloatArray:
        """Mean absolute error that the noise adds to each value."""
        return self.noise.mean_absolute_error * self.units

    def describe(self) -> str:
        """What will be released, its expected error and its price, in a few lines."""
        lines = []
        for function, error, sampling in zip(
            self.functions, self._split(self.expected_error), self._split(self.monte_carlo), strict=True
        ):
            many = "" if function.size == 1 else f" (largest of {function.size})"
            chain = f", Monte Carlo sd at most {sampling.max():.3g}" if math.isfinite(sampling.max()) else ""
            lines.append(f"{function.name}: expected error {error.max():.3g} from the noise{many}{chain}")
        return "\n".join([*lines, str(self.statement)])

    def release(self, averages: npt.ArrayLike, provenance: Mapping[str, str]) -> ReleasedExpectations:
        """Add the noise to the averages of ``observable`` (curator-side, shape ``(d,)``).

        ``provenance`` says where the run's keys came from (``RunKeys.provenance.to_dict()``).

        Raises:
            DeclarationError: for a wrong shape; never about values.
        """
        array = np.asarray(averages, dtype=np.float64)
        if array.shape != self.units.shape:
            raise DeclarationError(
                f"averages of shape {array.shape}; {self.units.shape} values were planned."
            )
        lowest = (np.concatenate([_fallback(f) for f in self.functions]) - self.centres) / self.units
        mapped = np.clip(np.where(np.isnan(array), lowest, array), self.low, self.high)
        values = self.noise.release(mapped) * self.units + self.centres
        total = np.hypot(self.noise_sd, self.monte_carlo)
        released = tuple(
            ReleasedValue(f.name, v.reshape(f.shape), n.reshape(f.shape), t.reshape(f.shape))
            for f, v, n, t in zip(
                self.functions, *map(self._split, (values, self.noise_sd, total)), strict=True
            )
        )
        return ReleasedExpectations(released, self.statement, dict(provenance))

    def _split(self, values: FloatArray) -> list[FloatArray]:
        return np.split(values, np.cumsum([function.size for function in self.functions])[:-1])


def plan_expectations(
    expectations: Expectations, model: RowModel, schedule: Schedule, curvature: Curvature, target: Target
) -> ExpectationsPlan:
    """Sensitivities, noise, expected error and cost of ``expectations`` under ``schedule``.

    ``curvature`` holds constants proved for every data set of the domain, in the schedule's metric.

    Raises:
        DeclarationError: when the schedule releases something else, when nothing bounds an expectation,
            or when the target cannot be met by the chosen noise (Gaussian noise at ``δ = 0``).
    """
    if not isinstance(schedule.release, Average):
        raise DeclarationError(f"release={schedule.release!r}: expectations need a schedule of averages.")
    if schedule.adjacency != target.adjacency:
        raise DeclarationError(f"schedule under {schedule.adjacency!r}, target under {target.adjacency!r}.")
    functions = expectations.bind(model)
    distance = average_sensitivity(schedule, curvature)
    cost = price(expectations, functions, schedule, distance, target, _ROUNDING_SHARE)
    units = cost.moved.units
    low, high = (np.concatenate([getattr(f, end) for f in functions]) for end in ("low", "high"))
    ranges = high - low
    half = np.minimum(ranges / 2 / units, _window(schedule))
    centres = np.where(np.isfinite(ranges), (low + np.where(np.isfinite(ranges), high, 0.0)) / 2, 0.0)
    chain_sd = monte_carlo_sd(schedule, curvature)
    slopes = cost.moved.slopes
    sampling = np.minimum(np.where(slopes > 0, slopes * chain_sd, 0.0), ranges / 2)
    return ExpectationsPlan(
        functions, centres, units, -half, half, cost.noise, cost.statement, sampling, model.constrain
    )


def _fallback(function: Function) -> FloatArray:
    """What NaN counts as: the lower end, or 0 where there is none."""
    return np.where(np.isfinite(function.low), function.low, 0.0)


def _window(schedule: Schedule) -> float:
    """Largest value, in units, whose running sum over steps and chains rounds by less than the share."""
    first = schedule.release.first if isinstance(schedule.release, Average) else 1
    additions = (schedule.num_steps - first + 1) * schedule.num_chains + 16
    load = additions * _UNIT
    return _ROUNDING_SHARE * (1 - load) / (2 * load)
