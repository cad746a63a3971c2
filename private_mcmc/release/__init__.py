"""Where values leave the curator's side, and nowhere else: noise, expectations, moments, grids, ledger."""

from private_mcmc.release.expectations import Expectations
from private_mcmc.release.ledger import Ledger
from private_mcmc.release.ledger_state import Balance, Filter, Reservation
from private_mcmc.release.noise import (
    GaussianNoise,
    LaplaceNoise,
    StateGrid,
    gaussian_noise,
    laplace_noise,
    state_grid,
)
from private_mcmc.release.price import ExpectationsPlan, plan_expectations
from private_mcmc.release.released import (
    ReleasedExpectations,
    ReleasedStates,
    ReleasedValue,
)
from private_mcmc.release.sums import (
    Contribution,
    Family,
    SecondMoments,
    SecondMomentsPlan,
    Sums,
    SumsPlan,
    floored,
    plan_second_moments,
    plan_sums,
)

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
