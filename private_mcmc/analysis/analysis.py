"""What questions of noised sums share: what each declares and reads off its releases, and released studies.

A question declares everything before a table is looked at. Of a row a study's draws say the distribution of
its outcome under each draw: effects of groups that the formula names are those of the draws;
of each person's own effects, which are never released, every draw has one from their law.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import betainc, gammaincc
from scipy.special import ndtr, ndtri

from private_mcmc.data.design import THRESHOLDS, Design, design
from private_mcmc.data.effects import Array
from private_mcmc.data.families import STEPS, family
from private_mcmc.data.fields import identifier
from private_mcmc.data.formula import read_formula
from private_mcmc.data.schema import Schema
from private_mcmc.domains import Rows
from private_mcmc.errors import NotYetSupported
from private_mcmc.records import Fields, Record
from private_mcmc.release import Family, Sums, SumsPlan, plan_sums
from private_mcmc.report import Block
from private_mcmc.target import Adjacency

# A cell and a number in [−1, 1] of one row for one family, as of ``Contribution``.
Part = tuple[jax.Array, jax.Array | None]


@dataclass(frozen=True)
class Released:
    """Sums that were released of a table, with what is public of it.

    Attributes:
        sums: by family.
        n: number of rows or persons, or its bound.
        exact: whether exactly ``n`` count, which is public under ``replace_one`` where each row is a person.
    """

    sums: tuple[Sums, ...]
    n: int
    exact: bool


class Analysis(ABC):
    """A question whose answer is one release of noised sums, and what is computed from it.

    ``question`` is its record; ``of_row`` is a function of one row, of public facts and of releases alone.
    """

    kind: ClassVar[str]
    # Whether a row has a uniform number of its own, ``row["uniform"]``, as part of the mechanism.
    random: ClassVar[bool] = False
    schema: Schema

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """What is read of the table."""

    @property
    @abstractmethod
    def families(self) -> tuple[Family, ...]:
        """Cells, and what is summed in them."""

    @abstractmethod
    def of_row(self, row: Fields) -> Sequence[Part]:
        """What one row adds to each family."""

    @abstractmethod
    def question(self) -> Record:
        """Plain JSON types, from which the analysis can be made again."""

    @abstractmethod
    def blocks(self, found: Released, prob: float) -> list[Block]:
        """The answers, for a page or a terminal."""

    @abstractmethod
    def lines(self, found: Released, prob: float) -> list[Record]:
        """The answers as lines of a file, all with the same columns."""

    @property
    @abstractmethod
    def title(self) -> str:
        """In a few words."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know of the answers."""
        return ()

    @abstractmethod
    def expected(self, mechanism: SumsPlan) -> tuple[str, ...]:
        """What can be said of the answers before anything is spent."""

    @cached_property
    def rows(self) -> Rows:
        """Domains of the columns."""
        return self.schema.rows(self.fields)

    def mechanism(self, gdp: float, n: int, adjacency: Adjacency) -> SumsPlan:
        """What is released for ``gdp``-GDP."""
        return plan_sums(
            gdp, self.families, num_rows=n, adjacency=adjacency, unit=self.rows.unit, what=self.kind
        )

    def released(self, mechanism: SumsPlan, values: Any) -> Released:
        """Numbers of a record as what they are of."""
        statement = mechanism.statement
        exact = statement.adjacency == "replace_one" and statement.unit is None
        return Released(mechanism.released(values), mechanism.num_rows, exact)


def interval(value: float, sd: float, z: float, low: float, high: float) -> tuple[float, float]:
    """``value ± z sd`` as far as it lies in ``[low, high]``; at its ends what a Normal law cut off there has.

    Noise may carry a count far below 0: that says that it is small, not that it is surely 0.
    """
    if not sd > 0:
        return (min(max(value, low), high),) * 2
    ends, share = ((low - value) / sd, (high - value) / sd), 2 * float(ndtr(z)) - 1

    def inside(p: float) -> float:
        a, b, sign = (-ends[0], -ends[1], -1) if ends[0] > 0 else (*ends, 1)
        return value + sd * sign * float(ndtri(ndtr(a) * (1 - p) + ndtr(b) * p))

    return max(min(value - z * sd, inside(1 - share)), low), min(max(value + z * sd, inside(share)), high)


# Draws that are enough for means of them, and that a record has room for.
MOST_DRAWS = 100
_HALVINGS, _PEOPLE = 40, 400


