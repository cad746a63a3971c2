"""Domains as files declare them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from private_mcmc.domains.domain import Binary, Categories, Counts, Domain, whole
from private_mcmc.domains.persons import Person
from private_mcmc.domains.real import Ball, Box, Real
from private_mcmc.errors import DeclarationError
from private_mcmc.files import read_whole
from private_mcmc.records import Record


def read_toml(path: str | Path) -> Record:
    """What a TOML file declares."""
    try:
        return tomllib.loads(read_whole(path).decode().replace("\r\n", "\n"))
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise DeclarationError(f"{path}: not a TOML file (it is not text in UTF-8).") from None
    except (ValueError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f" (line {line[1]})" if line else ""
        raise DeclarationError(f"{path}: not a TOML file{where}.") from None


_DOMAINS: Mapping[str, type[Domain]] = {
    kind.__name__.lower(): kind for kind in (Ball, Box, Binary, Categories, Counts, Real)
}


def domain_from_dict(record: Mapping[str, object] | str) -> Domain:
    """The domain of ``{"ball": {"radius": 1.0, "dim": 9}}``; a bare name where it takes no arguments.

    ``DeclarationError`` for an unknown name or wrong arguments; the message lists the names.
    """
    entry = {record: {}} if isinstance(record, str) else record
    if not isinstance(entry, Mapping) or len(entry) != 1:
        raise DeclarationError(f"row domain {record!r}: one of {', '.join(_DOMAINS)} with its arguments.")
    name, arguments = next(iter(entry.items()))
    if name not in _DOMAINS or not isinstance(arguments, Mapping):
        raise DeclarationError(f"row domain {name!r}: one of {', '.join(_DOMAINS)} with its arguments.")
    try:
        return _DOMAINS[name](**arguments)
    except TypeError as error:
        raise DeclarationError(f"row domain {name!r}: {error}.") from error


def column_from_dict(record: Mapping[str, object] | str) -> Domain | Person:
    """A domain, or identifiers: ``{"person": {"at_most": 4}}``."""
    if not isinstance(record, Mapping) or tuple(record) != ("person",):
        return domain_from_dict(record)
    arguments = record["person"]
    if not isinstance(arguments, Mapping) or tuple(arguments) != ("at_most",):
        raise DeclarationError(
            "a column of identifiers: person = {at_most = 4}, the most rows of one person."
        )
    return Person(whole("Person at_most", arguments["at_most"], 1))
