"""The steps of a schedule as the shift bound sees them: noise, sensitivities and moduli."""

from __future__ import annotations

import math
from dataclasses import dataclass

from private_mcmc.accounting.langevin.modulus_shapes import Modulus
from private_mcmc.accounting.langevin.sensitivity import (
    CLIP_SLACK,
    batch_factor,
    noise_ratio,
    rounding_allowance,
    rows_summed,
    sensitivity,
)
from private_mcmc.accounting.langevin.step_moduli import langevin
from private_mcmc.accounting.rounding import product_down, product_up, root_down, sum_up
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Schedule

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


_DOWN = 1 - 2.0**-50


def check_scheme(schedule: Schedule) -> None:
    """Refuse pairs of batch scheme and adjacency for which nothing is proved.

    Raises:
        DeclarationError: naming the scheme, the adjacency and what to use instead.
    """
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

    ``sensitivity`` of the schedule; twice that for truncated Poisson batches, where a row that
    appears pushes another one out.
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
    return langevin(
        step_size,
        change,
        strong_convexity=curvature.strong_convexity,
        smoothness=curvature.smoothness,
        convex=curvature.convex,
        prior_strong_convexity=curvature.prior_strong_convexity,
        prior_smoothness=curvature.prior_smoothness,
        prior_convex=curvature.prior_convex,
        gradient_bound=gradient_bound(schedule, curvature),
    )
