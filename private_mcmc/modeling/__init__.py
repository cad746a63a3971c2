"""Reading a NumPyro model: the row domain, each row's own term, the prior, and what is proved of them."""

from private_mcmc.modeling.domains import (
    Ball,
    Binary,
    Box,
    Categories,
    Counts,
    Domain,
    Real,
    domain_from_dict,
)
from private_mcmc.modeling.families import LikelihoodFamily
from private_mcmc.modeling.predictor import Predictor
from private_mcmc.modeling.prior import PriorConstants, SitePrior
from private_mcmc.modeling.reading import RowModel, read
from private_mcmc.modeling.rows import Rows
from private_mcmc.modeling.tracing import Observation, Site

__all__ = [
    "Ball",
    "Binary",
    "Box",
    "Categories",
    "Counts",
    "Domain",
    "LikelihoodFamily",
    "Observation",
    "Predictor",
    "PriorConstants",
    "Real",
    "RowModel",
    "Rows",
    "Site",
    "SitePrior",
    "domain_from_dict",
    "read",
]
