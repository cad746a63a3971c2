"""The driver: preflight decides, the ledger is charged, the chain runs, and only releases come out."""

from private_mcmc.inference.bookkeeping import Bookkeeping
from private_mcmc.inference.checkpoint import Checkpoint
from private_mcmc.inference.declared import Devices, Execution, Ray
from private_mcmc.inference.describe import check, compare, describe
from private_mcmc.inference.driver import PrivateMCMC
from private_mcmc.inference.fitting import fit

__all__ = [
    "Bookkeeping",
    "Checkpoint",
    "Devices",
    "Execution",
    "PrivateMCMC",
    "Ray",
    "check",
    "compare",
    "describe",
    "fit",
]
