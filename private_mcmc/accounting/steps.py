"""How far one row moves a step, with float64 rounding, and how much of a distance a step keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from private_mcmc.accounting.rounding import FloatArray, product_down, product_up, root_down, root_up, sum_up
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import ROUNDING, Matrix, Schedule
from private_mcmc.target import Adjacency, check_adjacency, check_positive


def dense(matrix: Matrix | None, dim: int, name: str) -> npt.NDArray[np.float64]:
    """``matrix`` as ``(dim, dim)`` array (``None``: identity); symmetric, positive definite, or refused."""
    if matrix is None:
        return np.eye(dim)
    given = np.asarray(matrix, dtype=np.float64)
    array = np.diag(given) if given.ndim == 1 else given
    if array.shape != (dim, dim) or not np.isfinite(array).all():
        raise DeclarationError(f"{name}: expected {dim} finite diagonal entries or a {dim}×{dim} matrix.")
    if not np.array_equal(array, array.T):
        raise DeclarationError(f"{name}: must be symmetric.")
    if not (given.min() if given.ndim == 1 else np.linalg.eigvalsh(array)[0]) > 0:
        raise DeclarationError(f"{name}: must be positive definite.")
    return array


def condition_number(schedule: Schedule) -> float:
    """``λ_max(M)/λ_min(M)``, rounded up."""
    if schedule.preconditioner is None:
        return 1.0
    matrix = dense(schedule.preconditioner, schedule.dim, "preconditioner")
    if not np.count_nonzero(matrix - np.diag(np.diag(matrix))):
        return product_up(float(np.diag(matrix).max()), over=(float(np.diag(matrix).min()),))
    values = np.linalg.eigvalsh(matrix)
    least = float(values[0] - values[-1] * schedule.dim * 2.0**-46)
    if not least > 0:
        raise DeclarationError("preconditioner: float64 does not tell its smallest direction from none.")
    return product_up(float(values[-1]), 1 + schedule.dim * 2.0**-46, over=(least,))


def whitened_noise(schedule: Schedule) -> FloatArray | None:
    """``√(S/2γM)``, by which the kernel multiplies standard normals; ``None`` where the noise is ``2γM``."""
    if schedule.noise is None:
        return None
    scale = np.ones(schedule.dim) if schedule.preconditioner is None else np.asarray(schedule.preconditioner)
    return np.asarray(np.sqrt(np.asarray(schedule.noise, dtype=np.float64)) / np.sqrt(scale))


def noise_ratio(schedule: Schedule) -> tuple[float, bool]:
    """Least ``S_jj/(2γM_jj)``, rounded down, and whether ``S ∝ M``.

    In the norm ``‖M^{-1/2}·‖`` every direction has noise variance at least ``2γ`` times the ratio. It is that
    of the very numbers that the kernel uses; where they leave the normal floats, ``DeclarationError``.
    """
    mixed = whitened_noise(schedule)
    if mixed is None:
        return 1.0, True
    least, most = float(mixed.min()), float(mixed.max())
    if not (least * least > 0 and math.isfinite(most * most)):
        raise DeclarationError("noise: float64 does not tell its smallest coordinate from none; rescale it.")
    return least * least * (1 - 1e-12), most - least <= 5e-13 * most


UNIT_ROUNDOFF = 2.0**-53
# The part of it that is left to rows of several predictors: a clip at their proved bound then never acts.
CLIP_SLACK = 1e-10


def row_sensitivity(clip: float, temper: float, adjacency: Adjacency) -> float:
    """``Δ = 2wC`` (``replace_one``) or ``wC`` (``add_remove``, ``zero_out``), rounded up."""
    if not (clip > 0 and temper > 0):
        raise DeclarationError(f"clip={clip}, temper={temper}: both must be positive.")
    return product_up(2.0 if check_adjacency(adjacency) == "replace_one" else 1.0, temper, clip)


def batch_factor(schedule: Schedule) -> float:
    """The public factor ``1/q`` of the sum over a minibatch, as the kernel has it; 1 for all rows."""
    return 1.0 if schedule.rate is None else 1.0 / schedule.rate


def _load(terms: int) -> float:
    """``s u`` of a sum of ``s`` terms."""
    if not terms * UNIT_ROUNDOFF < 0.5:
        raise DeclarationError(f"num_rows={terms}: float64 sums of so many rows carry no useful bound.")
    return terms * UNIT_ROUNDOFF


def rounding_allowance(schedule: Schedule) -> float:
    """Largest difference, in ``|·|_*``, that float64 rounding adds between two sums of clipped rows.

    Each sum of ``s`` terms of norm ``C`` is off by at most ``s C · s u/(1 − s u)`` in the norm the
    sum is accumulated in (Higham 2002, §4.2). A person's term is itself a sum of up to ``k`` rows: ``s k u``.
    """
    count = schedule.num_rows
    load = _load(count * (1 if schedule.unit is None else schedule.unit.rows))
    spread = root_up(condition_number(schedule))
    weight = product_up(schedule.temper, batch_factor(schedule), schedule.clip)
    return product_up(2 * (1 + 2.0**-50), weight, count, spread, load, over=(1 - load,))


def rounding_box(schedule: Schedule) -> float:
    """Largest ``|θ|_∞ + 4γ|∇U|_∞`` (whitened coordinates) at which a run's rounding slack is enough.

    Rounding ``θ − γM∇U`` in float64 moves two steps apart by at most ``2u√p`` times that number, which
    must stay below ``ROUNDING · γΔ``, less the part that clips may use.
    """
    step = min(schedule.step_sizes) if isinstance(schedule.step_size, tuple) else schedule.step_size
    # Clipped apart, every coordinate has a slack of its own, in proportion to how far a row moves it.
    moved = sensitivity(schedule) if schedule.clips is None else min(coordinate_changes(schedule))
    allowed = (ROUNDING - CLIP_SLACK) * step * moved
    return allowed / (2 * UNIT_ROUNDOFF * math.sqrt(schedule.dim))


def gradient_limit(schedule: Schedule) -> float:
    """The bound ``G`` at which a kernel clamps every coordinate of the whitened gradient; ``inf``: none.

    With ``4γG`` inside ``rounding_box`` the slack of 1e-9 is enforced: the last addition of a step is
    post-processing of its noise and its gradient, given the state before. Where states are kept in a box no
    clamp is made, since contraction needs the gradient itself.
    """
    if schedule.within < math.inf:
        return math.inf
    return rounding_box(schedule) / (4 * max(schedule.step_sizes))


def row_change(schedule: Schedule) -> float:
    """The most that one present row adds to a step's computed gradient, in ``|·|_*``: ``wC`` times the public
    factor of a minibatch, plus the rounding difference of two float64 sums.
    """
    exact = product_up(schedule.temper, schedule.clip, batch_factor(schedule))
    return product_up(sum_up((exact, rounding_allowance(schedule))), 1 + 8 * UNIT_ROUNDOFF)


def sensitivity(schedule: Schedule) -> float:
    """``Δ``: the most that one row changes the computed gradient of the data term, in ``|·|_*``: ``2wC``
    (``replace_one``) or ``wC``, times the batch's public factor, plus the rounding of two float64 sums.
    """
    row = row_sensitivity(schedule.clip, schedule.temper, schedule.adjacency)
    exact = product_up(row, batch_factor(schedule))
    return product_up(sum_up((exact, rounding_allowance(schedule))), 1 + 4 * UNIT_ROUNDOFF)


def coordinate_changes(schedule: Schedule) -> tuple[float, ...]:
    """``Δ_j``: the most that one row changes coordinate ``j`` of the computed whitened gradient.

    ``2w√M_jj C_j`` (``replace_one``) or ``w√M_jj C_j``, and what rounding adds between two sums of ``n``
    terms of that size, coordinate by coordinate (Higham 2002, §4.2). Persons are ``n`` terms, too: what a
    person's own rows round off comes before the clip, which bounds the computed term whatever it is, and is
    the same in both sums for all other persons.
    """
    if schedule.clips is None:
        raise DeclarationError("clips: rows are clipped by their norm.")
    load = _load(schedule.num_rows)
    scales = np.diag(dense(schedule.preconditioner, schedule.dim, "preconditioner")).tolist()
    apart = 2 * (1 + 2.0**-50) * schedule.num_rows
    found = []
    for clip, scale in zip(schedule.clips, scales, strict=True):
        cap = product_up(clip, root_up(scale))
        row = row_sensitivity(cap, schedule.temper, schedule.adjacency)
        rounding = product_up(apart, schedule.temper, cap, load, over=(1 - load,))
        found.append(product_up(sum_up((row, rounding)), 1 + 8 * UNIT_ROUNDOFF))
    return tuple(found)


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
        prior_slope: ``|∇K(0)|_*``, with what the gradients of rows and prior round off, over ``6u``; of it
            and ``L_K`` only the size of rounding errors makes use.

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
        ``ρ = max(|1 − γμ|, |1 − γL|)``: positive exactly for ``μ > 0`` and ``γ < 2/L``.
        """
        check_positive("step_size", step_size)
        fast = product_up(step_size, self.smoothness)
        if not fast < math.inf:
            return -math.inf
        return min(product_down(step_size, self.strong_convexity), 2.0 - fast - 2.0**-51 * max(1.0, fast))


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
    left to clips.
    """
    size, root = min(schedule.step_sizes), root_up(float(schedule.dim))
    rows = product_up(schedule.temper, batch_factor(schedule), schedule.num_rows, schedule.clip)
    # All rows may use the slack of their clip: together that is more than the rounding slack covers.
    rows = product_up(rows, 1 + CLIP_SLACK, 1 + 2.0**-50)
    reach = product_up(known.prior_smoothness, root, schedule.within)
    slope = sum_up((known.prior_slope, reach, rows, product_up(0.5, rounding_allowance(schedule))))
    mixed = whitened_noise(schedule)
    largest = 1.0 if mixed is None else float(mixed.max())
    noise = product_up(_FARTHEST, root_up(product_up(2.0, size)), largest, 1 + 1e-9)
    moved = sum_up((product_up(6.0, size, slope), product_up(root, sum_up((schedule.within, 2 * noise)))))
    share = product_up(2 * UNIT_ROUNDOFF, moved, over=(size, row_change(schedule)))
    return sum_up((share, CLIP_SLACK))
