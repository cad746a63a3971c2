"""What is proved of a chain's potentials, and how much of a distance one of its steps keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from private_mcmc.accounting.langevin.sensitivity import (
    CLIP_SLACK,
    UNIT_ROUNDOFF,
    batch_factor,
    noise_ratio,
    rounding_allowance,
    row_change,
    rows_summed,
)
from private_mcmc.accounting.rounding import product_down, product_up, root_down, root_up, sum_up
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Schedule
from private_mcmc.target import check_positive


@dataclass(frozen=True)
class Curvature:
    """Constants of ``U_D = K + w Σ v_i`` that are proved for **every** ``D`` of the row domain.

    All are measured in the metric of the schedule's preconditioner (eigenvalues of
    ``M^{1/2} ∇² M^{1/2}``, gradients in ``‖M^{1/2}·‖``), with clipping taken into account. Under
    minibatches they must hold for the potential of every batch that can be drawn, with its public
    factor: ``strong_convexity`` is then the prior's, ``smoothness`` that of the largest batch.

    Attributes:
        strong_convexity: ``μ``, of ``U_D``.
        smoothness: ``L``, of a convex ``U_D``; ``inf`` where convexity or smoothness is not proved.
        prior_smoothness: ``L_K``, a bound on both ends of the Hessian of the prior side ``K``.
        prior_slope: ``|∇K(0)|_*``; of it and ``L_K`` only the size of rounding errors makes use.

    ``DeclarationError`` for negative or contradictory constants.
    """

    strong_convexity: float = 0.0
    smoothness: float = math.inf
    prior_smoothness: float = math.inf
    prior_slope: float = math.inf

    def __post_init__(self) -> None:
        if not (0 <= self.strong_convexity <= self.smoothness and self.strong_convexity < math.inf):
            raise DeclarationError(
                f"strong_convexity={self.strong_convexity}, smoothness={self.smoothness}: need 0 ≤ μ ≤ L, "
                "and a finite μ."
            )
        if not (self.prior_smoothness >= 0 and self.prior_slope >= 0):
            raise DeclarationError("prior_smoothness, prior_slope: numbers in [0, ∞].")

    def gap(self, step_size: float) -> float:
        """``1 − ρ`` of one step, rounded down; negative where it is not proved to keep two states together.

        With the same noise ``|X' − Y'| ≤ ρ|X − Y| + γΔ`` for chains on adjacent data,
        ``ρ = max(|1 − γμ|, |1 − γL|)``.
        """
        return contraction_gap(step_size, self.strong_convexity, self.smoothness)


def contraction_gap(step_size: float, strong_convexity: float, smoothness: float) -> float:
    """``1 − ρ``, ``ρ = max(|1 − γμ|, |1 − γL|)``, of a convex gradient step, rounded down.

    Positive exactly for ``μ > 0`` and ``γ < 2/L``; negative (an expanding step) for ``γ > 2/L``.
    """
    check_positive("step_size", step_size)
    fast = product_up(step_size, smoothness)
    if not fast < math.inf:
        return -math.inf
    return min(product_down(step_size, strong_convexity), 2.0 - fast - 2.0**-51 * max(1.0, fast))


def check_scheme(schedule: Schedule) -> None:
    """Refuse, by name, pairs of batch scheme and adjacency for which nothing is proved."""
    batch = schedule.batch
    if batch is None:
        return
    if batch.size is not None and batch.size > schedule.num_rows:
        raise DeclarationError(f"batch size {batch.size} exceeds num_rows={schedule.num_rows}.")
    if batch.scheme == "fixed" and schedule.adjacency == "add_remove":
        raise DeclarationError(
            f"{batch.scheme!r} batches under add_remove: another row refills the slot and b/n depends on the "
            "private n. Use Poisson batches, or replace_one."
        )


def noise_sd(schedule: Schedule, step_size: float) -> float:
    """Least standard deviation of one step's noise in ``‖M^{-1/2}·‖``, rounded down."""
    return product_down(root_down(product_down(2.0, step_size, noise_ratio(schedule)[0])), 1 - 2.0**-50)


# Noise of float64 is at most so many standard deviations.
_FARTHEST = 8.5


def kept_rounding(schedule: Schedule, known: Curvature) -> float:
    """The share of what one row moves that rounding may move a step of states that are kept ``within``.

    Two computed steps ``u + (√(2γ)ξ − γg)`` differ from those of real arithmetic by at most
    ``2u(6γ‖g‖ + √p(b + 2σ_max))`` together, ``b`` the half-width and ``‖g‖ ≤ |∇K(0)|_* + L_K√p b + B``, ``B``
    what clipped rows sum to. Every step is charged its own, also one that does not draw the row. A part is
    left to clips. The gradient of ``K`` itself is taken as exact.
    """
    size, root = min(schedule.step_sizes), root_up(float(schedule.dim))
    rows = product_up(schedule.temper, batch_factor(schedule), rows_summed(schedule), schedule.clip)
    # All rows may use the slack of their clip: together that is more than the rounding slack covers.
    rows = product_up(rows, 1 + CLIP_SLACK, 1 + 2.0**-50)
    reach = product_up(known.prior_smoothness, root, schedule.within)
    slope = sum_up((known.prior_slope, reach, rows, product_up(0.5, rounding_allowance(schedule))))
    noise = product_up(_FARTHEST, root_up(product_up(2.0, size, noise_ratio(schedule)[0])), 1 + 1e-9)
    moved = sum_up((product_up(6.0, size, slope), product_up(root, sum_up((schedule.within, 2 * noise)))))
    share = product_up(2 * UNIT_ROUNDOFF, moved, over=(size, row_change(schedule)))
    return sum_up((share, CLIP_SLACK))
