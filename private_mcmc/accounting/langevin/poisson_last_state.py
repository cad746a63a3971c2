"""The last state of a chain on Poisson minibatches: amplification by sampling and by iteration at once.

The noise of the last ``n = T − τ`` steps is split. A share ``κ`` of its variance hides the differing
row's whole term, as in every Poisson-sampled Gaussian mechanism; the rest absorbs the distance
``z_τ`` of the two chains after ``τ`` steps by shifts, with the modulus of the step *without that
row*, which is one and the same map in both chains. By adaptive composition, step after step, the
last state costs no more than ``n`` sampled mechanisms with noise ``√κ σ`` and one Gaussian mechanism.

Source: BFG Section 5 for the idea. Its proof conditions on all of the first share's noise, which
also fixes the maps of later steps; the recursion used here does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import Curve, Gaussian
from private_mcmc.accounting.curves.pld import Sampled
from private_mcmc.accounting.curves.product import combine
from private_mcmc.accounting.curves.rdp import check_pair
from private_mcmc.accounting.langevin.modulus_shapes import Affine, Modulus, Root
from private_mcmc.accounting.langevin.shift_optimiser import optimise
from private_mcmc.accounting.langevin.shifts import certify, two_starts_constant
from private_mcmc.accounting.rounding import FloatArray, product_up, root_down, root_up, sum_up, up
from private_mcmc.errors import DeclarationError

_SHARES = np.linspace(0.02, 0.98, 49)


@dataclass(frozen=True, kw_only=True)
class SampledChain:
    """Public constants of a Poisson-sampled chain, in the metric of its noise.

    Attributes:
        pair: ``"add_remove"`` (also for ``zero_out``) or ``"replace_one"``: the pair of one step.
        rate: ``q``, the probability of each row.
        row_shift: ``r = γ(n/b)wC``, the most that one present row moves a step.
        noise: ``σ``, the standard deviation of a step's noise.
        steps: ``T``.
        modulus: of the step without the differing row, for **every** batch that can occur, with no
            offset for different data: ``Affine(gap, 0)`` or ``Root(c, h)``.
        diameter: of the set projected on, or ``inf``.

    ``DeclarationError`` for values out of range, or a modulus that is not zero at zero where the shape is
    affine.
    """

    pair: str
    rate: float
    row_shift: float
    noise: float
    steps: int
    modulus: Modulus
    diameter: float = math.inf

    def __post_init__(self) -> None:
        check_pair(self.pair, self.rate, self.row_shift)
        if self.pair == "fixed":
            raise DeclarationError(
                "batches of fixed size have no last-state bound: the slot of an absent row is refilled. "
                "Use Poisson batches, or the path."
            )
        if not (0 < self.noise < math.inf and self.steps >= 1 and self.diameter > 0):
            raise DeclarationError("a sampled chain needs noise > 0, steps ≥ 1 and diameter > 0.")
        if isinstance(self.modulus, (Affine, Root)) and float(self.modulus.offset) != 0:
            raise DeclarationError(
                "modulus: that of one map on two states, without an offset for different data."
            )

    @property
    def largest_shift(self) -> float:
        """``s_max``: what the differing row adds to the distance of chains with equal batches."""
        return self.row_shift if self.pair == "add_remove" else 2 * self.row_shift

    def distance(self, steps: int) -> float:
        """Distance surely not exceeded after ``steps`` steps with equal noise and equal batches."""
        if steps == 0:
            return 0.0
        if isinstance(self.modulus, Affine) and float(self.modulus.gap) >= 0:
            gap = float(self.modulus.gap)
            rate = math.inf if gap == 1 else -math.log1p(-gap)
            reached = float(steps) if gap == 0 else -math.expm1(-steps * rate) / gap
            return min(self.diameter, product_up(self.largest_shift, up(reached)))
        return self._climb[min(steps, len(self._climb) - 1)]

    @cached_property
    def _climb(self) -> tuple[float, ...]:
        """Distances after 0, 1, 2, … steps, up to where they stop growing."""
        climb = [0.0]
        while len(climb) <= self.steps and climb[-1] < min(self.diameter, 1e12 * self.largest_shift):
            reached = up(float(self.modulus.value(np.array([climb[-1]]))[0]))
            climb.append(min(self.diameter, sum_up((reached, self.largest_shift))))
        if climb[-1] < self.diameter and len(climb) <= self.steps:
            climb.append(self.diameter)
        return tuple(climb)


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
    if share == 1 and distance > 0:
        raise DeclarationError("share=1 leaves no noise to absorb the distance of the chains.")
    togo = chain.steps - first
    square = (
        0.0
        if distance == 0
        else product_up(_absorb(chain.modulus, chain.noise, distance, togo), over=(1 - share,))
    )
    ratio = product_up(chain.row_shift, over=(root_down(share), chain.noise))
    parts: tuple[Curve, ...] = (Sampled(chain.pair, chain.rate, ratio, togo),)
    m = root_up(product_up(square, 1 + 2.0**-50))
    if m > 0:
        parts += (Gaussian(m),)
    return Split(first, share, m, combine(parts))


def _absorb(phi: Modulus, noise: float, distance: float, togo: int) -> float:
    """``m²`` of bringing two copies of one chain together in ``togo`` steps with the whole noise."""
    if not math.isfinite(distance):
        return math.inf
    if isinstance(phi, Affine) and float(phi.gap) < 1:
        slope = float(phi.slope)
        return two_starts_constant(product_up(slope, slope), 0.0, noise, distance, togo, restart=False)
    if isinstance(phi, Root) and float(phi.c) > 0:
        return two_starts_constant(float(phi.c), float(phi.h), noise, distance, togo, restart=False)
    z = optimise(phi, noise, togo, start=distance, work=100_000)
    return math.inf if z is None else certify(phi, noise, z, start=distance)


def plain(chain: SampledChain) -> Split:
    """Composition of all ``T`` sampled steps, as if the path were released."""
    return split(chain, 0, 1.0)


def proposals(chain: SampledChain, count: int = 3) -> tuple[Split, ...]:
    """The most promising splits by a Gaussian approximation of the sampled part, plain composition last.

    Every one of them is a valid bound; the approximation only ranks them.
    """
    lengths = np.unique(np.geomspace(1, chain.steps, 120).round().astype(int))
    best: list[tuple[float, int, float]] = []
    for togo in lengths.tolist():
        distance = chain.distance(chain.steps - togo)
        if distance == 0 or not math.isfinite(distance):
            continue
        absorbed = _absorb(chain.modulus, chain.noise, distance, togo)
        totals = absorbed / (1 - _SHARES) + togo * _rough_square(chain, _SHARES)
        at = int(np.argmin(totals))
        best.append((float(totals[at]), chain.steps - togo, float(_SHARES[at])))
    best.sort()
    return (*(split(chain, first, share) for _, first, share in best[:count]), plain(chain))


def _rough_square(chain: SampledChain, shares: FloatArray) -> FloatArray:
    """Approximate ``m²`` of one sampled step (central limit)."""
    whole = 1.0 if chain.pair == "add_remove" else 2.0
    ratio = min(product_up(chain.row_shift, over=(chain.noise,)), 1e100)
    squared = ratio**2 / shares
    sampled = (whole * chain.rate) ** 2 * np.expm1(np.minimum(squared, 50.0))
    return np.minimum(sampled, whole**2 * squared)


def tightest(chain: SampledChain, delta: float) -> Split:
    """The split with the smallest ``ε(delta)``: ranked roughly, then improved on the exact curve.

    Never worse than ``plain``. Nothing here depends on data.
    """
    gdp.check_delta(delta)
    known: dict[tuple[int, float], tuple[float, Split]] = {}

    def price(first: int, share: float) -> float:
        key = (first, share)
        if key not in known:
            candidate = split(chain, first, share)
            known[key] = (candidate.curve.epsilon(delta), candidate)
        return known[key][0]

    base = plain(chain)
    known[(0, 1.0)] = (base.curve.epsilon(delta), base)
    for candidate in proposals(chain, 2)[:-1]:
        price(candidate.first, candidate.share)
    at = min(known, key=lambda key: known[key][0])
    step, stretch = 0.16, 1.5
    while at[1] < 1 and step > 0.02:
        first, share = at
        togo = chain.steps - first
        longer = max(0, chain.steps - math.ceil(togo * stretch))
        shorter = min(chain.steps - 1, chain.steps - math.floor(togo / stretch))
        moves = [(first, share + step), (first, share - step), (longer, share), (shorter, share)]
        for start, part in moves:
            if 0 < part < 1 and chain.distance(start) > 0:
                price(start, part)
        nearest = min(known, key=lambda key: known[key][0])
        if nearest == at:
            step, stretch = step / 2, math.sqrt(stretch)
        at = nearest
    return known[at][1]
