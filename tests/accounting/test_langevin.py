"""Statements of runs, on all rows and on batches, against exact Gaussian laws and one another."""

from __future__ import annotations

import itertools
import json
import math
from functools import partial
from itertools import pairwise
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from private_mcmc import accounting as acc
from private_mcmc.accounting import gdp
from private_mcmc.accounting.curves import Sampled
from private_mcmc.accounting.steps import ROUNDING_SLACK, rounding_box
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average
from tests.accounting import every_statement

CASES = Path(__file__).parent.parent / "cases"
TRAPS = json.loads((CASES / "traps.json").read_text())
QUADRATIC = json.loads((CASES / "ula_quadratic.json").read_text())["cases"]


schedule = partial(every_statement.schedule, num_rows=1, dim=1, num_steps=100, release="last")


def without_slack(statement: acc.Statement) -> float:
    """The bound itself: a run adds 1e-9 for the rounding of a step after the sum."""
    return statement.gdp / (1 + ROUNDING_SLACK)


@pytest.mark.parametrize("case", QUADRATIC)
def test_quadratic_potentials_are_exact(case):
    statement = acc.langevin_statement(
        schedule(step_size=case["gamma"], num_steps=case["n"], clip=case["grad_sensitivity"] / 2),
        acc.Curvature(case["m"], case["m"]),
    )
    assert without_slack(statement) == pytest.approx(case["mu_gdp"], rel=1e-12)
    assert statement.gdp**2 / 2 == pytest.approx(case["rdp_per_order"], rel=1e-8)
    assert statement.epsilon(1e-5) == pytest.approx(case["eps_at_delta_1e5"], rel=1e-7)
    assert statement.gdp <= case["composition_mu"] * (1 + 1e-8)


def exact_square(hessian, preconditioner, step, push, times):
    """``m²`` of the states at ``times`` of a quadratic chain against a pushed one, in 50 digits."""
    mpmath.mp.dps = 50
    dim = len(push)
    scale = mpmath.matrix(preconditioner.tolist())
    matrix = mpmath.eye(dim) - step * scale * mpmath.matrix(hessian.tolist())
    noise, shift = 2 * step * scale, -step * scale * mpmath.matrix(list(push))
    total = mpmath.mpf(0)
    mean, spread = mpmath.matrix(dim, 1), mpmath.matrix(dim, dim)
    for k in range(1, max(times) + 1):
        mean = matrix * mean + shift
        spread = matrix * spread * matrix.T + noise
        if k in times:
            total += (mean.T * mpmath.lu_solve(spread, mean))[0]
            mean, spread = mpmath.matrix(dim, 1), mpmath.matrix(dim, dim)
    return float(total)


@pytest.mark.parametrize("times", [(1,), (2,), (37,), (1, 2, 3), (5, 20, 21), (40,)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bound_is_exact_at_every_step_subset_and_preconditioner(times, seed):
    """Adjacent data push along the least curved direction of ``M^{1/2}HM^{1/2}``: the bound is attained."""
    random = np.random.default_rng(seed)
    dim = 3
    root = random.normal(size=(dim, dim)) + 2 * np.eye(dim)
    scale = root @ root.T
    scale = (scale + scale.T) / 2
    values, vectors = np.linalg.eigh(scale)
    half = (vectors * np.sqrt(values)) @ vectors.T
    other = np.linalg.qr(random.normal(size=(dim, dim)))[0]
    spectrum = np.array([0.7, 1.9, 6.0])
    inverse = np.linalg.inv(half)
    hessian = inverse @ (other * spectrum) @ other.T @ inverse
    hessian = (hessian + hessian.T) / 2
    low, high = np.linalg.eigvalsh(half @ hessian @ half)[[0, -1]]
    size = 1.3
    push = inverse @ other[:, 0] * size
    step = 0.2
    exact = exact_square(hessian, scale, step, push, times)
    statement = acc.langevin_statement(
        schedule(
            dim=dim,
            step_size=step,
            num_steps=50,
            clip=size / 2,
            preconditioner=tuple(map(tuple, scale.tolist())),
            release=times,
        ),
        acc.Curvature(0.7, 6.0),
    )
    assert (low, high) == (pytest.approx(0.7, rel=1e-12), pytest.approx(6.0, rel=1e-12))
    assert without_slack(statement) ** 2 == pytest.approx(exact, rel=1e-11)


def test_beyond_the_exact_regime_it_is_only_an_upper_bound():
    case = TRAPS["not_exact"]
    step = case["gamma_mu"] / case["mu"]
    statement = acc.langevin_statement(
        schedule(step_size=step, num_steps=case["T"], clip=case["sensitivity"] / 2),
        acc.Curvature(case["mu"], case["mu"]),
    )
    assert without_slack(statement) == pytest.approx(case["bound_m"], rel=1e-6)
    assert case["exact_m"] < statement.gdp


def test_path_is_the_number_of_bjrd_theorem_5_4():
    step, steps, sensitivity = 0.02, 70, 1.5
    statement = acc.langevin_statement(
        schedule(step_size=step, num_steps=steps, clip=sensitivity / 2, release="path", num_chains=4)
    )
    exact = 4 * steps * step * sensitivity**2 / 2
    assert exact <= statement.gdp**2 <= exact * (1 + 3e-9)


@pytest.mark.slow
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6, unique=True))
def test_releasing_more_states_costs_more_and_never_more_than_the_path(times):
    times = tuple(sorted(times))
    curvature = acc.Curvature(1.0, 30.0)
    states = acc.langevin_statement(schedule(num_steps=60, release=times), curvature).gdp
    last = acc.langevin_statement(schedule(num_steps=times[-1]), curvature).gdp
    path = acc.langevin_statement(schedule(num_steps=times[-1], release="path"), curvature).gdp
    assert last <= states * (1 + 1e-12) and states <= path * (1 + 1e-12)
    gaps = [late - early for early, late in pairwise((0, *times))]
    stretches = [acc.langevin_statement(schedule(num_steps=gap), curvature).gdp for gap in gaps]
    assert states <= math.hypot(*stretches) * (1 + 1e-12)


