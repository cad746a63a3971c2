"""Sections 2 and 3: relative entropy, concentration and (ε, δ), on Ornstein–Uhlenbeck processes."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from benchmarks.papers import anisotropic
from benchmarks.papers.bounds import bkpp
from benchmarks.papers.pages.page import Claim, Section
from private_mcmc.accounting import gdp
from private_mcmc.report import Heading, Line, Note, Plot, Text, floats, number

DELTA = 1e-5
_EXACT = "benchmarks/papers/anisotropic.py"
_PRINTED = "benchmarks/papers/bounds/bkpp.py"
_TEST = "benchmarks/papers/tests/test_anisotropic.py"
_ADVANTAGE = f"{_TEST}::test_advantage_bound_is_above_the_exact_one_of_two_normals"


def _pair(shift: float) -> tuple[anisotropic.LinearDrift, anisotropic.LinearDrift]:
    """``−x`` and ``−(x − shift)``: strongly convex with ``κ = L = 1``, minimisers ``shift`` apart."""
    one = np.array([[1.0]])
    return anisotropic.LinearDrift(one, np.zeros(1)), anisotropic.LinearDrift(one, np.array([shift]))


def _kl(shift: float, sigma: float, time: float) -> float:
    laws = [anisotropic.law(drift, [sigma**2], np.zeros(1), time) for drift in _pair(shift)]
    return anisotropic.kl(*laws)


def entropy() -> Section:
    """Corollary 2.3, Pinsker's inequality, Propositions 1 and 2."""
    times = np.geomspace(0.05, 20, 40)
    first, second = _pair(1.0)
    bound = [anisotropic.entropy_bound(first, second, [1.0], np.zeros(1), t) for t in times]
    exact = [_kl(1.0, 1.0, t) for t in times]
    ends = {"convexity": (1.0, 1.0), "lipschitz": (1.0, 1.0), "noise": (5.0, 5.0)}
    one = bkpp.proposition_1(**ends, start_constant=0.0, minimisers_apart=10.0)  # type: ignore[arg-type]
    two = bkpp.proposition_2(**ends, minimisers_apart=0.3)  # type: ignore[arg-type]
    late = _kl(1.0, 1.0, math.inf)
    seen = _simulated_variance(5.0)
    claims = (
        Claim(
            "Corollary 2.3",
            "KL(p_t ‖ p′_t) ≤ ½∫∫ p_s‖Σ^{−1/2}(b − b′)‖²",
            "KL at t = 20, κ = σ = 1, minimisers 1 apart",
            "at most",
            bound[-1],
            exact[-1],
            "exact",
            "it is the entropy of the whole path (Girsanov): it grows with t, the state's does not",
            f"{_EXACT} `entropy_bound`",
            f"{_TEST}::test_entropy_bound_is_above_the_exact_divergence_and_equals_its_integral",
        ),
        Claim(
            "Section 3.1, Pinsker",
            "membership advantage ≤ √(KL/2)",
            "total variation of the stationary laws",
            "at most",
            math.sqrt(late / 2),
            float(2 * ndtr(math.sqrt(2 * late) / 2) - 1),
            "exact",
            "for normal laws total variation is 2Φ(√(KL/2)) − 1",
            f"{_EXACT} `advantage`",
            _ADVANTAGE,
        ),
        Claim(
            "Section 2.1, Gibbs law",
            "dx = −∇f dt + σ dW has the stationary law exp(−f/(2σ²))",
            "stationary variance, f = x²/2, σ = 5",
            "equals",
            2 * 5.0**2,
            5.0**2 / 2,
            "exact",
            f"the law is exp(−2f/σ²): variance σ²/2 (simulated: {seen:.3g}); Props 1, 2, Remark 2.5 "
            "rest on it",
            f"{_EXACT} `law`",
            f"{_TEST}::test_stationary_law_solves_the_lyapunov_equation",
        ),
        Claim(
            "Proposition 1",
            "KL(p_t ‖ p′_t) is at most its constant, uniformly in t",
            "KL at t = 10, κ = L = 1, σ = 5, minimisers 10 apart, C₀ = 0",
            "at most",
            one,
            _kl(10.0, 5.0, 10.0),
            "exact",
            "wrong Gibbs law in the log-Sobolev constant: it should grow with σ² and falls",
            f"{_PRINTED} `proposition_1`",
        ),
        Claim(
            "Proposition 2",
            "KL of the stationary laws is at most its constant",
            "KL, κ = L = 1, σ = 5, minimisers 0.3 apart",
            "at most",
            two,
            _kl(0.3, 5.0, math.inf),
            "exact",
            "the same; κ|x* − x′*|²/σ² is exact",
            f"{_PRINTED} `proposition_2`",
            f"{_TEST}::test_printed_propositions_are_not_bounds",
        ),
    )
    xs = floats(times)
    far = [_kl(10.0, 5.0, t) for t in times]
    return Section(
        claims,
        (
            Heading("Relative entropy of two processes"),
            Text(
                "Every law here is normal, in closed form: `dx = −x dt + σ dW` against `dx = −(x − s) "
                "dt + σ dW`."
            ),
            Plot(
                "Corollary 2.3 (s = 1, σ = 1)",
                "time",
                "KL",
                (
                    Line(xs, floats(bound), "Corollary 2.3", 1, "dashed"),
                    Line(xs, floats(exact), "exact", 0),
                ),
                "The bound grows in proportion to time; the exact relative entropy of the state "
                "settles at 1.",
                x_log=True,
                y_log=True,
            ),
            Plot(
                "Proposition 1 is passed (s = 10, σ = 5)",
                "time",
                "KL",
                (
                    Line(xs, tuple(one for _ in xs), "Proposition 1, for all t", 1, "dashed"),
                    Line(xs, floats(far), "exact", 0),
                ),
                "The exact relative entropy rises above the constant of Proposition 1.",
                x_log=True,
                y_log=True,
            ),
        ),
    )


