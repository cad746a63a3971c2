"""Last states of sampled chains beyond the library's: any modulus, and the best split for one ``δ``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.papers.cross_moduli import Affine, Modulus
from benchmarks.papers.moduli import Root, two_starts_constant
from benchmarks.papers.sampled_last import SampledChain, Split, promising_splits, split
from benchmarks.papers.shift_bound import certify
from benchmarks.papers.shift_search import optimise
from private_mcmc.accounting import gdp
from private_mcmc.accounting.rounding import product_up, sum_up, up
from private_mcmc.errors import DeclarationError


@dataclass(frozen=True, kw_only=True)
class RoughChain(SampledChain):
    """A sampled chain whose step without the differing row has any ``modulus``: it may expand, or be rough.

    ``DeclarationError`` for an offset, which only different data have.
    """

    modulus: Modulus
    gap: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.modulus, (Affine, Root)) and float(self.modulus.offset) != 0:
            raise DeclarationError("modulus: that of one map on two states, without an offset.")

    def distance(self, steps: int) -> float:
        """Distance surely not exceeded after ``steps`` steps with equal noise and equal batches."""
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

    def absorbed(self, distance: float, togo: int) -> float:
        """``m²`` of bringing two copies of the chain together in ``togo`` steps with the whole noise."""
        if not math.isfinite(distance):
            return math.inf
        phi = self.modulus
        if isinstance(phi, Affine) and float(phi.gap) < 1:
            square = product_up(float(phi.slope), float(phi.slope))
            return two_starts_constant(square, 0.0, self.noise, distance, togo, restart=False)
        if isinstance(phi, Root) and float(phi.c) > 0:
            return two_starts_constant(float(phi.c), float(phi.h), self.noise, distance, togo, restart=False)
        z = optimise(phi, self.noise, togo, start=distance, work=100_000)
        return math.inf if z is None else certify(phi, self.noise, z, start=distance)


def plain(chain: SampledChain) -> Split:
    """Composition of all ``T`` sampled steps, as if the path were released."""
    return split(chain, 0, 1.0)


def tightest(chain: SampledChain, delta: float) -> Split:
    """The split with the smallest ``ε(delta)``: ranked roughly, then improved on the exact curve.

    Never worse than ``plain``. Nothing here depends on data.
    """
    gdp.checked("delta", delta, 1)
    known: dict[tuple[int, float], tuple[float, Split]] = {}

    def price(first: int, share: float) -> float:
        key = (first, share)
        if key not in known:
            candidate = split(chain, first, share)
            known[key] = (candidate.curve.epsilon(delta), candidate)
        return known[key][0]

    base = plain(chain)
    known[(0, 1.0)] = (base.curve.epsilon(delta), base)
    for candidate in (split(chain, *place) for place in promising_splits(chain, 2)):
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
