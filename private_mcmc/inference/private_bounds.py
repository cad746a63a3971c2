"""Bounds that nobody knows, bought before the plan: ``bounds: private`` in a schema.

Each such field gets a histogram of its declared outer range with Gaussian noise, priced like every count
(`theory.md`, section 4), and the narrower range is read off it: post-processing. What is bought and what the
plan spends stand in one statement, under one budget that was fixed before (fully adaptive composition: the
plan may depend on the bounds), and are charged to the ledger at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.data.fields import Field, identifier
from private_mcmc.data.schema import Schema
from private_mcmc.domains.numeric import PRESENT
from private_mcmc.errors import DeclarationError, NotYetSupported
from private_mcmc.planning import Plan
from private_mcmc.release import Counts, CountsPlan, plan_counts
from private_mcmc.target import Target

# Of the squared budget, if nothing is said.
SHARE = 0.1
# Fewest and most cells. In between, a power of two, such that what noise can hide in every cell is together
# at most about a fifth of the rows: finer cells would hide, and cut, more of a long tail.
_CELLS, _HIDDEN = (8, 64), 0.2
# A bound leaves this share of the rows outside at its side, and more only as far as noise could hide it.
_TAIL, _CAUTION = 0.01, 3.3
# A range that spans more is divided evenly on the scale of logarithms.
_WIDE = 1e3


@dataclass(frozen=True)
class BoundsPlan:
    """Noised histograms of the fields whose bounds are bought, known before anything is spent.

    **Guarantee**: a row falls into one cell of each histogram: replacing it moves one by at most ``√2``,
    adding, removing or emptying it by 1 (``plan_counts``). **Cost**: ``share`` of the squared budget in all.

    Attributes:
        fields: with their outer ranges.
        mechanisms: one for each field.
        whole: the target that bounds and plan meet together.
        rest: the target of what is left for the plan.
        share: of the squared budget that is spent on bounds.
    """

    fields: tuple[Field, ...]
    mechanisms: tuple[CountsPlan, ...]
    whole: Target
    rest: Target
    share: float

    def beside(self, plan: Plan) -> Plan:
        """A plan for ``rest`` as part of ``whole``: one budget, and one statement of bounds and stages."""
        budget = accounting.gdp.budget(self.whole.epsilon, self.whole.delta)
        both = accounting.adaptive(budget, self.whole.adjacency, self.statements)
        statement = accounting.capped(both, plan.n)
        return replace(plan, target=self.whole, statement=statement, before=self.statements)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What each histogram costs."""
        return tuple(mechanism.statement for mechanism in self.mechanisms)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before this is spent."""
        names = [field.name for field in self.fields]
        return (
            f"Bounds of {names} are bought first, for {self.share:.3g} of the squared budget: all together "
            f"spend ε = {self.whole.epsilon:g}. The plan shown is for the outer ranges; what runs is planned "
            "anew.",
        )

    def buy(self, schema: Schema, columns: Mapping[str, np.ndarray]) -> Schema:
        """``schema`` with the bought ranges; ``columns`` are curator-side, mapped into the outer ones."""
        bought = {}
        for field, mechanism in zip(self.fields, self.mechanisms, strict=True):
            edges = _edges(field, mechanism.cells)
            values = columns[identifier(field.name)]
            there = np.asarray(columns.get(PRESENT, np.ones(len(values)))) > 0
            if field.indicator:
                # A missing number has no place among the others.
                there = there & (columns[identifier(field.indicator)] == 0)
            cells = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, mechanism.cells - 1)
            counts = mechanism.release(cells.astype(np.int64), there)
            bought[field.name] = _narrowed(field, edges, counts)
        return replace(schema, fields=tuple(bought.get(field.name, field) for field in schema.fields))


def plan_bounds(
    schema: Schema, names: Sequence[str], target: Target, n: int, share: float = SHARE
) -> BoundsPlan | None:
    """What would be bought for the fields ``names`` under ``target``; ``None`` if all ranges are known.

    ``n`` is the public number of rows, or its bound; ``share`` of the squared budget pays for all bounds.

    Raises:
        DeclarationError: for a share that is not between 0 and 1.
        NotYetSupported: for a table with persons, one of whom may fall into several cells.
    """
    if not 0 < share < 1:
        raise DeclarationError(f"bounds_share={share}: must be between 0 and 1.")
    fields = tuple(schema[name] for name in names if schema[name].bounds == "private")
    if not fields:
        return None
    if schema.person:
        names = [field.name for field in fields]
        raise NotYetSupported(
            f"fields {names}: bounds: private is priced for one row of each person, but {schema.person!r} "
            "may have several. Declare public bounds."
        )
    budget = accounting.gdp.budget(target.epsilon, target.delta)
    each = budget * math.sqrt(share / len(fields))
    fewest, most = _CELLS
    fine = _HIDDEN * n * each / (_CAUTION * math.sqrt(2))
    cells = min(max(2 ** math.floor(math.log2(max(fine, 1))), fewest), most)
    mechanisms = tuple(plan_counts(each, cells=cells, adjacency=target.adjacency) for _ in fields)
    # A hair less, so that rounding upwards keeps everything within the budget.
    rest = accounting.gdp.epsilon(budget * math.sqrt(1 - share), target.delta) * (1 - 1e-6)
    return BoundsPlan(fields, mechanisms, target, replace(target, epsilon=rest), share)


def _edges(field: Field, cells: int) -> npt.NDArray[np.float64]:
    low, high = field.range
    if low > 0 and high / low > _WIDE:
        return np.geomspace(low, high, cells + 1)
    return np.linspace(low, high, cells + 1)


def _narrowed(field: Field, edges: npt.NDArray[np.float64], counts: Counts) -> Field:
    """The field with the range between its tails; the outer one where noise leaves nothing between them."""
    values = np.asarray(counts.values, dtype=np.float64)
    total = max(float(values.sum()), 1.0)
    passed = np.sqrt(np.arange(1, len(values) + 1))
    # A cell that is surely not empty, or a tail that surely holds more than its share; noise is neither.
    cell = max(_TAIL * total, _CAUTION * counts.noise_sd)
    tail = _TAIL * total + _CAUTION * counts.noise_sd * passed
    first = _first((values > cell) | (np.cumsum(values) > tail))
    last = len(values) - 1 - _first((values[::-1] > cell) | (np.cumsum(values[::-1]) > tail))
    low, high = (float(edges[first]), float(edges[last + 1])) if first <= last else field.range
    if field.type in ("integer", "date"):
        low, high = max(math.floor(low), field.range[0]), min(math.ceil(high), field.range[1])
        # A count begins at 0, whatever is usual.
        low = 0.0 if field.range[0] == 0 else low
    words = "bought privately before the run, inside the declared outer range"
    return replace(field, minimum=low, maximum=high, bounds="", bounds_from=words)


def _first(flags: npt.NDArray[np.bool_]) -> int:
    return int(np.argmax(flags)) if flags.any() else 0
