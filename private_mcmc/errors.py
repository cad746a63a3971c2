"""Errors: what is wrong, where, and what to do. No message ever quotes a value of a private row."""

from __future__ import annotations

import functools
import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class PrivateMCMCError(Exception):
    """Base class of every error this library raises on purpose."""

    # Files, lines and functions that an error came through, where :func:`clean_errors` took its frames away.
    places: tuple[str, ...] = ()


class DeclarationError(PrivateMCMCError, ValueError):
    """A public declaration (target, row domain, schedule, option) makes no sense."""


class DataSchemaError(PrivateMCMCError, ValueError):
    """The data do not have the declared columns, shapes, types or number of rows."""


class UnsupportedModel(PrivateMCMCError, ValueError):
    """The model cannot be used as it is; the subclasses say which kind of "cannot" it is."""


class NotYetSupported(UnsupportedModel):
    """The model may be fine, but this library cannot prove it yet."""


class DoThisInstead(UnsupportedModel):
    """The model is fine once written another way; the message says how."""


class Unforeseen(PrivateMCMCError):
    """The library or what it rests on failed in a way that nobody foresaw; the message has type and place."""


class Unprotected(UserWarning):
    """A private kernel runs outside ``PrivateMCMC``: its draws are as private as the data."""


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
    """The ledger file is missing, damaged or of another data set."""


class ReleaseError(PrivateMCMCError):
    """A value may not leave the curator's side in the way that was asked for."""


class OutputError(PrivateMCMCError, OSError):
    """A file cannot be written; the message says why, and where its content is if it could have been lost."""


_PACKAGE = Path(__file__).parent
ELSEWHERE = re.compile(r"site-packages|[/\\]lib[/\\]python3|private_mcmc[/\\](errors|arguments)\.py:")


def places_of(error: BaseException) -> tuple[str, ...]:
    """Where an error came through: files of this package by their names in it, and no values."""
    found = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename)
        name = file.relative_to(_PACKAGE.parent) if file.is_relative_to(_PACKAGE) else file
        found.append(f"{name}:{line} in {frame.f_code.co_name}")
    return (*found, *(error.places if isinstance(error, PrivateMCMCError) else ()))


def foreseen(error: BaseException) -> BaseException:
    """The error as it may be shown: of what nobody foresaw, whose message may quote a row, type and place."""
    called_wrongly = isinstance(error, TypeError) and error.__traceback__ and not error.__traceback__.tb_next
    # A group holds errors of any kind; what else stops a process may be a panic of Rust, and quote a row.
    stops = not isinstance(error, Exception | BaseExceptionGroup)
    places = places_of(error)
    # Where warnings are errors, those of other libraries may quote a row like any error of theirs.
    ours = isinstance(error, PrivateMCMCError) or (isinstance(error, Warning) and _in_package(error))
    error.args = () if stops else error.args
    if ours or stops or called_wrongly:
        return error
    if isinstance(error, OSError) and isinstance(error.errno, int):
        # In the system's words: a library may put its own in their place, and other arguments into a class.
        return OSError(error.errno, os.strerror(error.errno), error.filename)
    # Of this package or of a model of the user's own, and not of what they call.
    own = (place for place in reversed(places) if not ELSEWHERE.search(place))
    where = next(own, places[-1])
    return Unforeseen(
        f"stopped by {type(error).__name__} at {where.partition(' in ')[0]}. Its message is not shown, since "
        "it could quote a row."
    )


def _in_package(error: BaseException) -> bool:
    """Whether a line of this package raised it."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return Path(frame.f_code.co_filename).is_relative_to(_PACKAGE)


def clean_errors(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """``function``, which receives private rows, with errors that lead to no frame of the library.

    A traceback keeps the frames that an error came through, and frames keep what their names stood for: rows
    among them, which a logger, Sentry or ``rich`` with locals would print. Causes and contexts keep theirs.
    """

    @functools.wraps(function)
    def entry(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            places, clean = places_of(error), foreseen(error)
        del args, kwargs
        if isinstance(clean, PrivateMCMCError):
            clean.places = places
        clean.__cause__ = clean.__context__ = None
        # Whoever an error came through may have added lines to it.
        vars(clean).pop("__notes__", None)
        raise clean.with_traceback(None)

    return entry
