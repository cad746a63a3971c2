"""Every bound of the states that a run releases, computed from its record alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from private_mcmc.accounting.curves import Curve, Gaussian, Sampled, combine
from private_mcmc.accounting.rounding import TINY, UP, product_up, root_up, sum_up
from private_mcmc.accounting.steps import (
    Curvature,
    coordinate_changes,
    dense,
    noise_ratio,
    noise_sd,
    row_change,
    sensitivity,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average, Schedule

_MOST_RATIOS = 64


def curves(schedule: Schedule, known: Curvature) -> dict[str, Curve]:
    """The bounds of all released states that are worth their curves, by name; others that hold are larger.

    ``path`` and ``box path``: every state as if it were released and the batches known. ``sampled path``: the
    same with the batches hidden. ``hidden``: only the released states, the batches known.
    """
    found = {} if schedule.rate is None else {"sampled path": sampled_curve(schedule, schedule.rate)}
    if schedule.clips is not None:
        return found | {"box path": path_curve(schedule)}
    sizes = paid_steps(schedule)
    hidden = schedule.release != "path" and noise_ratio(schedule)[1] and known.strong_convexity > 0
    if hidden and all(known.gap(size) >= 0 for size in set(sizes)):
        return found | {"hidden": hidden_curve(schedule, known)}
    return found | {"path": path_curve(schedule)}


def released_steps(schedule: Schedule) -> tuple[int, ...]:
    """The steps whose states leave the curator's side, in order.

    ``DeclarationError`` for an average, which is a release of its own.
    """
    if isinstance(schedule.release, Average):
        raise DeclarationError(
            "an average of hidden states is private only with noise: use average_sensitivity and laplace."
        )
    if isinstance(schedule.release, tuple):
        return schedule.release
    if schedule.release == "last":
        return (schedule.num_steps,)
    return tuple(range(1, schedule.num_steps + 1))


def paid_steps(schedule: Schedule) -> tuple[float, ...]:
    """The sizes of all steps up to the last one that is released."""
    return schedule.step_sizes[: released_steps(schedule)[-1]]


def for_chains(square: float, schedule: Schedule) -> Gaussian:
    """The curve of all independent chains, with the slack for rounding after the sum."""
    whole = root_up(product_up(square, float(schedule.num_chains)))
    return Gaussian(product_up(whole, 1 + schedule.rounding))


def path_curve(schedule: Schedule) -> Gaussian:
    """All states up to the last released one, as if the batches were known: ``m² = Σ (γΔ/σ)²``.

    Coordinates clipped apart: ``m² = Σ_k γ_k/2 Σ_j M_jj Δ_j²/N_jj``, where ``Δ_j`` is the most that one row
    changes coordinate ``j`` of the whitened gradient, and ``S = 2γN`` the noise.
    """
    # The sum, rounded up: correctly rounded sums are at most half a unit below.
    try:
        time = math.nextafter(math.fsum(paid_steps(schedule)), math.inf)
    except OverflowError:
        raise DeclarationError("step_size: the sum of all steps overflows; take smaller ones.") from None
    if schedule.clips is None:
        change = sensitivity(schedule)
        return for_chains(product_up(time, change, change, 0.5, over=(noise_ratio(schedule)[0],)), schedule)
    scales = np.diag(dense(schedule.preconditioner, schedule.dim, "preconditioner")).tolist()
    parts = zip(coordinate_changes(schedule), scales, schedule.noise or scales, strict=True)
    corner = sum_up(product_up(change, change, scale, over=(noise,)) for change, scale, noise in parts)
    return for_chains(product_up(time, 0.5, corner), schedule)


def sampled_curve(schedule: Schedule, rate: float) -> Curve:
    """All states up to the last released one, with amplification by the sampling of batches."""
    counts: Counter[float] = Counter()
    for size, count in Counter(paid_steps(schedule)).items():
        counts[row_ratio(schedule, size)] += count
    # Under Poisson batches ``zero_out`` has the pair of ``add_remove``.
    pair = "replace_one" if schedule.adjacency == "replace_one" else "add_remove"
    steps = sorted(_coarsened(counts).items())
    return combine(tuple(Sampled(pair, rate, ratio, count * schedule.num_chains) for ratio, count in steps))


def row_ratio(schedule: Schedule, step_size: float) -> float:
    """``r/σ``: what one present row, with the rounding of two sums, moves a step, over its noise."""
    change, noise = row_change(schedule), noise_sd(schedule, step_size)
    return product_up(step_size, change, 1 + schedule.rounding, over=(noise,))


def _coarsened(counts: Counter[float]) -> Counter[float]:
    """At most a few dozen different ratios, each rounded up by at most 2 %."""
    if len(counts) <= _MOST_RATIOS:
        return counts
    coarse: Counter[float] = Counter()
    top = max(counts)
    for ratio, count in counts.items():
        steps = math.floor(math.log(top / ratio) / math.log(1.02))
        coarse[max(ratio, top * 1.02**-steps)] += count
    return coarse


def hidden_curve(schedule: Schedule, known: Curvature) -> Gaussian:
    """The released states alone: between two of them a row's push fades, and noise covers what is left.

    ``m² = Σ_stretches (Δ²/2r) n²/w``: ``n = Σ_i γ_i Π_{l>i} ρ_l`` is how far a row pushes the last state of a
    stretch, in units of ``Δ``, and ``w = Σ_i γ_i Π_{l>i} ρ_l²`` the variance of the noise that reaches it, in
    units of ``2r``, ``r`` the noise ratio. Equal steps: ``(Δ²γ/2r) (1+ρ)/(1−ρ) (1−ρ^T)/(1+ρ^T)``.

    **Proof.** Where ``|Φ_D(x) − Φ_{D'}(y)| ≤ ρ_k|x − y| + s_k``, any ``0 ≤ z_k ≤ ρ_k z_{k−1} + s_k`` with
    ``z_0 = z_T = 0`` make last states ``m``-GDP with ``m² = Σ a_k²/σ_k²``, ``a_k = ρ_k z_{k−1} + s_k − z_k``
    (shifted interpolation). The least sum with ``z_T = 0`` has ``a_k = λ σ_k² Π_{l>k} ρ_l`` and is the one
    above. Its ``z_k`` are not negative: ``s_k/σ_k² = Δ/2r`` is the same at every step and, as ``ρ_k ≤ 1``,
    ``a_k/σ_k²`` never falls, so that ``z`` rises while ``s_k > a_k`` and not afterwards; once negative it
    would stay so, while ``z_T = 0``. A step with ``ρ_k > 1`` is refused.

    Source: Bok, Su, Altschuler 2024; BFG Lemma 3.3 (the Rényi form).
    """
    edges, change = (0, *released_steps(schedule)), sensitivity(schedule)
    stretches = [schedule.step_sizes[early:late] for early, late in pairwise(edges)]
    growths = {stretch: time_that_counts(stretch, known) for stretch in set(stretches)}
    time = sum_up(growths[stretch] for stretch in stretches)
    return for_chains(product_up(time, change, change, 0.5, over=(noise_ratio(schedule)[0],)), schedule)


def time_that_counts(sizes: Sequence[float], known: Curvature) -> float:
    """``n²/w`` of one stretch of these steps, rounded up: at most their sum, which a path pays for.

    Step by step, in units of the longest: rounding adds less than ``1e-7`` of it in ten million steps.
    """
    longest, gaps = max(sizes), {size: known.gap(size) for size in set(sizes)}
    pushed, absorbed, whole = 0.0, 0.0, 0.0
    for size in sizes:
        gap, share = gaps[size], size / longest
        if not 0 <= gap <= 1:
            raise DeclarationError(f"step_size={size:g}: not proved to keep two states together.")
        kept = 1.0 - gap
        # What is below the normal numbers loses at most a few smallest doubles.
        pushed = (kept * pushed + share) * UP + 2 * TINY
        absorbed = (kept * kept * absorbed + share) * (1 - 2.0**-48)
        whole = (whole + share) * UP + 2 * TINY
    found = product_up(pushed, pushed, longest, over=(absorbed,)) if absorbed > 0 else math.inf
    return min(found, product_up(whole, longest))
