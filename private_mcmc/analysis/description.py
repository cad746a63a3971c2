"""A table of a table: counts, means, sds and quantiles, each with an interval that holds privacy's noise.

Counts of one cell by several fields must agree, and their total may be public: they are estimated together by
least squares, of which all variances are known. What cannot be (a negative count) bounds intervals and is not
edited.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri
from scipy.stats import truncnorm

from private_mcmc.analysis.analysis import Analysis, Part, Released, interval
from private_mcmc.data.effects import Array
from private_mcmc.data.fields import Field, identifier
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Fields, Record
from private_mcmc.release import Family, SumsPlan
from private_mcmc.report import Block, Table, Text, between, digits, number

# A value and its interval.
Ends = tuple[float | None, float | None, float | None]

_QUARTILES = (0.25, 0.5, 0.75)
_MISSING = "missing"


class Answer(NamedTuple):
    """One number of a table; ``value`` is ``None`` where there are too few people."""

    cell: str
    field: str
    level: str
    statistic: str
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Description(Analysis):
    """Counts by level, means, sds and quartiles, in every cell of ``by``.

    Attributes:
        schema: of the table.
        shown: fields: of categories the levels are counted, of numbers there are mean and sd.
        by: fields whose levels, or bins, make the cells.
        bins: edges by field, of numbers whose quartiles are wanted; such a field may be in ``by`` too.
        sampling: whether intervals are to hold the sampling of people too.

    Raises:
        DeclarationError: for fields that are not there, or of whose cells there are too many.
    """

    schema: Schema
    shown: tuple[str, ...]
    by: tuple[str, ...]
    bins: Mapping[str, tuple[float, ...]]
    sampling: bool = False
    kind = "describe"

    def __post_init__(self) -> None:
        if not (self.shown or self.by):
            raise DeclarationError("describe: name at least one field.")
        for name, edges in self.bins.items():
            field = self.schema[name]
            if field.is_category or len(edges) < 3 or np.diff([edges, self.ends(field).tolist()]).min() <= 0:
                words = "of a number, three edges or more that rise inside its range, with values in each bin"
                raise DeclarationError(f"bins of {name!r}: {words}.")
        for field in map(self.schema.__getitem__, self.fields):
            if field.bounds == "private":
                words = "bounds: private is for fits; declare public bounds here."
                raise DeclarationError(f"field {field.name!r}: {words}")
            if field.name in self.by and not field.is_category and field.name not in self.bins:
                low, high = field.range
                bins = f"{field.name}={low:g},{(low + high) / 2:g},{high:g}"
                raise DeclarationError(f"by {field.name!r}: a number; give edges, bins=…, as in {bins}.")

    @property
    def fields(self) -> tuple[str, ...]:
        """What is read: the fields shown, and those of cells."""
        return tuple(dict.fromkeys((*self.shown, *self.by)))

    @property
    def title(self) -> str:
        """The fields and the cells in words."""
        fields = ", ".join(name for name in self.shown if name not in self.by) or "people"
        return fields + (f" by {', '.join(self.by)}" if self.by else "")

    @cached_property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """Labels of the cells of ``by``, one for each field."""
        return tuple(product(*(self._labels(self.schema[name]) for name in self.by)))

    @cached_property
    def _tables(self) -> tuple[tuple[str, str, int], ...]:
        """What each family is, ``levels``, ``moments`` or ``bins`` of a field, or ``people`` of cells alone.

        With its size in each cell of ``by``; of numbers a place is of those whose number is missing.
        """
        found = []
        for field in (self.schema[name] for name in self.shown if name not in self.by):
            if field.is_category:
                found.append(("levels", field.name, len(field.all_levels)))
                continue
            gone, edges = field.indicator is not None, self.bins.get(field.name)
            found.append(("moments", field.name, 1 + gone))
            found += [("bins", field.name, len(edges) - 1 + gone)] if edges else []
        return tuple(found) or (("people", "", 1),)

    @property
    def families(self) -> tuple[Family, ...]:
        """A family for each table; the widest intervals, as shares of a cell, ranks or ranges, made equal.

        A rank in ``K`` bins is a sum of up to ``K/2`` of them, given their total: ``√K/2`` times one's noise.
        """
        return tuple(
            Family(
                f"{kind} {name}".strip(),
                len(self.cells) * size,
                2 * (kind == "moments"),
                max(1.0, math.sqrt(size) / 2) if kind == "bins" else 1.0,
            )
            for kind, name, size in self._tables
        )

    def of_row(self, row: Fields) -> Sequence[Part]:
        """The row's cell in every table; of numbers, where it lies in its range."""
        where: Any = jnp.asarray(0)
        for name in self.by:
            field = self.schema[name]
            where = where * len(self._labels(field)) + self._index(field, row)
        parts: list[Part] = []
        for kind, name, size in self._tables:
            if kind == "people":
                parts.append((where, None))
                continue
            field, place = self.schema[name], where * size
            if kind == "moments":
                low, high = field.range
                t = (2 * row[identifier(name)].astype(float) - low - high) / (high - low)
                missing = field.indicator is not None and row[identifier(field.indicator)] > 0
                parts.append((place + jnp.asarray(missing).astype(int), t))
            else:
                parts.append((place + self._index(field, row), None))
        return parts

    def _labels(self, field: Field) -> tuple[str, ...]:
        if field.is_category:
            return tuple(level.label for level in field.all_levels)
        # A bin has its lower edge: of whole numbers the last that it holds is named.
        whole = field.type != "number"
        spans = [(field.shown(a), field.shown(b - whole)) for a, b in pairwise(self.ends(field))]
        found = [a if a == b else f"{a} to {b}" for a, b in spans]
        return (*found, *[_MISSING] * (field.indicator is not None))

    def _index(self, field: Field, row: Fields) -> Any:
        """A row's level, or its bin; the last one where the number is missing."""
        value = row[identifier(field.name)]
        if field.is_category:
            return value.astype(int)
        edges = self.bins[field.name]
        found = jnp.searchsorted(jnp.asarray(edges[1:-1]), value.astype(float), side="right")
        if field.indicator is None:
            return found
        return jnp.where(row[identifier(field.indicator)] > 0, len(edges) - 1, found)

    def question(self) -> Record:
        """Names and edges."""
        bins = {name: list(edges) for name, edges in self.bins.items()}
        return {"shown": list(self.shown), "by": list(self.by), "bins": bins, "sampling": self.sampling}

    @classmethod
    def of(cls, schema: Schema, record: Fields) -> Description:
        """From its record."""
        bins = {str(name): tuple(map(float, edges)) for name, edges in record["bins"].items()}
        shown, by = (tuple(map(str, record[word])) for word in ("shown", "by"))
        return cls(schema, shown, by, bins, record["sampling"] is True)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Whom the numbers are of, and what their intervals hold."""
        also = "and the sampling of these people from a larger population." if self.sampling else "alone."
        held, unit = f"Intervals hold the noise that privacy costs {also}", self.rows.unit
        return ((f"Each {unit.name} counts once, with the average of its rows.",) if unit else ()) + (held,)

    def expected(self, mechanism: SumsPlan) -> tuple[str, ...]:
        """How far counts will be off."""
        least = float(ndtri(0.95)) * max(mechanism.noise.sd / one.weight for one in self.families)
        few = "cells of fewer people are told to have too few"
        return (f"Nine counts in ten are expected within {number(least, 2)} of the truth; {few}.",)

    def people(self, found: Released, names: Sequence[str], count: int = 400) -> list[dict[str, str]]:
        """Synthetic people in the table's own words, for averages: free, and the same for the same release.

        Cells have their shares; in a cell fields are independent of each other, a number even in each of its
        bins, or normal where there is a mean and an sd alone, inside its range.
        """
        random, answers = np.random.default_rng(count), _Estimates(self, found, 1.0)
        shares = np.maximum(answers.people, 0.0)
        if not shares.sum() > 0:
            raise DeclarationError("the table has too few people to average over.")
        where = random.choice(len(shares), size=count, p=shares / shares.sum())
        made: list[dict[str, str]] = []
        for cell in where:
            one = {}
            for name, label in zip(self.by, self.cells[cell], strict=True):
                field = self.schema[name]
                if field.is_category:
                    one[name] = label
                elif label != _MISSING:
                    one[name] = self._in_bin(field, self._labels(field).index(label), random)
            # Of the tables of a number its bins come last, and count.
            for kind, name, values, _ in answers.tables:
                one |= {name: self._drawn(kind, self.schema[name], values[:, cell], random)} if name else {}
            made.append({name: value for name, value in one.items() if name in names})
        return made

    def _drawn(self, kind: str, field: Field, values: Array, random: np.random.Generator) -> str:
        """One person's value; of numbers of those whose value is there."""
        counts = values[0, : values.shape[1] - (kind != "levels" and field.indicator is not None)]
        counts = np.maximum(counts, 0) if counts.max() > 0 else np.ones_like(counts)
        place = int(random.choice(len(counts), p=counts / counts.sum()))
        if kind == "levels":
            return field.all_levels[place].label
        if kind == "bins":
            return self._in_bin(field, place, random)
        mean, square, (low, high) = values[1, 0] / counts[0], (values[2, 0] / counts[0] + 1) / 2, field.range
        sd = math.sqrt(max(square - mean**2, 0.0))
        rounded = 0.0 if field.type == "number" else 0.5
        return _shown(field, (low + high) / 2 + (high - low) / 2 * random.normal(mean, sd) + rounded)

    def _in_bin(self, field: Field, place: int, random: np.random.Generator) -> str:
        low, high = self.ends(field)[place : place + 2]
        return _shown(field, random.uniform(low, high))

    def ends(self, field: Field) -> Array:
        """Where bins begin, and the last one ends: all together hold the range; of whole numbers at one."""
        (low, high), inner, whole = field.range, self.bins[field.name][1:-1], field.type != "number"
        return np.array([low, *(np.ceil(inner) if whole else inner), high + whole])

    def answers(self, found: Released, prob: float = 0.9) -> list[Answer]:
        """Every number of the table."""
        return _Estimates(self, found, float(ndtri(0.5 + prob / 2))).answers()

    def lines(self, found: Released, prob: float) -> list[Record]:
        """Every number with its interval: cell, field, level, statistic, value, low, high."""
        return [one._asdict() for one in self.answers(found, prob)]

    def blocks(self, found: Released, prob: float) -> list[Block]:
        """A table for everyone and for each cell."""
        every = self.answers(found, prob)
        tables: list[Block] = []
        for cell in dict.fromkeys(one.cell for one in every):
            here = [one for one in every if one.cell == cell]
            rows = [self._row(one, here[0]) for one in here]  # the first counts the whole cell
            tables.append(Table(("", "value", f"{prob:.0%} interval", "share"), tuple(rows), title=cell))
        return [*tables, Text(" ".join(self.remarks))]

    def _row(self, one: Answer, whole: Answer) -> tuple[str | None, ...]:
        name = (one.field or "people") + (f" [{one.level}]" if one.level else "")
        name += "" if one.statistic == "count" else f", {one.statistic}"
        if one.value is None or one.low is None or one.high is None:
            return (name, "too few people", None, None)
        if one.statistic != "count":
            field, ranked = self.schema[one.field], one.statistic.startswith("quantile")
            if (field.type != "number" and ranked) or (field.type == "date" and one.statistic == "mean"):
                value, low, high = map(field.shown, (one.value, one.low, one.high))
                return (name, value, f"{low} to {high}", None)
            return (name, number(one.value, digits(one.low, one.high)), between(one.low, one.high), None)
        # No fewer than nobody, and no more than there may be.
        ends = ((each.value or 0.0, each.low or 0.0, each.high or 0.0) for each in (one, whole))
        count, most = (min(max(0.0, value, low), high) for value, low, high in ends)
        share = f"{min(count / most, 1):.1%}" if one.level and most else None
        return (name, f"{count:,.0f}", f"{one.low:z,.0f} to {one.high:z,.0f}", share)


