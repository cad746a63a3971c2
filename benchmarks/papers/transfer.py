"""Privacy carried from a posterior to a run and back again (BJRD Proposition 3.2), and to noised averages.

A distance to the posterior has its own type: a distance to the chain's own stationary law, or one in
Wasserstein metric, proves nothing here and cannot be passed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from private_mcmc.accounting import gdp
from private_mcmc.accounting.rounding import product_up, sum_up, up
from private_mcmc.errors import DeclarationError


@dataclass(frozen=True)
class PosteriorDistance:
    """``TV(law of the run, π_D) ≤ total_variation`` for **every** data set ``D`` of the domain.

    Attributes:
        total_variation: the bound, ``ζR(n)`` in BJRD Assumption 3.1.
        source: where it is proved.
    """

    total_variation: float
    source: str

    def __post_init__(self) -> None:
        if not 0 <= self.total_variation <= 1:
            raise DeclarationError(f"total_variation={self.total_variation}: must lie in [0, 1].")
        if not self.source:
            raise DeclarationError("source: say where the bound, uniform over data sets, is proved.")


def _distance(value: PosteriorDistance) -> float:
    if not isinstance(value, PosteriorDistance):
        raise DeclarationError(
            f"{type(value).__name__} is not a distance to the posterior: only total variation to π_D itself, "
            "uniform over data sets (PosteriorDistance), carries privacy over."
        )
    return value.total_variation


def _point(epsilon: float, delta: float) -> None:
    gdp.checked("epsilon", epsilon)
    gdp.checked("delta", delta, 1)


def delta_of_run(epsilon: float, posterior_delta: float, distance: PosteriorDistance) -> float:
    """``δ' = δ + ζR(n)(e^ε + 1)``: the run is ``(ε, δ')``-DP if the posterior is ``(ε, δ)``-DP.

    Source: BJRD Proposition 3.2 (i).
    """
    return _shifted(epsilon, posterior_delta, distance)


def delta_of_posterior(epsilon: float, run_delta: float, limit: PosteriorDistance) -> float:
    """``δ' = δ + ζr(e^ε + 1)``: the posterior is ``(ε, δ')``-DP if every run, however long, is ``(ε, δ)``.

    ``limit`` is the distance that remains as the number of steps grows. Read the other way: if the
    posterior is not ``(ε, δ')``-DP, some run is not ``(ε, δ)``-DP.

    Source: BJRD Proposition 3.2 (ii), Corollary 3.3.
    """
    return _shifted(epsilon, run_delta, limit)


def _shifted(epsilon: float, delta: float, distance: PosteriorDistance) -> float:
    _point(epsilon, delta)
    spread = _distance(distance)
    if spread == 0:
        return delta
    growth = up(math.exp(min(epsilon, 700.0)) + 1)
    return min(1.0, sum_up((delta, product_up(spread, growth))))


def noised_average(epsilon: float, noise_delta: float, failure: float) -> tuple[float, float]:
    """``(ε, δ + δ̃)`` of an average with noise fit for sensitivity ``η``, exceeded with probability ``δ̃``.

    With the synchronous coupling ``η`` is never exceeded: ``failure = 0``.

    Source: BJRD Proposition 3.7.
    """
    _point(epsilon, noise_delta)
    gdp.checked("delta", failure, 1)
    return epsilon, min(1.0, sum_up((noise_delta, failure)))


def run_distance_at_least(epsilon: float, posterior_delta: float, run_delta: float) -> float:
    """A total variation that the run exceeds for one of two adjacent data sets, rounded down.

    If the run is ``(ε, δ_n)``-DP and the posterior is **not** ``(ε, δ)``-DP, ``δ > δ_n`` (or refused), then
    ``TV > (δ − δ_n) e^{−ε}/(1 + e^{−ε})``: such a run is not close to its posterior.

    Source: BJRD Proposition 3.4.
    """
    gdp.checked("epsilon", epsilon)
    gdp.checked("delta", posterior_delta, 1)
    gdp.checked("delta", run_delta, 1)
    if not posterior_delta > run_delta:
        raise DeclarationError(
            f"posterior_delta={posterior_delta} is not above run_delta={run_delta}: nothing follows."
        )
    decay = math.exp(-epsilon)
    return (posterior_delta - run_delta) * decay / (1 + decay) * (1 - 2.0**-48)
