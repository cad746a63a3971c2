"""The last state of a Poisson-sampled chain, amplified by sampling and by iteration at once.

No price of the library is made of it: what it saves over the sampled path is not worth its length there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.papers.shift_bound import affine_after
from private_mcmc.accounting.curves import Curve, Gaussian, Sampled, combine
from private_mcmc.accounting.rounding import FloatArray, product_up, root_down, root_up, up
from private_mcmc.errors import DeclarationError

_SHARES = np.linspace(0.02, 0.98, 49)


@dataclass(frozen=True, kw_only=True)
class SampledChain:
    """Public constants of a Poisson-sampled chain, in the metric of its noise.

    The last state is amplified by sampling and by iteration at once. The noise of its last ``n = T −
    τ`` steps is split. A share ``κ`` of its variance hides the differing row's whole term, as in every
    Poisson-sampled Gaussian mechanism; the rest absorbs the distance ``z_τ`` of the two chains after
    ``τ`` steps by shifts, with the modulus of the step *without that row*, which is one and the same
    map in both chains but for rounding, which every step is charged. By adaptive composition, step after
    step, the last state costs no more than ``n`` sampled mechanisms with noise ``√κ σ`` and one Gaussian
    mechanism.

    Source: BFG Section 5 for the idea. Its proof conditions on all of the first share's noise, which
    also fixes the maps of later steps; the recursion used here does not.

    Attributes:
        pair: ``"add_remove"`` (also for ``zero_out``) or ``"replace_one"``: the pair of one step.
        rate: ``q``, the probability of each row.
        row_shift: ``r = γ(n/b)wC``, the most that one present row moves a step.
        noise: ``σ``, the standard deviation of a step's noise.
        steps: ``T``.
        gap: ``1 − ρ`` of the step without the differing row, which is ``ρ``-Lipschitz for **every** batch
            that can occur, ``0 ≤ ρ ≤ 1``.
        rounding: what float64 adds to the distance of two chains in a step without the row.
        diameter: of the set projected on, or ``inf``.

    ``DeclarationError`` for values out of range.
    """

    pair: str
    rate: float
    row_shift: float
    noise: float
    steps: int
    gap: float
    rounding: float = 0.0
    diameter: float = math.inf

    def __post_init__(self) -> None:
        Sampled(self.pair, self.rate, self.row_shift, 1)
        if not (0 < self.noise < math.inf and self.steps >= 1 and self.diameter > 0):
            raise DeclarationError("a sampled chain needs noise > 0, steps ≥ 1 and diameter > 0.")
        if not 0 <= self.gap <= 1:
            raise DeclarationError(
                f"gap={self.gap}: the step without the row must not expand, 0 ≤ 1 − ρ ≤ 1."
            )

    @property
    def largest_shift(self) -> float:
        """``s_max``: what the differing row adds to the distance of chains with equal batches."""
        return self.row_shift if self.pair == "add_remove" else 2 * self.row_shift

    def distance(self, steps: int) -> float:
        """Distance surely not exceeded after ``steps`` steps with equal noise and equal batches."""
        if steps == 0:
            return 0.0
        rate = math.inf if self.gap == 1 else -math.log1p(-self.gap)
        reached = float(steps) if self.gap == 0 else -math.expm1(-steps * rate) / self.gap
        return min(self.diameter, product_up(self.largest_shift, up(reached)))

    def absorbed(self, distance: float, togo: int) -> float:
        """``m²`` of bringing two copies of the chain together in ``togo`` steps with the whole noise."""
        return affine_after(distance, self.rounding, self.gap, self.noise, togo)


@dataclass(frozen=True)
class Split:
    """One way to share the noise: ``count`` sampled steps at ``r/(√κ σ)``, then an ``m``-GDP term.

    Attributes:
        first: ``τ``; the bound starts after this many steps.
        share: ``κ``.
        m: GDP parameter of absorbing the distance ``z_τ``.
        curve: the composition of both.
    """

    first: int
    share: float
    m: float
    curve: Curve


def split(chain: SampledChain, first: int, share: float) -> Split:
    """The bound with start ``τ = first`` and share ``κ``; ``first = 0`` with ``κ = 1`` is plain composition.

    **Guarantee**: the last state satisfies ``Split.curve``.
    ``DeclarationError`` unless ``0 ≤ τ < T``, ``0 < κ ≤ 1``, and ``κ < 1`` where the chains differ at ``τ``.
    """
    if not (0 <= first < chain.steps and 0 < share <= 1):
        raise DeclarationError(f"first={first}, share={share}: need 0 ≤ τ < T and 0 < κ ≤ 1.")
    distance = chain.distance(first)
    if share == 1 and (distance > 0 or chain.rounding > 0):
        raise DeclarationError("share=1 leaves no noise to absorb the distance of the chains.")
    togo = chain.steps - first
    square = (
        0.0
        if distance == 0 and chain.rounding == 0
        else product_up(chain.absorbed(distance, togo), over=(1 - share,))
    )
    ratio = product_up(chain.row_shift, over=(root_down(share), chain.noise))
    parts: tuple[Curve, ...] = (Sampled(chain.pair, chain.rate, ratio, togo),)
    m = root_up(product_up(square, 1 + 2.0**-50))
    if m > 0:
        parts += (Gaussian(m),)
    return Split(first, share, m, combine(parts))


def promising_splits(chain: SampledChain, count: int = 3) -> tuple[tuple[int, float], ...]:
    """``(first, share)`` of the most promising splits, by a Gaussian approximation of the sampled part.

    Every one of them gives a valid bound; the approximation only ranks them.
    """
    lengths = np.unique(np.geomspace(1, chain.steps, 120).round().astype(int))
    best: list[tuple[float, int, float]] = []
    for togo in lengths.tolist():
        distance = chain.distance(chain.steps - togo)
        if distance == 0 or not math.isfinite(distance):
            continue
        absorbed = chain.absorbed(distance, togo)
        totals = absorbed / (1 - _SHARES) + togo * _rough_square(chain, _SHARES)
        at = int(np.argmin(totals))
        best.append((float(totals[at]), chain.steps - togo, float(_SHARES[at])))
    best.sort()
    return tuple((first, share) for _, first, share in best[:count])


def _rough_square(chain: SampledChain, shares: FloatArray) -> FloatArray:
    """Approximate ``m²`` of one sampled step (central limit)."""
    whole = 1.0 if chain.pair == "add_remove" else 2.0
    ratio = min(product_up(chain.row_shift, over=(chain.noise,)), 1e100)
    squared = ratio**2 / shares
    sampled = (whole * chain.rate) ** 2 * np.expm1(np.minimum(squared, 50.0))
    return np.minimum(sampled, whole**2 * squared)
