"""The last state under Poisson sampling: valid splits only, and never above plain composition."""

from __future__ import annotations

import math

import pytest

from benchmarks.papers.bounds import bfg
from benchmarks.papers.cross_moduli import Affine, Minimum
from benchmarks.papers.moduli import Root
from benchmarks.papers.sampled import RoughChain, plain, tightest
from benchmarks.papers.sampled_last import (
    SampledChain,
    promising_splits,
    split,
)
from private_mcmc.errors import DeclarationError

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


def test_the_distance_of_coupled_chains():
    chain = SampledChain(**CHAIN)
    assert chain.distance(0) == 0
    assert chain.distance(1) == pytest.approx(0.1)
    assert chain.distance(50) == pytest.approx(0.1 * (1 - 0.95**50) / 0.05)
    replaced = SampledChain(**{**CHAIN, "pair": "replace_one"})
    assert replaced.distance(50) == pytest.approx(2 * chain.distance(50))
    bounded = SampledChain(**{**CHAIN, "diameter": 0.15})
    assert bounded.distance(50) == 0.15
    assert rough(modulus=Root(1.0, 0.01)).distance(2) == pytest.approx(math.hypot(0.2, 0.1) + 0.1)


def test_fixed_size_batches_are_refused():
    with pytest.raises(DeclarationError, match="Poisson"):
        SampledChain(**{**CHAIN, "pair": "fixed"})


@pytest.mark.parametrize(
    "change",
    [
        {"gap": -0.01},
        {"gap": 1.01},
        {"gap": math.nan},
        {"noise": 0.0},
        {"noise": math.nan},
        {"rate": 0.0},
        {"rate": 1.5},
        {"row_shift": math.nan},
        {"steps": 0},
        {"diameter": 0.0},
        {"pair": "gaussian"},
    ],
)
def test_constants_are_checked(change):
    with pytest.raises(DeclarationError):
        SampledChain(**{**CHAIN, **change})


def test_a_general_chain_of_a_contracting_map_is_the_library_s_and_has_no_offset():
    chain, general = SampledChain(**CHAIN), rough(modulus=Affine(0.05, 0.0))
    assert general.distance(100) == pytest.approx(chain.distance(100), rel=1e-12)
    assert general.absorbed(0.7, 50) == pytest.approx(chain.absorbed(0.7, 50), rel=1e-12)
    with pytest.raises(DeclarationError, match="offset"):
        rough(modulus=Affine(0.05, 0.1))


@pytest.mark.parametrize(("first", "share"), [(150, 0.5), (-1, 0.5), (10, 0.0), (10, 1.0), (10, math.nan)])
def test_impossible_splits_are_refused(first, share):
    with pytest.raises(DeclarationError):
        split(SampledChain(**CHAIN), first, share)


def test_a_share_of_the_noise_costs_as_announced():
    chain = SampledChain(**CHAIN)
    half = split(chain, 100, 0.5)
    weights = sum(0.95 ** (2 * j) for j in range(50))
    square = (chain.distance(100) * 0.95**50) ** 2 / weights
    assert half.m == pytest.approx(math.sqrt(square / 0.5), rel=1e-9)


def test_a_numerical_modulus_is_certified():
    chain = rough(steps=40, modulus=Minimum((Affine(0.05, 0.0), Root(0.8, 0.01))))
    assert split(chain, 20, 0.5).m <= split(SampledChain(**{**CHAIN, "steps": 40}), 20, 0.5).m * (1 + 1e-9)


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
