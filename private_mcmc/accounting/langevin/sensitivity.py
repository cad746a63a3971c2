"""How far one row moves the gradient of a schedule, with the float64 rounding of the sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from private_mcmc.accounting.rounding import FloatArray, product_up, root_up, sum_up
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import ROUNDING, Average, Batch, Matrix, Release, Schedule
from private_mcmc.target import Adjacency, Unit, check_adjacency


@dataclass(frozen=True, kw_only=True)
class ChainConstants:
    """What a statement's record holds of a run, in the place of its schedule: the metric by two numbers.

    Attributes:
        condition_number: of the preconditioner.
        noise_ratio: the least variance of a step's noise in the metric, over ``2γ``.

    The others are those of the schedule. ``DeclarationError`` where they contradict each other.
    """

    adjacency: Adjacency
    num_rows: int
    dim: int
    step_size: float | tuple[float, ...]
    num_steps: int
    num_chains: int
    clip: float
    temper: float
    batch: Batch | None
    within: float
    rounding: float
    release: Release
    unit: Unit | None
    condition_number: float
    noise_ratio: float
    clips: None = None

    def __post_init__(self) -> None:
        if isinstance(self.step_size, tuple) and len(self.step_size) != self.num_steps:
            raise DeclarationError(f"step_size has {len(self.step_size)} entries for {self.num_steps} steps.")
        last = self.release.first if isinstance(self.release, Average) else self.release
        steps = last if isinstance(last, tuple) else (last,) if isinstance(last, int) else (1,)
        if list(steps) != sorted(set(steps)) or not (steps[0] >= 1 and steps[-1] <= self.num_steps):
            raise DeclarationError(f"release={self.release}: only steps of the run are released, in order.")

    @property
    def step_sizes(self) -> tuple[float, ...]:
        """The step size of every step, in order."""
        given = self.step_size
        return given if isinstance(given, tuple) else (given,) * self.num_steps


Run = Schedule | ChainConstants


def dense(matrix: Matrix | None, dim: int, name: str) -> npt.NDArray[np.float64]:
    """``matrix`` as ``(dim, dim)`` array (``None``: identity); symmetric, positive definite, or refused."""
    if matrix is None:
        return np.eye(dim)
    array = np.asarray(matrix, dtype=np.float64)
    array = np.diag(array) if array.ndim == 1 else array
    if array.shape != (dim, dim):
        raise DeclarationError(f"{name}: expected {dim} diagonal entries or a {dim}×{dim} matrix.")
    if not np.array_equal(array, array.T):
        raise DeclarationError(f"{name}: must be symmetric.")
    if not np.linalg.eigvalsh(array)[0] > 0:
        raise DeclarationError(f"{name}: must be positive definite.")
    return array


def condition_number(schedule: Run) -> float:
    """``λ_max(M)/λ_min(M)``."""
    if isinstance(schedule, ChainConstants):
        return schedule.condition_number
    if schedule.preconditioner is None:
        return 1.0
    values = np.linalg.eigvalsh(dense(schedule.preconditioner, schedule.dim, "preconditioner"))
    return float(values[-1] / values[0])


def whitened_noise(schedule: Schedule) -> FloatArray | None:
    """``A^{-1}B`` with ``M = AAᵀ`` and ``S/2γ = BBᵀ``, as the kernel multiplies standard normals by it.

    ``None`` for the identity, where the noise is ``2γM``; a vector where both matrices are diagonal.
    """
    if schedule.noise is None:
        return None
    noise = dense(schedule.noise, schedule.dim, "noise")
    scale = dense(schedule.preconditioner, schedule.dim, "preconditioner")
    if not any(np.count_nonzero(matrix - np.diag(np.diag(matrix))) for matrix in (noise, scale)):
        return np.asarray(np.sqrt(np.diag(noise)) / np.sqrt(np.diag(scale)))
    try:
        mixed: FloatArray = np.linalg.solve(np.linalg.cholesky(scale), np.linalg.cholesky(noise))
    except np.linalg.LinAlgError:
        raise DeclarationError("noise, preconditioner: must be positive definite in float64.") from None
    return mixed


def noise_ratio(schedule: Run) -> tuple[float, bool]:
    """Least eigenvalue of ``M^{-1/2} (S/2γ) M^{-1/2}``, rounded down, and whether ``S ∝ M``.

    In the norm ``‖M^{-1/2}·‖`` every direction has noise variance at least ``2γ`` times the ratio. It is that
    of the very matrix that the kernel uses: factors of nearly singular matrices are far from those of real
    arithmetic. Singular values are found up to a modest multiple of ``u`` times the largest; where float64
    does not tell the least one from zero, ``DeclarationError``. A record tells the ratio: noise of at least
    that variance is the sum of one that is proportional to ``M`` and of another, which may be given away.
    """
    if isinstance(schedule, ChainConstants):
        return schedule.noise_ratio, True
    mixed = whitened_noise(schedule)
    if mixed is None:
        return 1.0, True
    if mixed.ndim == 1:
        least, most = float(mixed.min()), float(mixed.max())
    else:
        values = np.linalg.svd(mixed, compute_uv=False)
        least, most = float(values[-1]), float(values[0])
        least -= most * schedule.dim * 2.0**-46
    if not (least > 0 and least * least > 0 and math.isfinite(most * most)):
        raise DeclarationError(
            "noise: in the metric of the preconditioner, float64 does not tell its smallest direction from "
            "none; scale the parameters alike, or take matrices that are better conditioned."
        )
    return least * least * (1 - 1e-12 * schedule.dim), most - least <= 5e-13 * most


UNIT_ROUNDOFF = 2.0**-53
ROUNDING_SLACK = ROUNDING
# The part of it that is left to rows of several predictors: a clip at their proved bound then never acts.
CLIP_SLACK = 1e-10


def row_sensitivity(clip: float, temper: float, adjacency: Adjacency) -> float:
    """``Δ = 2wC`` (``replace_one``) or ``wC`` (``add_remove``, ``zero_out``), rounded up."""
    if not (clip > 0 and temper > 0):
        raise DeclarationError(f"clip={clip}, temper={temper}: both must be positive.")
    return product_up(2.0 if check_adjacency(adjacency) == "replace_one" else 1.0, temper, clip)


def rows_summed(schedule: Run) -> int:
    """The most rows that one gradient of the schedule can sum."""
    batch = schedule.batch
    if batch is None or batch.scheme == "poisson" or batch.size is None:
        return schedule.num_rows
    return min(schedule.num_rows, batch.size)


def batch_factor(schedule: Run) -> float:
    """The public factor of a minibatch sum: ``1/q`` or ``n/b``; 1 for the full sum."""
    batch = schedule.batch
    if batch is None:
        return 1.0
    if batch.rate is not None:
        return 1.0 / batch.rate
    if batch.size is None:
        raise DeclarationError(f"batch scheme {batch.scheme!r}: needs a size or a rate.")
    return schedule.num_rows / batch.size


def rounding_allowance(schedule: Run) -> float:
    """Largest difference, in ``|·|_*``, that float64 rounding adds between two sums of clipped rows.

    Each sum of ``s`` terms of norm ``C`` is off by at most ``s C · s u/(1 − s u)`` in the norm the
    sum is accumulated in (Higham 2002, §4.2). A person's term is itself a sum of up to ``k`` rows: ``s k u``.
    """
    count = rows_summed(schedule)
    load = count * (1 if schedule.unit is None else schedule.unit.rows) * UNIT_ROUNDOFF
    if not load < 0.5:
        raise DeclarationError(f"num_rows={count}: float64 sums of so many rows carry no useful bound.")
    spread = root_up(condition_number(schedule))
    weight = product_up(schedule.temper, batch_factor(schedule), schedule.clip)
    return product_up(2 * (1 + 2.0**-50), weight, count, spread, load, over=(1 - load,))


def rounding_box(schedule: Run) -> float:
    """Largest ``|θ|_∞ + 4γ|∇U|_∞`` (whitened coordinates) at which a run's rounding slack is enough.

    Rounding ``θ − γM∇U`` in float64 moves two steps apart by at most ``2u√p`` times that number, which
    must stay below ``ROUNDING_SLACK · γΔ``, less the part that clips may use.
    """
    step = min(schedule.step_sizes) if isinstance(schedule.step_size, tuple) else schedule.step_size
    # Clipped apart, every coordinate has a slack of its own, in proportion to how far a row moves it.
    moved = sensitivity(schedule) if schedule.clips is None else min(coordinate_changes(schedule))
    allowed = (ROUNDING_SLACK - CLIP_SLACK) * step * moved
    return allowed / (2 * UNIT_ROUNDOFF * math.sqrt(schedule.dim))


def gradient_limit(schedule: Run) -> float:
    """The bound ``G`` at which a kernel clamps every coordinate of the whitened gradient; ``inf``: none.

    With ``4γG`` inside ``rounding_box`` the slack of a path release is enforced, not assumed. Where states
    are hidden no clamp is made, since contraction needs the gradient itself.
    """
    if schedule.release != "path":
        return math.inf
    return rounding_box(schedule) / (4 * max(schedule.step_sizes))


def row_change(schedule: Run) -> float:
    """The most that one present row adds to a step's computed gradient, in ``|·|_*``: ``wC`` times the public
    factor of a minibatch, plus the rounding difference of two float64 sums.
    """
    exact = product_up(schedule.temper, schedule.clip, batch_factor(schedule))
    return product_up(sum_up((exact, rounding_allowance(schedule))), 1 + 8 * UNIT_ROUNDOFF)


def sensitivity(schedule: Run) -> float:
    """``Δ``: the most that one row changes the computed gradient of the data term, in ``|·|_*``: ``2wC``
    (``replace_one``) or ``wC``, times the batch's public factor, plus the rounding of two float64 sums.
    """
    row = row_sensitivity(schedule.clip, schedule.temper, schedule.adjacency)
    exact = product_up(row, batch_factor(schedule))
    return product_up(sum_up((exact, rounding_allowance(schedule))), 1 + 4 * UNIT_ROUNDOFF)


def coordinate_changes(schedule: Schedule) -> tuple[float, ...]:
    """``Δ_j``: the most that one row changes coordinate ``j`` of the computed whitened gradient.

    ``2w√M_jj C_j`` (``replace_one``) or ``w√M_jj C_j``, and what rounding adds between two sums of ``n``
    terms of that size, coordinate by coordinate (Higham 2002, §4.2).
    """
    if schedule.clips is None:
        raise DeclarationError("clips: rows are clipped by their norm.")
    load = schedule.num_rows * UNIT_ROUNDOFF
    if not load < 0.5:
        raise DeclarationError(f"num_rows={schedule.num_rows}: float64 sums of so many rows carry no bound.")
    scales = np.diag(dense(schedule.preconditioner, schedule.dim, "preconditioner")).tolist()
    apart = 2 * (1 + 2.0**-50) * schedule.num_rows
    found = []
    for clip, scale in zip(schedule.clips, scales, strict=True):
        cap = product_up(clip, root_up(scale))
        row = row_sensitivity(cap, schedule.temper, schedule.adjacency)
        rounding = product_up(apart, schedule.temper, cap, load, over=(1 - load,))
        found.append(product_up(sum_up((row, rounding)), 1 + 8 * UNIT_ROUNDOFF))
    return tuple(found)


def farthest_corner(widths: Sequence[float], noise: FloatArray) -> float:
    """``sup vᵀN⁻¹v`` over ``|v_j| ≤ widths[j]``, rounded up; ``noise``: ``N`` or its diagonal.

    A convex function is largest at a corner. Diagonal: a sum. Otherwise, up to twelve coordinates, the
    largest over all corners; beyond, ``Σ_ij |N⁻¹|_ij widths_i widths_j``, which no corner exceeds.
    """
    if noise.ndim == 1:
        return sum_up(
            product_up(width, width, over=(float(entry),)) for width, entry in zip(widths, noise, strict=True)
        )
    dim, scale = len(widths), np.asarray(widths, dtype=np.float64)
    spectrum = np.linalg.eigvalsh(noise)
    # The error of a computed inverse, against the least value that the form can have for a vector.
    slack = 16 * dim * float(spectrum[-1] / spectrum[0]) ** 2 * UNIT_ROUNDOFF
    if not (spectrum[0] > 0 and slack < 1e-9):
        raise DeclarationError("clips: this noise matrix is too ill-conditioned for a box; rescale it.")
    form = scale[:, None] * cho_solve(cho_factor(noise), np.eye(dim)) * scale[None, :]
    form = (form + form.T) / 2
    # Opposite corners cost the same: 2^11 are tried at most.
    if dim > 12:
        largest = float(np.abs(form).sum())
    else:
        signs = 1.0 - 2.0 * ((np.arange(2 ** (dim - 1))[:, None] >> np.arange(dim)) & 1)
        largest = float(np.einsum("ci,ij,cj->c", signs, form, signs).max())
    return math.nextafter(largest * (1 + slack) * (1 + 1e-12), math.inf)
