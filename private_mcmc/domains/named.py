"""The row domains by name, and how they are written in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.real import Ball, Box, Real
from private_mcmc.domains.whole import Binary, Categories, Counts
from private_mcmc.errors import DeclarationError

_DOMAINS: Mapping[str, type[Domain]] = {
    kind.__name__.lower(): kind for kind in (Ball, Box, Binary, Categories, Counts, Real)
}


def is_known(domain: object) -> bool:
    """Whether this is one of the library's own domains, on whose ``project`` all proofs rest."""
    return type(domain) in _DOMAINS.values()


def domain_from_dict(record: Mapping[str, Any] | str) -> Domain:
    """The domain of ``{"ball": {"radius": 1.0, "dim": 9}}``; a bare name where it takes no arguments.

    Raises:
        DeclarationError: for an unknown name or wrong arguments; the message lists the names.
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
