"""Proposing shifts: the exact optimum for affine moduli.

Nothing here is trusted: a proposal is only ever used through ``shifts.certify``, which checks it
and computes the number. A poor proposal costs tightness, never soundness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from private_mcmc.accounting.rounding import FloatArray
from private_mcmc.errors import DeclarationError

_Block = tuple[float, float, float, int]  # total push N, squared weight W, product of slopes, first step


def noise_array(noise: float | Sequence[float] | FloatArray, steps: int) -> FloatArray:
    """The noise standard deviation of every step; raises unless all are positive and finite."""
    sds = np.broadcast_to(np.asarray(noise, dtype=np.float64), (steps,))
    if not ((sds > 0).all() and np.isfinite(sds).all()):
        raise DeclarationError("noise: every standard deviation must be positive and finite.")
    return sds


def affine_shifts(
    slopes: FloatArray, offsets: FloatArray, variances: FloatArray, start: float
) -> FloatArray | None:
    """The optimal ``z_0, …, z_T`` for ``φ_k(z) = ρ_k z + s_k`` and variances ``σ_k²``; ``None`` if infinite.

    A taut string below an obstacle: adjacent stretches between visits of zero are pooled while that is
    cheaper, each costing ``N²/W`` with ``N = Σ s_i Π_{l>i} ρ_l``, ``W = Σ σ_i² Π_{l>i} ρ_l²``. Linear time.
    """
    blocks = _pool(slopes.tolist(), offsets.tolist(), variances.tolist(), start)
    if blocks is None:
        return None
    z = np.zeros(len(slopes) + 1)
    z[0] = start
    ends = [block[3] for block in blocks[1:]] + [len(slopes)]
    for (push, weight, _, first), end in zip(blocks, ends, strict=True):
        if end - first > 1 or first == 0:
            _fill(z, slopes, offsets, variances, first, end, push / weight)
    return np.maximum(z, 0.0)


def _pool(rho: list[float], s: list[float], variance: list[float], start: float) -> list[_Block] | None:
    blocks: list[_Block] = [(start, 0.0, 1.0, 0)] if start > 0 else []
    for step, (slope, push, weight) in enumerate(zip(rho, s, variance, strict=True)):
        product, first = slope, step
        while blocks and blocks[-1][0] * weight > product * push * blocks[-1][1]:
            before, before_weight, before_product, first = blocks.pop()
            push, weight = product * before + push, product * product * before_weight + weight
            product *= before_product
            if not (math.isfinite(push) and math.isfinite(weight)):
                return None
        blocks.append((push, weight, product, first))
    return None if blocks[0][1] == 0 else blocks


def _fill(
    z: FloatArray,
    slopes: FloatArray,
    offsets: FloatArray,
    variances: FloatArray,
    first: int,
    end: int,
    multiplier: float,
) -> None:
    """Shifts inside one pooled stretch: what was pushed so far less what was absorbed so far."""
    later = np.ones(end - first)
    if end - first > 1:
        later[:-1] = np.cumprod(slopes[first + 1 : end][::-1])[::-1]
    pushed, weight = float(z[first]), 0.0
    rows = zip(*(x[first:end].tolist() for x in (slopes, offsets, variances)), later.tolist(), strict=True)
    for step, (slope, offset, variance, tail) in enumerate(rows, first + 1):
        pushed, weight = slope * pushed + offset, slope * slope * weight + variance
        z[step] = pushed - multiplier * tail * weight
    z[end] = 0.0
