"""The steps of a schedule as the shift bound sees them: noise, sensitivities, and the modulus of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from private_mcmc.accounting.langevin.modulus_shapes import Affine, Minimum, Modulus, Point, undominated
from private_mcmc.accounting.langevin.sensitivity import (
    CLIP_SLACK,
    batch_factor,
    noise_ratio,
    rounding_allowance,
    rows_summed,
    sensitivity,
)
from private_mcmc.accounting.rounding import product_down, product_up, root_down, sum_up
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Schedule


def check_positive(**values: float) -> None:
    """Raise ``DeclarationError`` unless every value lies in ``(0, ∞)``."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise DeclarationError(f"{name}={value}: must be positive and finite.")


def check_non_negative(**values: float) -> None:
    """Raise ``DeclarationError`` unless every value lies in ``[0, ∞]``."""
    for name, value in values.items():
        if not value >= 0:
            raise DeclarationError(f"{name}={value}: must be non-negative.")


def contraction_gap(step_size: float, strong_convexity: float, smoothness: float) -> float:
    """``1 − ρ``, ``ρ = max(|1 − γμ|, |1 − γL|)``, of a convex gradient step, rounded down.

    Positive exactly for ``μ > 0`` and ``γ < 2/L``; negative (an expanding step) for ``γ > 2/L``.
    """
    check_positive(step_size=step_size)
    if not 0 <= strong_convexity <= smoothness < math.inf:
        raise DeclarationError(
            f"strong_convexity={strong_convexity}, smoothness={smoothness}: need 0 ≤ μ ≤ L < ∞."
        )
    fast = product_up(step_size, smoothness)
    return min(product_down(step_size, strong_convexity), 2.0 - fast - 2.0**-51 * max(1.0, fast))


_BOUNDS = ("strong_convexity", "smoothness", "prior_strong_convexity", "prior_smoothness", "gradient_bound")


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

    ``DeclarationError`` for negative or contradictory constants.
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
        for low, high in (("strong_convexity", "smoothness"), ("prior_strong_convexity", "prior_smoothness")):
            if not getattr(self, low) <= getattr(self, high):
                raise DeclarationError(f"{low}={getattr(self, low)} exceeds {high}={getattr(self, high)}.")
        if math.inf in (self.strong_convexity, self.prior_strong_convexity):
            raise DeclarationError("strong convexity must be finite.")
        if self.strong_convexity > 0 and not self.convex:
            object.__setattr__(self, "convex", True)
        if self.prior_strong_convexity > 0 and not self.prior_convex:
            object.__setattr__(self, "prior_convex", True)


_NOTHING = Curvature()


def langevin(step_size: float, sensitivity: float, known: Curvature = _NOTHING) -> Modulus:
    """The least modulus that the constants prove for ``Φ_D(x) = x − γM∇U_D(x)``, all adjacent ``D, D'``.

    ======================================================  ==================================
    known of ``U_D = K + V_D`` for every ``D``              ``φ(z)``
    ======================================================  ==================================
    convex, ``L``-smooth, ``μ``-strongly convex             ``max(|1−γμ|, |1−γL|) z + γΔ``
    ``L``-smooth                                            ``(1+γL) z + γΔ``
    ``K`` convex, ``L_K``-smooth, ``|∇V_D|_* ≤ B``          ``max(|1−γμ_K|, |1−γL_K|) z + 2γB``
    ``K`` ``L_K``-smooth, ``|∇V_D|_* ≤ B``                  ``(1+γL_K) z + 2γB``
    nothing                                                 ``φ(0) = γΔ`` only
    ======================================================  ==================================

    The pointwise minimum of all rows that apply is returned. ``L``-smooth means that the gradient is
    ``L``-Lipschitz: without convexity the Hessian lies between ``−L`` and ``L``.

    Source: BJRD Assumption 5.1 and proof of Theorem 5.2; BFG Section 2.
    """
    check_positive(step_size=step_size)
    check_non_negative(sensitivity=sensitivity)
    push = product_up(step_size, sensitivity)
    parts: list[Modulus] = [Point(push)]
    if math.isfinite(known.smoothness):
        gap = _gap(step_size, known.strong_convexity, known.smoothness, known.convex)
        parts.append(Affine(gap, push))
    if math.isfinite(known.gradient_bound) and math.isfinite(known.prior_smoothness):
        gap = _gap(step_size, known.prior_strong_convexity, known.prior_smoothness, known.prior_convex)
        parts.append(Affine(gap, product_up(2.0, step_size, known.gradient_bound)))
    return _simplest(parts)


