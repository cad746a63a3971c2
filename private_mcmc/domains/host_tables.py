"""Columns of Parquet and Arrow files, read block by block."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc.domains.numeric import check_type, check_unmasked, native
from private_mcmc.errors import DataSchemaError
from private_mcmc.records import Fields, Record

_LOADED = 2**16


@dataclass(frozen=True)
class Written:
    """A file as it was: what is charged is what is read, at every step."""

    path: Path
    mark: tuple[int, int, int]

    @classmethod
    def now(cls, path: Path) -> Written:
        """Which file it is, its size, and when it was last written to."""
        found = os.stat(path)
        return cls(path, (found.st_ino, found.st_size, found.st_mtime_ns))

    def check(self) -> None:
        """Raise ``DataSchemaError`` where it was replaced or written to; nothing read of it is used then."""
        try:
            same = Written.now(self.path) == self
        except OSError:
            same = False
        if not same:
            raise DataSchemaError(
                f"{self.path}: the file is another one than when its columns were taken. Nothing more is "
                "done with it: start again, on a file that nobody writes to."
            )


@dataclass(frozen=True, eq=False)
class HostColumn(ABC):
    """A column of known shape and type whose rows are read in order."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @abstractmethod
    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """All rows in order, ``size`` at a time; the last block may be shorter."""

    @property
    def schema(self) -> np.ndarray:
        """An array of this shape and type that holds no row, for checks of the schema."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def loaded(self) -> np.ndarray:
        """All rows, in memory."""
        return np.concatenate([np.zeros((0, *self.shape[1:]), native(self.dtype)), *self.blocks(_LOADED)])


@dataclass(frozen=True, eq=False)
class ArrayColumn(HostColumn):
    """An array in memory or mapped into it (``np.memmap``, ``np.load(…, mmap_mode="r")``), from ``file``."""

    values: np.ndarray
    file: Written | None = None

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Copies of consecutive rows, in native byte order."""
        kind = native(self.dtype)
        for first in range(0, len(self.values), size):
            yield np.array(self.values[first : first + size], dtype=kind)
        if self.file is not None:
            self.file.check()


def on_host(column: object) -> bool:
    """Whether a column asks to stay outside the device's memory."""
    return isinstance(column, (HostColumn, np.memmap))


def host_column(name: str, column: object) -> HostColumn:
    """``column`` as one that is read block by block."""
    if isinstance(column, HostColumn):
        return column
    check_unmasked(name, column)
    if not isinstance(column, np.ndarray):
        raise DataSchemaError(
            f"column {name!r} is a {type(column).__name__}: rows are streamed from NumPy arrays, Parquet and "
            "Arrow files."
        )
    check_type(name, column.dtype)
    return ArrayColumn(column.shape, column.dtype, column, _mapped(column))


def _mapped(column: np.ndarray) -> Written | None:
    """The file that an array is mapped from, as it is now; ``None`` where no path leads to it."""
    path = getattr(column, "filename", None)
    return None if path is None or not Path(path).is_file() else Written.now(Path(path))


@dataclass(frozen=True, eq=False)
class Table:
    """An open file: its number of rows, its columns' types, and ``batches(names, size)`` of rows in order."""

    num_rows: int
    types: Fields
    batches: Callable[[list[str], int], Iterator[Any]]


Opener = Callable[[Path], AbstractContextManager[Table]]


