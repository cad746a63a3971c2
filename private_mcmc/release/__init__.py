"""Where values leave the curator's side, and nowhere else: noise, expectations, sums, grids, ledger."""

from private_mcmc.release.ledger import Ledger as Ledger
from private_mcmc.release.ledger_state import DataSet as DataSet
from private_mcmc.release.ledger_state import Filter as Filter
from private_mcmc.release.ledger_state import Reservation as Reservation
from private_mcmc.release.noise import GaussianNoise as GaussianNoise
from private_mcmc.release.noise import LaplaceNoise as LaplaceNoise
from private_mcmc.release.noise import StateGrid as StateGrid
from private_mcmc.release.noise import gaussian_noise as gaussian_noise
from private_mcmc.release.noise import laplace_noise as laplace_noise
from private_mcmc.release.noise import state_grid as state_grid
from private_mcmc.release.price import ExpectationsPlan as ExpectationsPlan
from private_mcmc.release.price import plan_expectations as plan_expectations
from private_mcmc.release.released import Expectations as Expectations
from private_mcmc.release.released import ReleasedExpectations as ReleasedExpectations
from private_mcmc.release.released import ReleasedStates as ReleasedStates
from private_mcmc.release.released import ReleasedValue as ReleasedValue
from private_mcmc.release.released import SecondMoments as SecondMoments
from private_mcmc.release.released import Sums as Sums
from private_mcmc.release.sums import Contribution as Contribution
from private_mcmc.release.sums import Family as Family
from private_mcmc.release.sums import SecondMomentsPlan as SecondMomentsPlan
from private_mcmc.release.sums import SumsPlan as SumsPlan
from private_mcmc.release.sums import plan_second_moments as plan_second_moments
from private_mcmc.release.sums import plan_sums as plan_sums