def _gap(step_size: float, strong_convexity: float, smoothness: float, convex: bool) -> float:
    """``1 − ρ`` of the gradient step of a function, rounded down: ``−γL`` where it may bend both ways."""
    if convex:
        return contraction_gap(step_size, strong_convexity, smoothness)
    return -product_up(step_size, smoothness)


def _simplest(parts: list[Modulus]) -> Modulus:
    point, *others = parts
    push = point.value(np.zeros(1))[0]
    if any(part.value(np.zeros(1))[0] <= push for part in others):
        parts = others
    parts = list(undominated(parts))
    return parts[0] if len(parts) == 1 else Minimum(tuple(parts))


_DOWN = 1 - 2.0**-50


def check_scheme(schedule: Schedule) -> None:
    """Refuse, by name, pairs of batch scheme and adjacency for which nothing is proved."""
    batch, adjacency = schedule.batch, schedule.adjacency
    if batch is None:
        return
    if batch.size is not None and batch.size > schedule.num_rows:
        raise DeclarationError(f"batch size {batch.size} exceeds num_rows={schedule.num_rows}.")
    if batch.scheme in ("fixed", "cyclic") and adjacency == "add_remove":
        raise DeclarationError(
            f"{batch.scheme!r} batches under add_remove: another row refills the slot and b/n depends on the "
            "private n. Use Poisson batches, or replace_one."
        )
    if batch.scheme == "truncated_poisson" and adjacency != "add_remove":
        raise DeclarationError(
            f"truncated Poisson batches under {adjacency}: not certified. Use 'poisson' or 'fixed' batches."
        )
    if batch.scheme == "cyclic" and batch.size is not None and schedule.num_rows % batch.size:
        raise DeclarationError(
            f"cyclic batches: size {batch.size} must divide num_rows={schedule.num_rows}, so that a row is "
            "used once in every pass."
        )


def period(schedule: Schedule) -> int:
    """Steps between two uses of one row: ``n/b`` for cyclic batches, else 1."""
    batch = schedule.batch
    if batch is None or batch.scheme != "cyclic" or batch.size is None:
        return 1
    return schedule.num_rows // batch.size


def noise_sd(schedule: Schedule, step_size: float) -> float:
    """Least standard deviation of one step's noise in ``‖M^{-1/2}·‖``, rounded down."""
    return product_down(root_down(product_down(2.0, step_size, noise_ratio(schedule)[0])), _DOWN)


def largest_change(schedule: Schedule) -> float:
    """The most that adjacent data change a step's gradient when equal rows are drawn, in ``|·|_*``.

    ``sensitivity``, twice for truncated Poisson batches: a row that appears pushes another one out.
    """
    batch = schedule.batch
    displaced = batch is not None and batch.scheme == "truncated_poisson"
    return product_up(sensitivity(schedule), 2.0 if displaced else 1.0)


def gradient_bound(schedule: Schedule, curvature: Curvature) -> float:
    """``B``: the least of what is proved and what the clip enforces on a computed sum."""
    enforced = product_up(schedule.temper, batch_factor(schedule), rows_summed(schedule), schedule.clip)
    # All rows may use the slack of their clip: together that is more than the rounding slack covers.
    exact = min(curvature.gradient_bound, product_up(enforced, 1 + CLIP_SLACK, 1 + 2.0**-50))
    return sum_up((exact, product_up(0.5, rounding_allowance(schedule))))


def modulus(schedule: Schedule, curvature: Curvature, step_size: float, change: float) -> Modulus:
    """The least modulus of a step that the constants prove; data change its gradient by ``change``."""
    return langevin(step_size, change, replace(curvature, gradient_bound=gradient_bound(schedule, curvature)))
