"""Data shipped with the library: real people's rows to try it on, with licence and citation beside them."""

from private_mcmc.data.adult import ADULT_COLUMNS, load_adult

__all__ = ["ADULT_COLUMNS", "load_adult"]
