"""Errors: what is wrong, where, and what to do. No message ever quotes a value of a private row."""

from __future__ import annotations

from typing import Any


class PrivateMCMCError(Exception):
    """Base class of every error this library raises on purpose."""


class DeclarationError(PrivateMCMCError, ValueError):
    """A public declaration (target, row domain, schedule, option) makes no sense."""


class DataSchemaError(PrivateMCMCError, ValueError):
    """The data do not have the declared columns, shapes, types or number of rows."""


class UnsupportedModel(PrivateMCMCError, ValueError):
    """The model cannot be used as it is; the subclasses say which kind of "cannot" it is."""


class NeverPrivate(UnsupportedModel):
    """No parameter setting makes this model private: its form must change."""


class NotYetSupported(UnsupportedModel):
    """The model may be fine, but this library cannot prove it yet."""


class DoThisInstead(UnsupportedModel):
    """The model is fine once written another way; the message says how."""


class NotPrivate(PrivateMCMCError):
    """A run or release was refused because it does not meet its privacy target.

    ``report`` holds the preflight report that led to the refusal, where there is one.
    """

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report


class BudgetExceeded(PrivateMCMCError):
    """The ledger has too little left; the message says what would still fit."""


class LedgerError(PrivateMCMCError):
    """The ledger file is missing, damaged, locked or of another data set."""


class ReleaseError(PrivateMCMCError):
    """A value may not leave the curator's side in the way that was asked for."""


class OutputError(PrivateMCMCError, OSError):
    """A file cannot be written; the message says why, and where its content is if it could have been lost."""
