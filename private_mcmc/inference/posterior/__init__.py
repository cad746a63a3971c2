"""The posterior given what was released, by the stages of a plan or by several runs on the same data."""

from private_mcmc.inference.posterior.given_releases import Chains as Chains
from private_mcmc.inference.posterior.given_releases import GivenReleases as GivenReleases
from private_mcmc.inference.posterior.given_releases import posterior_of as posterior_of
