"""Minibatch runs: amplification, refusals, exact one-dimensional laws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from private_mcmc import accounting as acc
from private_mcmc.accounting import gdp
from private_mcmc.accounting.pld import Sampled
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average, Batch, Schedule

POISSON = Batch(scheme="poisson", rate=0.05)
FIXED = Batch(scheme="fixed", size=5)


def schedule(**changes) -> Schedule:
    base = {
        "adjacency": "replace_one",
        "num_rows": 100,
        "dim": 1,
        "step_size": 0.001,
        "num_steps": 200,
        "clip": 1.0,
    }
    return Schedule(**(base | changes))


@pytest.mark.parametrize(
    ("batch", "adjacency", "words"),
    [(FIXED, "add_remove", "Poisson"), (Batch(scheme="fixed", size=101), "replace_one", "exceeds")],
)
@pytest.mark.parametrize("release", ["path", "last", (3, 9)])
def test_uncertified_schemes_are_refused_by_name(batch, adjacency, words, release):
    with pytest.raises(DeclarationError, match=words):
        acc.langevin_statement(schedule(batch=batch, adjacency=adjacency, release=release))
    with pytest.raises(DeclarationError, match=words):
        acc.average_sensitivity(
            schedule(batch=batch, adjacency=adjacency, release=Average(1)), acc.Curvature(1.0, 2.0)
        )


def sampled_part(statement: acc.Statement) -> Sampled:
    (part,) = [curve for curve in statement.curves if isinstance(curve, Sampled)]
    return part


@pytest.mark.parametrize(
    ("batch", "adjacency", "pair", "rate"),
    [
        (POISSON, "add_remove", "add_remove", 0.05),
        (POISSON, "zero_out", "add_remove", 0.05),
        (POISSON, "replace_one", "replace_one", 0.05),
        (FIXED, "replace_one", "fixed", 0.05),
        (FIXED, "zero_out", "fixed", 0.05),
    ],
)
def test_each_scheme_and_adjacency_has_its_own_pair(batch, adjacency, pair, rate):
    """r = γ(1/q)wC for each: the pairs themselves know whether both rows are in them."""
    part = sampled_part(acc.langevin_statement(schedule(batch=batch, adjacency=adjacency, temper=0.5)))
    assert (part.pair, part.rate, part.steps) == (pair, rate, 200)
    exact = 0.001 * 20 * 0.5 / math.sqrt(2 * 0.001)
    assert exact <= part.ratio <= exact * (1 + 1e-8)


@pytest.mark.parametrize(
    ("batch", "adjacency", "rows"), [(POISSON, "replace_one", 2), (POISSON, "add_remove", 1)]
)
def test_the_unamplified_level_is_kept_as_a_gaussian_bound(batch, adjacency, rows):
    statement = acc.langevin_statement(schedule(batch=batch, adjacency=adjacency))
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
        schedule(
            batch=Batch(scheme="poisson", rate=q),
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


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
@pytest.mark.parametrize("epsilon", [0.0, 0.4])
def test_path_without_replacement_bounds_exact_two_step_laws(adjacency, epsilon):
    """Two steps on a grid: the joint law of both increments, batches of one out of two rows."""
    step, clip, rows = 0.05, 0.8, 2
    statement = acc.langevin_statement(
        schedule(
            batch=Batch(scheme="fixed", size=1),
            num_rows=rows,
            step_size=step,
            num_steps=2,
            clip=clip,
            adjacency=adjacency,
        )
    )
    grid = np.linspace(-3.5, 3.5, 1201)
    sd = math.sqrt(2 * step)

    def law(data):
        single = sum(norm.pdf(grid, -step * rows * g, sd) for g in data) / len(data)
        return np.outer(single, single)

    for mine, yours in (
        ((clip, -clip), (-clip, clip)) if adjacency == "replace_one" else ((clip, 0.0), (0.0, clip))
    ):
        for other in (-clip, clip):
            difference = law((other, mine)) - math.exp(epsilon) * law((other, yours))
            exact = np.sum(np.maximum(difference, 0)) * (grid[1] - grid[0]) ** 2
            assert exact <= statement.delta(epsilon) * (1 + 1e-4)


def test_many_step_sizes_are_charged_at_least_their_own_ratio():
    sizes = tuple(0.001 * 1.01**k for k in range(150))
    statement = acc.langevin_statement(
        schedule(batch=POISSON, num_steps=150, step_size=sizes, adjacency="add_remove")
    )
    (product,) = [curve for curve in statement.curves if curve.kind == "product"]
    assert len(product.parts) <= 80
    ratios = sorted(math.sqrt(size / 2) * 20 for size in sizes)
    charged = sorted(ratio for part in product.parts for ratio in [part.ratio] * part.steps)
    assert len(charged) == 150
    assert all(own <= paid <= own * 1.0201 for own, paid in zip(ratios, charged, strict=True))
    assert statement.verify()
