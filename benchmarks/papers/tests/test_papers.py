"""The papers' bounds as printed: reference values, known slips, and ours never above them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers import cross_moduli as moduli
from benchmarks.papers.bounds import bfg, bjrd, hf
from benchmarks.papers.cross_moduli import Curvature
from benchmarks.papers.shift_bound import path
from benchmarks.papers.shift_search import last_state
from private_mcmc.accounting import gdp
from private_mcmc.errors import DeclarationError

VECTORS = json.loads((Path(__file__).parent / "shifts.json").read_text())


def random_settings(count):
    rng = np.random.default_rng(20240607)
    for _ in range(count):
        mu = 10 ** rng.uniform(-2, 2)
        smooth = mu * 10 ** rng.uniform(0, 2)
        yield {
            "mu": mu,
            "smooth": smooth,
            "c": 10 ** rng.uniform(-3, 2),
            "step": 2 * mu / smooth**2 * 10 ** rng.uniform(-3, 0) * 0.999,
            "beta": 10 ** rng.uniform(-1, 3),
            "rows": int(10 ** rng.uniform(0, 4)),
            "steps": int(10 ** rng.uniform(0, 4)),
            "delta": 10 ** rng.uniform(-9, -1),
        }


def is_below(bound, printed, delta):
    """Ours is not above the printed one, as a Rényi bound and as an (ε, δ) bound."""
    renyi = bound.m_squared / 2 <= printed.rate * (1 + 1e-12)
    return renyi and gdp.epsilon(bound.m, delta) <= printed.epsilon(delta) * (1 + 1e-9)


@pytest.mark.long
def test_ours_is_never_above_theirs_over_ten_thousand_settings():
    for case in random_settings(10_000):
        mu, smooth, c, step = (case[name] for name in ("mu", "smooth", "c", "step"))
        steps, delta, beta, rows = (case[name] for name in ("steps", "delta", "beta", "rows"))
        noise = math.sqrt(2 * step)
        known = {"prior_strong_convexity": mu, "prior_smoothness": smooth, "gradient_bound": c}
        last = last_state(moduli.langevin(step, 2 * c, Curvature(**known)), noise, steps)
        assert is_below(last, bjrd.theorem_5_2(c, mu, smooth, step), delta)
        whole = path(moduli.langevin(step, c), noise, steps)
        assert is_below(whole, bjrd.theorem_5_4(c, step, steps), delta)
        # mean of losses at inverse temperature β, all rows: U = β·mean, so step/β, βμ, βL, β·gradients
        small, widened = step / beta, math.sqrt(2 * step / beta)
        scaled = {
            "prior_strong_convexity": beta * mu,
            "prior_smoothness": beta * smooth,
            "gradient_bound": beta * c,
        }
        sgd = last_state(moduli.langevin(small, 2 * beta * c / rows, Curvature(**scaled)), widened, steps)
        assert is_below(sgd, bjrd.theorem_5_6(c, mu, smooth, step, beta), delta)
        linear = {"strong_convexity": beta * mu, "smoothness": beta * smooth}
        constant = last_state(
            moduli.langevin(small, 2 * beta * c / rows, Curvature(**linear)), widened, steps
        )
        assert is_below(constant, bjrd.theorem_5_7(c, mu, smooth, step, beta, rows), delta)
        whole = path(moduli.langevin(small, beta * c / rows), widened, steps)
        assert is_below(whole, bjrd.theorem_5_8(c, step, steps, beta, rows), delta)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 3), st.floats(1e-3, 0.5), st.integers(1, 1000))
def test_path_gdp_is_theorem_5_4s_renyi_bound(c, step, steps):
    bound = path(moduli.langevin(step, c), math.sqrt(2 * step), steps)
    for alpha in (1.5, 8.0, 100.0):
        assert alpha * bound.m_squared / 2 == pytest.approx(
            bjrd.theorem_5_4(c, step, steps).rdp(alpha), rel=1e-12
        )


def test_proposition_4_5_is_theorem_5_4_in_continuous_time():
    assert bjrd.proposition_4_5(0.7, 1.0, 20 * 0.05).level == pytest.approx(
        bjrd.theorem_5_4(0.7, 0.05, 20).level
    )


def test_proposition_4_6_with_the_proofs_constants_is_above_the_printed_theorem():
    # the drift difference is L|x − y| + 2c, and the coupled chains stay 2c/(μ − γL²/2) apart
    c, mu, smooth, step = 0.5, 1.0, 2.0, 0.1
    proved = bjrd.proposition_4_6(2 * c, 1.0, smooth, 2 * c / (mu - step * smooth**2 / 2))
    printed = bjrd.theorem_5_2(c, mu, smooth, step)
    assert proved.level > printed.level
    assert proved.level == pytest.approx(c**2 * (2 * (smooth + 1) / (mu - step * smooth**2 / 2) + 2) ** 2)
    assert "+2" in printed.slip


def test_printed_slips_are_reproduced():
    assert bjrd.posterior_limit(0.5, 1.0, 2.0).level == pytest.approx(0.5 * 7)
    assert bjrd.theorem_5_2(0.5, 1.0, 2.0, 1e-12).level == pytest.approx((0.5 * 7) ** 2)
    loose = bjrd.theorem_5_8(0.5, 0.1, 10, 2.0, 3)
    assert loose.epsilon(1e-5) == pytest.approx(loose.level + math.sqrt(loose.level * math.log(1e5)))
    assert bjrd.laplace_variance(0.3, 0.5) == pytest.approx(0.6)
    assert pytest.approx(0.6) != 2 * (0.3 / 0.5) ** 2


@pytest.mark.parametrize("step", [0.0, 0.5, 2.0, math.nan])
def test_the_papers_own_conditions_are_checked(step):
    with pytest.raises(DeclarationError, match="2μ/L²"):
        bjrd.theorem_5_2(1.0, 1.0, 2.0, step)


SGD = {"rows": 1000, "batch": 100, "step": 0.01, "noise": 0.5, "lipschitz": 1.0, "diameter": 1.0}


def test_nonconvex_bound_and_its_comparison():
    shared = {**SGD, "batch": 50, "noise": 5.0}
    printed = bfg.theorem_5_4(**shared, steps=10**5, smoothness=2.0)
    spread = 4 * 2 / 0.01 + 2 * 4
    back = math.ceil(math.log(2) / (2 * math.log1p(0.02)))
    assert printed.rate == pytest.approx((52 * back / 1000**2 + spread) / 25)
    assert printed.largest_order == pytest.approx(50**2 * 25 / 16 * math.log(20))
    with pytest.raises(DeclarationError):
        bfg.theorem_5_4(**{**shared, "batch": 200}, steps=10**5, smoothness=2.0)
    other = bfg.asoodeh_diaz(**shared, delta=1e-5)
    reach = 100.0
    tail = math.sqrt(2 * math.log(1 + 0.05 * (1 - 1e-5) / 1e-5))
    assert other == pytest.approx((reach**2 / 2 + reach + 2) / 25 + (reach + 2) * tail / 5)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.floats(0.1, 5), st.floats(0.05, 3), st.integers(1, 12), st.integers(1, 40))
def test_closed_form_epochs_equal_the_plain_recursion(rows, alpha, x, epochs, position):
    step = hf.step_of_theorem(rows, alpha, 1.0, x)
    if step / 2 * (alpha + rows * x * x) >= 0.99:
        return
    problem = hf.Regression(rows, alpha, 1.0, x, 7.0, step)
    position = min(position, rows)
    np.testing.assert_allclose(hf.law_d1(problem, epochs), hf.recursion(problem, epochs, None), rtol=1e-9)
    means, variances = hf.law_d2(problem, epochs, np.array([float(position)]))
    np.testing.assert_allclose((means[0], variances[0]), hf.recursion(problem, epochs, position), rtol=1e-9)


def counterexample(case, step_size=None):
    step = hf.step_of_theorem(case["n"], case["alpha"], case["beta"], case["x_h"])
    return hf.Regression(case["n"], case["alpha"], case["beta"], case["x_h"], case["c"], step_size or step)


def test_heller_fetaya_vector():
    case = VECTORS["heller_fetaya"]
    problem = counterexample(case)
    mean, variance = hf.law_d1(problem, case["epoch"])
    assert mean == pytest.approx(case["mean_D1"], abs=1e-9)
    assert variance == pytest.approx(case["var_D1"], abs=1e-9)
    means, variances = hf.law_d2(problem, case["epoch"], np.array([1.0, case["n"]]))
    assert means == pytest.approx([case["mean_D2_r1"], case["mean_D2_r23"]], abs=1e-9)
    assert variances[0] == pytest.approx(case["var_D2_r1"], abs=1e-9)


@pytest.mark.parametrize(("factor", "peak"), [(1.0, 25), (0.5, 50)])
def test_figure_1_peaks_where_its_step_size_says(factor, peak):
    big = {"n": 17_864_389, "alpha": 2.0, "beta": 1.0, "x_h": 1.8, "c": 2.08e7}
    step = hf.step_of_theorem(big["n"], 2.0, 1.0, 1.8)
    problem = counterexample(big, factor * step)

    def curve(epoch):
        # the sum over positions is a smooth average: every 1009th position is enough here
        mean, _ = hf.law_d1(problem, epoch)
        means, variances = hf.law_d2(problem, epoch, np.arange(1.0, big["n"] + 1, 1009))
        return math.log(0.499) - math.log(np.mean(np.exp(-((mean - means) ** 2) / (2 * variances))))

    values = {epoch: curve(epoch) for epoch in range(peak - 12, peak + 13)}
    assert max(values, key=values.get) == peak
    assert values[peak] == pytest.approx(38.0, abs=0.1)
