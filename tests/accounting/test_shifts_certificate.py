"""A certificate is checked: what is infeasible is refused, and the number is rounded up."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers import moduli as papers
from benchmarks.papers.shift_search import tangent
from private_mcmc.accounting.langevin.moduli import Affine, Minimum, Point, per_step
from private_mcmc.accounting.langevin.shifts import certify
from private_mcmc.errors import DeclarationError

PHI = Affine(0.1, 0.2)


@pytest.mark.parametrize(
    "shifts",
    [
        [0.0, 0.1, 0.1],  # does not end at zero
        [0.0, 0.3, 0.0],  # above what the modulus allows
        [0.0, -0.1, 0.0],
        [0.0, math.nan, 0.0],
        [math.inf, 0.1, 0.0],
        [0.0],
    ],
)
def test_infeasible_shifts_are_refused(shifts):
    with pytest.raises(DeclarationError, match="shifts"):
        certify(PHI, 1.0, shifts)


def test_a_start_below_the_distance_of_the_chains_is_refused():
    with pytest.raises(DeclarationError):
        certify(PHI, 1.0, [0.4, 0.1, 0.0], start=0.5)
    assert certify(PHI, 1.0, [0.5, 0.1, 0.0], start=0.5) > 0


@pytest.mark.parametrize("noise", [0.0, -1.0, math.nan, math.inf, [1.0, 0.0]])
def test_noise_must_be_positive(noise):
    with pytest.raises(DeclarationError, match="noise"):
        certify(PHI, noise, [0.0, 0.1, 0.0])


def test_an_unknown_modulus_certifies_the_path_only():
    assert certify(Point(0.2), 1.0, np.zeros(11)) == pytest.approx(10 * 0.04, rel=1e-12)
    assert certify(Point(0.2), 1.0, [0.0, 0.1, 0.0]) == math.inf


@pytest.mark.parametrize(
    "bad", [{"gap": 1.5, "offset": 0.0}, {"gap": 0.0, "offset": -1.0}, {"gap": math.nan, "offset": 0.0}]
)
def test_moduli_refuse_what_is_not_increasing_or_not_a_number(bad):
    with pytest.raises(DeclarationError):
        Affine(**bad)


@settings(max_examples=100, deadline=None)
@given(
    st.floats(-0.5, 1.0),
    st.floats(0, 1),
    st.lists(st.floats(0, 1), min_size=1, max_size=20),
    st.floats(0.01, 10),
)
def test_the_number_is_never_below_exact_arithmetic(gap, offset, parts, noise):
    rho, push = 1 - Fraction(gap), Fraction(offset)
    z = [0.0]
    for share in parts:
        z.append(share * max(0.0, (1 - gap) * z[-1] + offset) * (1 - 1e-12))
    z.append(0.0)
    exact = (
        sum((rho * Fraction(before) + push - Fraction(after)) ** 2 for before, after in itertools.pairwise(z))
        / Fraction(noise) ** 2
    )
    assert Fraction(certify(Affine(gap, offset), noise, z)) >= exact


def test_moduli_of_many_steps_are_evaluated_one_by_one():
    parts = [
        Affine(0.1, 0.2),
        papers.Root(1.1, 0.3, 0.1),
        papers.saddle(0.3, 1.0, 2.0),
        Point(0.4),
        papers.Root(0.9, 0.0),
        Affine(-0.2, 0.0),
    ]
    distance = np.array([0.5, 0.7, 0.01, 0.0, 2.0, 3.0])
    together = per_step(parts)
    alone = [float(part.value(np.array(z))) for part, z in zip(parts, distance, strict=True)]
    np.testing.assert_allclose(together.value(distance), alone, rtol=1e-15)
    slopes = [float(tangent(part, np.array(z))[0]) for part, z in zip(parts, distance, strict=True)]
    np.testing.assert_allclose(tangent(together, distance)[0], slopes, rtol=1e-15)


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 5), st.floats(0, 5))
def test_every_shape_is_increasing_and_its_tangent_touches(one, two):
    low, high = sorted((one, two))
    for phi in (
        Affine(0.3, 0.1),
        papers.Root(0.8, 0.2, 0.1),
        papers.saddle(0.3, 1.0, 1.0, 0.05),
        Minimum((Affine(0.5, 0.4), Affine(-0.1, 0.1))),
    ):
        at = np.array([low, high])
        values = phi.value(at)
        assert values[0] <= values[1]
        slope, offset = tangent(phi, at)
        np.testing.assert_allclose(slope * at + offset, values, rtol=1e-12)
