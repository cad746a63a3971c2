"""Reading a NumPyro model: each row's own term, the prior, and what is proved of them."""

from private_mcmc.model.families import LikelihoodFamily
from private_mcmc.model.predictor import MultiPredictor, Predictor
from private_mcmc.model.prior import PriorConstants, SitePrior
from private_mcmc.model.reading import read
from private_mcmc.model.row_model import RowConstants, RowModel
from private_mcmc.model.sites import Observation, Site

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
