"""Bertazzi, Johnston, Roberts, Durmus: the bounds of Sections 4 and 5 as printed.

Sections 5.1 in the sum form; 5.2 for the mean of ``m`` losses at inverse temperature ``β``, batches
of ``s``. Letters are the paper's: ``c`` bounds ``|∇V|`` (or a difference), ``μ``, ``L`` are those of
the strongly convex part, ``γ`` is the step.
"""

from __future__ import annotations

import math

from benchmarks.papers.bounds.printed import Printed
from private_mcmc.errors import DeclarationError

_NAME = "Bertazzi, Johnston, Roberts, Durmus"


def _final(c: float, mu: float, lipschitz: float, step: float, beta: float, plus: float = 1.0) -> float:
    if not (c >= 0 and 0 < mu <= lipschitz and beta > 0):
        raise DeclarationError("needs c ≥ 0, 0 < μ ≤ L and β > 0.")
    if not 0 < step < 2 * mu / lipschitz**2:
        raise DeclarationError(f"γ={step}: the theorem needs 0 < γ < 2μ/L² = {2 * mu / lipschitz**2:.6g}.")
    return c * c * beta * (2 * (lipschitz + 1) / (mu - step * lipschitz**2 / 2) + plus) ** 2


def proposition_4_5(c: float, beta: float, time: float) -> Printed:
    """Path of a diffusion whose drifts differ by at most ``c``: ``C_1 = c²βT``."""
    level = c * c * beta * time
    return Printed(f"{_NAME}, Proposition 4.5", "", level / 4, level=level)


def proposition_4_6(c: float, beta: float, lipschitz: float, distance: float) -> Printed:
    """Final value of coupled diffusions that stay ``C`` apart: ``C_2 = β(C(L+1) + c)²``."""
    level = beta * (distance * (lipschitz + 1) + c) ** 2
    return Printed(f"{_NAME}, Proposition 4.6", "", level / 4, level=level)


def theorem_5_2(c: float, mu: float, lipschitz: float, step: float) -> Printed:
    """Last state of ULA under Assumption 5.1: ``C_3 = c²(2(L+1)/(μ − γL²/2) + 1)²``."""
    level = _final(c, mu, lipschitz, step, 1.0)
    slip = "the proof gives +2 where +1 is printed, and γ < 2/L suffices; the printed number still holds"
    return Printed(f"{_NAME}, Theorem 5.2", slip, level / 4, level=level)


def posterior_limit(c: float, mu: float, lipschitz: float) -> Printed:
    """The ``γ → 0`` limit after Theorem 5.2: ``C_4 = c(2(L+1)/μ + 1)``."""
    level = c * (2 * (lipschitz + 1) / mu + 1)
    return Printed(
        f"{_NAME}, C_4 after Theorem 5.2",
        "both squares are missing: it should be c²(2(L+1)/μ + 1)²; a heuristic limit, not a theorem",
        level / 4,
        level=level,
    )


def theorem_5_4(c: float, step: float, steps: int) -> Printed:
    """Path of ULA when adjacent gradients differ by at most ``c``: ``C_5 = nγc²``."""
    level = steps * step * c * c
    return Printed(f"{_NAME}, Theorem 5.4", "", level / 4, level=level)


def theorem_5_6(c: float, mu: float, lipschitz: float, step: float, beta: float) -> Printed:
    """Last state of noisy SGD, ``|∇v| ≤ c``: ``C_6 = c²β(2(L+1)/(μ − γL²/2) + 1)²``."""
    level = _final(c, mu, lipschitz, step, beta)
    return Printed(f"{_NAME}, Theorem 5.6", "the proof gives +2 where +1 is printed", level / 4, level=level)


def theorem_5_7(c: float, mu: float, lipschitz: float, step: float, beta: float, batch: int) -> Printed:
    """Last state of noisy SGD with constant ``∇v``: ``C_7 = C_6/s²``."""
    level = _final(c, mu, lipschitz, step, beta) / batch**2
    slip = "prints ε_δ = C_7 + √…, where C_7/4 + √… is proved; the proof gives +2 where +1 is printed"
    return Printed(f"{_NAME}, Theorem 5.7", slip, level / 4, level=level, leading=1.0)


def theorem_5_8(c: float, step: float, steps: int, beta: float, batch: int) -> Printed:
    """Path of noisy SGD when ``|∇ℓ(·,d) − ∇ℓ(·,d')| ≤ c``: ``C_8 = βc²nγ/s²``, not amplified."""
    level = beta * c * c * steps * step / batch**2
    return Printed(
        f"{_NAME}, Theorem 5.8",
        "prints ε_δ = C_8 + √…, where C_8/4 + √… is proved",
        level / 4,
        level=level,
        leading=1.0,
    )


def laplace_variance(eta: float, epsilon: float) -> float:
    """Variance of the Laplace noise after Assumption 3.6: printed ``η/ε``, in truth ``2(η/ε)²``."""
    if not (eta >= 0 and 0 < epsilon < math.inf):
        raise DeclarationError("laplace_variance: η ≥ 0 and ε > 0 are needed.")
    return eta / epsilon
