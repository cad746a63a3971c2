"""Curves of mechanisms, of sampled steps and of compositions, against quadrature and brute force."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from private_mcmc.accounting import gdp
from private_mcmc.accounting.curves import Gaussian, Points, Pure, Sampled, combine
from private_mcmc.errors import DeclarationError


def divergence(m, epsilon):
    """Of ``N(0, 1)`` and ``N(m, 1)`` at any real ``ε``: ``δ(−ε) = 1 − e^{−ε} + e^{−ε} δ(ε)``."""
    if epsilon >= 0:
        return gdp.delta(m, epsilon)
    return -math.expm1(epsilon) + math.exp(epsilon) * gdp.delta(m, -epsilon)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 3.0), st.floats(0.0, 2.0), st.floats(0.0, 4.0))
def test_gaussian_and_pure_compose_exactly(m, level, epsilon):
    """Randomised response next to a Gaussian: the loss is the sum, integrated in high precision."""
    found = combine((Gaussian(m), Pure(level))).delta(epsilon)
    up = 1 / (1 + math.exp(-level))
    exact = up * divergence(m, epsilon - level) + (1 - up) * divergence(m, epsilon + level)
    assert exact <= found <= exact * 1.05 + 1e-12


def test_pure_levels_add_at_delta_zero_and_compose_better_above():
    together = combine((Pure(0.3), Pure(0.5), Pure(0.2)))
    assert together.epsilon(0.0) == pytest.approx(1.0, rel=1e-12)
    many = combine((Pure(0.1),) * 10)
    assert many.epsilon(1e-6) < 1.0
    # Ten times the double nearest to 0.1 is above 1.
    assert many.delta(many.epsilon(0.0)) == 0.0
    assert many.delta(1.0) < 1e-13


def test_approximate_points_pay_their_delta_once_each():
    curve = combine((Points(((0.2, 1e-6),)), Points(((0.3, 2e-6),)), Gaussian(0.5)))
    assert curve.delta(50.0) == pytest.approx(3e-6, rel=1e-5)
    assert curve.delta(0.5) >= combine((Pure(0.2), Pure(0.3), Gaussian(0.5))).delta(0.5)
    assert Points(((0.2, 1e-3), (1.0, 1e-6))).delta(1.0) == pytest.approx(1e-6)


TRAPS = json.loads((Path(__file__).parent.parent / "cases" / "traps.json").read_text())
FINE = np.linspace(-14.0, 18.0, 320_001)


def mixture(weights, centres):
    def cdf(x):
        return sum(w * norm.cdf(x - c) for w, c in zip(weights, centres, strict=True))

    def pdf(x):
        return sum(w * norm.pdf(x - c) for w, c in zip(weights, centres, strict=True))

    return cdf, pdf


def pairs(name, q, r):
    """Both orders of the one-step pair, written out."""
    zero, up = ([1.0], [0.0]), ([1 - q, q], [0.0, r])
    other = ([1 - q, q], [0.0, -r])
    first, second = (up, other) if name == "replace_one" else (up, zero)
    return [(mixture(*first), mixture(*second)), (mixture(*second), mixture(*first))]


def bracket(name, q, r, steps, epsilon, width=1e-3):
    """Lower and upper bounds on ``δ(ε)`` of ``steps`` steps: losses rounded down and up, then convolved."""
    low, high = 0.0, 0.0
    for (cdf, pdf), (_, other) in pairs(name, q, r):
        edges = FINE
        mass = np.diff(cdf(edges))
        loss = np.log(pdf(edges)) - np.log(other(edges))
        ends = np.sort(np.stack([loss[:-1], loss[1:]]), axis=0)
        for rounded, kind in ((np.floor(ends[0] / width), "low"), (np.ceil(ends[1] / width), "high")):
            index = rounded.astype(int)
            base = index.min()
            single = np.bincount(index - base, weights=np.maximum(mass, 0.0))
            size = 1 << int(np.ceil(np.log2(len(single) * steps + 1)))
            total = np.maximum(np.fft.irfft(np.fft.rfft(single, size) ** steps, size), 0.0)
            losses = (np.arange(size) + base * steps) * width
            kept = losses > epsilon
            value = float(np.sum(total[kept] * -np.expm1(epsilon - losses[kept])))
            if kind == "low":
                low = max(low, value)
            else:
                high = max(high, value)
    return low - 1e-12, high + 1e-12


@pytest.mark.some(4)
@pytest.mark.parametrize("name", ["add_remove", "replace_one"])
@pytest.mark.parametrize(
    ("q", "r", "steps"), [(0.1, 1.0, 1), (0.02, 1.0, 100), (0.3, 0.3, 40), (0.7, 0.8, 5)]
)
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_delta_lies_in_an_independent_bracket(name, q, r, steps, epsilon):
    low, high = bracket(name, q, r, steps, epsilon)
    found = Sampled(name, q, r, steps).delta(epsilon)
    assert found >= low
    assert found <= high * (1 + 1e-3) + 1e-11


def two_steps(name, q, r, epsilon):
    """``δ(ε)`` of two steps: ``E_P[δ_1(ε − L(x))]``; ``δ_1`` is known from where the loss crosses a level."""
    x = np.linspace(-12.0, 12.0 + r, 400_001)
    up = (1 - q) * norm.pdf(x) + q * norm.pdf(x - r)
    down = (1 - q) * norm.pdf(x) + q * norm.pdf(x + r) if name == "replace_one" else norm.pdf(x)
    loss = np.log(up) - np.log(down)
    # The loss grows with x; a level below all of it is crossed at −∞.
    cut = np.interp(epsilon - loss, loss, x, left=-np.inf, right=np.inf)
    above = (1 - q) * norm.sf(cut) + q * norm.sf(cut - r)
    other = (1 - q) * norm.sf(cut) + q * norm.sf(cut + r) if name == "replace_one" else norm.sf(cut)
    once = above - np.exp(epsilon - loss) * other
    return float(np.trapezoid(up * once, x))


@pytest.mark.parametrize(
    ("name", "q", "r", "known"),
    [
        ("add_remove", 1e-4, 2.0, 7.49153412799378e-08),  # 30 digits of mpmath
        ("replace_one", 1e-4, 2.0, 7.49676067880647e-08),
        ("add_remove", 0.2, 0.5, None),
        ("replace_one", 0.2, 0.5, None),
    ],
)
def test_two_steps_cost_at_least_what_their_exact_law_says(name, q, r, known):
    exact = two_steps(name, q, r, 0.3)
    assert known is None or exact == pytest.approx(known, rel=1e-6)
    found = Sampled(name, q, r, 2).delta(0.3)
    assert exact * (1 - 1e-6) <= found <= exact * 1.001
    assert found > Sampled(name, q, r, 1).delta(0.3) * 1.9


def told_apart(q, first, second, epsilon):
    """``δ(ε)`` of one step on data that differ in a row of gradient ``first`` or ``second``, in the plane."""
    x, width = np.linspace(-9.0, 9.0, 721, retstep=True)
    plane = np.stack(np.meshgrid(x, x, indexing="ij"), -1)
    here, there = (
        (1 - q) * np.exp(-0.5 * (plane**2).sum(-1)) + q * np.exp(-0.5 * ((plane - one) ** 2).sum(-1))
        for one in (first, second)
    )
    return float(np.maximum(here - math.exp(epsilon) * there, 0.0).sum()) * width**2 / (2 * math.pi)


@pytest.mark.parametrize(("q", "r", "epsilon"), [(0.3, 1.0, 0.2), (0.05, 2.0, 0.0), (0.8, 0.7, 1.0)])
def test_no_two_rows_are_told_apart_better_than_the_pair_of_replacement(q, r, epsilon):
    """Both rows' gradients anywhere in the ball, by sums over a fine grid; the worst ones are opposite."""
    angles, price = (0.0, 0.7, 2.2, math.pi), Sampled("replace_one", q, r, 1).delta(epsilon)
    worst = 0.0
    for angle in angles:
        for share in (0.5, 1.0):
            for one, two in ((r, share * r), (share * r, r)):
                ends = np.array([one, 0.0]), two * np.array([math.cos(angle), math.sin(angle)])
                worst = max(worst, told_apart(q, *ends, epsilon))
    assert worst <= price * (1 + 1e-9) <= worst * 1.01


