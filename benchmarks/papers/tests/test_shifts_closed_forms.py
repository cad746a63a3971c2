"""The closed forms of the shift bound against exact Gaussian laws, printed tables and one another."""

from __future__ import annotations

import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers import moduli as papers
from benchmarks.papers import shift_bound as shifts
from benchmarks.papers.bounds import bfg
from benchmarks.papers.cross_moduli import Affine
from benchmarks.papers.shift_bound import last_state, path
from private_mcmc.accounting import gdp
from private_mcmc.errors import DeclarationError

HERE = Path(__file__).parent
VECTORS = json.loads((HERE / "shifts.json").read_text())
NOISY_GD = json.loads((HERE / "noisy_gd.json").read_text())
QUADRATIC = json.loads((HERE.parents[2] / "tests/cases/ula_quadratic.json").read_text())["cases"]


def exact_square(matrices, pushes, covariances, times):
    """``m²`` of the joint law of the states at ``times`` of ``x' = A x + d + N(0, S)`` against ``d = 0``.

    A Markov chain of Gaussians: the stretches between released states add, each started at rest.
    Forty digits; the joint covariance of two states is checked in the test below.
    """
    mpmath.mp.dps = 40
    total, dim = mpmath.mpf(0), len(pushes[0])
    mean, spread = mpmath.matrix(dim, 1), mpmath.matrix(dim, dim)
    for step, (a, d, s) in enumerate(zip(matrices, pushes, covariances, strict=True), start=1):
        a = mpmath.matrix(a.tolist())
        mean = a * mean + mpmath.matrix(list(d))
        spread = a * spread * a.T + mpmath.matrix(s.tolist())
        if step in times:
            total += (mean.T * mpmath.lu_solve(spread, mean))[0]
            mean, spread = mpmath.matrix(dim, 1), mpmath.matrix(dim, dim)
    return float(total)


def test_the_joint_law_of_two_states_is_that_of_the_two_stretches():
    rho, push, noise, first, second = 0.8, 0.3, 0.7, 4, 11
    means = [push * (1 - rho**t) / (1 - rho) for t in (first, second)]
    spread = [noise**2 * (1 - rho ** (2 * t)) / (1 - rho**2) for t in (first, second)]
    cross = rho ** (second - first) * spread[0]
    joint = np.array([[spread[0], cross], [cross, spread[1]]])
    exact = float(np.array(means) @ np.linalg.solve(joint, means))
    assert papers.declared_states(Affine(1 - rho, push), noise, (first, second)).m_squared == pytest.approx(
        exact, rel=1e-12
    )


@pytest.mark.parametrize("case", VECTORS["affine_last_state"])
def test_affine_vectors(case):
    bound = last_state(Affine(1 - case["rho"], case["s_over_sigma"]), 1.0, case["T"])
    assert bound.m_squared == pytest.approx(case["m_squared"], rel=1e-8)


def test_expanding_maps_refuse_the_closed_form_and_get_the_path_bound():
    with pytest.raises(DeclarationError, match="path bound"):
        shifts.affine(0.1, -0.1, 50)
    with pytest.raises(DeclarationError):
        shifts.affine(0.1, math.nan, 50)
    assert last_state(Affine(-0.1, 0.1), 1.0, 50).m_squared == pytest.approx(50 * 0.01, rel=1e-12)


@pytest.mark.parametrize("gap", [1e-8, 0.003, 0.2, 0.9, 1.0])
@pytest.mark.parametrize("times", [(1,), (7,), (40,), (3, 4, 11, 30), tuple(range(1, 21))])
def test_affine_bound_is_exact_for_quadratics_at_every_time_and_subset(gap, times):
    rho, push, noise = 1 - gap, 0.3, 0.7
    steps = times[-1]
    exact = exact_square(
        [np.array([[rho]])] * steps, [np.array([push])] * steps, [np.array([[noise**2]])] * steps, times
    )
    bound = papers.declared_states(Affine(1 - rho, push), noise, times).m_squared
    assert bound == pytest.approx(exact, rel=1e-12)
    assert bound >= exact * (1 - 1e-15)


@pytest.mark.parametrize("case", QUADRATIC)
def test_ula_on_quadratics_reference_values(case):
    step, noise = case["gamma"], math.sqrt(2 * case["gamma"])
    phi = Affine(step * case["m"], step * case["grad_sensitivity"])
    bound = last_state(phi, noise, case["n"])
    assert bound.m == pytest.approx(case["mu_gdp"], rel=1e-12)
    assert bound.m_squared / 2 == pytest.approx(case["rdp_per_order"], rel=1e-12)
    assert path(phi, noise, case["n"]).m == pytest.approx(case["composition_mu"], rel=1e-12)
    assert gdp.epsilon(bound.m, 1e-5) == pytest.approx(case["eps_at_delta_1e5"], rel=1e-9)
    assert bound.m_squared / 2 <= case["chourasia_rdp_per_order"]


@pytest.mark.parametrize("case", NOISY_GD["noisy_gd_strongly_convex"]["cases"])
def test_noisy_gradient_descent_table(case):
    bound = last_state(Affine(1 - case["c"], case["mu_step"]), 1.0, case["t"])
    assert bound.m == pytest.approx(case["mu_gdp_full"], rel=1e-12)
    assert round(bound.m, 3) == case["mu_gdp"]


