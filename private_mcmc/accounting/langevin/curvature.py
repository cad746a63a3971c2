"""Proved constants of a potential."""

from __future__ import annotations

import math
from dataclasses import dataclass

from private_mcmc.errors import DeclarationError

_BOUNDS = (
    "strong_convexity",
    "smoothness",
    "prior_strong_convexity",
    "prior_smoothness",
    "gradient_bound",
)


@dataclass(frozen=True)
class Curvature:
    """Constants of ``U_D = K + w Σ v_i`` that are proved for **every** ``D`` of the row domain.

    All are measured in the metric of the schedule's preconditioner (eigenvalues of
    ``M^{1/2} ∇² M^{1/2}``, gradients in ``‖M^{1/2}·‖``), with clipping taken into account. Under
    minibatches they must hold for the potential of every batch that can be drawn, with its public
    factor: ``strong_convexity`` is then the prior's, ``smoothness`` that of the largest batch.

    Attributes:
        strong_convexity: ``μ``, of ``U_D``; 0 proves nothing, not even that ``U_D`` is convex.
        smoothness: ``L``, of ``U_D``: the gradient's Lipschitz constant, so a bound on **both** ends of the
            Hessian wherever convexity is not proved.
        prior_strong_convexity: ``μ_K``, of the prior side ``K``; 0 proves nothing.
        prior_smoothness: ``L_K``, two-sided like ``smoothness``.
        convex: ``U_D`` is convex; implied by ``strong_convexity > 0``.
        gradient_bound: ``B ≥ |w Σ ∇v_i|_*``.
        prior_convex: ``K`` is convex; implied by ``prior_strong_convexity > 0``.
        source: where the proof is, in words.

    Raises:
        DeclarationError: for negative or contradictory constants.
    """

    strong_convexity: float = 0.0
    smoothness: float = math.inf
    prior_strong_convexity: float = 0.0
    prior_smoothness: float = math.inf
    convex: bool = False
    gradient_bound: float = math.inf
    prior_convex: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        for name in _BOUNDS:
            if not getattr(self, name) >= 0:
                raise DeclarationError(f"{name}={getattr(self, name)}: must be a number in [0, ∞].")
        for low, high in (
            ("strong_convexity", "smoothness"),
            ("prior_strong_convexity", "prior_smoothness"),
        ):
            if not getattr(self, low) <= getattr(self, high):
                raise DeclarationError(f"{low}={getattr(self, low)} exceeds {high}={getattr(self, high)}.")
        if math.inf in (self.strong_convexity, self.prior_strong_convexity):
            raise DeclarationError("strong convexity must be finite.")
        if self.strong_convexity > 0 and not self.convex:
            object.__setattr__(self, "convex", True)
        if self.prior_strong_convexity > 0 and not self.prior_convex:
            object.__setattr__(self, "prior_convex", True)