@pytest.mark.parametrize(("q", "r", "steps"), [(0.1, 1.0, 1), (0.05, 0.8, 50), (0.3, 0.3, 40)])
def test_epsilon_under_replacement_is_that_of_an_independent_composition(q, r, steps):
    """Losses of the pair on a grid of their own, rounded down, composed by Fourier transforms."""
    ours = Sampled("replace_one", q, r, steps).epsilon(1e-5)
    assert bracket("replace_one", q, r, steps, ours)[0] <= 1e-5
    assert bracket("replace_one", q, r, steps, 0.97 * ours)[0] > 1e-5


@pytest.mark.slow
def test_poisson_under_replacement_vector():
    case = TRAPS["poisson_replace_one"]
    ratio, steps, delta = 1 / case["sigma_over_r"], case["T"], case["delta"]
    right = Sampled("replace_one", case["q"], ratio, steps).epsilon(delta)
    assert right == pytest.approx(case["epsilon"], rel=2e-4)
    wrong = Sampled("add_remove", case["q"], ratio, steps).epsilon(delta)
    assert wrong == pytest.approx(case["wrong_with_add_remove_pair"], rel=1e-3)
    assert wrong < right


def test_doubling_the_shift_of_the_add_remove_pair_is_not_a_bound_under_replacement():
    case = TRAPS["fixed_size_replace_one_must_symmetrise_per_step"]
    q, r, steps = case["q"], 1 / case["sigma_over_r"], case["T"]
    doubled = Sampled("add_remove", q, 2 * r, steps).delta(0.0)
    low, _ = bracket("replace_one", q, r, steps, 0.0)
    assert doubled < low <= Sampled("replace_one", q, r, steps).delta(0.0)
    assert low == pytest.approx(case["true_delta_at_0"], abs=1e-3)
    assert doubled == pytest.approx(case["larger_of_two_compositions"], abs=1e-5)


