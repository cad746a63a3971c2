"""A study as a question needs it: its formula with some of its draws, and synthetic people to plan with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from private_mcmc.analysis.predictive import Predictive
from private_mcmc.data.design import Design, design
from private_mcmc.data.effects import Array
from private_mcmc.data.families import family
from private_mcmc.data.fields import identifier
from private_mcmc.data.formula import read_formula
from private_mcmc.data.schema import Schema
from private_mcmc.records import Fields, Record

_PEOPLE = 400


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
        """Plain JSON types."""
        return {
            "fingerprint": self.fingerprint,
            "formula": self.formula,
            "family": self.family,
            "priors": list(self.priors),
            "draws": {name: list(values) for name, values in self.draws.items()},
            "gdp": self.gdp,
        }

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
    """Rows that are nobody's: numbers about the middle of their ranges, levels alike; the same every time."""
    random = np.random.default_rng(count)
    found: dict[str, Array] = {}
    for name in names:
        field = schema[name]
        if field.is_category:
            values = random.integers(0, len(field.all_levels), count).astype(float)
        else:
            low, high = field.range
            values = np.clip((low + high) / 2 + (high - low) / 6 * random.normal(size=count), low, high)
            values = np.rint(values) if field.type != "number" else values
        found[identifier(name)] = values
        if field.indicator is not None:
            found[identifier(field.indicator)] = np.zeros(count)
    return found
