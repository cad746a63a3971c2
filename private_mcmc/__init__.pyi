from . import accounting
from .accounting import Statement
from .auditing import Mechanism, audit
from .data import Answers, Arrow, Field, Level, Parquet, Schema
from .domains import Ball, Binary, Box, Categories, Counts, Person, Real, Rows
from .dossier import Query, Study
from .errors import (
    BudgetExceeded,
    DataSchemaError,
    DeclarationError,
    DoThisInstead,
    LedgerError,
    NotPrivate,
    NotYetSupported,
    OutputError,
    PrivateMCMCError,
    ReleaseError,
    Unprotected,
    UnsupportedModel,
)
from .inference import (
    Bookkeeping,
    Checkpoint,
    Devices,
    Execution,
    PrivateMCMC,
    Ray,
    check,
    compare,
    describe,
    fit,
)
from .kernels import AnisotropicLangevin, PrivateSGLD, PrivateULA
from .planning import Plan, Prediction, plan
from .preflight import PreflightReport, preflight
from .release import Expectations, Ledger, ReleasedStates
from .schedule import Schedule
from .target import Target

__all__ = [
    "AnisotropicLangevin",
    "Answers",
    "Arrow",
    "Ball",
    "Binary",
    "Bookkeeping",
    "Box",
    "BudgetExceeded",
    "Categories",
    "Checkpoint",
    "Counts",
    "DataSchemaError",
    "DeclarationError",
    "Devices",
    "DoThisInstead",
    "Execution",
    "Expectations",
    "Field",
    "Ledger",
    "LedgerError",
    "Level",
    "Mechanism",
    "NotPrivate",
    "NotYetSupported",
    "OutputError",
    "Parquet",
    "Person",
    "Plan",
    "Prediction",
    "PreflightReport",
    "PrivateMCMC",
    "PrivateMCMCError",
    "PrivateSGLD",
    "PrivateULA",
    "Query",
    "Ray",
    "Real",
    "ReleaseError",
    "ReleasedStates",
    "Rows",
    "Schedule",
    "Schema",
    "Statement",
    "Study",
    "Target",
    "Unprotected",
    "UnsupportedModel",
    "accounting",
    "audit",
    "check",
    "compare",
    "describe",
    "fit",
    "plan",
    "preflight",
]
