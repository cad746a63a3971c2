"""The record of a study: everything that a reader, a reviewer or a dossier needs, and nothing private."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from private_mcmc.data.answers import Answers
from private_mcmc.data.design import Design, design
from private_mcmc.data.families import family
from private_mcmc.data.formula import read_formula
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError, NotYetSupported

RECORD = "study.json"
_VERSION = 1


@dataclass(frozen=True, eq=False)
class Study:
    """One released fit. Every value in it is public or released.

    Attributes:
        version: of this record's form.
        library: version of the library that made it.
        created: when, in UTC.
        table: the table's name, as it was given.
        schema: the Table Schema descriptor.
        rows: the row domains that were enforced, by column.
        formula: as stated; empty for a model of the user's own.
        family: of the outcome; empty for a model of the user's own.
        priors: as stated.
        model: source of the NumPyro model that ran.
        norm: bound of the norm of a row's design, where it is known.
        epsilon: of the target.
        delta: of the target.
        adjacency: of the target.
        n: number of rows, or its public bound.
        guarantee: ``run`` or ``posterior``.
        temper: weight of the likelihood.
        predicted: the error that was predicted before anything was spent.
        expected: the error that the releases themselves tell of.
        statement: what the release cost, with its argument.
        certificate: of the posterior, under ``guarantee="posterior"``.
        ledger: file, data set and purpose; ``None`` where nothing kept count.
        warnings: what was said before the run.
        draws: of the model's sites.

    Example:
        >>> pmc.Study.load("no such folder")
        Traceback (most recent call last):
            ...
        private_mcmc.errors.DeclarationError: no such folder: cannot be read (No such file or directory).
    """

    version: int
    library: str
    created: str
    table: str
    schema: Mapping[str, Any]
    rows: Mapping[str, Any]
    formula: str
    family: str
    priors: tuple[str, ...]
    model: str
    norm: float | None
    epsilon: float
    delta: float
    adjacency: str
    n: int
    guarantee: str
    temper: float
    predicted: Mapping[str, Any]
    expected: Mapping[str, Any] | None
    statement: Mapping[str, Any]
    certificate: Mapping[str, Any] | None
    ledger: Mapping[str, str] | None
    warnings: tuple[str, ...]
    draws: Mapping[str, Any]

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read ``study.json``, or the folder that it is in.

        Raises:
            DeclarationError: if it cannot be read or is of another version.
        """
        place = Path(path) / RECORD if Path(path).is_dir() else Path(path)
        try:
            record = json.loads(place.read_text(encoding="utf-8"))
            version = record.pop("version")
            if version != _VERSION:
                raise DeclarationError(f"{place}: of version {version}; this library reads {_VERSION}.")
            record |= {name: tuple(record[name]) for name in ("priors", "warnings")}
            return cls(version=version, **record)
        except OSError as error:
            raise DeclarationError(f"{place}: cannot be read ({error.strerror}).") from None
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError, UnicodeDecodeError):
            raise DeclarationError(f"{place}: is not the record of a study.") from None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def to_json(self) -> str:
        """The text of ``study.json``."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @cached_property
    def design(self) -> Design:
        """The formula with its public scaling.

        Raises:
            NotYetSupported: for a model of the user's own.
        """
        if not self.formula:
            raise NotYetSupported("a model of your own: its draws are in study.json, in its own units.")
        schema = Schema.from_dict(texts(self.schema))
        return design(read_formula(self.formula, schema), schema, family(self.family), self.priors)

    def answers(self, prob: float = 0.9) -> Answers:
        """Coefficients, ratios, predictions and plots in the user's units."""
        if not 0 < prob < 1:
            raise DeclarationError(f"prob={prob}: must be between 0 and 1.")
        draws = {name: np.asarray(values, dtype=np.float64) for name, values in self.draws.items()}
        return Answers(self.design, draws, prob)


def texts(value: Any) -> Any:
    """Plain data with every scalar as the text that YAML would have."""
    if isinstance(value, Mapping):
        return {str(key): texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [texts(item) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
