"""Reading a NumPyro model: the row domain, each row's own term, the prior, and what is proved of them."""

from private_mcmc.modeling.anatomy import Observation, Site
from private_mcmc.modeling.constants import RowConstants
from private_mcmc.modeling.domain import Domain
from private_mcmc.modeling.domains import domain_from_dict
from private_mcmc.modeling.family import LikelihoodFamily
from private_mcmc.modeling.host_tables import Arrow, Parquet
from private_mcmc.modeling.predictor import MultiPredictor, Predictor
from private_mcmc.modeling.prior import PriorConstants, SitePrior
from private_mcmc.modeling.reading import RowModel, read
from private_mcmc.modeling.real_domains import Ball, Box, Real
from private_mcmc.modeling.rows import Rows
from private_mcmc.modeling.whole_domains import Binary, Categories, Counts

__all__ = [
    "Arrow",
    "Ball",
    "Binary",
    "Box",
    "Categories",
    "Counts",
    "Domain",
    "LikelihoodFamily",
    "MultiPredictor",
    "Observation",
    "Parquet",
    "Predictor",
    "PriorConstants",
    "Real",
    "RowConstants",
    "RowModel",
    "Rows",
    "Site",
    "SitePrior",
    "domain_from_dict",
    "read",
]
