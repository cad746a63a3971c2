from . import accounting
from .accounting import Statement
from .auditing import Mechanism, Pair, audit, audit_one_run, refutation_pair
from .data import Answers, Field, Level, Schema, Study
from .domains import Arrow, Ball, Binary, Box, Categories, Counts, Parquet, Real, Rows
from .errors import (
    BudgetExceeded,
    DataSchemaError,
    DeclarationError,
    DoThisInstead,
    LedgerError,
    NeverPrivate,
    NotPrivate,
    NotYetSupported,
    OutputError,
    PrivateMCMCError,
    ReleaseError,
    UnsupportedModel,
)
from .inference import Checkpoint, PrivateMCMC, fit
from .kernels import AnisotropicLangevin, PrivateSGLD, PrivateULA
from .planning import Plan, plan
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
    "Answers",
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
    "Field",
    "Ledger",
    "LedgerError",
    "Level",
    "Mechanism",
    "NeverPrivate",
    "NotPrivate",
    "NotYetSupported",
    "OutputError",
    "Pair",
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
    "Schema",
    "Statement",
    "Study",
    "Target",
    "UnsupportedModel",
    "accounting",
    "audit",
    "audit_one_run",
    "fit",
    "plan",
    "preflight",
    "refutation_pair",
    "variance",
]
