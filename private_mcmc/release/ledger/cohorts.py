"""Cohorts of persons: which releases one person can have been in, and what these cost together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Literal, get_args

from private_mcmc.errors import DeclarationError, LedgerError
from private_mcmc.target import Adjacency

Membership = Literal["public", "exclusive"]
# Sets of cohorts that one person may be in, all of which are gone through at every charge.
_MOST_PATTERNS = 20_000


@dataclass(frozen=True)
class Cohorts:
    """Cohorts of a data set, a person in at most ``at_most`` of them; see ``Ledger.cohorts``."""

    names: tuple[str, ...]
    membership: Membership
    at_most: int = 1

    def joined(self, later: Cohorts) -> Cohorts:
        """With those that were declared later.

        Raises:
            LedgerError: for another assumption, or a name that is taken.
        """
        if (later.membership, later.at_most) != (self.membership, self.at_most):
            raise LedgerError(
                f"cohorts were declared with membership={self.membership!r}, at_most={self.at_most}, which "
                "is never changed."
            )
        if set(self.names) & set(later.names):
            raise LedgerError(f"cohorts {sorted(set(self.names) & set(later.names))} are declared already.")
        return Cohorts((*self.names, *later.names), self.membership, self.at_most)

    def patterns(self) -> Iterator[frozenset[str]]:
        """Every largest set of cohorts that one person may be in."""
        return map(frozenset, combinations(self.names, min(self.at_most, len(self.names))))

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        return {"names": list(self.names), "membership": self.membership, "at_most": self.at_most}


def check_cohorts(found: Cohorts, adjacency: Adjacency, before: Cohorts | None) -> None:
    """Refuse assumptions that do not bound what a person is in.

    Under ``replace_one`` a person may be replaced by one in other cohorts, unless these are public and fixed:
    the releases of both would add up, and the public numbers of persons change.

    Raises:
        DeclarationError: for those, and for bad names and numbers.
        LedgerError: if they contradict earlier ones.
    """
    names = found.names
    if (
        not names
        or len(set(names)) != len(names)
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise DeclarationError("cohorts: different names, at least one.")
    if found.membership not in get_args(Membership):
        raise DeclarationError(
            f"membership={found.membership!r}: 'public' or 'exclusive'. Where neither is known, declare no "
            "cohorts: releases then add up."
        )
    if found.membership == "exclusive" and adjacency == "replace_one":
        raise DeclarationError(
            "membership='exclusive' under 'replace_one': a person may be replaced by one of another cohort, "
            "who is in other releases. Costs are largest over cohorts only where membership is public and "
            "fixed, or under 'add_remove' and 'zero_out'."
        )
    if type(found.at_most) is not int or found.at_most < 1:
        raise DeclarationError(f"at_most={found.at_most!r}: a whole number, at least 1.")
    whole = found if before is None else before.joined(found)
    if math.comb(len(whole.names), min(whole.at_most, len(whole.names))) > _MOST_PATTERNS:
        raise DeclarationError(
            f"{len(whole.names)} cohorts of which a person may be in {whole.at_most}: more than "
            f"{_MOST_PATTERNS} possible sets. Declare fewer, wider cohorts."
        )


def dearest(
    cohorts: Cohorts, waves: Mapping[frozenset[str], Fraction], touching: frozenset[str] | None = None
) -> Fraction:
    """The most that one person, in one of ``touching`` if given, pays for what was charged to waves."""
    return max(
        (
            sum((cost for held, cost in waves.items() if held & pattern), Fraction(0))
            for pattern in cohorts.patterns()
            if touching is None or touching & pattern
        ),
        default=Fraction(0),
    )
