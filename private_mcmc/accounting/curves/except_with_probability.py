"""A curve that holds but for a rare event: what a private test that may err leaves of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import Curve
from private_mcmc.accounting.rounding import sum_up


@dataclass(frozen=True)
class ExceptWithProbability(Curve):
    """``inner`` unless an event of probability at most ``failure`` happens: ``δ(ε) = δ_inner(ε) + failure``.

    For adjacent ``D, D'`` there are a set ``G`` of outputs with ``P_D(G) ≥ 1 − failure`` and a pair of laws
    that equals ``(P_D, P_{D'})`` on ``G`` and obeys ``inner`` in both orders. Then ``P_D(A) ≤ failure +
    e^ε P_{D'}(A) + δ_inner(ε)``. ``G`` may differ for the two orders. Composed with other mechanisms, inner
    curves compose and failures add (the pair outside ``G`` can be anything). No Rényi divergence is bounded.
    """

    inner: Curve
    failure: float
    kind = "unless"

    def __post_init__(self) -> None:
        gdp.check_delta(self.failure)

    def delta(self, epsilon: float) -> float:
        """``δ_inner(ε) + failure``."""
        return min(1.0, sum_up((self.inner.delta(epsilon), self.failure)))

    def epsilon(self, delta: float) -> float:
        """That of ``inner`` at what the failure leaves of ``delta``; ``inf`` below ``failure``."""
        left = gdp.check_delta(delta) * (1 - 2 * math.ulp(1.0)) - self.failure
        return self.inner.epsilon(left) if left >= 0 else math.inf

    def to_dict(self) -> dict[str, Any]:
        """``kind``, the inner curve and the failure, in plain types."""
        return {"kind": self.kind, "inner": self.inner.to_dict(), "failure": self.failure}