@pytest.mark.parametrize(
    "curvature",
    [
        acc.Curvature(),
        acc.Curvature(smoothness=3.0),
        acc.Curvature(strong_convexity=1.0),
        acc.Curvature(strong_convexity=1.0, smoothness=250.0),
    ],
)
def test_without_a_contraction_the_last_state_costs_the_path_and_says_so(curvature):
    """No convexity, or a step above 2/L: only the path bound is left."""
    last = acc.langevin_statement(schedule(), curvature)
    path = acc.langevin_statement(schedule(release="path"))
    assert last.gdp == pytest.approx(path.gdp, rel=1e-12)
    assert "charged for hidden states too" in last.argument.theorem


def test_the_rounding_assumption_names_the_box_in_which_it_holds():
    item = schedule(num_rows=1000, dim=4, step_size=1e-4)
    box = rounding_box(item)
    assert 2 * 2.0**-53 * 2 * box == pytest.approx(9e-10 * 1e-4 * acc.sensitivity(item), rel=1e-9, abs=0)
    assert box == pytest.approx(4.05e6 * 1e-4 * acc.sensitivity(item) / 2, rel=1e-3)
    assert any("4.05e6 γΔ/√p" in line for line in acc.langevin_statement(item).argument.assumptions)


def test_varying_steps_agree_with_exact_chains():
    sizes = tuple(0.02 / (1 + k / 10) for k in range(40))
    mean, spread, push, mu = 0.0, 0.0, 2.0, 1.5
    for size in sizes:
        mean, spread = (1 - size * mu) * mean + size * push, (1 - size * mu) ** 2 * spread + 2 * size
    statement = acc.langevin_statement(schedule(step_size=sizes, num_steps=40), acc.Curvature(mu, mu))
    assert without_slack(statement) ** 2 == pytest.approx(mean**2 / spread, rel=1e-10)
    path = acc.langevin_statement(schedule(step_size=sizes, num_steps=40, release="path"))
    assert path.gdp**2 == pytest.approx(sum(sizes) * push**2 / 2, rel=1e-8)


def test_an_average_needs_noise():
    with pytest.raises(DeclarationError, match="noise"):
        acc.langevin_statement(schedule(release=Average(1)))
    with pytest.raises(DeclarationError, match="average"):
        acc.average_sensitivity(schedule(), acc.Curvature(1.0, 2.0))


@pytest.mark.parametrize(
    "changes",
    [
        {"strong_convexity": -1.0},
        {"strong_convexity": math.nan},
        {"strong_convexity": 3.0, "smoothness": 2.0},
        {"strong_convexity": math.inf},
        {"prior_smoothness": math.nan},
        {"smoothness": math.nan},
    ],
)
def test_contradictory_curvature_is_refused(changes):
    with pytest.raises(DeclarationError):
        acc.Curvature(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"preconditioner": (1.0, -1.0)},
        {"preconditioner": ((1.0, 2.0), (2.0, 1.0))},
        {"preconditioner": ((1.0, 0.5), (0.0, 1.0))},
        {"preconditioner": (1.0, math.nan)},
        {"noise": (1.0, 0.0)},
        {"noise": (1.0, 1.0, 1.0)},
    ],
)
def test_matrices_that_are_no_covariances_are_refused(changes):
    with pytest.raises(DeclarationError):
        acc.langevin_statement(schedule(dim=2, **changes))


def test_float64_rounding_of_the_sums_is_part_of_the_sensitivity(rng):
    """Two orders of summing the same clipped rows differ by less than the allowance; Δ contains it."""
    rows = 200_000
    values = np.where(rng.random(rows) < 0.5, 1.0, -1.0) * rng.random(rows)
    item = schedule(num_rows=rows)
    allowance = acc.sensitivity(item) - 2.0
    forward, backward = 0.0, 0.0
    for value in values.tolist():
        forward += value
    for value in values[::-1].tolist():
        backward += value
    assert 0 < abs(forward - backward) < allowance < 1e-4
    scaled = acc.sensitivity(schedule(num_rows=rows, dim=2, preconditioner=(1.0, 100.0)))
    assert scaled - 2.0 == pytest.approx(10 * allowance, rel=1e-6)
    with pytest.raises(DeclarationError):
        acc.sensitivity(schedule(num_rows=2**53))


