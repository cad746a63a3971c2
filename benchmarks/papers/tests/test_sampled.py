"""The last state under Poisson sampling: valid splits only, and never above plain composition."""

from __future__ import annotations

import math

import pytest

from benchmarks.papers.bounds import bfg
from benchmarks.papers.cross_moduli import Affine
from benchmarks.papers.moduli import Root
from benchmarks.papers.sampled import RoughChain, plain, tightest
from benchmarks.papers.sampled_last import (
    SampledChain,
    promising_splits,
    split,
)

CHAIN = {
    "pair": "add_remove",
    "rate": 0.1,
    "row_shift": 0.1,
    "noise": 1.0,
    "steps": 150,
    "gap": 0.05,
}


def rough(**change):
    """A chain with a modulus of its own."""
    return RoughChain(**{name: value for name, value in CHAIN.items() if name != "gap"} | change)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "change",
    [
        {"steps": 3},
        {},
        {"pair": "replace_one"},
        {"gap": 0.0},
        {"gap": 1.0},
        {"gap": 0.0, "diameter": 0.5},
        {"modulus": Root(1.0, 1e-4), "diameter": 1.0},
        {"modulus": Affine(-0.01, 0.0)},
    ],
)
def test_never_above_plain_composition_and_every_proposal_is_valid(change):
    chain = rough(**change) if "modulus" in change else SampledChain(**{**CHAIN, **change})
    base, best = plain(chain).curve, tightest(chain, 1e-6)
    assert best.curve.epsilon(1e-6) <= base.epsilon(1e-6)
    for candidate in (split(chain, *place) for place in promising_splits(chain)):
        assert candidate.curve.epsilon(1e-6) > 0
        assert 0 <= candidate.first < chain.steps


@pytest.mark.long
def test_a_contracting_chain_stops_costing_more():
    chain, longer = SampledChain(**CHAIN), SampledChain(**{**CHAIN, "steps": 250})
    settled = tightest(longer, 1e-6).curve.epsilon(1e-6)
    assert settled < 0.65 * plain(longer).curve.epsilon(1e-6)
    assert settled == pytest.approx(tightest(chain, 1e-6).curve.epsilon(1e-6), rel=0.05)


def test_a_share_of_the_noise_costs_as_announced():
    chain = SampledChain(**CHAIN)
    half = split(chain, 100, 0.5)
    weights = sum(0.95 ** (2 * j) for j in range(50))
    square = (chain.distance(100) * 0.95**50) ** 2 / weights
    assert half.m == pytest.approx(math.sqrt(square / 0.5), rel=1e-9)


@pytest.mark.slow
def test_ratio_to_the_printed_theorem_is_known(record_property):
    """BFG Theorem 5.2, whose printed proof does not hold, in its own units: step η/b, noise ησ."""
    rows, batch, step, noise, lipschitz, diameter = 1000, 100, 0.01, 0.5, 1.0, 0.05
    steps = 2 * math.ceil(diameter * rows / (4 * step * lipschitz))
    printed = bfg.theorem_5_2(
        steps=steps,
        rows=rows,
        batch=batch,
        step=step,
        noise=noise,
        lipschitz=lipschitz,
        exponent=1.0,
        constant=1.0,
        diameter=diameter,
    )
    chain = SampledChain(
        pair="replace_one",
        rate=batch / rows,
        row_shift=step / batch * lipschitz,
        noise=step * noise,
        steps=steps,
        gap=0.0,
        diameter=diameter,
    )
    ratio = tightest(chain, 1e-6).curve.epsilon(1e-6) / printed.epsilon(1e-6)
    record_property("ours/printed", ratio)
    assert 0.1 < ratio < 1.5
