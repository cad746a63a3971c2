"""The mean-loss form of noisy gradient descent as the sum form used here.

Mean form: steps ``θ' = θ − γ̄ ∇(k + (1/m) Σ_i v_i)(θ) + N(0, 2γ̄/β)`` on the average over ``m`` rows at
inverse temperature ``β``. Sum form: ``U = K + w Σ_i v_i`` with ``K = βk``, ``w = β/m``, ``γ = γ̄/β``,
noise ``N(0, 2γ)``. They are the same chain. ``w`` may exceed 1.

Source: Bertazzi, Johnston, Roberts, Durmus, Section 5.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from private_mcmc.errors import DeclarationError


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise DeclarationError(f"{name}={value}: must be positive and finite.")


@dataclass(frozen=True, kw_only=True)
class MeanForm:
    """A chain on the mean loss.

    Attributes:
        step_size: ``γ̄``.
        inverse_temperature: ``β``.
        num_rows: ``m``.
        strong_convexity: of the mean objective ``k + (1/m) Σ v_i``.
        smoothness: of the mean objective.
        clip: ``C``, the bound on one row's gradient ``∇v_i``.
    """

    step_size: float
    inverse_temperature: float
    num_rows: int
    strong_convexity: float = 0.0
    smoothness: float = math.inf
    clip: float = math.inf

    def __post_init__(self) -> None:
        _positive(
            step_size=self.step_size, inverse_temperature=self.inverse_temperature, num_rows=self.num_rows
        )


@dataclass(frozen=True, kw_only=True)
class SumForm:
    """The same chain on ``U = K + w Σ v_i``: the numbers a ``Schedule`` and a ``Curvature`` take."""

    step_size: float
    temper: float
    num_rows: int
    strong_convexity: float = 0.0
    smoothness: float = math.inf
    clip: float = math.inf

    def __post_init__(self) -> None:
        _positive(step_size=self.step_size, temper=self.temper, num_rows=self.num_rows)


def to_sum(mean: MeanForm) -> SumForm:
    """``γ = γ̄/β``, ``w = β/m``, constants of the potential times ``β``."""
    beta = mean.inverse_temperature
    return SumForm(
        step_size=mean.step_size / beta,
        temper=beta / mean.num_rows,
        num_rows=mean.num_rows,
        strong_convexity=mean.strong_convexity * beta,
        smoothness=mean.smoothness * beta,
        clip=mean.clip,
    )
