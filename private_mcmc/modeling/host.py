"""Columns that stay outside the device's memory: arrays on disk and Parquet files, read block by block."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DataSchemaError


@dataclass(frozen=True, eq=False)
class HostColumn(ABC):
    """A column of known shape and type whose rows are read in order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @abstractmethod
    def blocks(self, size: int) -> Iterator[npt.NDArray[Any]]:
        """All rows in order, ``size`` at a time; the last block may be shorter."""

    @property
    def schema(self) -> npt.NDArray[Any]:
        """An array of this shape and type that holds no row, for checks of the schema."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)


@dataclass(frozen=True, eq=False)
class ArrayColumn(HostColumn):
    """An array in memory or mapped into it (``np.memmap``, ``np.load(…, mmap_mode="r")``)."""

    values: npt.NDArray[Any]

    def blocks(self, size: int) -> Iterator[npt.NDArray[Any]]:
        """Copies of consecutive rows."""
        for first in range(0, len(self.values), size):
            yield np.array(self.values[first : first + size])


@dataclass(frozen=True, eq=False)
class ParquetColumn(HostColumn):
    """One column of a Parquet file, or several side by side, as float64; missing values are NaN."""

    path: Path
    names: tuple[str, ...]

    def blocks(self, size: int) -> Iterator[npt.NDArray[Any]]:
        """Consecutive rows, whatever the row groups of the file."""
        waiting: list[npt.NDArray[Any]] = []
        with _parquet().ParquetFile(self.path) as file:
            self._check_unchanged(file)
            for batch in file.iter_batches(batch_size=size, columns=list(self.names)):
                waiting.append(self._numbers(batch))
                while sum(map(len, waiting)) >= size:
                    rows = np.concatenate(waiting)
                    waiting = [rows[size:]]
                    yield rows[:size]
        if rest := [part for part in waiting if len(part)]:
            yield np.concatenate(rest)

    def _check_unchanged(self, file: Any) -> None:
        """Refuse what the checks of the schema did not see; errors of a conversion would quote values."""
        types = {field.name: field.type for field in file.schema_arrow}
        numeric = all(name in types and _numeric(types[name]) for name in self.names)
        if not numeric or file.metadata.num_rows != self.shape[0]:
            raise DataSchemaError(f"{self.path}: the file is another one than when its columns were taken.")

    def _numbers(self, batch: Any) -> npt.NDArray[np.float64]:
        # One type whatever is missing: an integer column with gaps must not look different from one without.
        parts = [
            batch.column(name).cast("float64", safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
            for name in self.names
        ]
        return np.stack(parts, axis=1) if len(self.shape) == 2 else parts[0]


class Parquet:
    """A Parquet file as a source of columns: ``Parquet(path)[["x1", "x2"]]`` for ``X``, ``["y"]`` for ``y``.

    Only the schema and the number of rows are read until a run asks for the rows. Needs ``pyarrow``
    (``pip install 'private-mcmc[scale]'``).

    Raises:
        DataSchemaError: for a name that is not in the file, or a column that is not numeric.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        with _parquet().ParquetFile(self._path) as file:
            self._rows = int(file.metadata.num_rows)
            self._types = {field.name: field.type for field in file.schema_arrow}

    def __getitem__(self, names: str | Sequence[str]) -> ParquetColumn:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        missing = [name for name in wanted if name not in self._types]
        if missing or not wanted:
            raise DataSchemaError(f"{self._path}: no columns {missing}; it has {sorted(self._types)}.")
        for name in wanted:
            if not _numeric(self._types[name]):
                raise DataSchemaError(f"{self._path}: column {name!r} is {self._types[name]}, not numeric.")
        shape = (self._rows,) if isinstance(names, str) else (self._rows, len(wanted))
        return ParquetColumn(shape, np.dtype(np.float64), self._path, wanted)

    def __repr__(self) -> str:
        return f"Parquet({str(self._path)!r})"


def on_host(column: Any) -> bool:
    """Whether a column asks to stay outside the device's memory."""
    return isinstance(column, (HostColumn, np.memmap))


def host_column(name: str, column: Any) -> HostColumn:
    """``column`` as one that is read block by block.

    Raises:
        DataSchemaError: for something that is neither an array nor a source of this module.
    """
    if isinstance(column, HostColumn):
        return column
    if not isinstance(column, np.ndarray):
        raise DataSchemaError(
            f"column {name!r} is a {type(column).__name__}: rows are streamed from NumPy arrays and Parquet."
        )
    return ArrayColumn(column.shape, column.dtype, column)


def _numeric(kind: Any) -> bool:
    import pyarrow

    types = pyarrow.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataSchemaError(
            "Parquet files need pyarrow: pip install 'private-mcmc[scale]', or pass arrays (np.memmap)."
        ) from error
    return pyarrow.parquet
