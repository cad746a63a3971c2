"""Theorem IV.1 as a calculator, and the misprinted Rényi divergence."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.papers.bounds import hf, hf_theorem
from benchmarks.papers.pages import normals
from benchmarks.papers.pages.hf import regression
from benchmarks.papers.pages.page import Claim, Section
from private_mcmc.errors import DeclarationError
from private_mcmc.report import Heading, Table, Text, number

_CODE = "benchmarks/papers/bounds/hf_theorem.py"


def theorem_iv_1() -> Section:
    """A calculator: the rows of the proof, and rows that are enough."""
    rows, claims = [], []
    for epsilon, run in ((1.0, 1.0), (0.5, 38.0), (0.1, 100.0)):
        printed, (enough, slope, found) = calculated(epsilon, run, regression.DELTA)
        rows.append(
            (epsilon, run, number(printed[0]), number(printed[1]), enough, number(slope), number(found))
        )
        claims.append(
            Claim(
                f"Theorem IV.1, ε = {epsilon:g}, ε′ = {run:g}",
                "for every ε, ε′ there is a problem with a private posterior and an SGLD step that is not",
                "rows needed at δ = 0.001 (best γ₂)",
                "at most",
                printed[0],
                float(enough),
                "exact",
                "the proof bounds term by term; ours certifies the posterior and evaluates the lower "
                "bound at this n",
                f"{_CODE} `theorem_iv_1`; `posterior_epsilon`",
            )
        )
    columns = (
        "ε of the posterior",
        "ε′ of SGLD",
        "n, by the proof",
        "c, by the proof",
        "n enough",
        "its c",
        "SGLD: ε ≥",
    )
    first, second = (0.0, 1.0), (0.5, 1.2)
    misprint = math.log(1 / 1.2) + 0.5 * math.log(1.44 / 1.88) + 0.25 / 1.88
    claims.append(
        Claim(
            "Section IV-A, Rényi divergence",
            "closed form of the divergence of two normals",
            "order 2, N(0, 1) against N(0.5, 1.44)",
            "equals",
            misprint,
            normals.renyi(first, second, 2.0),
            "exact",
            "printed with log σ/σ̂ for log σ̂/σ and (ν − 1) for 1/(ν − 1)",
            "benchmarks/papers/pages/normals.py `renyi`",
        )
    )
    return Section(
        tuple(claims),
        (
            Heading("Theorem IV.1 as a calculator"),
            Text(
                "α = 2, β = 1, x_h = 1.8, x_l = 0.9, γ₁ = 0.1. Right: the largest slope that our "
                "certificate allows."
            ),
            Table(columns, tuple(rows), "Rows needed"),
        ),
    )


Answer = tuple[tuple[float, float], tuple[int, float, float]]


def calculated(epsilon: float, run: float, delta: float) -> Answer:
    """Rows and slope by the proof, at its best ``γ₂``; rows that are enough, their slope, what SGLD shows.

    Raises:
        DeclarationError: unless ``ε, ε′ > 0`` and ``0 < δ < 1/2``.
    """
    if not (epsilon > 0 and run > 0 and 0 < delta < 0.5):
        raise DeclarationError(f"Theorem IV.1 at ε={epsilon}, ε′={run}, δ={delta}: ε, ε′ > 0, 0 < δ < 1/2.")
    gammas = np.arange(1.11, 1.45, 0.01).tolist()
    proofs = (hf_theorem.theorem_iv_1(regression.DOMAIN, gamma, epsilon, run, delta) for gamma in gammas)
    return min(proofs), _enough(epsilon, run, delta)


def _enough(epsilon: float, run: float, delta: float) -> tuple[int, float, float]:
    """The first power of two for which the largest certified slope makes SGLD worse than ``run``."""
    rows = 64
    while True:
        slope = hf_theorem.largest_slope(regression.DOMAIN, rows, epsilon, delta)
        if slope > 0:
            problem, every = regression.problem(rows, slope, 0.5), -(-rows // 2000)
            best = max(hf.lower_bound(problem, epoch, delta, every=every) for epoch in range(20, 60, 3))
            if best >= run:
                return rows, slope, best
        rows *= 2
