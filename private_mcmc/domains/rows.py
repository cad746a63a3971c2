"""The public declaration of a row: its columns, each with a domain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.typing import DTypeLike

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.named import domain_from_dict, is_known
from private_mcmc.domains.numeric import numeric_column
from private_mcmc.domains.presence import PRESENT
from private_mcmc.domains.toml import read_toml
from private_mcmc.errors import DataSchemaError, DeclarationError

# Arguments of a run that are no columns.
_RESERVED = {PRESENT: "tells which slots hold a person", "rng_key": "gives the randomness"}


@dataclass(frozen=True, init=False, repr=False)
class Rows:
    """Public facts about one row: ``Rows(X=Ball(1.0, dim=9), y=Binary())``.

    The names are the model's row arguments. The declaration is enforced on every row, not trusted.

    Raises:
        DeclarationError: without columns, for a column that is not a domain, or that has the name of an
            argument of ``run``.
    """

    items: tuple[tuple[str, Domain], ...]

    def __init_subclass__(cls) -> None:
        raise DeclarationError(f"{cls.__name__}: Rows is enforced as it is and takes no subclasses.")

    def __init__(self, /, **columns: Domain) -> None:
        if not columns:
            raise DeclarationError("Rows(): declare at least one column, for example Rows(y=Binary()).")
        for name, domain in columns.items():
            if name in _RESERVED:
                raise DeclarationError(
                    f"Rows({name}=…): run(…, {name}=…) {_RESERVED[name]}; give the model's row argument "
                    "another name."
                )
            if not is_known(domain):
                raise DeclarationError(
                    f"Rows({name}=…): {type(domain).__name__} is not a row domain; "
                    "use Ball, Box, Binary, Categories, Counts or Real."
                )
        object.__setattr__(self, "items", tuple(sorted(columns.items())))

    def __repr__(self) -> str:
        return f"Rows({', '.join(f'{name}={domain}' for name, domain in self.items)})"

    @property
    def columns(self) -> dict[str, Domain]:
        """Column names and their domains, by name."""
        return dict(self.items)

    def validate(self, data: Mapping[str, Any], n: int | None) -> dict[str, np.ndarray]:
        """Return the columns as arrays of ``n`` rows, or say what is wrong with their schema.

        Only names, shapes and types decide; no value is looked at. ``n=None`` skips the number of rows
        (where it is private). Columns are NumPy or JAX arrays, or pandas Series and DataFrames.

        Raises:
            DataSchemaError: missing or extra columns, not an array, masked, not numeric, a wrong shape or
                length.
        """
        missing = sorted(self.columns.keys() - data.keys())
        extra = sorted(data.keys() - self.columns.keys())
        if missing or extra:
            raise DataSchemaError(
                f"columns: missing {missing}, not declared {extra}; Rows declares {sorted(self.columns)}."
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

    def project(self, data: Mapping[str, Any], dtype: DTypeLike | None = None) -> dict[str, jax.Array]:
        """Every column mapped silently into its domain; ``dtype`` narrows the storage of real columns."""
        return {name: domain.project(data[name], dtype) for name, domain in self.items}

    def synthetic(self, key: jax.Array, n: int) -> dict[str, jax.Array]:
        """``n`` public random rows that reach the extremes of the domains."""
        keys = jax.random.split(key, len(self.items))
        return {name: domain.synthetic(k, n) for k, (name, domain) in zip(keys, self.items, strict=True)}

    @property
    def fingerprint(self) -> str:
        """A hash of the declaration, the same whatever the order of the columns."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Column names to domains, as ``domain_from_dict`` reads them."""
        return {name: domain.to_dict() for name, domain in self.items}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Rows:
        """Inverse of ``to_dict``."""
        return cls(**{name: domain_from_dict(domain) for name, domain in record.items()})

    @classmethod
    def from_toml(cls, path: str | Path) -> Rows:
        """Read one line per column: ``X = {ball = {radius = 1.0, dim = 9}}``, ``y = "binary"``.

        Names and arguments are those of the Python domains in lower case: ``ball``, ``box``
        (``lo``, ``hi``: numbers or arrays), ``binary``, ``categories`` (``k``), ``counts`` (``max``),
        ``real`` (``dim``).

        Raises:
            DeclarationError: for a file that is not TOML or a domain that is not one of these.
        """
        record = read_toml(path)
        return cls.from_dict(record)
