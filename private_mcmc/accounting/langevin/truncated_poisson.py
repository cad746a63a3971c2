"""Poisson batches cut at a largest size, under ``add_remove``: the worst of every admissible ``n``.

With ``n`` rows, ``K ~ Bin(n−1, q)`` of the others are drawn. If ``K < cap`` the row's step is the
plain Poisson pair with shift ``r``. If ``K ≥ cap`` a drawn row pushes another one out: the pair
``(1−q')N(0) + q'N(2r)`` against ``N(0)``, ``q' = q E[cap/(K+1) | K ≥ cap]``; the kept rows are a
uniform subset whatever ``K`` is, so averaging over ``K`` hides it. With ``π = P(K ≥ cap)`` one step is
the mixture of both, in the same order. It is not monotone in ``n``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scipy.special import betainc

from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import Curve, Gaussian
from private_mcmc.accounting.curves.pld import NOISE_PER_STEP, Losses, Step, single, spacing, worthwhile
from private_mcmc.accounting.curves.rdp import check_pair, poisson_orders
from private_mcmc.accounting.rounding import product_up, root_up
from private_mcmc.errors import DeclarationError

_ROUNDED = 1e-9


def _at_least(count: int, trials: int, rate: float) -> float:
    """``P(Bin(trials, rate) ≥ count)`` for ``count ≥ 1``."""
    return float(betainc(count, trials - count + 1, rate)) if count <= trials else 0.0


@dataclass(frozen=True)
class Block:
    """Numbers of rows ``low … high`` bounded together: ``π`` grows and ``q'`` falls with ``n``.

    Every ``n`` of the block is dominated by weight ``1 − π_high`` on the plain pair, ``π_low`` on
    the pair with ``q'_low`` and shift ``2r``, and the rest on the pair with ``q`` and ``2r``, which
    dominates both.
    """

    low: int
    high: int
    least: float
    most: float
    rate: float


@dataclass(frozen=True)
class Truncated(Curve):
    """``steps`` steps on Poisson batches of at most ``cap`` rows, ``n ≤ max_rows`` private.

    Attributes:
        rate: ``q``.
        cap: the largest batch kept.
        ratio: ``r/σ``.
        steps: how many steps.
        max_rows: the largest number of rows.
    """

    rate: float
    cap: int
    ratio: float
    steps: int
    max_rows: int
    kind = "truncated"

    def __post_init__(self) -> None:
        check_pair("add_remove", self.rate, self.ratio)
        if not (self.cap >= 1 and self.steps >= 1 and self.max_rows >= 1):
            raise DeclarationError(
                f"cap={self.cap}, steps={self.steps}, max_rows={self.max_rows}: each at least 1."
            )

    @property
    def unamplified(self) -> Gaussian:
        """What holds even if the drawn rows were known."""
        return Gaussian(product_up(2.0, self.ratio, root_up(self.steps)))

    @property
    def zcdp(self) -> float:
        """That of the un-amplified Gaussian."""
        return self.unamplified.zcdp

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """A partition of ``1 … max_rows``."""
        found = [Block(1, min(self.cap, self.max_rows), 0.0, 0.0, self.rate)]
        low = self.cap + 1
        while low <= self.max_rows:
            least, rate = self._truncation(low)
            high, top = low, self.max_rows
            while high < top:
                middle = (high + top + 1) // 2
                most, last_rate = self._truncation(middle)
                close = most <= 1e-12 or most <= least * (2.0 if most < 1e-4 else 1.1)
                high, top = (middle, top) if close and last_rate >= 0.95 * rate else (high, middle - 1)
            found.append(Block(low, high, least, self._truncation(high)[0], rate))
            low = high + 1
        return tuple(found)

    def _truncation(self, rows: int) -> tuple[float, float]:
        """``π`` and ``q'`` for ``n = rows``."""
        full = _at_least(self.cap, rows - 1, self.rate)
        if full < 1e-250:
            return full, self.rate
        joint = _at_least(self.cap + 1, rows, self.rate) * self.cap / rows
        return full, min(self.rate, joint / full * (1 + _ROUNDED))

    @cached_property
    def _losses(self) -> tuple[Losses, ...]:
        whole = Step("add_remove", 2 * self.ratio, self.rate, self.steps)
        # Many blocks are composed: a coarser grid than for a single curve, pessimistic all the same.
        grid = 4 * spacing((Step("add_remove", self.ratio, self.rate, self.steps), whole))
        plain = single(Step("add_remove", self.ratio, self.rate), grid)
        worst = single(Step("add_remove", 2 * self.ratio, self.rate), grid)
        return tuple(self._block_losses(block, plain, worst, grid) for block in self.blocks)

    def _block_losses(self, block: Block, plain: Any, worst: Any, grid: float) -> Losses:
        most = min(1.0, block.most * (1 + _ROUNDED) + 1e-15)
        if block.most == 0:
            mixture = plain
        else:
            cut = single(Step("add_remove", 2 * self.ratio, block.rate), grid)
            inner = worst.compute_mixture(cut, max(0.0, most - block.least) / most)
            mixture = inner.compute_mixture(plain, most)
        composed = mixture.self_compose(self.steps) if self.steps > 1 else mixture
        return Losses(composed, NOISE_PER_STEP * (10 + self.steps))

    def delta(self, epsilon: float) -> float:
        """The largest over all blocks; never above the un-amplified value."""
        plain = self.unamplified.delta(gdp.check_epsilon(epsilon))
        if not worthwhile((Step("add_remove", 2 * self.ratio, self.rate, self.steps),)):
            return plain
        return min(plain, max(losses.delta(epsilon) for losses in self._losses))

    def rdp(self, alpha: float) -> float:
        """Moments of the mixture, the largest over blocks and orders."""
        plain = poisson_orders(self.rate, self.ratio, alpha)
        worst = poisson_orders(self.rate, 2 * self.ratio, alpha)
        largest = 0.0
        for block in self.blocks:
            cut = poisson_orders(block.rate, 2 * self.ratio, alpha)
            most = min(1.0, block.most * (1 + _ROUNDED))
            weights = (1 - most, most - block.least, block.least)
            for parts in zip(plain, worst, cut, strict=True):
                terms = [
                    math.log(weight) + (alpha - 1) * part
                    for weight, part in zip(weights, parts, strict=True)
                    if weight > 0
                ]
                peak = max(terms)
                total = peak + math.log(math.fsum(math.exp(term - peak) for term in terms))
                largest = max(largest, total * (1 + 1e-12) / (alpha - 1))
        return min(self.unamplified.rdp(alpha), product_up(self.steps, largest))
