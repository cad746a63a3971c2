"""Propose, test, release: a mechanism that is private only on most data sets, behind a private test."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from private_mcmc.errors import DeclarationError
from private_mcmc.release.noise import laplace_noise
from private_mcmc.target import Adjacency, check_adjacency

T = TypeVar("T")
_UP = 1 + 2.0**-30


@dataclass(frozen=True)
class LowerBound:
    """``count + Lap(1/ε) − log(1/2δ)/ε``: a private lower bound on a count that a row changes by at most 1.

    **Guarantee**: ``ε``-DP. It exceeds the count with probability at most ``δ``, whatever the data.
    Source: Dwork, Lei 2009.

    Raises:
        DeclarationError: unless ``ε`` is positive and ``0 < δ < 1/2``.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (0 < self.epsilon < math.inf and 0 < self.delta < 0.5):
            raise DeclarationError(f"epsilon={self.epsilon}, delta={self.delta}: need ε > 0 and 0 < δ < 1/2.")

    @property
    def margin(self) -> float:
        """What is taken off so that only a draw of probability ``δ`` reaches above the count."""
        noise = laplace_noise(self.epsilon, 1.0)
        return noise.scale * math.log(1 / (2 * self.delta)) * _UP + noise.grid

    def release(self, count: float) -> float:
        """The noised bound; ``count`` is curator-side."""
        return float(laplace_noise(self.epsilon, 1.0).release(count)[0]) - self.margin


@dataclass(frozen=True)
class ProposeTestRelease:
    """Release ``mechanism()`` only if a private lower bound on a count reaches a threshold.

    The count ``q`` changes by at most one between adjacent data sets: a number of rows, or the number of
    rows that would have to change before the mechanism stopped being private.

    **Guarantee**: ``(ε_1 + ε_2, max(δ_1, δ_2))``-DP. If ``q`` is below the threshold on both of two adjacent
    data sets, anything but a refusal has probability at most ``δ_1``; otherwise the test costs ``ε_1`` and
    the mechanism ``(ε_2, δ_2)``.
    **Assumptions**, the caller's: the count's sensitivity; and that the mechanism is ``(ε_2, δ_2)``-DP
    between any two adjacent data sets of which one has ``q ≥ threshold``.
    Source: Dwork, Lei 2009 (propose–test–release).

    Attributes:
        threshold: public; the least ``q`` at which the mechanism is private.
        test: the private test, ``(ε_1, δ_1)``.
        mechanism_epsilon, mechanism_delta: ``(ε_2, δ_2)``.
        what: what is counted, in words; quoted in the statement.
    """

    threshold: float
    test: LowerBound
    mechanism_epsilon: float
    mechanism_delta: float
    adjacency: Adjacency
    what: str

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)
        if not math.isfinite(self.threshold):
            raise DeclarationError(f"threshold={self.threshold}: a finite number is needed.")
        if not (0 < self.mechanism_epsilon < math.inf and 0 <= self.mechanism_delta < 1):
            raise DeclarationError("the mechanism's (ε, δ) must be positive and below 1.")

    @property
    def price(self) -> tuple[float, float]:
        """``(ε, δ)``, of a refusal too, by basic composition of the two steps."""
        return self.test.epsilon + self.mechanism_epsilon, max(self.test.delta, self.mechanism_delta)

    def run(self, count: float, mechanism: Callable[[], T]) -> T | None:
        """The mechanism's output, or ``None`` for a refusal; ``count`` is curator-side."""
        passed = self.test.release(count) >= self.threshold
        return mechanism() if passed else None
