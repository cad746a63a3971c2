"""Domains as files declare them."""

from __future__ import annotations

from collections.abc import Mapping

from private_mcmc.domains.domain import Binary, Categories, Counts, Domain, whole
from private_mcmc.domains.persons import Person
from private_mcmc.domains.real import Ball, Box, Real
from private_mcmc.errors import DeclarationError

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