@dataclass(frozen=True, eq=False)
class TableColumn(HostColumn):
    """One column of a file, or several side by side, as float64; missing values are NaN."""

    file: Written
    names: tuple[str, ...]
    opened: Opener

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Consecutive rows, whatever the groups of rows in the file, which is checked before and after."""
        waiting: list[np.ndarray] = []
        self.file.check()
        with self.opened(self.file.path) as table:
            for batch in table.batches(list(self.names), size):
                waiting.append(self._numbers(batch))
                while sum(map(len, waiting)) >= size:
                    rows = np.concatenate(waiting)
                    waiting = [rows[size:]]
                    yield rows[:size]
        if rest := [part for part in waiting if len(part)]:
            yield np.concatenate(rest)
        self.file.check()

    def _numbers(self, batch: Any) -> npt.NDArray[np.float64]:
        # One type whatever is missing: an integer column with gaps must not look different from one without.
        parts = [
            batch.column(name).cast("float64", safe=False).to_numpy(zero_copy_only=False).astype(np.float64)
            for name in self.names
        ]
        return np.stack(parts, axis=1) if len(self.shape) == 2 else parts[0]


class _TableFile:
    def __init__(self, path: str | os.PathLike[str], opened: Opener) -> None:
        self._path, self._opened = Path(path), opened
        with _in_words(self._path):
            self._file = Written.now(self._path)
        with opened(self._path) as table:
            self._rows, self._types = table.num_rows, table.types

    def __getitem__(self, names: str | Sequence[str]) -> TableColumn:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        missing = [name for name in wanted if name not in self._types]
        if missing or not wanted:
            raise DataSchemaError(f"{self._path}: no columns {missing}; it has {sorted(self._types)}.")
        for name in wanted:
            if not _numeric(self._types[name]):
                raise DataSchemaError(f"{self._path}: column {name!r} is {self._types[name]}, not numeric.")
        shape = (self._rows,) if isinstance(names, str) else (self._rows, len(wanted))
        return TableColumn(shape, np.dtype(np.float64), self._file, wanted, self._opened)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._path)!r})"


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """pyarrow's errors without what they quote of the file."""
    try:
        yield
    except _pyarrow().ArrowException as error:
        raise DataSchemaError(f"{path}: {type(error).__name__}: the file cannot be read.") from None
    except OSError as error:
        raise DataSchemaError(f"{path}: {error.strerror or 'the file cannot be read'}.") from None


@contextmanager
def parquet_table(path: Path) -> Iterator[Table]:
    """An open Parquet file."""
    pyarrow = _pyarrow()
    with _in_words(path), pyarrow.parquet.ParquetFile(path) as file:

        def batches(names: list[str], size: int) -> Iterator[Any]:
            # A reader of the whole file keeps every group it has read.
            for group in range(file.num_row_groups):
                yield from file.iter_batches(batch_size=size, row_groups=[group], columns=names)

        yield Table(int(file.metadata.num_rows), _types(path, file.schema_arrow), batches)


@contextmanager
def arrow_table(path: Path) -> Iterator[Table]:
    """An open file in Arrow's IPC format, mapped into memory."""
    pyarrow = _pyarrow()
    with _in_words(path), pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_file(source) as file:

        def batches(names: list[str], size: int) -> Iterator[Any]:
            for number in range(file.num_record_batches):
                batch = file.get_batch(number).select(names)
                for first in range(0, batch.num_rows, size):
                    yield batch.slice(first, size)

        yield Table(int(file.count_rows()), _types(path, file.schema), batches)


def _types(path: Path, fields: Any) -> Record:
    twice = sorted(name for name, count in Counter(fields.names).items() if count > 1)
    if twice:
        raise DataSchemaError(f"{path}: several columns are called {twice}; rename them.")
    return {field.name: field.type for field in fields}


class Parquet(_TableFile):
    """A Parquet file as a source of columns: ``Parquet(path)[["x1", "x2"]]`` for ``X``, ``["y"]`` for ``y``.

    Only the schema and the number of rows are read until a run asks for the rows, which holds one row group
    of the file at a time. Needs ``pyarrow``
    (``pip install 'private-mcmc[scale]'``).

    Raises:
        DataSchemaError: for a name that is not in the file, or a column that is not numeric.

    Example:
        >>> import pyarrow, pyarrow.parquet
        >>> pyarrow.parquet.write_table(pyarrow.table({"age": [31, 62], "hours": [40, 20]}), "people.parquet")
        >>> pmc.Parquet("people.parquet")[["age", "hours"]].shape
        (2, 2)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, parquet_table)


class Arrow(_TableFile):
    """A file in Arrow's IPC format (Feather), mapped into memory; otherwise as :class:`Parquet`.

    Raises:
        DataSchemaError: as for :class:`Parquet`.

    Example:
        >>> import pyarrow, pyarrow.feather
        >>> people = pyarrow.table({"age": [31, 62]})
        >>> pyarrow.feather.write_feather(people, "people.arrow", compression="uncompressed")
        >>> pmc.Arrow("people.arrow")["age"].shape
        (2,)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, arrow_table)


def _numeric(kind: Any) -> bool:
    types = _pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _pyarrow() -> Any:
    try:
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise DataSchemaError(
            "Parquet and Arrow files need pyarrow: pip install 'private-mcmc[scale]', or pass arrays "
            "(np.memmap)."
        ) from error
    return pyarrow
