"""Reading a NumPyro model: each row's own term, the prior, and what is proved of them."""

from private_mcmc.model.reading import read
from private_mcmc.model.row_model import RowModel
from private_mcmc.model.sites import Observation
from private_mcmc.potential.families import LikelihoodFamily
from private_mcmc.potential.potential import RowConstants
from private_mcmc.potential.predictor import MultiPredictor, Predictor
from private_mcmc.potential.prior import PriorConstants, Site, SitePrior

__all__ = [
    "LikelihoodFamily",
    "MultiPredictor",
    "Observation",
    "Predictor",
    "PriorConstants",
    "RowConstants",
    "RowModel",
    "Site",
    "SitePrior",
    "read",
]
