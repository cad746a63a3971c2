"""Divergences of two laws by way of a third one: the triangle inequality, at its best split."""

from __future__ import annotations

import math
from collections.abc import Callable

_SPLITS = 64
_UP = 1 + 1e-12


def triangle_bound(
    first: Callable[[float], float], second: Callable[[float], float], epsilon: float
) -> float:
    """``δ(ε)`` of laws that either leg can start to cross: ``δ_1(ε_1) + e^{ε_1} δ_2(ε − ε_1)``, rounded up.

    Each leg bounds the divergences of its pair in both orders, wherever the law in between lies, so that
    the parts may be crossed in either order.
    """
    levels = [epsilon * share / _SPLITS for share in range(_SPLITS + 1)]
    ones, others = [first(at) for at in levels], [second(at) for at in levels]
    offers = [
        min(one + math.exp(min(at, 700.0)) * late, other + math.exp(min(at, 700.0)) * early)
        for at, one, other, early, late in zip(levels, ones, others, ones[::-1], others[::-1], strict=True)
    ]
    return min(1.0, min(offers) * _UP)
