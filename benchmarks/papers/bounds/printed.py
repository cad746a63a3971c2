"""The form of a printed bound: its number, where it stands, and what is known to be wrong with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from private_mcmc.errors import DeclarationError


@dataclass(frozen=True)
class Printed:
    """A bound as its paper prints it, for comparison only.

    Attributes:
        source: paper and theorem.
        slip: what is misprinted or not proved, empty where nothing is known.
        rate: ``ε_α/α`` of the printed Rényi bound.
        largest_order: the largest order the theorem covers.
        level: ``C`` of a printed ``ε_δ = leading·C + √(C log(1/δ))``, or ``None`` where the paper
            prints a Rényi bound only.
        leading: the factor of the first term, as printed.
    """

    source: str
    slip: str
    rate: float
    largest_order: float = math.inf
    level: float | None = None
    leading: float = 0.25

    def rdp(self, alpha: float) -> float:
        """``ε_α`` at order ``alpha``; ``inf`` beyond the largest order."""
        if not alpha >= 1:
            raise DeclarationError(f"alpha={alpha}: a Rényi order is at least 1.")
        return alpha * self.rate if alpha <= self.largest_order else math.inf

    def epsilon(self, delta: float) -> float:
        """``ε_δ`` as printed, or by Mironov's conversion ``ε_α − log δ/(α−1)`` at the best order."""
        if not 0 < delta < 1:
            raise DeclarationError(f"delta={delta}: must lie in (0, 1).")
        loss = math.log(1 / delta)
        if self.level is not None:
            return self.leading * self.level + math.sqrt(self.level * loss)
        if self.rate == 0:
            return 0.0
        order = min(1 + math.sqrt(loss / self.rate), self.largest_order)
        return order * self.rate + loss / (order - 1) if order > 1 else math.inf
