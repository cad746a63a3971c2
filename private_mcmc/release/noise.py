"""Release noise: OpenDP's exact discrete Laplace and Gaussian on a public grid, the grid charged.

Values are rounded to multiples of a power of two ``h`` and noise is drawn on the same grid in exact
arithmetic, so that no floating-point artefact of the private value reaches the output.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from private_mcmc.accounting.rounding import UP_LONG
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.schedule import Schedule
from private_mcmc.target import check_count, check_positive

FloatArray = npt.NDArray[np.float64]

_GRID_BITS = 40
_LARGEST = 2.0**1000
# Discrete noise counts as Gaussian after giving this many grid steps of its sd to the smoothing of the grid.
_SMOOTHING_STEPS = 4.0


def power_of_two_below(value: float) -> float:
    """The largest power of two not above ``value > 0``."""
    if not 0 < value < math.inf:
        raise DeclarationError(f"{value}: a positive finite number is needed for a grid.")
    return math.ldexp(0.5, math.frexp(value)[1])


def _finite(values: npt.ArrayLike, size: int) -> FloatArray:
    """A vector of ``size`` finite floats. What is not finite is private knowledge: mapped, never raised."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape not in ((size,), () if size == 1 else (size,)):
        raise DeclarationError(f"values of shape {array.shape}, where the noise was planned for {size}.")
    finite = np.nan_to_num(array.reshape(size), nan=0.0, posinf=_LARGEST, neginf=-_LARGEST)
    return np.clip(finite, -_LARGEST, _LARGEST)


@dataclass(frozen=True)
class _Noise(ABC):
    """What both kinds share: OpenDP draws the noise, once its own privacy map agrees with what is charged.

    Attributes:
        level: what is charged: ``ε`` or ``m``.
        sensitivity: ``Δ`` before the grid's charge.
        size: ``d``.
        scale: ``b`` or ``σ``.
        grid: ``h``, a power of two.
    """

    level: float
    sensitivity: float
    size: int
    scale: float
    grid: float

    @abstractmethod
    def _measurement(self) -> tuple[Any, float]:
        """OpenDP's own mechanism, and the privacy loss that is charged, in the unit of its map."""

    def confirmed(self) -> Self:
        """This noise, once OpenDP's own privacy map agrees with the level that is charged."""
        # Not while plans are tried out, by the hundred, on synthetic rows: loading OpenDP takes a second.
        mechanism, promised = self._measurement()
        loss = mechanism.map(self.sensitivity)
        if not loss <= promised:
            raise ReleaseError(
                f"OpenDP certifies {loss}, more than the promised {promised}: nothing was released."
            )
        return self

    def drawn(self, values: npt.ArrayLike) -> FloatArray:
        """``values`` with noise that was confirmed, or whose coordinates stand for releases of their own."""
        return np.asarray(self._measurement()[0](_finite(values, self.size).tolist()), dtype=np.float64)

    def release(self, values: npt.ArrayLike) -> FloatArray:
        """Noised values, multiples of the grid; NaN counts as 0."""
        return self.confirmed().drawn(values)


class LaplaceNoise(_Noise):
    """``round_h(x) + h·k``, ``k`` discrete Laplace of scale ``b/h``, one independent draw a coordinate.

    **Guarantee**: pure ``(Δ_1 + h·d)/b ≤ ε``-DP for ``d`` values of joint L1 sensitivity ``Δ_1`` (two
    neighbours move by at most ``h/2`` each when rounded to the grid).
    **Assumptions**: the sensitivity; OpenDP's sampler and the operating system's randomness.
    Source: Dwork, McSherry, Nissim, Smith 2006; Canonne, Kamath, Steinke 2020 (sampler).
    """

    @property
    def sd(self) -> float:
        """``√2·b``."""
        return math.sqrt(2.0) * self.scale

    def _measurement(self) -> tuple[Any, float]:
        dp = opendp()
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=self.size), dp.l1_distance(T=float)
        return dp.m.make_laplace(*space, scale=self.scale, k=_exponent(self.grid)), self.level


def laplace_noise(epsilon: float, sensitivity: float, size: int = 1) -> LaplaceNoise:
    """The smallest Laplace noise that makes ``size`` values of L1 sensitivity ``sensitivity`` ε-DP."""
    check_count("size", size)
    check_positive("sensitivity", sensitivity)
    check_positive("epsilon", epsilon)
    grid = math.ldexp(power_of_two_below(sensitivity / epsilon), -_GRID_BITS)
    scale = (sensitivity + grid * size) * UP_LONG / epsilon * UP_LONG
    return LaplaceNoise(epsilon, sensitivity, size, scale, grid)