@dataclass(frozen=True, eq=False)
class Predictive:
    """The law of the outcome of a row, under each of the ``draws`` of the model's sites.

    Raises:
        NotYetSupported: for fields whose missing values are summed over.
    """

    design: Design
    draws: Mapping[str, Array]

    def __post_init__(self) -> None:
        formula, schema = self.design.formula, self.design.schema
        if summed := [name for name in formula.fields if schema[name].missing == "marginal"]:
            raise NotYetSupported(
                f"fields {summed}: missing: marginal is not for checks and comparisons; fit with indicator."
            )

    @cached_property
    def whole(self) -> dict[str, Array]:
        """The draws, with effects of a person's own from their law."""
        count = len(next(iter(self.draws.values())))
        random = np.random.default_rng(count)
        own = (effect for effect in self.design.effects if effect.term.own)
        return {**self.draws, **{one.name: random.normal(size=(count, *one.shape)) for one in own}}

    def _given(self, row: Fields) -> Record:
        """What a line of the family table reads, ``(draws, …)``."""
        design = self.design
        profile = {**row, **{name: row[identifier(name)].astype(float) for name in design.formula.covariates}}
        # Everybody is one person of whom nothing else is known.
        profile |= {design.schema.person: 0.0}
        value = design.predictor(self.whole, profile, jnp)
        given: Record = {"eta": value, "mu": value, "dist": dist, "jnp": jnp, "jax": jax}
        given |= {name: jnp.asarray(each) for name, each in design.values(self.draws).items()}
        if design.thresholds:
            given[THRESHOLDS] = jnp.asarray(self.draws[THRESHOLDS])
        if trials := design.formula.trials:
            given["trials"] = int(trials) if trials.isdigit() else row[identifier(trials)].astype(int)
        return given

    def law(self, row: Fields) -> Any:
        """NumPyro's distribution of the row's outcome, one for each draw."""
        # One of the family table's own lines, which models have too.
        return eval(self.design.family.likelihood, self._given(row))

    def hazards(self, row: Fields, time: Any) -> tuple[Any, Any]:
        """The log hazard at a time of each draw and the cumulative one until then, ``(draws,)``."""
        design, public = self.design, {"dist": dist, "jnp": jnp, "jax": jax, "longest": self.design.longest}
        moving = {name: each for name, each in self._given(row).items() if isinstance(each, jax.Array)}
        moving |= {"time": jnp.broadcast_to(time, moving["eta"].shape)}
        if STEPS in moving:
            public["cuts"] = jnp.asarray(design.formula.cuts)
            moving["hazards"] = jnp.pad(moving.pop(STEPS), [(0, 0), (1, 0)])
        moving = {
            name: jnp.broadcast_to(one, (len(moving["eta"]), *one.shape[1:])) for name, one in moving.items()
        }

        def of_draw(one: Record) -> tuple[Any, Any]:
            # Lines are of rows: here of one.
            given = public | one | {name: one[name][None] for name in ("eta", "time")}
            given["cumulative"] = eval(design.family.cumulative, given)
            return eval(design.family.log_hazard, given)[0], given["cumulative"][0]

        return jax.vmap(of_draw)(moving)

    def drawn(self, row: Fields, key: jax.Array) -> dict[str, Any]:
        """An outcome of the row under each draw, of the same chance for all: columns ``(draws,)``.

        Of a time to an event it is followed as long as the declaration allows.
        """
        formula = self.design.formula
        name = identifier(formula.outcome)
        if not formula.event:
            return {name: self.law(row).sample(key)}
        low, high = (jnp.log(end) for end in self.design.schema[formula.outcome].range)
        until = jax.random.exponential(key)

        def halved(_: int, ends: tuple[Any, Any]) -> tuple[Any, Any]:
            middle = (ends[0] + ends[1]) / 2
            later = self.hazards(row, jnp.exp(middle))[1] < until
            return jnp.where(later, middle, ends[0]), jnp.where(later, ends[1], middle)

        ends = tuple(jnp.broadcast_to(end, (len(next(iter(self.draws.values()))),)) for end in (low, high))
        time = jnp.exp(jax.lax.fori_loop(0, _HALVINGS, halved, ends)[1])
        seen = self.hazards(row, jnp.exp(high))[1] >= until
        return {name: time, identifier(formula.event): seen.astype(float)}

    def outcome(self, row: Fields) -> Any:
        """The row's own outcome."""
        value = row[identifier(self.design.formula.outcome)]
        return value.astype(int) if self.discrete else value.astype(float)

    @property
    def discrete(self) -> bool:
        """Whether outcomes are whole numbers."""
        return self.design.family.kind in ("two", "count", "levels", "ordered")

    def probability(self, row: Fields) -> Any:
        """Of an outcome with two levels that it is the second, averaged over draws."""
        return jnp.mean(self.law(row).mean)

    def log_density(self, row: Fields) -> Any:
        """The log of the density of the row's own outcome, averaged over draws."""
        if self.design.formula.event:
            hazard, cumulative = self.hazards(row, self.outcome(row))
            found = row[identifier(self.design.formula.event)] * hazard - cumulative
        else:
            found = self.law(row).log_prob(self.outcome(row))
        return jax.scipy.special.logsumexp(found) - jnp.log(len(found))

    def pit(self, row: Fields, uniform: Any) -> Any:
        """``F(y−) + V(F(y) − F(y−))`` of the averaged distribution; uniform where the model is right.

        Of a time that was cut off ``F(y) + V(1 − F(y))``: uniform where what cuts off says nothing else.
        """
        if self.design.formula.event:
            below = 1 - jnp.mean(jnp.exp(-self.hazards(row, self.outcome(row))[1]))
            seen = row[identifier(self.design.formula.event)]
            return below + (1 - seen) * uniform * (1 - below)
        law, value = self.law(row), self.outcome(row)
        above = jnp.mean(_cdf(law, value))
        if not self.discrete:
            return above
        return above - (1 - uniform) * jnp.mean(jnp.exp(law.log_prob(value)))


