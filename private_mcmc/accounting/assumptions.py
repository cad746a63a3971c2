"""Sentences that statements of several kinds quote, and which ones a statement may say besides its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from private_mcmc.errors import DeclarationError
from private_mcmc.target import Adjacency, Unit

# A rule whose numbers do not show the adjacency that they are for quotes it, so that a record with another
# adjacency written into it has another sentence.
RELATION: Mapping[Adjacency, str] = {
    "replace_one": "the numbers are for one row replaced by another; the number of rows is public",
    "add_remove": "the numbers are for one row added or removed; the number of rows is private",
    "zero_out": "the numbers are for one slot emptied: it keeps its place and adds exactly 0 to every sum",
}
NOT_PRIVATE = "NOT PRIVATE to anyone who knows the seed, which the caller gave"
PERSONS = "what is called a row here is "


def of_persons(unit: Unit) -> str:
    """What makes a statement one of persons: its adjacency and every sentence of it speak of them."""
    return (
        f"{PERSONS}{unit}: further rows of a person are left out by a rule that sees that person's rows alone"
    )


def no_more_rows(rows: int | str) -> str:
    """What constants that name a number of rows rest on where the adjacency hides that number."""
    return f"no data set has more than n = {rows} rows"


_AT_MOST = re.compile(re.escape(no_more_rows("#")).replace("\\#", r"(\d{1,15})"))


def check_sentences(
    adjacency: Adjacency, constants: Mapping[str, Any], said: Sequence[str], wanted: Sequence[str]
) -> None:
    """Raise ``DeclarationError`` unless a statement that rests on ``wanted`` may say ``said``.

    Beside these it may say that its seed was given, and how many rows there are at most where the adjacency
    hides that.
    """
    given = list(said)
    if given[:1] == [NOT_PRIVATE]:
        del given[0]
    for place, line in enumerate(wanted):
        if given[place : place + 1] != [line]:
            raise DeclarationError(f"without the assumption {line!r} in its place it cannot be verified.")
    more = given[len(wanted) :]
    bound = _AT_MOST.fullmatch(more[0]) if more and adjacency == "add_remove" else None
    counts = {constants[name] for name in ("num_rows", "n") if name in constants}
    if bound is not None and more[0] not in wanted and counts <= {int(bound[1])}:
        del more[0]
    if more:
        raise DeclarationError(f"it says {more[0]!r}, which does not follow: it cannot be verified.")
