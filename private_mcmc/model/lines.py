"""Differences of a function's values along a line, against bounds of its derivatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_NOISE = 2e-6


@dataclass(frozen=True)
class Claim:
    """Of a function ``f``: ``‖f'‖ ≤ slope``, ``lower ≤ f'' ≤ upper`` and ``sup f − inf f ≤ range``."""

    name: str
    slope: float
    lower: float
    upper: float
    range: float


def broken_claim(
    claim: Claim,
    steps: Sequence[float],
    values: np.ndarray,
    usable: np.ndarray,
    speed: float,
) -> str | None:
    """The claim that the values deny, in words; ``speed`` is the length of the line per unit of ``steps``."""
    at, found = np.asarray(steps)[usable], values[usable]
    if len(found) < 2:
        return None
    errors = _NOISE * (1 + np.abs(found))
    noise = errors[1:] + errors[:-1]
    lengths = np.diff(at)
    slopes, blur = np.diff(found) / lengths, noise / lengths
    name = claim.name
    if np.any(np.abs(slopes) > _product(claim.slope, speed) + blur):
        return f"|{name}'| ≤ {claim.slope:.6g}"
    if np.ptp(found) > claim.range + 2 * np.max(noise):
        return f"sup {name} − inf {name} ≤ {claim.range:.6g}"
    bends = 2 * np.diff(slopes) / (lengths[1:] + lengths[:-1])
    blur = 2 * (blur[1:] + blur[:-1]) / (lengths[1:] + lengths[:-1])
    lowest, highest = (_product(end, speed * speed) for end in (claim.lower, claim.upper))
    slack = _NOISE * np.array([abs(end) if math.isfinite(end) else 0.0 for end in (lowest, highest)])
    if np.any(bends < lowest - blur - slack[0]):
        return f"{name}'' ≥ {claim.lower:.6g}"
    if np.any(bends > highest + blur + slack[1]):
        return f"{name}'' ≤ {claim.upper:.6g}"
    return None


def _product(bound: float, factor: float) -> float:
    return 0.0 if bound == 0 else bound * factor if factor > 0 or math.isfinite(bound) else bound
