"""Which of two studies predicts a table better: the mean difference of clipped log predictive densities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr, ndtri

from private_mcmc.analysis.analysis import Analysis, Part, Released, Studied, synthetic_people
from private_mcmc.data.fields import identifier
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Fields, Record
from private_mcmc.release import Family, SumsPlan
from private_mcmc.report import Block, Facts, Text, between, number

# Of synthetic people so many have a difference inside the bound.
_INSIDE = 0.98
_LEAST = 1e-4
_FEW = 0.5


@dataclass(frozen=True, eq=False)
class Comparison(Analysis):
    """Sums of ``t = clip(log p_B − log p_A, ±b)/b`` and of ``2t² − 1``.

    Attributes:
        schema: of both studies.
        first: study ``A``.
        second: study ``B``.
        bound: ``b``, in nats, public.
    """

    schema: Schema
    first: Studied
    second: Studied
    bound: float
    kind = "compare"

    def __post_init__(self) -> None:
        one, other = (
            (it.outcome, it.event) for it in (self.first.design.formula, self.second.design.formula)
        )
        if one != other:
            raise DeclarationError(f"compare: the studies have different outcomes, {one} and {other}.")
        if self.first.predictive.discrete != self.second.predictive.discrete:
            raise DeclarationError("compare: a density and a probability are not compared.")
        if not 0 < self.bound < math.inf:
            raise DeclarationError(f"compare: bound={self.bound}: positive and finite.")

    @classmethod
    def planned(cls, first: Studied, second: Studied) -> Comparison:
        """With a bound that few synthetic people exceed, whose outcomes are those of either study."""
        names = tuple(dict.fromkeys((*first.fields, *second.fields)))
        schema = first.schema
        if changed := [name for name in names if schema.by_name.get(name) != second.schema.by_name.get(name)]:
            raise DeclarationError(
                f"compare: the studies declare {changed} differently: fit with one schema."
            )
        people, outcome = synthetic_people(schema, names), first.design.formula.outcome
        people["seed"] = np.arange(len(people[identifier(outcome)]), dtype=float)

        def difference(row: Fields) -> jax.Array:
            found = []
            for index, study in enumerate((first, second)):
                key = jax.random.fold_in(jax.random.key(index), row["seed"].astype(int))
                outcomes = study.predictive.drawn(row, key)
                drawn = {**row, **{name: values[0] for name, values in outcomes.items()}}
                found.append(second.predictive.log_density(drawn) - first.predictive.log_density(drawn))
            return jnp.abs(jnp.stack(found))

        differences = first.of_people(difference, people)
        bound = float(np.quantile(np.nan_to_num(differences, posinf=100.0), _INSIDE))
        return cls(schema, first, second, max(round(bound, 6), _LEAST))

    @property
    def fields(self) -> tuple[str, ...]:
        """What either formula reads."""
        return tuple(dict.fromkeys((*self.first.fields, *self.second.fields)))

    @property
    def title(self) -> str:
        """Both formulas."""
        return f"{_words(self.first)} with {_words(self.second)}"

    @property
    def families(self) -> tuple[Family, ...]:
        """One cell: how many, and both sums."""
        return (Family("differences", 1, 2),)

    def of_row(self, row: Fields) -> Sequence[Part]:
        """The row's difference, clipped."""
        t = (self.second.predictive.log_density(row) - self.first.predictive.log_density(row)) / self.bound
        return [(jnp.asarray(0), jnp.clip(t, -1.0, 1.0))]

    def question(self) -> Record:
        """Both studies, and the bound."""
        return {"first": self.first.to_record(), "second": self.second.to_record(), "bound": self.bound}

    @classmethod
    def of(cls, schema: Schema, record: Fields) -> Comparison:
        """From its record."""
        first, second = (Studied.of(schema, record[name]) for name in ("first", "second"))
        return cls(schema, first, second, float(record["bound"]))

    @cached_property
    def optimism(self) -> float:
        """``2b(2Φ(m/2) − 1)``: most that fitting the same people moves the expected difference."""
        m = math.hypot(self.first.gdp, self.second.gdp)
        return 2 * self.bound * (2 * float(ndtr(m / 2)) - 1)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know of a comparison."""
        return (
            f"Differences are clipped at ±{number(self.bound, 3)}. That the models were fitted to these "
            f"people moves the mean by {number(self.optimism, 2)} at most, towards the one that follows them "
            "more closely.",
            "Intervals of a model that is chosen after this comparison are too narrow.",
        )

    def expected(self, mechanism: SumsPlan) -> tuple[str, ...]:
        """How small a difference can be told."""
        sd = self.bound * mechanism.noise.sd / mechanism.num_rows
        return (
            f"Privacy's noise moves the mean difference by {number(1.645 * sd, 2)} in nine cases of ten.",
        )

    def lines(self, found: Released, prob: float) -> list[Record]:
        """The mean difference per person, B less A: columns what, value, low, high."""
        count, total, squares = (float(one) for one in found.sums[0].values[:, 0])
        noise = found.sums[0].noise_sd
        # Of so few people that there may be none, the interval is all that clipped differences can be.
        people = float(found.n) if found.exact else max(count, _FEW * noise)
        mean = min(max(total / people, -1.0), 1.0)
        variance = min(max((squares / people + 1) / 2 - mean**2, 0.0), 1.0)
        # A count with noise moves the mean in proportion to it.
        private = noise / people * math.hypot(1.0, 0.0 if found.exact else mean)
        sampling, z = math.sqrt(variance / people), float(ndtri(0.5 + prob / 2))
        made = []
        for what, sd in (
            ("mean difference, B less A", math.hypot(private, sampling)),
            ("noise alone", private),
            ("sampling alone", sampling),
        ):
            low, high = mean - z * sd, mean + z * sd
            ends = (self.bound * max(low, -1.0), self.bound * min(high, 1.0))
            made.append({"what": what, "value": self.bound * mean, "low": ends[0], "high": ends[1]})
        return made

    def blocks(self, found: Released, prob: float) -> list[Block]:
        """Which predicts better, and by how much."""
        whole, *parts = self.lines(found, prob)
        better, study = ("B", self.second) if whole["value"] > 0 else ("A", self.first)
        sure = whole["low"] > 0 or whole["high"] < 0
        said = f"{better}, {_words(study)}, predicts better" if sure else f"Not told apart; {better} is ahead"
        items = [("A", _words(self.first)), ("B", _words(self.second))]
        items += [
            (one["what"], f"{number(one['value'], 3)} ({between(one['low'], one['high'])})")
            for one in (whole, *parts)
        ]
        title = f"Log predictive density per person, {prob:.0%} intervals"
        return [Text(f"{said}."), Facts(tuple(items), title), Text(" ".join(self.remarks))]


def _words(study: Studied) -> str:
    """Two studies may have one formula, and other families."""
    return f"{study.formula} ({study.family})"