def _simulated_variance(sigma: float) -> float:
    rng, step = np.random.default_rng(0), 0.02
    x = np.zeros(20_000)
    for _ in range(300):
        x = x - step * x + sigma * math.sqrt(step) * rng.normal(size=x.size)
    return float(x.var())


def concentration() -> Section:
    """Corollary 2.4, Remark 2.5 and Lemma 3.1: from entropy to (ε, δ), against the exact curve."""
    m, sigma = math.sqrt(2.0), 4.0
    variance = sigma**2 / 2
    slope = m / math.sqrt(variance)
    loss = math.log(1 / DELTA)

    def epsilon(constant: float) -> float:
        """``KL + r`` with ``exp(−r²/(C‖F‖²)) = δ``."""
        return m**2 / 2 + math.sqrt(constant * slope**2 * loss)

    printed, right = 4 / sigma**2, 2 * variance
    exact = gdp.epsilon(m, DELTA)
    tail = float(ndtr(-(exact - m**2 / 2) / m))
    deltas = np.geomspace(1e-9, 1e-1, 30)

    def by(constant: float, delta: float) -> float:
        return m**2 / 2 + math.sqrt(constant * slope**2 * math.log(1 / delta))

    claims = (
        Claim(
            "Remark 2.5",
            "log-Sobolev constant C = 2/ρ, ρ = σ²κ/2",
            "least constant of the stationary law, κ = 1, σ = 4",
            "at most",
            printed,
            right,
            "exact",
            "σ²/κ, reached by g = e^{ax}; the rate of C_t is 2κ, not ρ",
            "benchmarks/papers/pages/bkpp/entropy.py `concentration`",
        ),
        Claim(
            "Corollary 2.4 with Remark 2.5",
            "(ε, δ) from concentration around KL, constant as printed",
            f"ε at δ = {number(DELTA)}, KL = 1, σ = 4",
            "at most",
            epsilon(printed),
            exact,
            "exact",
            "the constant of Remark 2.5",
            "benchmarks/papers/pages/bkpp/entropy.py `concentration`",
        ),
        Claim(
            "Corollary 2.4, constant corrected",
            "(ε, δ) from concentration around KL",
            f"ε at δ = {number(DELTA)}, KL = 1",
            "at most",
            epsilon(right),
            exact,
            "exact",
            "a tail bound in place of Φ; for normal laws of one covariance nothing else is lost",
            "benchmarks/papers/pages/bkpp/entropy.py `concentration`",
        ),
        Claim(
            "Lemma 3.1",
            "(ε, δ) if the privacy loss exceeds ε with probability at most δ",
            f"δ at ε = {exact:.4g}, KL = 1",
            "at most",
            tail,
            DELTA,
            "exact",
            "the whole tail is charged, not what is above e^ε times the other law",
            "`accounting.gdp`",
            "tests/accounting/test_gdp.py",
        ),
    )
    drawn = (
        Line(floats(deltas), tuple(gdp.epsilon(m, float(d)) for d in deltas), "exact", 0),
        Line(
            floats(deltas), tuple(by(right, float(d)) for d in deltas), "Corollary 2.4, constant corrected", 2
        ),
        Line(
            floats(deltas),
            tuple(by(printed, float(d)) for d in deltas),
            "with Remark 2.5 as printed",
            1,
            "dashed",
        ),
    )
    return Section(
        claims,
        (
            Heading("From relative entropy to (ε, δ)"),
            Plot(
                "Stationary laws with KL = 1, σ = 4",
                "δ",
                "ε",
                drawn,
                "Exact ε, Corollary 2.4 with the right constant above it, with the printed constant "
                "below it.",
                x_log=True,
            ),
            Note(
                "All of this is for one given pair of data sets. A privacy statement needs the supremum over "
                "adjacent data sets, which the paper leaves open and per-coordinate bounds give (below)."
            ),
        ),
    )
