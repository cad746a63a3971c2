"""Figure 3 and the errors of quadratics: Lemmas 4.1 and B.3."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.papers import anisotropic
from benchmarks.papers.bounds import bkpp
from benchmarks.papers.pages.page import Claim, Section
from private_mcmc.report import Heading, Line, Plot, floats

_EXACT = "benchmarks/papers/anisotropic.py"
_PRINTED = "benchmarks/papers/bounds/bkpp.py"
_TEST = "benchmarks/papers/tests/test_anisotropic.py"


def figure_3() -> Section:
    """Quadratics of condition numbers 10 and 100: error at equal KL, isotropic against the best diagonal."""
    gains, lines = {}, []
    weights = np.linspace(0.02, 0.98, 49)
    for color, condition in enumerate((10.0, 100.0)):
        pair = _regression(condition)
        level = _divergence(pair, np.array([0.5, 0.5]))
        errors = [_error_at(pair, np.array([w, 1 - w]), level) for w in weights]
        base = _error_at(pair, np.array([0.5, 0.5]), level)
        gains[condition] = base / min(errors)
        relative = tuple(error / base for error in errors)
        lines.append(Line(floats(weights), relative, f"condition number {condition:g}", color))
    claim = Claim(
        "Figure 3",
        "the gain of anisotropic noise is more prominent at higher condition number",
        "gain at condition number 100 (above: at 10), error at equal KL",
        "above",
        gains[10.0],
        gains[100.0],
        "exact",
        "B and B′ are not stated; here a regression of 50 rows, one left out. For xᵀBx with B, B′, Σ "
        "diagonal "
        "the stationary KL does not depend on Σ at all",
        f"{_EXACT} `law`, `kl`, `mean_square_error`",
        f"{_TEST}::test_law_solves_the_linear_equation_with_noise_that_does_not_commute",
    )
    return Section(
        (claim,),
        (
            Heading("Figure 3: quadratics"),
            Plot(
                "Error at equal KL, t = 100",
                "share of the noise in the steep coordinate",
                "error / isotropic error",
                tuple(lines),
                "Relative error of diagonal noise at the KL of isotropic noise, for two condition numbers.",
                y_log=True,
            ),
        ),
    )


Pair = tuple[anisotropic.LinearDrift, anisotropic.LinearDrift]


def _regression(condition: float) -> Pair:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(50, 2)) * np.array([math.sqrt(condition), 1.0]) / math.sqrt(50)
    answers = rows @ np.array([1.0, 1.0]) + rng.normal(size=50) / math.sqrt(50)
    # Left out: the row with the steepest gradient.
    out = int(np.argmax(np.abs(rows[:, 0])))
    kept = np.arange(50) != out
    first = anisotropic.LinearDrift(rows.T @ rows, rows.T @ answers)
    return first, anisotropic.LinearDrift(rows[kept].T @ rows[kept], rows[kept].T @ answers[kept])


def _divergence(pair: Pair, noise: np.ndarray) -> float:
    return anisotropic.kl(*(anisotropic.law(drift, noise, np.zeros(2), 100.0) for drift in pair))


def _error_at(pair: Pair, shape: np.ndarray, level: float) -> float:
    """Mean square error of the noise ``ζ·shape`` whose KL is ``level``; ``inf`` where no ``ζ`` has it."""
    low, high = 1e-6, 1e6
    if not _divergence(pair, high * shape) <= level * (1 + 1e-12):
        return math.inf
    for _ in range(50):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _divergence(pair, middle * shape) <= level else (middle, high)
    return anisotropic.mean_square_error(pair[0], high * shape, np.zeros(2), 100.0)


def errors() -> Section:
    """Lemmas 4.1 and B.3: what a mean that has not yet arrived adds."""
    drift = anisotropic.LinearDrift(np.diag([1.0, 10.0]), np.array([10.0, 10.0]))
    start, time, noise = np.zeros(2), 0.5, np.eye(2)
    exact = anisotropic.mean_square_error(drift, noise, start, time)
    shared = {"by": "exact", "test": f"{_TEST}::test_error_has_the_mean_that_the_paper_leaves_out"}
    claims = (
        Claim(
            "Lemma 4.1",
            "½E‖x_t − x*‖² ≤ e^{−2κt} + tr Σ/(4κ)",
            f"half the mean square error at t = {time:g}, a start 10 away",
            "at most",
            bkpp.lemma_4_1(1.0, 2.0, time),
            exact / 2,
            why="the first term lacks the factor ½‖x₀ − x*‖²",
            code=f"{_PRINTED} `lemma_4_1`",
            **shared,  # type: ignore[arg-type]
        ),
        Claim(
            "Lemma B.3",
            "E‖x_t − x*‖² of a quadratic is the trace of the covariance",
            f"mean square error at t = {time:g}, the same",
            "equals",
            bkpp.lemma_b_3(drift.matrix, noise, time),
            exact,
            why="leaves out ‖E x_t − x*‖²; right as t → ∞",
            code=f"{_PRINTED} `lemma_b_3`",
            **shared,  # type: ignore[arg-type]
        ),
    )
    return Section(claims, ())
