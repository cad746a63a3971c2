"""Where values leave the curator's side, and nowhere else: noise, expectations, moments, grids, ledger."""

from private_mcmc.release.averages import ExpectationsPlan, plan_expectations
from private_mcmc.release.expectations import Expectations
from private_mcmc.release.ledger.filter import Filter
from private_mcmc.release.ledger.ledger import Ledger
from private_mcmc.release.ledger.state import Balance, Reservation
from private_mcmc.release.moments import (
    SecondMoments,
    SecondMomentsPlan,
    floored,
    plan_second_moments,
)
from private_mcmc.release.noise import (
    GaussianNoise,
    LaplaceNoise,
    StateGrid,
    gaussian_noise,
    laplace_noise,
    state_grid,
)
from private_mcmc.release.released import (
    ReleasedExpectations,
    ReleasedStates,
    ReleasedValue,
)
from private_mcmc.release.sums import Contribution, Family, Sums, SumsPlan, plan_sums

__all__ = [
    "Balance",
    "Contribution",
    "Expectations",
    "ExpectationsPlan",
    "Family",
    "Filter",
    "GaussianNoise",
    "LaplaceNoise",
    "Ledger",
    "ReleasedExpectations",
    "ReleasedStates",
    "ReleasedValue",
    "Reservation",
    "SecondMoments",
    "SecondMomentsPlan",
    "StateGrid",
    "Sums",
    "SumsPlan",
    "floored",
    "gaussian_noise",
    "laplace_noise",
    "plan_expectations",
    "plan_second_moments",
    "plan_sums",
    "state_grid",
]
