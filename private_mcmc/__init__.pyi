from . import accounting
from .accounting import Statement
from .audit import audit
from .errors import (
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
from .inference import Checkpoint, PrivateMCMC
from .kernels import AnisotropicLangevin, PrivateSGLD, PrivateULA
from .modeling import Arrow, Ball, Binary, Box, Categories, Counts, Parquet, Real, Rows
from .plan import Plan, plan
from .preflight import PreflightReport, preflight
from .release import (
    Expectations,
    Ledger,
    ProposedCurvature,
    ProposeTestRelease,
    ProposeTestSample,
    Quantile,
    variance,
)
from .schedule import Schedule
from .target import Target

__all__ = [
    "AnisotropicLangevin",
    "Arrow",
    "Ball",
    "Binary",
    "Box",
    "BudgetExceeded",
    "Categories",
    "Checkpoint",
    "Counts",
    "DataSchemaError",
    "DeclarationError",
    "DoThisInstead",
    "Expectations",
    "Ledger",
    "LedgerError",
    "NeverPrivate",
    "NotPrivate",
    "NotYetSupported",
    "Parquet",
    "Plan",
    "PreflightReport",
    "PrivateMCMC",
    "PrivateMCMCError",
    "PrivateSGLD",
    "PrivateULA",
    "ProposeTestRelease",
    "ProposeTestSample",
    "ProposedCurvature",
    "Quantile",
    "Real",
    "ReleaseError",
    "Rows",
    "Schedule",
    "Statement",
    "Target",
    "UnsupportedModel",
    "accounting",
    "audit",
    "plan",
    "preflight",
    "variance",
]
