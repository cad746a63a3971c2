"""The posterior given what was released: calibrated draws from a plan's stages, or from several runs on the same data."""

from private_mcmc.inference.posterior.given_releases import posterior_draws

__all__ = ["posterior_draws"]
