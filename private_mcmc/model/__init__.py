"""Reading a NumPyro model: each row's own term, the prior, and what is proved of them."""

from private_mcmc.model.reading import RowModel as RowModel
from private_mcmc.model.reading import read as read
from private_mcmc.model.sites import Observation as Observation
from private_mcmc.potential.predictor import Predictor as Predictor
from private_mcmc.potential.prior import Site as Site
