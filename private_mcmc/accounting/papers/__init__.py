"""The papers' own bounds as printed, each next to what is known to be wrong with it, to compare with."""

from private_mcmc.accounting.papers import bfg, bjrd, bkpp, hf
from private_mcmc.accounting.papers.printed import Printed

__all__ = ["Printed", "bfg", "bjrd", "bkpp", "hf"]