@pytest.mark.long
def test_composition_with_other_mechanisms_goes_through_joint_losses():
    sampled, gaussian = Sampled("add_remove", 0.05, 1.0, 100), Gaussian(0.5)
    joint = combine((sampled, gaussian))
    low = max(sampled.epsilon(1e-5), gaussian.epsilon(1e-5))
    assert low < joint.epsilon(1e-5) < sampled.epsilon(5e-6) + gaussian.epsilon(5e-6)
    with_pure = combine((sampled, Pure(0.2)))
    assert sampled.epsilon(1e-5) < with_pure.epsilon(1e-5) <= sampled.epsilon(1e-5) + 0.2 + 1e-6
    twice = combine((sampled, sampled))
    assert twice == Sampled("add_remove", 0.05, 1.0, 200)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Gaussian(math.nan),
        lambda: Pure(-1.0),
        lambda: Points(()),
        lambda: Points(((1.0, 2.0),)),
        lambda: Sampled("swap", 0.1, 1.0, 1),
        lambda: Sampled("add_remove", math.nan, 1.0, 1),
        lambda: Sampled("add_remove", 0.0, 1.0, 1),
        lambda: Sampled("add_remove", 0.1, math.nan, 1),
        lambda: Sampled("add_remove", 0.1, 1.0, 0),
    ],
)
def test_bad_levels_and_pairs_are_refused(call):
    with pytest.raises(DeclarationError):
        call()


@pytest.mark.parametrize("pair", ["add_remove", "replace_one"])
@pytest.mark.parametrize("ratio", [0.0, 1e-320, 1e-170, 4e-20, 250.0, 1e154, 1e306])
def test_steps_of_any_size_have_a_price(pair, ratio):
    """From steps that are all but free to those whose squares are beyond all floats."""
    for rate, steps in ((1e-300, 7), (0.5, 1), (0.5, 10**5), (1 - 2.0**-53, 7)):
        curve = Sampled(pair, rate, ratio, steps)
        deltas = [curve.delta(epsilon) for epsilon in (0.0, 1.0, 700.0)]
        assert 1 >= deltas[0] >= deltas[1] >= deltas[2] >= 0
        assert 0 <= curve.epsilon(0.5) <= curve.epsilon(1e-6)
        # What is drawn with rate q moves something with probability q at least.
        if ratio >= 250:
            assert deltas[1] >= rate * (1 - 1e-9)
