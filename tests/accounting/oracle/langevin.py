"""Recomputation of Langevin statements from their constants: plain recursions, no shared formulas."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from private_mcmc.records import Constants, Record
from tests.accounting.oracle.constants import (
    Parts,
    changes,
    check_together,
    ends,
    exact_row,
    noise_ratio,
    rounding,
    square,
    step_sizes,
    two_rows,
    used_sizes,
)

Line = tuple[float, float]

_SLACK = 1e-9
TINY = 5e-324


def langevin(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    """Every curve that the record of a run justifies."""
    check_together(c)
    change, row = changes(adjacency, c)
    if "clips" in c:
        return [_gaussian(c["num_chains"] * _box_square(adjacency, c), c)]
    found = [_gaussian(c["num_chains"] * _path_square(c, change), c)]
    if "rate" in c:
        found.append(_sampled_path(adjacency, c, row))
    if c["release"] != "path":
        found.append(_gaussian(c["num_chains"] * _hidden_square(c, change), c))
    return found


def average(adjacency: str, c: Constants, parts: Parts) -> list[Record]:
    """The curves of the noise, if it is fit for how far coupled chains make the averages move."""
    check_together(c)
    (noise,) = parts
    change, _ = changes(adjacency, c)
    fit = c["distance"] >= _mean_distance(c, change) * (1 + _slack(c)) * (1 - _loss(c["num_steps"]))
    for slope, limit, unit in c["values"]:
        move = min(slope * c["distance"], limit) if slope > 0 else 0.0
        fit = fit and move <= unit * (1 + 1e-12) and c["joint"] >= 1 - 1e-11
    fit = fit and noise["argument"]["rule"] == "noise.laplace"
    fit = fit and c["joint"] <= noise["argument"]["constants"]["sensitivity"] * (1 + 1e-12)
    if not fit:
        raise ValueError("the noise is not fit for how far one row moves the averages")
    return [dict(curve) for curve in noise["curves"]]


def _loss(steps: int) -> float:
    """Relative error of summing distances step by step in float64."""
    return float(1e-10 + steps * 2.0**-50)


def _mean_distance(c: Constants, change: float) -> float:
    """The mean of ``e_n`` over the kept steps, ``e_n = ρe_{n−1} + γΔ``."""
    sizes = step_sizes(c)
    distance, kept = 0.0, []
    for size in sizes:
        distance = _slope(size, c) * (distance + TINY) + size * change
        kept.append(distance)
    return float(math.fsum(kept[c["release"]["first"] - 1 :]) / (len(sizes) - c["release"]["first"] + 1))


def _gaussian(square: float, c: Constants) -> Record:
    return {"kind": "gaussian", "m": math.sqrt(square) * (1 + _slack(c))}


def _slack(c: Constants) -> float:
    """What rounding after the sum of rows may move a step, of what one row moves."""
    if c["within"] == math.inf and c["rounding"] >= _SLACK:
        return float(c["rounding"])
    if c["release"] == "path" or c["rounding"] < max(_kept(c), _SLACK) * (1 - 1e-9):
        raise ValueError("in this box rounding moves a step by more than the record says")
    return float(c["rounding"])


def _kept(c: Constants) -> float:
    """``2u(6γ(|∇K(0)| + L_K√p b + B) + √p(b + 17σ))/(γwCf)``, ``b`` the half-width, in every step.

    ``B`` is what all rows sum to at their clips. Clips may take 1e-10 besides.
    """
    size, root, half = min(step_sizes(c)), math.sqrt(c["dim"]), c["within"]
    rows = exact_row(c) * (1 + 1e-10) * c["num_rows"] + rounding(c) / 2
    gradient = c["prior_slope"] + c["prior_smoothness"] * root * half + rows
    moved = 6 * size * gradient + root * (half + 17 * math.sqrt(2 * size * noise_ratio(c, largest=True)))
    return float(2 * 2.0**-53 * moved / (size * (exact_row(c) + rounding(c)))) + 1e-10


def _path_square(c: Constants, change: float) -> float:
    return math.fsum(
        (size * change) ** 2 / (2 * size * noise_ratio(c)) * n for size, n in used_sizes(c).items()
    )


def _box_square(adjacency: str, c: Constants) -> float:
    """``Σ_k sup_δ ‖S_k^{-1/2} γ_k M δ‖²`` over gradients' differences ``|δ_j| ≤ D_j``: the farthest corner.

    ``D_j = 2wC_j`` or ``wC_j``, and what float64 adds to the difference of two sums of ``n`` such terms.
    """
    clips, rows, dim = c["clips"], c["num_rows"], c["dim"]
    if len(clips) != dim or "rate" in c:
        raise ValueError("one clip for every coordinate, and all rows")
    metric = np.diag(square(c.get("preconditioner"), dim)).tolist()
    noise = c.get("noise", metric)
    corner = math.sqrt(math.fsum(m * clip**2 for m, clip in zip(metric, clips, strict=True)))
    if not corner <= c["clip"] * (1 + 1e-12):
        raise ValueError("the clip of the norm is that of the box")
    load = rows * 2.0**-53
    widths = [c["temper"] * clip * (two_rows(adjacency) + 2 * rows * load / (1 - load)) for clip in clips]
    moved = math.fsum((m * w) ** 2 / n for m, w, n in zip(metric, widths, noise, strict=True))
    return math.fsum(size**2 * moved / (2 * size) * times for size, times in used_sizes(c).items())


def _slope(size: float, c: Constants) -> float:
    """``ρ = sup |1 − γh|`` over the eigenvalues ``h`` that the Hessian of every ``U_D`` may have."""
    low, high = c["strong_convexity"], c["smoothness"]
    slope = max(abs(1 - size * low), abs(1 - size * high))
    return float(slope) if slope <= 1 else math.inf


def _hidden_square(c: Constants, change: float) -> float:
    """``Σ m²`` over the stretches between released states, each by shifts that are checked."""
    sizes, total, begin = step_sizes(c), 0.0, 0
    for end in ends(c):
        line = [(_slope(size, c), size * change) for size in sizes[begin:end]]
        if not all(rho <= 1 for rho, _ in line):
            return math.inf
        variances = [2 * size * noise_ratio(c) for size in sizes[begin:end]]
        still = [0.0] * (len(line) + 1)
        total += min(_certified(line, variances, z) for z in (still, _straight(line, variances)))
        begin = end
    return total


def _certified(line: Sequence[Line], variances: Sequence[float], z: Sequence[float]) -> float:
    """``Σ (ρ_k z_{k−1} + s_k − z_k)²/σ_k²`` of feasible shifts; ``inf`` for shifts that are not."""
    total, slack = 0.0, 1e-12
    for (rho, shift), variance, before, after in zip(line, variances, z, z[1:], strict=False):
        reach = rho * before + shift
        if not 0 <= after <= reach * (1 + slack):
            return math.inf
        total += max(reach - after, 0.0) ** 2 / variance
    return total if z[0] == z[-1] == 0 else math.inf


def _straight(line: Sequence[Line], variances: Sequence[float]) -> list[float]:
    """Shifts of the linear chain ``e ← ρe + s`` whose remainder is removed as its own variance grows.

    The best linear prediction: ``z_k = e_k − v_k Π_{j>k}ρ_j · e_T/v_T`` with ``e``, ``v`` the mean and
    the variance of the chain, which is the exact Gaussian case.
    """
    means, spreads = [0.0], [0.0]
    for (rho, shift), variance in zip(line, variances, strict=True):
        means.append(rho * means[-1] + shift)
        spreads.append(rho * rho * spreads[-1] + variance)
    pull, later = means[-1] / spreads[-1], 1.0
    z = [0.0] * len(means)
    for k in range(len(line) - 1, 0, -1):
        later *= line[k][0]
        gone = means[k] - spreads[k] * later * pull
        # Rounding, or a stretch at the start in which nothing has happened yet.
        z[k] = gone if gone > 1e-12 * means[k] else 0.0
    return z


def _sampled(pair: str, rate: float, ratio: float, steps: int) -> Record:
    return {"kind": "sampled", "pair": pair, "rate": float(rate), "ratio": float(ratio), "steps": int(steps)}


def _sampled_path(adjacency: str, c: Constants, row: float) -> Record:
    """All states, the batches hidden: every step at its own ratio, up to 2 % more where these are many."""
    pair, rate = ("replace_one" if adjacency == "replace_one" else "add_remove"), c["rate"]
    needed: Counter[float] = Counter()
    for size, count in used_sizes(c).items():
        needed[math.sqrt(size / (2 * noise_ratio(c))) * row * (1 + _slack(c))] += count
    if len(needed) > 64:
        top, coarse = max(needed), Counter()
        for ratio, count in needed.items():
            coarse[max(ratio, top * 1.02 ** -math.floor(math.log(top / ratio) / math.log(1.02)))] += count
        needed = coarse
    return _one([_sampled(pair, rate, ratio, n * c["num_chains"]) for ratio, n in sorted(needed.items())])


def _one(pieces: list[Record]) -> Record:
    return pieces[0] if len(pieces) == 1 else {"kind": "product", "parts": tuple(pieces)}