def _shown(field: Field, number: float) -> str:
    """A number in the table's words, inside its range."""
    number = min(max(float(number), field.range[0]), field.range[1])
    return field.shown(number if field.type == "number" else math.floor(number))


class _Estimates:
    """Counts that agree, and what follows from them; ``z`` is the normal quantile of the intervals.

    Noise is independent in all numbers, ``s_f`` in family ``f`` of ``L_f`` cells in each cell ``b`` of
    ``by``. ``n_b`` is estimated from the totals of all families, each of variance ``L_f s_f²``, and from a
    public ``n``; cells of a family then move by equal parts: the least squares solution.
    """

    def __init__(self, asked: Description, found: Released, z: float) -> None:
        self.asked, self.n, self.z = asked, found.n, z
        count = len(asked.cells)
        self.tables = [
            (kind, name, one.values.reshape(len(one.values), count, -1), one)
            for (kind, name, _), one in zip(asked._tables, found.sums, strict=True)
        ]
        precisions = np.array([1 / (values.shape[2] * one.noise_sd**2) for _, _, values, one in self.tables])
        one_of = float(1 / precisions.sum())
        self.people = (
            one_of * precisions @ np.array([values[0].sum(axis=1) for _, _, values, _ in self.tables])
        )
        # Of one cell, and of all together.
        self.variance, self.variance_of_all = one_of, count * one_of
        if found.exact:
            self.people = self.people + (found.n - self.people.sum()) / count
            self.variance, self.variance_of_all = one_of * (1 - 1 / count), 0.0

    def answers(self) -> list[Answer]:
        """Of everyone, and of each cell where there are several."""
        by = self.asked.by
        labels = ["; ".join(f"{n} {v}" for n, v in zip(by, cell, strict=True)) for cell in self.asked.cells]
        cells = [("everyone", slice(None)), *((one, slice(k, k + 1)) for k, one in enumerate(labels) if by)]
        return [answer for label, cell in cells for answer in self._of(label, cell)]

    def _of(self, label: str, cell: slice) -> Iterator[Answer]:
        cells, people = len(self.people[cell]), float(self.people[cell].sum())
        variance = self.variance_of_all if cell == slice(None) else self.variance
        few = people - self.z * math.sqrt(variance) <= 0
        yield Answer(label, "", "", "count", *self._count(people, variance, self.n))
        for kind, name, values, one in self.tables:
            if kind == "people":
                continue
            field, part = self.asked.schema[name], values[:, cell].sum(axis=1)
            size, noise = part.shape[1], cells * one.noise_sd**2
            counts = part[0] + (people - part[0].sum()) / size
            own = noise * (1 - 1 / size) + variance / size**2
            gone = field.indicator is not None
            if kind == "levels":
                for level, value in zip(field.all_levels, counts, strict=True):
                    yield Answer(label, name, level.label, "count", *self._count(value, own, people))
            elif kind == "moments":
                if gone:
                    yield Answer(label, name, _MISSING, "count", *self._count(counts[1], own, people))
                yield from self._moments(label, field, counts[0], own, part[1:, 0], noise)
            else:
                for p in _QUARTILES:
                    ends = _NOBODY if few else self._quantile(field, counts, p, noise, variance)
                    yield Answer(label, name, "", f"quantile {p:g}", *ends)

    def _count(self, value: float, variance: float, most: float) -> tuple[float, float, float]:
        share = min(max(value / most, 0.0), 1.0) if self.asked.sampling and most > 0 else 0.0
        sd = math.sqrt(variance + most * share * (1 - share))
        return value, *interval(value, sd, self.z, 0.0, float(self.n))

    def _moments(
        self, label: str, field: Field, people: float, variance: float, sums: Array, noise: float
    ) -> Iterator[Answer]:
        """Mean by Fieller's interval, which holds the noise of both numbers; sd by the delta method.

        The sd shown is the root of the mean of variances that are possible: where noise is larger than the
        variance itself, its estimate may be below 0, and is no sign that all people are equal.
        """
        mean_ends, sd_ends = _NOBODY, _NOBODY
        if people - self.z * math.sqrt(variance) > 0:
            low, high = field.range
            middle, half = (low + high) / 2, (high - low) / 2
            first, second = map(float, sums)
            mean, square = first / people, (second / people + 1) / 2
            spread = min(max(square - mean**2, 0.0), 1.0)
            sampled = max(people, 1.0) * spread if self.asked.sampling else 0.0
            a, b = people**2 - self.z**2 * variance, first * people
            root = math.sqrt(max(b**2 - a * (first**2 - self.z**2 * (noise + sampled)), 0.0))
            ends = (min(max(mean, -1.0), 1.0), *interval(b / a, root / a / self.z, self.z, -1.0, 1.0))
            mean_ends = (middle + half * ends[0], middle + half * ends[1], middle + half * ends[2])
            slopes = (2 * mean / people, 1 / (2 * people), (2 * mean**2 - second / people / 2) / people)
            error = noise * (slopes[0] ** 2 + slopes[1] ** 2) + variance * slopes[2] ** 2
            error += 2 * spread**2 / max(people, 1.0) if self.asked.sampling else 0.0
            about, wide = square - mean**2, max(math.sqrt(error), 1e-12)
            roots = [math.sqrt(one) for one in interval(about, wide, self.z, 0.0, 1.0)]
            likely = float(truncnorm.mean(-about / wide, (1 - about) / wide, about, wide))
            sd = min(max(math.sqrt(max(likely, 0.0)), roots[0]), roots[1])
            # Where no variance is possible, the noise was too large for its own error to be known.
            sd_ends = (half * sd, half * roots[0], half * roots[1]) if roots[1] > 0 else _NOBODY
        for word, found in (("mean", mean_ends), ("sd", sd_ends)):
            yield Answer(label, field.name, "", word, *found)

    def _quantile(
        self, field: Field, counts: Array, p: float, noise: float, variance: float
    ) -> tuple[float, float, float]:
        """Between edges that are surely on its two sides; the value by interpolation, of whole numbers one.

        ``Σ_{l ≤ j} x_l − p Σ x_l`` is tested at each edge, from both ends: each end fails with half of what
        the level leaves.
        """
        size, edges, whole = len(counts), self.asked.ends(field), field.type != "number"
        there = counts[: len(edges) - 1]
        rank = np.tri(len(there))[:-1] - p
        spread = noise * (np.square(rank).sum(axis=1) - rank.sum(axis=1) ** 2 / size)
        spread += variance * (rank.sum(axis=1) / size) ** 2
        if self.asked.sampling:
            spread += max(float(there.sum()), 0.0) * p * (1 - p)
        excess, reach = rank @ there, self.z * np.sqrt(spread)
        below, above = excess + reach < 0, excess - reach > 0
        first = int(np.argmin(below)) if not below.all() else len(below)
        last = int(np.argmin(above[::-1])) if not above.all() else len(above)
        low, high = float(edges[first]), float(edges[len(edges) - 1 - last] - whole)
        rising = np.maximum.accumulate(np.concatenate([[0.0], np.cumsum(there)]))
        value = float(np.interp(p * rising[-1], rising, edges)) if rising[-1] > 0 else low
        return min(max(math.floor(value) if whole else value, low), high), low, high


_NOBODY: Ends = (None, None, None)
