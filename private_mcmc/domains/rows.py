"""The public declaration of a row: its columns, each with a domain."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc.arguments import construction_checked, habit
from private_mcmc.domains.columns import PRESENT, numeric_column
from private_mcmc.domains.domain import Ball, Binary, Box, Categories, Counts, Domain, Real
from private_mcmc.domains.persons import OWN_ROWS, Person, Several, grouped, identified
from private_mcmc.domains.synthetic import synthetic_values
from private_mcmc.errors import DataSchemaError, DeclarationError, clean_errors
from private_mcmc.records import Fields, Record
from private_mcmc.target import Unit

_DOMAINS = (Ball, Box, Binary, Categories, Counts, Real)
# Arguments of a run that are no columns.
_RESERVED = {PRESENT: "tells which slots hold a person", "rng_key": "gives the randomness"}


@construction_checked
@dataclass(frozen=True, init=False, repr=False)
class Rows:
    """Public facts about one row: ``Rows(X=Ball(1.0, dim=9), y=Binary())``.

    The names are the model's row arguments. The declaration is enforced on every row, not trusted. With a
    column of identifiers, ``Rows(…, patient=Person(at_most=4))``, all rows of one identifier together are
    what is protected, and ``n`` counts identifiers; the model does not see them.

    Raises:
        DeclarationError: without columns, for a column that is not a domain, that has the name of an
            argument of ``run``, or for two columns of identifiers.

    Example:
        >>> pmc.Rows(X=pmc.Ball(1.0, dim=9), y=pmc.Binary())
        Rows(X=Ball(radius=1.0, dim=9), y=Binary())
    """

    items: tuple[tuple[str, Domain], ...]
    unit: Unit | None = None

    def __init_subclass__(cls) -> None:
        raise DeclarationError(f"{cls.__name__}: Rows is enforced as it is and takes no subclasses.")

    def __init__(self, /, **columns: Domain | Person) -> None:
        units = [Unit(name, one.at_most) for name, one in columns.items() if isinstance(one, Person)]
        domains = {name: one for name, one in columns.items() if not isinstance(one, Person)}
        if not domains:
            raise DeclarationError("Rows(): declare at least one column, for example Rows(y=Binary()).")
        if len(units) > 1:
            raise DeclarationError(
                f"Rows(…): {[unit.name for unit in units]} are both identifiers; give those of the persons "
                "(or of larger groups) that are to be protected."
            )
        for name in columns:
            if name in _RESERVED:
                raise DeclarationError(
                    f"Rows({name}=…): run(…, {name}=…) {_RESERVED[name]}; give the model's row argument "
                    "another name."
                )
        for name, domain in domains.items():
            # All proofs rest on the library's own ``project``.
            if type(domain) not in _DOMAINS:
                raise DeclarationError(
                    f"Rows({name}=…): {type(domain).__name__} is not a row domain; "
                    "use Ball, Box, Binary, Categories, Counts or Real."
                )
        object.__setattr__(self, "items", tuple(sorted(domains.items())))
        object.__setattr__(self, "unit", units[0] if units else None)

    def __repr__(self) -> str:
        shown = [f"{name}={domain}" for name, domain in self.items]
        shown += [] if self.unit is None else [f"{self.unit.name}={Person(self.unit.rows)}"]
        return f"Rows({', '.join(shown)})"

    @property
    def columns(self) -> dict[str, Domain]:
        """Column names and their domains, by name."""
        return dict(self.items)

    @property
    def persons(self) -> Rows:
        """Of a declaration with persons, that of a person as one row: own rows stacked and flagged."""
        if self.unit is None:
            raise DeclarationError("Rows(…): no column of identifiers is declared.")
        found, own = object.__new__(Rows), (OWN_ROWS, Several(Binary(), self.unit.rows))
        stacked = [(name, Several(domain, self.unit.rows)) for name, domain in self.items]
        object.__setattr__(found, "items", tuple(sorted([*stacked, own])))
        object.__setattr__(found, "unit", None)
        return found

    @clean_errors
    def grouped(self, data: Fields, n: int) -> dict[str, np.ndarray]:
        """The columns of ``data`` grouped by the declared identifiers into ``n`` persons: see ``persons``.

        Slots without a person, and persons without rows, are marked absent. More of them than ``n`` are
        refused: no statement is of such a data set, where leaving one out would make room for another.

        Raises:
            DataSchemaError: as ``validate``.
        """
        columns, persons = self.numbered(data, n)
        return grouped(columns, persons, n, 1 if self.unit is None else self.unit.rows)

    @clean_errors
    def numbered(self, data: Fields, n: int) -> tuple[dict[str, np.ndarray], npt.NDArray[np.int64]]:
        """The columns of ``data`` and the number of each row's person, below ``n``; −1: of none."""
        if self.unit is None:
            raise DeclarationError("Rows(…): no column of identifiers is declared.")
        name = self.unit.name
        if name not in data:
            raise DataSchemaError(f"columns: missing {[name]}, the identifiers that Rows declares.")
        columns = self.validate({each: data[each] for each in data if each != name}, None)
        persons = identified(name, data[name])
        if persons.shape != (len(next(iter(columns.values()))),):
            # How many rows there are is private: it is not said.
            raise DataSchemaError(
                f"column {name!r}: one identifier for every row is needed, as many as the others have rows."
            )
        if persons.max(initial=-1) >= n:
            raise DataSchemaError(f"column {name!r}: more identifiers than the declared n={n} persons.")
        return columns, persons

    @clean_errors
    def validate(self, data: Fields, n: int | None) -> dict[str, np.ndarray]:
        """Return the columns as arrays of ``n`` rows, or say what is wrong with their schema.

        Only names, shapes and types decide; no value is looked at. ``n=None`` skips the number of rows
        (where it is private). Columns are arrays (NumPy, JAX), or series and frames (pandas, Polars, Arrow).

        Raises:
            DataSchemaError: missing or extra columns, not an array, masked, not numeric, a wrong shape or
                length.
        """
        missing = sorted(self.columns.keys() - data.keys())
        extra = sorted(data.keys() - self.columns.keys())
        if missing or extra:
            raise DataSchemaError(
                f"columns: missing {missing}, not declared {extra}; Rows declares {sorted(self.columns)}."
                + "".join(f" {name}=: {habit(name)}." for name in extra if habit(name))
                + (" Public arguments of a model are model_args={…} of its kernel or plan." if extra else "")
            )
        arrays = {name: numeric_column(name, data[name]) for name, _ in self.items}
        lengths = {}
        for name, domain in self.items:
            shape = arrays[name].shape
            if len(shape) != 1 + len(domain.event_shape) or shape[1:] != domain.event_shape:
                raise DataSchemaError(
                    f"column {name!r}: {len(shape)} axes with trailing shape {shape[1:]}; "
                    f"{domain} needs (n, {', '.join(map(str, domain.event_shape))}).".replace(", ).", ",).")
                )
            lengths[name] = shape[0]
        if n is not None and n < 1:
            raise DataSchemaError(f"n={n}: at least one row is needed.")
        wrong = {name: length for name, length in lengths.items() if n is not None and length != n}
        if wrong:
            raise DataSchemaError(f"numbers of rows {wrong} differ from the declared n={n}.")
        if len(set(lengths.values())) > 1:
            raise DataSchemaError(f"columns {sorted(lengths)} differ in their number of rows.")
        return arrays

    @clean_errors
    def project(self, data: Fields) -> dict[str, jax.Array]:
        """Every column mapped silently into its domain."""
        return {name: domain.project(data[name]) for name, domain in self.items}

    def synthetic(self, seed: int, n: int) -> dict[str, jax.Array]:
        """``n`` public random rows that reach the extremes of the domains, the same for equal seeds."""
        # NumPy draws without compiling a program for every shape.
        random = np.random.default_rng(seed)
        drawn = {name: synthetic_values(domain, random, n) for name, domain in self.items}
        found: dict[str, jax.Array] = project_rows(self, drawn)
        return found

    @property
    def fingerprint(self) -> str:
        """A hash of the declaration, the same whatever the order of the columns."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> Record:
        """Column names to domains, for records."""
        unit = {} if self.unit is None else {self.unit.name: {"person": {"at_most": self.unit.rows}}}
        return {name: domain.to_dict() for name, domain in self.items} | unit


@partial(jax.jit, static_argnums=0)
def project_rows(rows: Rows, data: Record) -> dict[str, jax.Array]:
    """``rows.project(data)`` by one program, which is compiled once for columns of equal shapes."""
    found: dict[str, jax.Array] = rows.project(data)
    return found