@pytest.mark.parametrize("case", NOISY_GD["noisy_gd_projected_convex"]["cases"])
@pytest.mark.parametrize("steps", [1, 4])
def test_projected_noisy_gradient_descent_table(case, steps):
    push, noise = case["eta"] * case["L_over_n"], case["eta"] * case["sigma"]
    bound = last_state(Affine(0.0, push), noise, steps * case["t_star"], diameter=case["D"])
    assert bound.m == pytest.approx(case["mu_gdp_full"], rel=1e-12)


def test_theorem_3_4_vector():
    case = VECTORS["theorem_3_4_bfg"]
    value = papers.two_starts([case["c"]] * 6, [case["h"]] * 6, [case["sigma"]] * 6, case["D"], restart=False)
    assert value == pytest.approx(case["m_squared"], abs=1e-7)
    constant = papers.two_starts_constant(
        case["c"], case["h"], case["sigma"], case["D"], case["T"], restart=False
    )
    assert constant == pytest.approx(value, rel=1e-12)


positive = st.floats(0.05, 3.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(positive, st.floats(0, 2), positive), min_size=1, max_size=12), st.floats(0, 5))
def test_theorem_3_4_equals_its_printed_form_and_is_certified(rows, diameter):
    c, h, noise = (list(column) for column in zip(*rows, strict=True))
    ours = papers.two_starts(c, h, noise, diameter, restart=False)
    assert ours == pytest.approx(bfg.theorem_3_4(c, h, noise, diameter), rel=1e-11, abs=1e-300)
    moduli = [papers.Root(ct, ht) for ct, ht in zip(c, h, strict=True)]
    z, resistance = [diameter], [0.0]
    for ct, sd in zip(c[::-1], noise[::-1], strict=True):
        resistance.append((resistance[-1] + sd * sd) / ct)
    resistance = resistance[::-1]
    for t, sd in enumerate(noise):
        reached = float(moduli[t].value(np.array(z[-1])))
        z.append(reached * resistance[t + 1] / (resistance[t + 1] + sd * sd))
    assert shifts.certify(moduli, noise, z, start=diameter) == pytest.approx(ours, rel=1e-9, abs=1e-18)


@pytest.mark.parametrize("c", [0.6, 1 - 1e-7, 1 - 1e-12, 1.0, 1 + 1e-12, 1 + 1e-7, 1.7])
@pytest.mark.parametrize("steps", [1, 5, 60])
def test_constant_two_starts_is_continuous_at_one_and_never_below_exact(c, steps):
    mpmath.mp.dps = 50
    cm, resistance, spent = mpmath.mpf(c), mpmath.mpf(0), mpmath.mpf(0)
    for _ in range(steps):
        spent += mpmath.mpf("0.25") / (resistance + mpmath.mpf("0.49"))
        resistance = (resistance + mpmath.mpf("0.49")) / cm
    exact = mpmath.mpf(4) / resistance + spent
    ours = papers.two_starts_constant(c, 0.25, 0.7, 2.0, steps, restart=False)
    assert ours == pytest.approx(float(exact), rel=1e-12)
    assert ours >= float(exact) * (1 - 1e-16 * 4)


@pytest.mark.parametrize("steps", [1, 7, 200])
def test_six_rows_of_table_1(steps):
    eta, noise, diameter = 0.1, 0.5, 2.0
    for row, c, h in [
        ("convex Lipschitz", 1.0, (2 * eta * 1.3) ** 2),
        ("weakly smooth", 1.0, 0.02),
        ("strongly convex", 1 - 2 * eta * 0.5 + (eta * 2) ** 2, 0.0),
        ("convex smooth", 1.0, 0.0),
        ("nonconvex", (1 + eta * 0.4) ** 2, 0.0),
    ]:
        ours = papers.two_starts_constant(c, h, noise, diameter, steps, restart=False)
        assert ours == pytest.approx(bfg.table_1(row, c, h, noise, diameter, steps), rel=1e-11), row
    c, h = 1 - 2 * eta * 0.5 + (eta * 2) ** 2, 2 * eta * 0.3
    ours = papers.two_starts_constant(c, h, noise, diameter, steps, restart=False)
    printed = bfg.table_1("dissipative", c, h, noise, diameter, steps)
    assert ours <= printed * (1 + 1e-12)


@pytest.mark.parametrize("gap", [-0.3, -0.01, 0.0, 0.05, 0.5])
def test_start_from_the_diameter_is_certified_and_never_below_the_best_certificate(gap):
    diameter, push, noise, steps = 0.7, 0.2, 0.6, 25
    value, togo = shifts.affine_from(diameter, push, gap, noise, steps)
    rho = 1 - gap
    weights = rho ** np.arange(togo - 1, -1, -1.0)
    total = rho**togo * diameter + push * weights.sum()
    z = [diameter]
    for absorbed in total * weights / np.sum(weights**2):
        z.append(max(0.0, rho * z[-1] + push - absorbed))
    z[-1] = 0.0
    assert shifts.certify(Affine(gap, push), noise, z, start=diameter) == pytest.approx(value, rel=1e-9)
    bound = last_state(Affine(gap, push), noise, steps, diameter=diameter)
    assert bound.m_squared <= min(value, steps * (push / noise) ** 2) * (1 + 1e-9)
