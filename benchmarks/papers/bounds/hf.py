"""Heller, Fetaya: the one-dimensional regression on which SGLD is not private although its posterior is.

Cyclic SGLD with batches of one row, ``θ' = θ + (η/2)(∇ log p(θ) + n ∇ log p(y|θ,x)) + √η ξ``, prior
``N(0, 1/α)``, noise precision ``β``, start from the prior. On ``D_1`` all rows are ``(x_h, c x_h)``; on
``D_2`` one row is ``(x_h/2, c x_h/2)``, used at position ``r`` of every pass, ``r`` uniform.

Slips of the paper: (20) misprints the Gaussian Rényi divergence; Lemma A.2 writes one ``ξ`` for
independent ones (the law below is that of the recursion itself).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from private_mcmc.accounting.rounding import FloatArray
from private_mcmc.errors import DeclarationError


@dataclass(frozen=True)
class Regression:
    """The counter-example: ``n`` rows, precisions ``α`` and ``β``, ``x_h``, slope ``c``, step ``η``."""

    rows: int
    prior_precision: float
    noise_precision: float
    x_high: float
    slope: float
    step_size: float

    def __post_init__(self) -> None:
        if not (self.rows >= 1 and self.step_size > 0 and self.pull(self.x_high) < 1):
            raise DeclarationError("needs n ≥ 1 and a step with η/2 (α + n x_h² β) < 1.")

    def pull(self, x: float) -> float:
        """``1 − λ = η/2 (α + n x² β)`` of a step on a row with regressor ``x``."""
        return self.step_size / 2 * (self.prior_precision + self.rows * x * x * self.noise_precision)

    def push(self, x: float) -> float:
        """``ρ = η/2 n c x² β``."""
        return self.step_size / 2 * self.rows * self.slope * x * x * self.noise_precision


def step_of_theorem(rows: int, prior_precision: float, noise_precision: float, x_high: float) -> float:
    """``η = 2/(α + n x_h² β)²``, the step of the analysis (Claim IV.9 has half of it)."""
    return 2 / (prior_precision + rows * x_high**2 * noise_precision) ** 2


def recursion(problem: Regression, epochs: int, position: int | None) -> tuple[float, float]:
    """Mean and variance after ``epochs`` passes, step by step; ``position=None`` is ``D_1``."""
    mean, variance = 0.0, 1 / problem.prior_precision
    for step in range(epochs * problem.rows):
        odd = position is not None and step % problem.rows == position - 1
        x = problem.x_high / 2 if odd else problem.x_high
        keep = 1 - problem.pull(x)
        mean = keep * mean + problem.push(x)
        variance = keep**2 * variance + problem.step_size
    return mean, variance


def law_d1(problem: Regression, epochs: int) -> tuple[float, float]:
    """Mean and variance on ``D_1`` after ``epochs`` passes, in closed form for any ``n``."""
    pull = problem.pull(problem.x_high)
    decay = epochs * problem.rows * math.log1p(-pull)
    mean = problem.push(problem.x_high) * -math.expm1(decay) / pull
    noise = problem.step_size * -math.expm1(2 * decay) / (pull * (2 - pull))
    return mean, math.exp(2 * decay) / problem.prior_precision + noise


def law_d2(problem: Regression, epochs: int, positions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means and variances on ``D_2``, one for each position ``r = 1, …, n`` of the odd row.

    One pass is an affine map, ``θ' = Aθ + b_r + noise``; its power is taken in closed form.
    """
    pull, odd = problem.pull(problem.x_high), problem.pull(problem.x_high / 2)
    push, odd_push = problem.push(problem.x_high), problem.push(problem.x_high / 2)
    rate = math.log1p(-pull)
    before, after = positions - 1, problem.rows - positions
    kept = np.exp(after * rate)

    def series(count: FloatArray) -> FloatArray:
        return -np.expm1(count * rate) / pull

    def squares(count: FloatArray) -> FloatArray:
        return -np.expm1(2 * count * rate) / (pull * (2 - pull))

    shift = kept * ((1 - odd) * push * series(before) + odd_push) + push * series(after)
    noise = kept**2 * ((1 - odd) ** 2 * squares(before) + 1) + squares(after)
    log_pass = math.log1p(-odd) + (problem.rows - 1) * rate
    means = shift * (math.expm1(epochs * log_pass) / math.expm1(log_pass))
    spread = math.expm1(2 * epochs * log_pass) / math.expm1(2 * log_pass)
    start = math.exp(2 * epochs * log_pass) / problem.prior_precision
    return means, start + problem.step_size * noise * spread


def lower_bound(
    problem: Regression, epochs: int, delta: float, *, chunk: int = 1_000_000, every: int = 1
) -> float:
    """An ``ε`` that the state after ``epochs`` passes does not reach at ``δ``: the curve of Figure 1.

    ``max{0, log(1/2 − δ) − log((1/n) Σ_r exp(−(μ − μ̂_r)²/(2 σ̂_r²)))}``.

    The mean over positions is of a smooth function: with ``every > 1`` it is taken over each
    ``every``-th, an approximation.

    Source: Heller, Fetaya, Appendix A-E. The paper states no ``c`` for its figure.
    """
    if not 0 <= delta < 0.5:
        raise DeclarationError(f"delta={delta}: the argument needs δ < 1/2.")
    mean, _ = law_d1(problem, epochs)
    logs = []
    count = 0
    for first in range(1, problem.rows + 1, chunk * every):
        last = min(first + chunk * every, problem.rows + 1)
        positions = np.arange(first, last, every, dtype=np.float64)
        count += len(positions)
        means, variances = law_d2(problem, epochs, positions)
        exponents = -((mean - means) ** 2) / (2 * variances)
        peak = float(exponents.max())
        logs.append(peak + math.log(float(np.sum(np.exp(exponents - peak)))))
    top = max(logs)
    total = top + math.log(math.fsum(math.exp(value - top) for value in logs)) - math.log(count)
    return max(0.0, math.log(0.5 - delta) - total)
