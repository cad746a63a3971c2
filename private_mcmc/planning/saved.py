"""The record of a plan in a file: public facts, and what was chosen."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from private_mcmc.domains import Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.files import PathLike
from private_mcmc.model import RowModel
from private_mcmc.model.row_model import model_marks
from private_mcmc.planning.affine_releases import Public
from private_mcmc.planning.stages import Prediction
from private_mcmc.records import Fields, PublicArguments, Record
from private_mcmc.target import Target

_FORMAT = 2
_ARRAY, _DIGEST = "array", "digest"
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError)


def mark_of(reading: RowModel) -> str:
    """A hash of the model's program and of the row declaration."""
    marks = [*model_marks(reading), reading.rows.fingerprint]
    return hashlib.sha256(" ".join(marks).encode()).hexdigest()


def record_of(
    reading: RowModel,
    rows: Rows,
    target: Target,
    n: int,
    model_args: PublicArguments,
    public: Public | None,
    chosen: Fields,
) -> Record:
    """Plain JSON types. ``public`` is what public rows said, ``chosen`` what the search found."""
    known = {} if public is None else vars(public)
    found = {
        "format": _FORMAT,
        "library": version("private-mcmc"),
        "model": mark_of(reading),
        "rows": rows.to_dict(),
        "target": asdict(target),
        "n": n,
        "model_args": {name: _plain(name, value) for name, value in model_args.items()},
        "public": {name: _plain(name, value) for name, value in known.items()},
        **chosen,
    }
    return found | {_DIGEST: _digest(found)}


def _digest(record: Fields) -> str:
    """Of all that the file says: what no theorem fixes, a predicted error say, is not changed by hand."""
    text = json.dumps(record, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class SavedPlan:
    """A file of a plan, read; nothing in it has been checked against a model."""

    def __init__(self, path: PathLike) -> None:
        self._path = path
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
            if record["format"] != _FORMAT:
                raise self._refused(f"its format is {record['format']!r}, this library reads {_FORMAT}.")
            if record.pop(_DIGEST) != _digest(record):
                raise self._refused("it was changed after it was written: make the plan again.")
            self.rows = Rows.from_dict(record["rows"])
            self.target = Target(**record["target"])
            self.n = int(record["n"])
            self.model_args = {name: _taken(value) for name, value in record["model_args"].items()}
            self.guarantee = str(record["guarantee"])
            self.temper = float(record["temper"])
            self.choices = {str(name): float(value) for name, value in record["choices"].items()}
            known = {name: _taken(value) for name, value in record.get("public", {}).items()}
            self.public = Public(**known) if known else None
            self.prediction = Prediction.from_record(record["prediction"])
            self._facts = {name: record[name] for name in ("model", "statement", "certificate")}
        except DeclarationError:
            raise
        except OSError as error:
            raise self._refused(f"{error.strerror}.") from error
        except _MALFORMED as error:
            raise self._refused("it is no record of a plan.") from error

    def check(self, **now: object) -> None:
        """Raise ``DeclarationError`` unless the model and what was stated are those of the plan."""
        words = {
            "model": "it was made for another model, or by a library that reads the model differently",
            "statement": "its statement is not what this library states for its target",
            "certificate": "its certificate is not what this library certifies for its model",
        }
        for name, value in now.items():
            if value != self._facts[name]:
                raise self._refused(f"{words[name]}: make the plan again.")

    def _refused(self, why: str) -> DeclarationError:
        return DeclarationError(f"the plan in {self._path} cannot be used: {why}")


def _plain(name: str, value: object) -> object:
    """Numbers, texts, lists of them, and arrays."""
    if isinstance(value, str | bool | int | float | None):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise DeclarationError(f"model_args: {name!r} is no number, text or array, and cannot be saved.")
    return {_ARRAY: array.tolist(), "dtype": array.dtype.name}


def _taken(value: Any) -> Any:
    if isinstance(value, dict):
        return np.asarray(value[_ARRAY], dtype=value["dtype"])
    return [_taken(item) for item in value] if isinstance(value, list) else value
