"""Section 6.1: the shape of the noise, Figures 1 and 2, and what makes it usable."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from benchmarks.papers import anisotropic
from benchmarks.papers.pages.page import Claim, Section
from private_mcmc.accounting import gdp, langevin_statement
from private_mcmc.report import Heading, Line, Plot, Table, Text, floats, number
from private_mcmc.schedule import Schedule, norm_of_clips

DELTA = 1e-5
_EXACT = "benchmarks/papers/anisotropic.py"
_TEST = "benchmarks/papers/tests/test_anisotropic.py"
_PRICED = (
    "tests/kernels/test_boxed_clips.py::"
    "test_the_optimal_noise_costs_less_than_any_other_of_its_trace_and_less_than_under_a_norm_clip"
)


def _term(sizes: tuple[float, float], x: float, y: float) -> float:
    """``‖Σ^{−1/2}S‖²`` for ``Σ^{1/2} = diag(x, y)``."""
    return (sizes[0] / x) ** 2 + (sizes[1] / y) ** 2


def figures_1_and_2() -> Section:
    """Two sentences on Figure 1, and Figure 2's optimum in closed form."""
    wide, skewed = (10.0, 10.0), (10.0, 1.0)
    zeta = 25.0
    best = anisotropic.optimal_diagonal(skewed, zeta)
    found = minimize_scalar(
        lambda v: skewed[0] ** 2 / v + skewed[1] ** 2 / (zeta - v),
        bounds=(1e-3, zeta - 1e-3),
        method="bounded",
    )
    own = "benchmarks/papers/pages/bkpp/noise.py `_term`"
    claims = (
        Claim(
            "Figure 1, S = (10, 10): risk",
            "noise (4, 3) has the same accuracy and privacy risk as (4, 4)",
            "‖Σ^{−1/2}S‖² at (4, 3) and (4, 4)",
            "equals",
            _term(wide, 4, 3),
            _term(wide, 4, 4),
            "exact",
            "39 % more at (4, 3)",
            own,
        ),
        Claim(
            "Figure 1, S = (10, 10): accuracy",
            "noise (4, 3) has the same accuracy and privacy risk as (4, 4)",
            "tr Σ at (4, 3) and (4, 4)",
            "equals",
            25.0,
            32.0,
            "exact",
            "22 % less at (4, 3): a trade, as everywhere",
            own,
        ),
        Claim(
            "Figure 1, S = (10, 1): risk",
            "(4, 1) has the same privacy risk as (4, 3), at almost no loss",
            "‖Σ^{−1/2}S‖² at (4, 1) and (4, 3)",
            "equals",
            _term(skewed, 4, 1),
            _term(skewed, 4, 3),
            "exact",
            "14 % more at (4, 1); the error falls from 25 to 17",
            own,
        ),
        Claim(
            "Figure 2, S = (10, 1)",
            "the optimal Σ of a given trace, by a generic optimiser",
            f"larger entry of Σ, trace {zeta:g}",
            "equals",
            float(found.x),
            float(best[0]),
            "exact",
            "closed form Σ_ii = ζ|S_i|/Σ_j|S_j|",
            f"{_EXACT} `optimal_diagonal`",
            f"{_TEST}::test_optimal_diagonal_beats_every_other_diagonal_of_the_same_trace",
        ),
    )
    ys = np.linspace(0.5, 5, 46)
    zetas = np.linspace(2, 50, 25)
    optima = [anisotropic.optimal_diagonal(skewed, float(z)) for z in zetas]
    one = Plot(
        "Figure 1 along x = 4",
        "y",
        "‖Σ^{−1/2}S‖²",
        (
            Line(floats(ys), tuple(_term(wide, 4, float(y)) for y in ys), "S = (10, 10)", 0),
            Line(floats(ys), tuple(_term(skewed, 4, float(y)) for y in ys), "S = (10, 1)", 1),
        ),
        "Privacy term against the second noise for both sensitivities; (4, 3) and (4, 4) differ by 39 "
        "%, (4, 1) and (4, 3) by 14 %.",
        y_log=True,
    )
    two = Plot(
        "Figure 2, S = (10, 1)",
        "tr Σ",
        "standard deviations",
        (
            Line(floats(zetas), tuple(math.sqrt(v[0]) for v in optima), "x", 0),
            Line(floats(zetas), tuple(math.sqrt(v[1]) for v in optima), "y", 1),
        ),
        "Optimal noise in the two coordinates: their ratio is √10 at every trace.",
    )
    return Section(claims, (Heading("Figures 1 and 2"), one, two))


def usable() -> Section:
    """What the optimal covariance costs under a norm clip, and under one bound for each coordinate."""
    sizes = (10.0, 1.0)
    shapes = {"isotropic": (1.0, 1.0), "optimal": tuple(anisotropic.optimal_diagonal(sizes, 2.0).tolist())}
    rows, squares = [], {}
    for name, noise in shapes.items():
        norm, box = (
            stated_square(noise, clip=10.0),
            stated_square(noise, clip=norm_of_clips(sizes, None), clips=sizes),
        )
        squares[name] = norm, box
        rows += [
            (f"{name}, rows clipped at ‖g‖ ≤ 10", number(norm), number(gdp.epsilon(math.sqrt(norm), DELTA))),
            (
                f"{name}, clipped at |g₁| ≤ 10, |g₂| ≤ 1",
                number(box),
                number(gdp.epsilon(math.sqrt(box), DELTA)),
            ),
        ]
    claims = (
        Claim(
            "Section 6.1, norm clip",
            "at equal trace the optimal Σ costs less privacy than isotropic noise",
            f"ε of the optimal Σ beside the isotropic one, δ = {number(DELTA)}, ‖g‖ ≤ 10",
            "at most",
            gdp.epsilon(math.sqrt(squares["isotropic"][0]), DELTA),
            gdp.epsilon(math.sqrt(squares["optimal"][0]), DELTA),
            "exact",
            "under a bound on the norm alone isotropic noise is best: a row may lie along the quiet "
            "coordinate",
            "`accounting.langevin_statement`, `pmc.AnisotropicLangevin`",
            _PRICED,
        ),
        Claim(
            "Section 6.1, bounds for each coordinate",
            "at equal trace the optimal Σ costs less privacy than isotropic noise",
            "m² of isotropic noise over that of the optimal Σ, |g| ≤ (10, 1)",
            "above",
            1.0,
            squares["isotropic"][1] / squares["optimal"][1],
            "exact",
            "pΣC_j² against (ΣC_j)²: `AnisotropicLangevin(clips=(10, 1), …)` enforces and prices such bounds",
            "`accounting.langevin_statement`, `pmc.AnisotropicLangevin`",
            _PRICED,
        ),
    )
    return Section(
        claims,
        (
            Heading("What makes the optimal covariance usable"),
            Text(
                "`Σ_ii ∝ |S_i|` needs a bound of every coordinate of a row's gradient separately, "
                "known without the "
                "data. A clip of the norm does not give it, and then the optimal shape is the wrong one."
            ),
            Table(
                ("noise of trace 2, one path", "m²", f"ε at δ = {number(DELTA)}"),
                tuple(rows),
                "The same γ and trace",
            ),
        ),
    )


def stated_square(noise: tuple[float, ...], **clipped: Any) -> float:
    """``m²`` of the path that the library states: γ = 0.01, 4 steps, a row present or absent."""
    run = Schedule(
        adjacency="zero_out", num_rows=9, dim=2, step_size=0.01, num_steps=4, noise=noise, **clipped
    )
    return float(langevin_statement(run).gdp or math.inf) ** 2