class GaussianNoise(_Noise):
    """``round_h(x) + h·k``, ``k`` discrete Gaussian of scale ``σ/h``, independent for each coordinate.

    **Guarantee**: ``m``-GDP with ``m = (Δ_2 + h√d)/√(σ² − 16h²)``, and ``(Δ_2 + h√d)²/(2σ²)``-zCDP, for
    ``d`` values of joint L2 sensitivity ``Δ_2``. The first because, for any centre ``x``, a continuous
    ``N(x, σ² − 16h²)`` followed by discrete Gaussian rounding of sd ``4h`` has the probabilities of the
    discrete Gaussian of sd ``σ`` up to a factor ``1 ± 4e^{−32π²}`` per coordinate (Poisson summation), a
    factor far below the outward rounding of ``m``.
    **Assumptions**: the sensitivity; OpenDP's sampler and the operating system's randomness.
    Source: Dong, Roth, Su 2022 (Theorem 2.7); Canonne, Kamath, Steinke 2020 (zCDP, sampler).
    """

    @property
    def charged_sensitivity(self) -> float:
        """``Δ_2 + h√d``."""
        return (self.sensitivity + self.grid * math.sqrt(self.size)) * UP_LONG

    @property
    def gaussian_scale(self) -> float:
        """``√(σ² − 16h²)``, the sd of the continuous noise that this discrete noise is as good as."""
        smoothing = _SMOOTHING_STEPS * self.grid
        return math.sqrt((self.scale - smoothing) * (self.scale + smoothing)) / UP_LONG

    @property
    def sd(self) -> float:
        """``σ``."""
        return self.scale

    def _measurement(self) -> tuple[Any, float]:
        dp = opendp()
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=self.size), dp.l2_distance(T=float)
        return dp.m.make_gaussian(*space, scale=self.scale, k=_exponent(self.grid)), self.level**2 / 2


def gaussian_noise(gdp: float, sensitivity: float, size: int = 1) -> GaussianNoise:
    """The smallest Gaussian noise that makes ``size`` values of L2 sensitivity ``sensitivity`` ``m``-GDP."""
    check_count("size", size)
    check_positive("sensitivity", sensitivity)
    check_positive("gdp", gdp)
    grid = math.ldexp(power_of_two_below(sensitivity / gdp), -_GRID_BITS)
    continuous = (sensitivity + grid * math.sqrt(size)) * UP_LONG / gdp
    scale = math.hypot(continuous, _SMOOTHING_STEPS * grid) * UP_LONG**3
    return GaussianNoise(gdp, sensitivity, size, scale, grid)


def opendp() -> Any:
    """OpenDP's prelude, loaded when first needed."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp


def _exponent(grid: float) -> int:
    return math.frexp(grid)[1] - 1


_BITS_BELOW_NOISE = 24
_MAX_MULTIPLE = 2.0**52


@dataclass(frozen=True)
class StateGrid:
    """Multiples of ``step``, a power of two."""

    step: float

    def __post_init__(self) -> None:
        if not 0 < self.step < math.inf or math.frexp(self.step)[0] != 0.5:
            raise DeclarationError(f"grid step {self.step}: a power of two is needed.")

    @property
    def largest(self) -> float:
        """The largest multiple: a path that comes to it has diverged."""
        return self.step * _MAX_MULTIPLE

    def round(self, states: npt.ArrayLike) -> FloatArray:
        """The nearest multiples; what is not finite becomes 0 and what is huge the largest multiple."""
        with np.errstate(all="ignore"):
            multiples = np.rint(np.asarray(states, dtype=np.float64) / self.step)
            finite = np.nan_to_num(multiples, nan=0.0, posinf=_MAX_MULTIPLE, neginf=-_MAX_MULTIPLE)
            # Adding 0 turns -0.0 into 0.0: a sign of zero is one of the bits that must not leave.
            rounded: FloatArray = np.clip(finite, -_MAX_MULTIPLE, _MAX_MULTIPLE) * self.step + 0.0
            return rounded


def state_grid(schedule: Schedule) -> StateGrid:
    """A grid ``2^-24`` below the smallest noise of a step, ``√(2γ λ_min)``, of the schedule alone."""
    shape = schedule.noise if schedule.noise is not None else schedule.preconditioner
    array = np.asarray((1.0,) if shape is None else shape, dtype=np.float64)
    smallest = float(array.min() if array.ndim == 1 else np.linalg.eigvalsh(array)[0])
    noise = math.sqrt(2 * min(schedule.step_sizes) * smallest) if smallest > 0 else 0.0
    if not noise > 0:
        raise DeclarationError("the schedule adds no noise in some direction: its states cannot be released.")
    return StateGrid(math.ldexp(power_of_two_below(noise), -_BITS_BELOW_NOISE))
