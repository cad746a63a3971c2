"""The numerical optimiser: within a thousandth of every closed form, and of brute force elsewhere."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers import moduli as papers
from benchmarks.papers.shift_search import last_state, optimise
from private_mcmc.accounting.langevin import shifts
from private_mcmc.accounting.langevin.moduli import Affine, Minimum
from private_mcmc.accounting.langevin.shifts import affine_shifts, certify

VECTORS = json.loads((Path(__file__).parent.parent / "cases" / "shifts.json").read_text())


def best(moduli, noise, steps, start=0.0):
    return certify(moduli, noise, optimise(moduli, noise, steps, start=start), start=start)


def brute(phi, noise, start, top, steps, points=3001):
    """Dynamic programming on a fine grid: an upper bound on the optimum, above it by the grid only."""
    grid = np.linspace(0, top, points)
    reached = phi.value(grid)
    cost = reached**2 / noise**2
    for _ in range(steps - 1):
        moves = (np.maximum(reached[:, None] - grid[None, :], 0) / noise) ** 2
        moves[grid[None, :] > reached[:, None]] = np.inf
        cost = (moves + cost[None, :]).min(axis=1)
    return float(np.interp(start, grid, cost))


def test_saddle_modulus_vector():
    case = VECTORS["remark_3_6_bfg"]
    phi = papers.saddle(case["eta"], case["L"], case["beta"])
    assert best(phi, case["sigma"], case["T"], case["D"]) == pytest.approx(case["m_squared"], rel=1e-5)


@pytest.mark.parametrize("gap", [0.0, 1e-3, 0.1, 0.7])
@pytest.mark.parametrize("steps", [1, 2, 30, 1000])
def test_within_a_thousandth_of_the_affine_closed_form(gap, steps):
    assert best(Affine(gap, 0.2), 0.5, steps) == pytest.approx(shifts.affine(0.4, gap, steps), rel=1e-3)


@pytest.mark.parametrize("c", [0.8, 1.0, 1.15])
@pytest.mark.parametrize("h", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("steps", [1, 2, 9, 300])
def test_within_a_thousandth_of_theorem_3_4(c, h, steps):
    closed = papers.two_starts_constant(c, h, 0.6, 2.0, steps, restart=False)
    assert best(papers.Root(c, h), 0.6, steps, 2.0) == pytest.approx(closed, rel=1e-3)


def test_varying_root_moduli_match_theorem_3_4():
    rng = np.random.default_rng(3)
    c, h, noise = rng.uniform(0.7, 1.3, 80), rng.uniform(0, 0.1, 80), rng.uniform(0.3, 2, 80)
    closed = papers.two_starts(c, h, noise, 1.5, restart=False)
    moduli = [papers.Root(ct, ht) for ct, ht in zip(c, h, strict=True)]
    assert best(moduli, noise, 80, 1.5) == pytest.approx(closed, rel=1e-3)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("parts", "start"),
    [
        ((Affine(-0.1, 0.1), Affine(0.3, 0.3)), 1.0),
        ((Affine(-0.3, 0.05), Affine(0.2, 0.3)), 0.0),
        ((Affine(0.01, 0.1), Affine(0.5, 0.4)), 5.0),
        ((papers.Root(1.2, 0.05, 0.05), Affine(0.2, 0.3)), 2.0),
        ((papers.Root(1.0, 0.3, 0.0), papers.Root(1.4, 0.0, 0.0)), 1.5),
        ((papers.Root(0.9, 0.1, 0.1), Affine(-0.2, 0.15), Affine(0.4, 0.6)), 0.5),
    ],
)
def test_minima_of_moduli_are_within_a_thousandth_of_brute_force(parts, start):
    phi, steps, noise = Minimum(parts), 18, 0.5
    top, level = start, start
    for _ in range(steps):
        level = float(phi.value(np.array(level)))
        top = max(top, level)
    coarse = [brute(phi, noise, start, top * 1.01, steps, points) for points in (801, 1601)]
    limit = 2 * coarse[1] - coarse[0]  # first-order extrapolation of the grid error
    found = best(phi, noise, steps, start)
    assert found <= coarse[1] * (1 + 1e-9)
    assert found <= limit * 1.001 + 1e-9


def test_different_data_with_a_root_modulus_is_within_a_thousandth_of_brute_force():
    phi = papers.Root(1.0, 0.04, 0.1)
    coarse = [brute(phi, 1.0, 2.0, 8.0, 10, points) for points in (801, 1601)]
    assert best(phi, 1.0, 10, 2.0) <= (2 * coarse[1] - coarse[0]) * 1.001


@pytest.mark.long
def test_a_minimum_is_never_worse_than_its_parts_and_can_be_much_better():
    parts = (Affine(-0.05, 0.02), Affine(0.1, 0.3))
    together = last_state(Minimum(parts), 0.14, 3000).m_squared
    alone = [last_state(part, 0.14, 3000).m_squared for part in parts]
    assert together < 0.7 * min(alone)
    longer = last_state(Minimum(parts), 0.14, 50_000).m_squared
    assert longer == pytest.approx(together, rel=1e-2)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.3, 1.5), st.floats(0, 0.5), st.floats(0.2, 2)), min_size=1, max_size=8),
    st.floats(0, 2),
    st.integers(0, 2**32 - 1),
)
def test_no_feasible_shifts_beat_the_affine_optimum(rows, start, seed):
    slopes, offsets, noise = (np.array(column) for column in zip(*rows, strict=True))
    moduli = [Affine(1 - slope, offset) for slope, offset in zip(slopes, offsets, strict=True)]
    z = affine_shifts(slopes, offsets, noise**2, start)
    value = certify(moduli, noise, np.minimum(z, _reach(moduli, z)), start=start)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        other = [start]
        for index, phi in enumerate(moduli):
            bound = float(phi.value(np.array(other[-1])))
            nearby = np.clip(z[index + 1] * rng.normal(1, 0.1), 0, bound)
            other.append(nearby if rng.random() < 0.7 else rng.uniform(0, bound))
        other[-1] = 0.0
        assert certify(moduli, noise, other, start=start) >= value * (1 - 1e-9)


def _reach(moduli, z):
    return np.concatenate([z[:1], shifts.reach(moduli, z[:-1])])


def test_sensitivity_at_some_steps_only_leaves_the_unused_stretch_free():
    hits = [Affine(0.1, 0.3)] * 5 + [Affine(0.1, 0.0)] * 200
    assert last_state(hits, 1.0, 205).m_squared < 1e-15
    assert last_state(hits[::-1], 1.0, 205).m_squared == pytest.approx(
        last_state([Affine(0.1, 0.3)] * 5, 1.0, 5).m_squared, rel=1e-9
    )


@pytest.mark.long
def test_ten_thousand_arbitrary_moduli_give_a_certificate():
    rng = np.random.default_rng(1)
    moduli = [
        Minimum(
            (Affine(-0.05 * a, 0.02 * b), papers.Root(1 + 0.1 * a, 0.01 * b, 0.02), Affine(0.1 * a, 0.3 * b))
        )
        for a, b in rng.uniform(0.5, 1.5, (10_000, 2))
    ]
    bound = last_state(moduli, 0.14, 10_000)
    assert bound.shifts is not None and not bound.from_diameter
    assert certify(moduli[bound.first :], 0.14, bound.shifts) == bound.m_squared
    assert bound.m_squared < 0.2 * sum((0.02 * 1.5 / 0.14) ** 2 for _ in itertools.repeat(0, 10_000))


@pytest.mark.slow
def test_a_diameter_lets_a_numerical_certificate_start_late():
    bound = last_state(papers.Root(1.0, 0.04, 0.1), 1.0, 1000, diameter=2.0)
    assert bound.first > 900
    assert bound.m_squared == certify(papers.Root(1.0, 0.04, 0.1), 1.0, bound.shifts, start=2.0)
    assert bound.m_squared < last_state(papers.Root(1.0, 0.04, 0.1), 1.0, 1000).m_squared


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.01, 0.3), st.floats(0.01, 0.3), st.floats(0.01, 0.3), st.floats(1.1, 6), st.integers(2, 40)
)
def test_skipping_the_search_for_a_far_second_line_loses_nothing(expand, shrink, push, factor, steps):
    phi = Minimum((Affine(-expand, push), Affine(shrink, push * factor)))
    quick = last_state(phi, 0.5, steps).m_squared
    assert best(phi, 0.5, steps) >= quick * (1 - 1e-6)
