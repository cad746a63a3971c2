from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.errors import (
    BudgetExceeded,
    DataSchemaError,
    DeclarationError,
    DoThisInstead,
    LedgerError,
    NeverPrivate,
    NotPrivate,
    NotYetSupported,
    PrivateMCMCError,
    ReleaseError,
    UnsupportedModel,
)
from private_mcmc.inference import PrivateMCMC
from private_mcmc.kernels import PrivateULA
from private_mcmc.modeling import Ball, Binary, Box, Categories, Counts, Real, Rows
from private_mcmc.plan import Plan, plan
from private_mcmc.preflight import PreflightReport, preflight
from private_mcmc.release import Expectations
from private_mcmc.schedule import Schedule
from private_mcmc.target import Target

__all__ = [
    "Ball",
    "Binary",
    "Box",
    "Categories",
    "Counts",
    "DataSchemaError",
    "BudgetExceeded",
    "DeclarationError",
    "DoThisInstead",
    "Expectations",
    "LedgerError",
    "NeverPrivate",
    "NotPrivate",
    "NotYetSupported",
    "Plan",
    "PreflightReport",
    "PrivateMCMC",
    "PrivateMCMCError",
    "PrivateULA",
    "Real",
    "ReleaseError",
    "Rows",
    "Schedule",
    "Statement",
    "Target",
    "UnsupportedModel",
    "accounting",
    "plan",
    "preflight",
]
