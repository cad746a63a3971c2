"""Strong convexity that a private test found in the data, and what a run that relies on it may claim.

**The test.** ``K`` is public, convex and bounded, and every state lies in it. Row ``i`` certifies the
curvature ``c_i ≥ 0``: for ``u, v ∈ K`` its clipped gradients differ by ``s·z_i z_iᵀ(u − v)``, ``s ≥
c_i``; it is a function of that row alone, and ``c_i‖z_i‖² ≤ κ`` is enforced. ``λ(D) = λ_min(Σ c_i z_i
z_iᵀ)`` changes by at most ``κ`` when a row is replaced, added or removed, since ``0 ⪯ c_i z_i z_iᵀ ⪯
κI``. What is released is ``λ̃ = λ(D) + noise``, and ``λ_low = max(0, λ̃ − t)`` with ``P(noise > t) ≤
δ'``.

**What may follow.** On ``K``, ``U_D`` is ``μ_K + wλ(D)``-strongly convex. A run chosen from ``λ̃`` is
accounted for with ``μ = μ_K + wλ_low`` and costs at most what was declared.

**Why that is enough.** Take adjacent ``D, D'`` and an event ``A``; let ``G = {λ̃ : λ̃ − t ≤ λ(D)}``, so
that ``P_D(G^c) ≤ δ'``. For ``λ̃ ∈ G`` the constant ``μ`` is true *of D*, and that suffices for the
pair: on ``K`` ``|Φ_D(x) − Φ_{D'}(y)| ≤ |Φ_D(x) − Φ_D(y)| + |Φ_D(y) − Φ_{D'}(y)| ≤ ρ|x − y| + γΔ``, so
the modulus of the accountant holds, and the run obeys its statement between ``D`` and ``D'`` in both
orders. Replace the run outside ``G`` by one that says nothing: the pair of whole mechanisms then obeys
the adaptive composition of test and run, and agrees with the true one on ``G``. Hence ``P_D(A) ≤ δ' +
e^ε P_{D'}(A) + δ(ε)``. For the other order take ``G`` from ``λ(D')``. No margin is needed for the row
that differs. Nothing is claimed of the posterior: where the data have little curvature it may be as
unstable as ever, and the run is then told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from private_mcmc.accounting.assumptions import TEST_AND_RUN, TESTED_MOVES, TESTED_SET
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import ExceptWithProbability
from private_mcmc.accounting.langevin.steps import Curvature
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError

_DOWN = 1 - 2.0**-40


@dataclass(frozen=True, kw_only=True)
class CurvatureFloor:
    """A private lower bound of ``λ(D)``; see the module.

    Attributes:
        released: ``λ̃``, the noised value.
        margin: ``t``; it also covers the rounding of ``λ(D)`` and of the noise.
        rounding: ``t`` exceeds a quantile of the noise by at least this much.
        noise_sd: of the Gaussian noise.
        failure: ``δ' ≥ P(noise > t − rounding)``.

    Raises:
        DeclarationError: for numbers out of range, or a margin that the noise exceeds more often.
    """

    released: float
    margin: float
    rounding: float
    noise_sd: float
    failure: float

    def __post_init__(self) -> None:
        gdp.check_delta(self.failure)
        if not (math.isfinite(self.released) and 0 < self.noise_sd < math.inf and self.rounding >= 0):
            raise DeclarationError("a tested curvature needs a finite value and positive, finite noise.")
        if not _upper_tail((self.margin - self.rounding) / self.noise_sd) <= self.failure * (1 + 1e-9):
            raise DeclarationError(
                f"margin={self.margin}: noise of sd {self.noise_sd} exceeds it with more than "
                f"probability {self.failure}."
            )

    @property
    def lower(self) -> float:
        """``λ_low = max(0, λ̃ − t)``, rounded down."""
        return max(0.0, (self.released - self.margin) * _DOWN)

    def strengthen(self, curvature: Curvature, temper: float) -> Curvature:
        """``curvature`` with ``μ`` raised by ``w·λ_low``: for a run on ``K``, clip and metric as tested."""
        if not (curvature.convex and curvature.prior_convex):
            raise DeclarationError("tested curvature adds to a prior and rows that are known to be convex.")
        found = (curvature.strong_convexity + temper * self.lower) * _DOWN
        return replace(
            curvature,
            strong_convexity=max(curvature.strong_convexity, min(found, curvature.smoothness)),
            source=f"{curvature.source}; curvature of the data ≥ {self.lower:.6g} by a private test",
        )


def _upper_tail(size: float) -> float:
    """``P(N(0, 1) > size)``."""
    return math.erfc(size / math.sqrt(2.0)) / 2


def unless_test_fails(inner: Statement, floor: CurvatureFloor) -> Statement:
    """``δ(ε) = δ_inner(ε) + δ'`` for a test and what followed it; ``inner`` is their composition.

    **Guarantee**: every curve of ``inner``, with ``δ'`` added. **Assumptions**: every part of ``inner`` that
    relies on the tested curvature was chosen from the released value, lives on ``K``, and costs at most
    its declared share; ``inner`` itself is a composition of declared costs, never of realised ones.
    Source: the argument of propose–test–release (Dwork, Lei 2009).
    """
    argument = Argument(
        "a private lower bound on the data's curvature, then a run that relies on it (Dwork, Lei 2009)",
        (TESTED_SET, TESTED_MOVES, TEST_AND_RUN),
        {
            "released": floor.released,
            "margin": floor.margin,
            "rounding": floor.rounding,
            "noise_sd": floor.noise_sd,
            "failure": floor.failure,
        },
        "curvature.tested",
    )
    curves = tuple(ExceptWithProbability(curve, floor.failure) for curve in inner.curves)
    return Statement(inner.adjacency, curves, argument, parts=(inner,))