def _cdf(law: Any, value: Any) -> Any:
    if isinstance(law, dist.CategoricalProbs | dist.CategoricalLogits):
        return jnp.cumsum(law.probs, axis=-1)[:, value]
    if isinstance(law, dist.BinomialLogits | dist.BinomialProbs):
        trials = law.total_count
        inside = betainc(jnp.maximum(trials - value, 1e-6).astype(float), value + 1.0, 1 - law.probs)
        return jnp.where(value >= trials, 1.0, inside)
    if isinstance(law, dist.ZeroInflatedProbs):
        return law.gate + (1 - law.gate) * _cdf(law.base_dist, value)
    if isinstance(law, dist.HurdleProbs):
        zero, until = _cdf(law.base_dist, jnp.zeros_like(value)), _cdf(law.base_dist, value)
        return law.gate + (1 - law.gate) * (until - zero) / (1 - zero)
    if isinstance(law, dist.Poisson):
        return gammaincc(value + 1.0, law.rate)
    return law.cdf(value)


def thinned(draws: Mapping[str, Any]) -> dict[str, list[Any]]:
    """At most ``MOST_DRAWS`` draws of each site, evenly spaced: plain lists, for a record."""
    found = {name: np.asarray(values, dtype=np.float64) for name, values in draws.items()}
    count = len(next(iter(found.values())))
    chosen = np.unique(np.linspace(0, count - 1, min(count, MOST_DRAWS)).astype(int))
    return {name: values[chosen].tolist() for name, values in found.items()}


@dataclass(frozen=True, eq=False)
class Studied:
    """A released study: its formula, and draws of its sites.

    Attributes:
        fingerprint: of its record.
        schema: that it was fitted with.
        gdp: what its release cost: how far its draws may follow single rows.
    """

    fingerprint: str
    schema: Schema
    formula: str
    family: str
    priors: tuple[str, ...]
    draws: Mapping[str, Sequence[Any]]
    gdp: float

    @cached_property
    def design(self) -> Design:
        """The formula with its public scaling."""
        return design(read_formula(self.formula, self.schema), self.schema, family(self.family), self.priors)

    @cached_property
    def predictive(self) -> Predictive:
        """What the draws say of a row."""
        return Predictive(self.design, {name: np.asarray(values) for name, values in self.draws.items()})

    @property
    def fields(self) -> tuple[str, ...]:
        """What the formula reads."""
        return self.design.formula.fields

    def to_record(self) -> Record:
        """What ``of`` makes it from; a record has its tuples as lists."""
        kept = "fingerprint", "formula", "family", "priors", "draws", "gdp"
        return {name: getattr(self, name) for name in kept}

    @classmethod
    def of(cls, schema: Schema, record: Fields) -> Studied:
        """From its record."""
        fingerprint, formula, kind = (str(record[name]) for name in ("fingerprint", "formula", "family"))
        priors = tuple(map(str, record["priors"]))
        return cls(fingerprint, schema, formula, kind, priors, record["draws"], float(record["gdp"]))

    def of_people(self, function: Any, people: Mapping[str, Array]) -> Any:
        """A function of every row of public people."""
        with jax.enable_x64(True):
            made = jax.jit(jax.vmap(function))(people)
            return jax.tree.map(np.asarray, made)


def synthetic_people(schema: Schema, names: Sequence[str], count: int = _PEOPLE) -> dict[str, Array]:
    """Rows that are nobody's, the same every time: about the middle of ranges, declared levels alike."""
    random = np.random.default_rng(count)
    found: dict[str, Array] = {}
    for name in names:
        field = schema[name]
        if field.is_category:
            # Those for missing and other cells are rare: draws tell little of them, and would hide misfits.
            values = random.integers(0, len(field.levels), count).astype(float)
        else:
            low, high = field.range
            values = np.clip((low + high) / 2 + (high - low) / 6 * random.normal(size=count), low, high)
            values = np.rint(values) if field.type != "number" else values
        found[identifier(name)] = values
        if field.indicator is not None:
            found[identifier(field.indicator)] = np.zeros(count)
    return found
