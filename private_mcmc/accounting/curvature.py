"""Proved constants of a potential, and the moduli of its Langevin step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from private_mcmc.errors import DeclarationError


@dataclass(frozen=True)
class Curvature:
    """Constants of ``U_D = K + w Σ v_i`` that are proved for **every** ``D`` of the row domain.

    All are measured in the metric of the schedule's preconditioner (eigenvalues of
    ``M^{1/2} ∇² M^{1/2}``, gradients in ``‖M^{1/2}·‖``), with clipping taken into account.

    Attributes:
        strong_convexity: ``μ``, of ``U_D``.
        smoothness: ``L``, of ``U_D`` (of every potential a batch can produce, for minibatches).
        prior_strong_convexity: ``μ_K``, of the prior side ``K``.
        prior_smoothness: ``L_K``.
        convex: ``U_D`` is convex.
        gradient_bound: ``B ≥ |w Σ ∇v_i|_*``.
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
    source: str = ""

    def __post_init__(self) -> None:
        for name in (
            "strong_convexity",
            "smoothness",
            "prior_strong_convexity",
            "prior_smoothness",
            "gradient_bound",
        ):
            if not getattr(self, name) >= 0:
                raise DeclarationError(f"{name}={getattr(self, name)}: must be a number in [0, ∞].")
        for low, high in (("strong_convexity", "smoothness"), ("prior_strong_convexity", "prior_smoothness")):
            if not getattr(self, low) <= getattr(self, high):
                raise DeclarationError(f"{low}={getattr(self, low)} exceeds {high}={getattr(self, high)}.")
        if math.inf in (self.strong_convexity, self.prior_strong_convexity):
            raise DeclarationError("strong convexity must be finite.")
        if self.strong_convexity > 0 and not self.convex:
            object.__setattr__(self, "convex", True)


@dataclass(frozen=True)
class Affine:
    """A cross modulus ``φ(z) = (1 − gap) z + shift`` of one Langevin step, and why it holds."""

    gap: float
    shift: float
    theorem: str

    @property
    def rho(self) -> float:
        """``ρ = 1 − gap``, rounded up."""
        return (1 - self.gap) * (1 + 2 * math.ulp(1.0))


def moduli(step_size: float, curvature: Curvature, sensitivity: float, bound: float) -> tuple[Affine, ...]:
    """Every affine cross modulus of ``x ↦ x − γM∇U_D(x)`` that the constants prove.

    Args:
        step_size: ``γ``.
        curvature: proved constants.
        sensitivity: ``Δ``, the change of the data gradient.
        bound: ``B``, the norm of the whole data gradient (``inf`` if unknown).
    """
    shift = step_size * sensitivity
    found = []
    mu, smooth = curvature.strong_convexity, curvature.smoothness
    if math.isfinite(smooth):
        limit = step_size * smooth
        if mu > 0 and limit < 2:
            found.append(
                Affine(_gap(step_size, mu, smooth), shift, "strongly convex and smooth, step size below 2/L")
            )
        if curvature.convex and limit <= 2:
            found.append(Affine(0.0, shift, "convex and smooth, step size at most 2/L"))
        found.append(Affine(-limit * (1 + 4 * math.ulp(1.0)), shift, "smooth"))
    prior_mu, prior_smooth = curvature.prior_strong_convexity, curvature.prior_smoothness
    if math.isfinite(prior_smooth) and math.isfinite(bound):
        gap = _gap(step_size, prior_mu, prior_smooth)
        found.append(
            Affine(gap, 2 * step_size * bound, "prior strongly convex and smooth, data gradient bounded")
        )
    return tuple(found)


def _gap(step_size: float, mu: float, smooth: float) -> float:
    """``1 − max(|1−γμ|, |1−γL|)``, rounded down; equal to ``γμ`` while ``γ ≤ 2/(μ+L)``."""
    gap = min(step_size * mu, 2 - step_size * smooth, step_size * smooth, 2 - step_size * mu)
    return gap - 4 * math.ulp(abs(gap))
