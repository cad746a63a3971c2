"""Minibatch runs: amplification, refusals, exact one-dimensional laws."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import norm

from private_mcmc import accounting as acc
from private_mcmc.accounting import gdp
from private_mcmc.accounting.curves import Sampled
from tests.accounting import every_statement

schedule = partial(every_statement.schedule, dim=1, step_size=0.001, num_steps=200)


def sampled_part(statement: acc.Statement) -> Sampled:
    (part,) = [curve for curve in statement.curves if isinstance(curve, Sampled)]
    return part


@pytest.mark.parametrize(
    ("adjacency", "pair"),
    [("add_remove", "add_remove"), ("zero_out", "add_remove"), ("replace_one", "replace_one")],
)
def test_each_adjacency_has_its_own_pair(adjacency, pair):
    """r = γ(1/q)wC for each: the pairs themselves know whether both rows are in them."""
    part = sampled_part(acc.langevin_statement(schedule(rate=0.05, adjacency=adjacency, temper=0.5)))
    assert (part.pair, part.rate, part.steps) == (pair, 0.05, 200)
    exact = 0.001 * 20 * 0.5 / math.sqrt(2 * 0.001)
    assert exact <= part.ratio <= exact * (1 + 1e-8)


@pytest.mark.parametrize(("adjacency", "rows"), [("replace_one", 2), ("add_remove", 1)])
def test_the_unamplified_level_is_kept_as_a_gaussian_bound(adjacency, rows):
    statement = acc.langevin_statement(schedule(rate=0.05, adjacency=adjacency))
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
        schedule(rate=0.05, num_steps=150, step_size=sizes, adjacency="add_remove")
    )
    (product,) = [curve for curve in statement.curves if curve.kind == "product"]
    assert len(product.parts) <= 80
    ratios = sorted(math.sqrt(size / 2) * 20 for size in sizes)
    charged = sorted(ratio for part in product.parts for ratio in [part.ratio] * part.steps)
    assert len(charged) == 150
    assert all(own <= paid <= own * 1.0201 for own, paid in zip(ratios, charged, strict=True))
    assert statement.verify()
