"""Exact conjugate posteriors with and without one row (``add_remove``, ``zero_out``): worst divergences.

The other rows are any number up to ``n − 1``. A pair that differs in one shape, ``Beta(a + w, b)`` from
``Beta(a, b)``, is further apart for smaller ``a`` and for larger ``b``: the worst other rows are as many as
possible, none of them like the row itself.

*Proof.* ``−log x`` is the sum of the points of a Poisson process of intensity
``e^{−al}(1 − e^{−bl})/(l(1 − e^{−l})) dl`` (Malmstén's formula for ``log Γ``). The likelihood ratio of two
such processes that differ in ``a`` depends on their sum alone, so the points tell no more than the sum. To
keep every point ``l`` with probability ``e^{−cl}`` raises both ``a`` by ``c``; with probability
``(1 − e^{−bl})/(1 − e^{−b'l})`` it turns ``b' > b`` into ``b``. Neither brings the pair further apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import gammainc, gammaincc

from private_mcmc.accounting.posterior.conjugate import (
    Array,
    beta_below,
    beta_beyond,
    blocks,
    excess,
    gamma_pair,
    log_rising,
    triangle_bound,
)

_MOST_BLOCKS = 64
_WIDEST = 1e6


def one_shape(a: float, b: float, move: float, epsilon: float) -> float:
    """``δ(ε)`` of ``Beta(a + move, b)`` and ``Beta(a, b)``, the larger of both orders, rounded up.

    For a very large ``b`` that of the limit, ``Gamma(a + move)`` and ``Gamma(a)``, which is larger.
    """
    if move == 0:
        return 0.0
    if not b < _WIDEST:
        return float(max(gamma_pair(np.array(a), move, epsilon, up) for up in (True, False)))
    # The log ratio is move·log(x) − constant, largest at x = 1.
    constant = float(log_rising(np.array(a), move) - log_rising(np.array(a + b), move))
    top, low = (np.minimum((constant + sign * epsilon) / move, 0.0) for sign in (1, -1))
    with_row, without, rest = np.array(a + move), np.array(a), np.array(b)
    more = excess(beta_beyond(with_row, rest, top), beta_beyond(without, rest, top), epsilon)
    less = excess(beta_below(without, rest, low), beta_below(with_row, rest, low), epsilon)
    return float(max(more, less))


def beta_binomial(a: float, b: float, *, n: int, trials: int, temper: float, epsilon: float) -> float:
    """One Binomial(``trials``) row of at most ``n`` present or absent under a Beta(``a``, ``b``) prior.

    A row of one trial changes one shape. A row with successes and failures changes both, one leg each; its
    numbers are covered in blocks.
    """
    others = temper * (n - 1) * trials
    if trials == 1:
        return max(one_shape(a, b + others, temper, epsilon), one_shape(b, a + others, temper, epsilon))
    edges = np.unique(np.linspace(0, trials, min(trials, _MOST_BLOCKS) + 1).astype(int))
    worst = 0.0
    for fewest, most in zip([*edges[:-1], edges[-1]], [*(edges[1:] - 1), edges[-1]], strict=True):
        won, lost = temper * most, temper * (trials - fewest)
        worst = max(
            worst, triangle_bound(_leg(a, b + others + lost, won), _leg(b, a + others + won, lost), epsilon)
        )
    return worst


def _leg(own: float, other: float, move: float) -> Callable[[float], float]:
    return lambda epsilon: one_shape(own, other, move, epsilon)


def dirichlet_categorical(
    concentration: tuple[float, ...], *, n: int, temper: float, epsilon: float
) -> float:
    """One categorical row of at most ``n`` present or absent under a Dirichlet prior.

    Only the row's own category matters: its probability is ``Beta(a_i, Σ_{j≠i} a_j)`` with the counts.
    """
    total = math.fsum(concentration) + temper * (n - 1)
    return max(one_shape(own, total - own, temper, epsilon) for own in set(concentration))


def gamma_poisson(shape: float, rate: float, *, n: int, largest: int, temper: float, epsilon: float) -> float:
    """One Poisson row of at most ``n`` present or absent, counts at most ``largest``, a Gamma prior.

    ``rate`` is the prior's over the exposure of a row. The row's count moves the shape, one leg, and the row
    itself the rate, the other: ``1/m`` of it after ``m`` others, whose counts sharpen the posterior.
    """
    fewest, most = blocks(n - 1, each=200)
    ratios = temper / (rate + temper * fewest)
    shapes = shape + temper * largest * (most + 1)

    def by_count(at: float) -> float:
        ends = (gamma_pair(np.array([shape]), temper * largest, at, up)[0] for up in (True, False))
        return float(max(ends))

    return triangle_bound(by_count, lambda at: float(np.max(rate_pair(shapes, ratios, at))), epsilon)


def rate_pair(shape: Array, ratio: Array, epsilon: float) -> Array:
    """``δ(ε)`` of ``Gamma(shape)`` at rates ``1 + ratio`` and 1, the larger of both orders, rounded up.

    The log ratio is linear, so events are half lines; it grows with the shape (a variable of a larger shape
    times an independent Beta one has the smaller shape) and with the ratio (monotone likelihood ratio).
    """
    center = shape * np.log1p(ratio) / ratio
    low, high = np.maximum(center - epsilon / ratio, 0.0), center + epsilon / ratio
    fast = excess(gammainc(shape, low * (1 + ratio)), gammainc(shape, low), epsilon)
    slow = excess(gammaincc(shape, high), gammaincc(shape, high * (1 + ratio)), epsilon)
    found: Array = np.maximum(fast, slow)
    return found
