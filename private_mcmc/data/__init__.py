"""From a codebook to row domains and back to units, for tables of people; and real people's rows to try."""

from private_mcmc.data.adult import ADULT_COLUMNS, load_adult
from private_mcmc.data.answers import Answers
from private_mcmc.data.fields import Field, Level
from private_mcmc.data.schema import Schema

__all__ = ["ADULT_COLUMNS", "Answers", "Field", "Level", "Schema", "load_adult"]
