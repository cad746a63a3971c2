"""Errors: what is wrong, where, and what to do. No message ever quotes a value of a private row."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


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


def check_kind(name: str, value: object, kind: type) -> None:
    """Raise ``DeclarationError`` unless the argument ``name`` is a ``kind``."""
    if not isinstance(value, kind):
        raise DeclarationError(f"{name}: a {type(value).__name__} was given; give a {kind.__name__}.")


def unknown_arguments(names: Iterable[str], known: Iterable[str]) -> DeclarationError:
    """Says which arguments are not taken, and which one of ``known`` was perhaps meant."""
    choices, said = list(known), []
    for name in sorted(names):
        near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
        said.append(f"{name}=" + (f" (did you mean {near[0]}=?)" if near else ""))
    return DeclarationError(f"unknown argument {', '.join(said)}; there are {', '.join(choices)}.")


def arguments_checked(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """``function``, which refuses arguments that do not fit its signature by ``DeclarationError``."""
    signature = inspect.signature(function)
    names = [
        name
        for name, one in signature.parameters.items()
        if name not in ("self", "cls") and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]
    takes_any = any(one.kind == one.VAR_KEYWORD for one in signature.parameters.values())

    @functools.wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = [] if takes_any else sorted(set(kwargs) - set(names))
            raise (unknown_arguments(unknown, names) if unknown else DeclarationError(f"{error}.")) from None
        return function(*args, **kwargs)

    return checked
