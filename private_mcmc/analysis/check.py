"""Whether a study's model fits: outcomes against what its draws predict, by groups, with a simulated law.

Of outcomes with two levels rows are counted by group, level and prediction ``p``: its bin, and one of the
bin's two ends, to which ``p`` is rounded at random so that ends add up to ``Σ p`` on average. Residuals of a
group, and of its bins, are unbiased whatever the bins. Of others rows are counted by group and bin of the PIT
``F(y−) + V(F(y) − F(y−))``, which is uniform where the model is right. Both kinds of chance are part of the
mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from private_mcmc.analysis.analysis import Analysis, Part, Released, Studied, synthetic_people
from private_mcmc.analysis.laws import EVERYONE, PIT_BINS, Asked, Calibration, Law, Uniformity, line, share_of
from private_mcmc.data.fields import identifier
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Fields, Record
from private_mcmc.release import Family, SumsPlan
from private_mcmc.report import Block, Table, Text, between, number

_GRID = (0.25, 0.6, 0.9)
# Zeros are few numbers in few sums: so heavy, all others get an eighth more noise for them.
_ZEROS = 0.5


@dataclass(frozen=True, eq=False)
class Check(Analysis):
    """Counts of group × prediction × outcome, or of group × PIT bin.

    Attributes:
        schema: of the study.
        study: the model and its draws.
        by: categories whose levels make the groups.
        grid: ends of bins of predictions, from 0 to 1; empty for outcomes without two levels.
    """

    schema: Schema
    study: Studied
    by: tuple[str, ...]
    grid: tuple[float, ...]
    kind = "check"
    random = True  # rounding, or V of a PIT

    def __post_init__(self) -> None:
        for name in self.by:
            if not self.schema[name].is_category:
                raise DeclarationError(f"check by {name!r}: a number; groups are levels of categories.")
        ends = (*self.grid[:1], *self.grid[-1:])
        rises = ends == (0.0, 1.0) and all(a < b for a, b in pairwise(self.grid))
        if bool(self.grid) != self.two or (self.grid and not rises):
            raise DeclarationError(
                "check: a grid from 0 to 1 that rises, for outcomes with two levels alone."
            )

    @property
    def two(self) -> bool:
        """Whether the outcome has two levels."""
        return self.study.design.family.kind == "two"

    @property
    def counted(self) -> bool:
        """Whether the outcome is a count, of which zeros are told."""
        return self.study.design.family.kind == "count"

    @property
    def fields(self) -> tuple[str, ...]:
        """What the formula reads, and the groups."""
        return tuple(dict.fromkeys((*self.study.fields, *self.by)))

    @property
    def title(self) -> str:
        """The formula and the groups."""
        return f"of {self.study.formula}" + (f" by {', '.join(self.by)}" if self.by else "")

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Their labels."""
        levels = ([f"{name} {level.label}" for level in self.schema[name].all_levels] for name in self.by)
        return tuple(", ".join(cell) for cell in product(*levels))

    @property
    def families(self) -> tuple[Family, ...]:
        """Cells of predictions and outcomes, or PIT bins; of counts zeros, by whether they were predicted."""
        count = len(self.groups)
        if self.two:
            return (Family("calibration", count * (len(self.grid) - 1) * 4),)
        zeros = [Family("zeros", count * 4, 0, _ZEROS)] if self.counted else []
        return (Family("PIT", count * PIT_BINS), *zeros)

    def of_row(self, row: Fields) -> Sequence[Part]:
        """The row's cell."""
        where, predictive = jnp.asarray(0), self.study.predictive
        for name in self.by:
            where = where * len(self.schema[name].all_levels) + row[identifier(name)].astype(int)
        if not self.two:
            pit = predictive.pit(row, row["uniform"])
            bin = jnp.clip(jnp.floor(pit * PIT_BINS), 0, PIT_BINS - 1).astype(int)
            parts: list[Part] = [(where * PIT_BINS + bin, None)]
            if self.counted:
                zero = jnp.mean(jnp.exp(predictive.law(row).log_prob(0)))
                predicted = (row["uniform"] < zero).astype(int)
                parts.append(((where * 2 + predicted) * 2 + (predictive.outcome(row) == 0), None))
            return parts
        bin, right = self._rounded(predictive.probability(row), row["uniform"])
        cell = (where * (len(self.grid) - 1) + bin) * 4 + right * 2 + predictive.outcome(row)
        return [(cell, None)]

    def _rounded(self, p: Any, uniform: Any) -> tuple[Any, Any]:
        """The bin of a prediction, and whether it is rounded up to its right end."""
        grid = jnp.asarray(self.grid)
        left = jnp.clip(jnp.searchsorted(grid, p, side="right") - 1, 0, len(self.grid) - 2)
        return left, (uniform < (p - grid[left]) / (grid[left + 1] - grid[left])).astype(int)

    def question(self) -> Record:
        """The study, groups and grid."""
        return {"study": self.study.to_record(), "by": list(self.by), "grid": list(self.grid)}

    @classmethod
    def of(cls, schema: Schema, record: Fields) -> Check:
        """From its record."""
        grid = tuple(map(float, record["grid"]))
        return cls(schema, Studied.of(schema, record["study"]), tuple(map(str, record["by"])), grid)

    @classmethod
    def planned(cls, study: Studied, by: Sequence[str]) -> Check:
        """With a grid of quantiles of predictions for synthetic people."""
        if study.design.family.kind != "two":
            return cls(study.schema, study, tuple(by), ())
        people = synthetic_people(study.schema, study.fields)
        p = study.of_people(study.predictive.probability, people)
        inner = np.unique(np.clip(np.quantile(p, _GRID), 0.01, 0.99).round(4)).tolist()
        return cls(study.schema, study, tuple(by), (0.0, *inner, 1.0))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know of a check."""
        return (
            "Tests, and where values lie if the model fits, hold the release's noise, outcomes' chance and "
            "the draws' uncertainty; intervals of shares the first two, of AUC and Brier score the first.",
            "The same people were fitted: a model looks a little better on them than on others.",
            "Intervals of a model that is chosen after this check are too narrow.",
            *["Each person counts once, whatever weight the formula gives."]
            * bool(self.study.design.formula.weights),
        )

    @cached_property
    def law(self) -> Law:
        """What is tested, and its simulated law."""
        asked = Asked(self.study, self.by, self.groups, self.grid)
        return Calibration(asked) if self.two else Uniformity(asked)

    def expected(self, mechanism: SumsPlan) -> tuple[str, ...]:
        """The power to find stated misfits."""
        return self.law.power(mechanism.num_rows, mechanism.noise.sd)

    def lines(self, found: Released, prob: float) -> list[Record]:
        """Contrasts by group, then cells: columns group, what, at, value, low, high, p."""
        return self.law.lines(found, prob) + (self._zeros(found, prob) if self.counted else [])

    def _zeros(self, found: Released, prob: float) -> list[Record]:
        """Shares of zeros by group, ``at`` the one that is predicted, where people are enough to tell."""
        cells, noise = found.sums[1].values[0].reshape(-1, 2, 2), found.sums[1].noise_sd
        named = [(label, cells[group : group + 1]) for group, label in enumerate(self.groups)]
        made, z = [], float(ndtri(0.5 + prob / 2))
        for label, part in [(EVERYONE, cells), *(named if len(named) > 1 else [])]:
            whole, sd = part.sum(axis=0), noise * math.sqrt(len(part))
            people = float(whole.sum())
            if people <= 2 * z * sd:
                continue
            share, ends = share_of(whole, sd, z)
            predicted = f"{whole[1].sum() / people:.3g}"
            made.append(line(label, "share of zeros", predicted, share, *ends, None))
        return made

    def blocks(self, found: Released, prob: float) -> list[Block]:
        """The answer first, then a table of groups, and a figure."""
        lines = self.lines(found, prob)
        whole, rest = lines[0], [one for one in lines[1:] if one["p"] is not None]
        word = "Misfit found" if whole["p"] <= 0.05 else "No misfit found"
        said = f"{word}: p = {number(float(whole['p']), 2)} for all groups and shapes together."
        keys = "group", "what", "value", "low", "high", "p"
        cells = ([one[key] for key in keys] for one in rest)
        rows = (
            (g, w, number(value), between(low, high), number(p, 2)) for g, w, value, low, high, p in cells
        )
        table = Table(("group", "what", "value", f"{prob:.0%} if it fits", "p"), tuple(rows))
        told = "; ".join(
            f"{one['what']} {number(one['value'], 3)} ({between(one['low'], one['high'])})"
            + f", {one['at']} predicted" * bool(one["at"])
            for one in lines
            if one["group"] == EVERYONE and one["what"].endswith(("by bins", "of zeros"))
        )
        blocks: list[Block] = [Text(said), table, Text(self.law.units), self.law.figure(lines, prob)]
        blocks += [Text(f"{told[:1].upper()}{told[1:]}.")] if told else []
        return [*blocks, Text(" ".join(self.remarks))]