def test_row_sensitivity_by_adjacency():
    assert acc.row_sensitivity(1.5, 0.5, "replace_one") == 1.5
    assert acc.row_sensitivity(1.5, 0.5, "add_remove") == 0.75
    assert acc.row_sensitivity(1.5, 0.5, "zero_out") == 0.75
    with pytest.raises(DeclarationError):
        acc.row_sensitivity(math.nan, 1.0, "zero_out")


batched = partial(every_statement.schedule, dim=1, step_size=0.001, num_steps=200)


def sampled_part(statement: acc.Statement) -> Sampled:
    (part,) = [curve for curve in statement.curves if isinstance(curve, Sampled)]
    return part


@pytest.mark.parametrize(
    ("adjacency", "pair"),
    [("add_remove", "add_remove"), ("zero_out", "add_remove"), ("replace_one", "replace_one")],
)
def test_each_adjacency_has_its_own_pair(adjacency, pair):
    """r = γ(1/q)wC for each: the pairs themselves know whether both rows are in them."""
    part = sampled_part(acc.langevin_statement(batched(rate=0.05, adjacency=adjacency, temper=0.5)))
    assert (part.pair, part.rate, part.steps) == (pair, 0.05, 200)
    exact = 0.001 * 20 * 0.5 / math.sqrt(2 * 0.001)
    assert exact <= part.ratio <= exact * (1 + 1e-8)


@pytest.mark.parametrize(("adjacency", "rows"), [("replace_one", 2), ("add_remove", 1)])
def test_the_unamplified_level_is_kept_as_a_gaussian_bound(adjacency, rows):
    statement = acc.langevin_statement(batched(rate=0.05, adjacency=adjacency))
    exact = rows * 20 * math.sqrt(200 * 0.001 / 2)
    assert exact <= statement.gdp <= exact * (1 + 1e-7)
    assert statement.epsilon(1e-6) < gdp.epsilon(exact, 1e-6) / 2


def poisson_states(data, q, step, prior, levels):
    """Law of the last state of noisy SGD on a one-dimensional quadratic prior and constant row gradients."""
    law = {0.0: 1.0}
    rho = 1 - step * prior
    for _ in range(levels):
        new: dict[float, float] = {}
        for mean, weight in law.items():
            for drawn in itertools.product((0, 1), repeat=len(data)):
                chance = math.prod(q if on else 1 - q for on in drawn)
                push = sum(g for g, on in zip(data, drawn, strict=True) if on) / q
                key = round(rho * mean - step * push, 12)
                new[key] = new.get(key, 0.0) + weight * chance
        law = new
    variance = sum(2 * step * rho ** (2 * k) for k in range(levels))
    return law, math.sqrt(variance)


def density(law, sd, grid):
    return sum(weight * norm.pdf(grid, mean, sd) for mean, weight in law.items())


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3, 4])
@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out", "add_remove"])
def test_last_state_under_poisson_bounds_exact_mixtures(steps, adjacency):
    """Constant row gradients and a quadratic prior: the state is an exact Gaussian mixture."""
    q, step, prior, clip = 0.4, 0.05, 2.0, 0.7
    grid = np.linspace(-8, 8, 40_001)
    statement = acc.langevin_statement(
        batched(
            rate=q,
            num_rows=2,
            step_size=step,
            num_steps=steps,
            clip=clip,
            release="last",
            adjacency=adjacency,
        ),
        acc.Curvature(strong_convexity=prior, smoothness=prior),
    )
    others = {"replace_one": (-clip,), "zero_out": (0.0,), "add_remove": ()}[adjacency]
    for neighbour in (-clip, clip):
        first = density(*poisson_states((neighbour, clip), q, step, prior, steps), grid)
        second = density(*poisson_states((neighbour, *others), q, step, prior, steps), grid)
        for a, b in ((first, second), (second, first)):
            for epsilon in (0.0, 0.2, 0.6):
                exact = np.sum(np.maximum(a - math.exp(epsilon) * b, 0)) * (grid[1] - grid[0])
                assert exact <= statement.delta(epsilon) * (1 + 1e-6) + 1e-12


def test_many_step_sizes_are_charged_at_least_their_own_ratio():
    sizes = tuple(0.001 * 1.01**k for k in range(150))
    statement = acc.langevin_statement(
        batched(rate=0.05, num_steps=150, step_size=sizes, adjacency="add_remove")
    )
    (product,) = [curve for curve in statement.curves if curve.kind == "product"]
    assert len(product.parts) <= 80
    ratios = sorted(math.sqrt(size / 2) * 20 for size in sizes)
    charged = sorted(ratio for part in product.parts for ratio in [part.ratio] * part.steps)
    assert len(charged) == 150
    assert all(own <= paid <= own * 1.0201 for own, paid in zip(ratios, charged, strict=True))
    assert statement.verify()
