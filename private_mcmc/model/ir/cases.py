"""Columns that can only take a few values are looked at value by value, which makes bounds tight."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.rows import Rows
from private_mcmc.domains.whole import Binary, Categories

_MOST_CASES = 64


def few_values(rows: Rows) -> Iterator[dict[str, float]]:
    """All combinations of values of such columns, by name; one empty combination if there are too many."""
    listed = {name: _values(domain) for name, domain in rows.items if _values(domain)}
    if math.prod(len(values) for values in listed.values()) > _MOST_CASES:
        listed = {}
    for case in itertools.product(*listed.values()):
        yield dict(zip(listed, map(float, case), strict=True))


def _values(domain: Domain) -> range:
    if isinstance(domain, Binary):
        return range(2)
    return range(domain.k) if isinstance(domain, Categories) else range(0)
