"""Columns that may hold private rows: in memory, told by their type alone, or in a file, block by block."""

from __future__ import annotations

import csv
import hashlib
import hmac
import math
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import narwhals as nw
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DataSchemaError, PrivateMCMCError

Scalar = TypeVar("Scalar", bound=np.generic)
Part = TypeVar("Part")

# The argument of a run that tells it; among a data set's columns it lies under the same name.
PRESENT = "present"


def holds_person(flags: np.ndarray) -> npt.NDArray[np.bool_]:
    """Where a flag is true or 1. Every other value, NaN included, marks a hole: no value is refused."""
    there: npt.NDArray[np.bool_] = np.equal(flags, 1)
    return there


def blank(values: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """``values`` of shape ``(n, …)``, zeros where ``flags`` of shape ``(n,)`` have a hole."""
    there = holds_person(flags)
    if there.all():
        return values
    return np.where(there.reshape(-1, *(1,) * (values.ndim - 1)), values, np.zeros((), values.dtype))


def padded(values: npt.NDArray[Scalar], slots: int) -> npt.NDArray[Scalar]:
    """``values`` of shape ``(n, …)`` and zeros after them, ``slots ≥ n`` in all."""
    if len(values) == slots:
        return values
    return np.concatenate([values, np.zeros((slots - len(values), *values.shape[1:]), values.dtype)])


def check_type(name: str, dtype: object) -> None:
    """Raise ``DataSchemaError`` unless ``dtype`` is one of NumPy's, of booleans, integers or common floats.

    Longer floats would be narrowed and shorter ones (``bfloat16``, …) are not NumPy's own: the caller says
    by a cast what is meant.
    """
    if not (isinstance(dtype, np.dtype) and dtype.char in "?bBhHiIlLqQefd"):
        # A type's own name could tell the longest text in a column.
        raise DataSchemaError(
            f"column {name!r} is not numeric: columns are booleans, integers, or floats of 16, 32 or 64 "
            "bits; cast it, for example by column.astype(np.float64). Words and dates become numbers by a "
            "schema, as in pmc.fit."
        )


def check_unmasked(name: str, column: object) -> None:
    """Raise ``DataSchemaError`` for a masked array: what a mask hides would enter as data."""
    if isinstance(column, np.ndarray) and hasattr(column, "mask"):
        raise DataSchemaError(
            f"column {name!r} is a masked array, and rows have no masks: fill it (column.filled(…)) with "
            "what a missing value is to count as, whether or not anything is masked."
        )


def numeric_column(name: str, column: Any) -> np.ndarray:
    """``column``, an array of NumPy or JAX, or of a frame, as a plain NumPy array in native byte order.

    Its type alone decides what happens: a missing value must not change it. Columns of Polars and Arrow, and
    those of pandas whose types are nullable or mixed, become float64, missing values NaN; sparse ones dense.
    """
    check_unmasked(name, column)
    try:
        # A warning of a cast would tell of values.
        with np.errstate(all="ignore"):
            found: Any = getattr(column, "dtypes", getattr(column, "dtype", None))
            types: list[Any] = list(found) if np.ndim(found) == 1 else [found]
            if any(type(one).__name__ == "SparseDtype" for one in types):
                # Gaps that are missing values need floats, whether or not there is one.
                kinds = ((getattr(one, "subtype", one), getattr(one, "fill_value", 0)) for one in types)
                types = [kind if fill == fill else np.dtype(np.float64) for kind, fill in kinds]
                asked = dict(zip(column.columns, types, strict=True)) if np.ndim(found) else types[0]
                column = column.astype(asked)
            if all(isinstance(one, np.dtype) for one in types):
                for one in types:
                    check_type(name, one)
                mixed = len({one.kind for one in types}) > 1
                array = np.asarray(column, np.float64 if mixed else None)
            else:
                array = _floats(name, column)
    except DataSchemaError:
        raise
    except Exception:  # it may quote values
        raise DataSchemaError(
            f"column {name!r}: this {type(column).__name__} cannot be read as an array here; pass a NumPy "
            "array."
        ) from None
    check_type(name, array.dtype)
    # JAX takes no other byte order.
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _floats(name: str, column: Any) -> np.ndarray:
    """A series or a frame with types of its own as float64."""
    found = nw.from_native(column, eager_only=True, allow_series=True, pass_through=True)
    if not isinstance(found, nw.Series | nw.DataFrame):
        raise DataSchemaError(
            f"column {name!r} is a {type(column).__name__}: pass an array, a series or a frame; of a list, "
            "np.asarray(…, float)."
        )
    parts = [found] if isinstance(found, nw.Series) else [found[each] for each in found.columns]
    if not parts or not all(part.dtype.is_numeric() or part.dtype == nw.Boolean for part in parts):
        check_type(name, None)
    # Of whole numbers of 64 bits Arrow casts those alone that lie within 2^53: one cell would stop a run.
    wide = (nw.Int64, nw.UInt64)
    numbers = (part if part.dtype in wide else part.cast(nw.Float64) for part in parts)
    arrays = [np.asarray(part.to_numpy(), np.float64) for part in numbers]
    return arrays[0] if isinstance(found, nw.Series) else np.stack(arrays, axis=1)


_AT_ONCE = 2**16


def without_cells(path: Path) -> Path:
    """A path as it may be shown: folders such as ``region=north`` are named by cells of rows."""
    return Path(*(re.sub("=.*", "=…", part, flags=re.DOTALL) for part in path.parts))


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
                f"{without_cells(self.path)}: the file is another one than when its columns were taken. "
                "Nothing more is done with it: start again, on a file that nobody writes to."
            )


def read_files(
    files: Iterable[tuple[Written, int]],
    first: int,
    last: int,
    read: Callable[[Path, int, int], Iterator[Part]],
) -> Iterator[Part]:
    """Rows ``first … last − 1`` of files of so many rows, by ``read(path, low, high)``.

    Every file is checked before and after: what it gave is used only if nobody wrote to it.
    """
    here = 0
    for file, count in files:
        low, high = max(first - here, 0), min(last - here, count)
        here += count
        if low < high:
            file.check()
            with in_words(without_cells(file.path)):
                yield from read(file.path, low, high)
            file.check()


@contextmanager
def in_words(where: object, encoding: str = "") -> Iterator[None]:
    """Errors of what reads cells, which may quote them, in words that do not."""
    try:
        yield
    except PrivateMCMCError:
        raise
    except UnicodeDecodeError:
        raise DataSchemaError(
            f"{where}: is not in {encoding or 'UTF-8'}. Save it as UTF-8, or declare its encoding: "
            "init --encoding cp1252, in a schema private_mcmc: {encoding: cp1252}."
        ) from None
    except csv.Error:
        raise DataSchemaError(f"{where}: is not a CSV file: a quotation is not closed.") from None
    except Exception as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise DataSchemaError(f"{where}: cannot be read ({why}).") from None


@dataclass(frozen=True, eq=False)
class HostColumn:
    """A column of known shape and type outside the device's memory, whose rows are read in order.

    Attributes:
        read: ``(first, last, size) ↦`` the rows ``first … last − 1`` of a table, some of them after others.
        first: which of those is the first one of the column.
        ordered_by_cells: the order of the rows follows cells of theirs, as in folders such as
            ``region=north``: a row whose cell changes is in another file then.
        of_files: whoever sees the files under the same paths may read a part of it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[int, int, int], Iterable[np.ndarray]] = field(repr=False)
    first: int = 0
    ordered_by_cells: bool = False
    of_files: bool = False

    def part(self, first: int, last: int) -> HostColumn:
        """The rows ``first … last − 1`` of the column."""
        return replace(self, shape=(last - first, *self.shape[1:]), first=self.first + first)

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Copies of all rows in order, in native byte order, ``size`` at a time; the last may be shorter.

        ``DataSchemaError`` where other than that many rows are read: columns side by side would not be rows.
        """
        waiting, missing = [np.zeros((0, *self.shape[1:]), self.dtype.newbyteorder("="))], self.shape[0]
        for part in self.read(self.first, self.first + self.shape[0], size):
            waiting.append(part)
            missing -= len(part)
            while sum(map(len, waiting)) >= size:
                rows = np.concatenate(waiting)
                waiting = [rows[size:]]
                yield rows[:size]
        if sum(map(len, waiting)):
            yield np.concatenate(waiting)
        if missing:
            raise DataSchemaError("a column gave another number of rows than it has: no row is used.")

    @property
    def schema(self) -> np.ndarray:
        """An array of this shape and type that holds no row, for checks of the schema."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def loaded(self) -> np.ndarray:
        """All rows, in memory."""
        return self.at(np.arange(self.shape[0]))

    def at(self, rows: npt.NDArray[np.int64]) -> np.ndarray:
        """The rows of these numbers, which increase; all are read."""
        found, first = [np.zeros((0, *self.shape[1:]), self.dtype.newbyteorder("="))], 0
        for block in self.blocks(_AT_ONCE):
            low, high = np.searchsorted(rows, (first, first + len(block)))
            found.append(block[rows[low:high] - first])
            first += len(block)
        return np.concatenate(found)


@dataclass(frozen=True, eq=False, kw_only=True)
class PickedColumn(HostColumn):
    """Those ``rows`` of a ``column``, by their numbers in it, in an order that follows no cell."""

    column: HostColumn
    rows: npt.NDArray[np.int64]

    @classmethod
    def of(cls, column: HostColumn, rows: npt.NDArray[np.int64]) -> PickedColumn:
        """Read where that is."""
        shape = (len(rows), *column.shape[1:])
        return cls(shape, column.dtype, column.read, of_files=column.of_files, column=column, rows=rows)

    def part(self, first: int, last: int) -> PickedColumn:
        """The rows ``first … last − 1`` of the column."""
        return PickedColumn.of(self.column, self.rows[first:last])

    def at(self, rows: npt.NDArray[np.int64]) -> np.ndarray:
        """The rows of these numbers; all files are read."""
        order = np.argsort(self.rows[rows])
        return self.column.at(self.rows[rows][order])[np.argsort(order)]

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """The rows in order."""
        every = np.arange(len(self.rows))
        for first in range(0, len(every), size):
            yield self.at(every[first : first + size])


class Spool:
    """A column on disk, in a file without a name: only this process can open it, and it ends with it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def append(self, part: np.ndarray) -> None:
        """Write the next rows."""
        self._file.write(part.tobytes())
        self._like, self._width = part[:0], math.prod(part.shape[1:]) * part.itemsize

    def column(self, ordered_by_cells: bool = False) -> HostColumn:
        """All that was written."""
        shape = (self._file.tell() // self._width, *self._like.shape[1:])
        self._file.flush()
        return HostColumn(shape, self._like.dtype, self._read, ordered_by_cells=ordered_by_cells)

    def _read(self, first: int, last: int, size: int) -> Iterator[np.ndarray]:
        for start in range(first, last, size):
            count = min(size, last - start)
            read = os.pread(self._file.fileno(), self._width * count, self._width * start)
            yield np.frombuffer(read, self._like.dtype).reshape(count, *self._like.shape[1:])


def on_host(column: object) -> bool:
    """Whether a column asks to stay outside the device's memory."""
    return isinstance(column, (HostColumn, np.memmap))


def host_column(name: str, column: object) -> HostColumn:
    """``column`` as one that is read block by block; arrays may be mapped into memory (``np.memmap``)."""
    if isinstance(column, HostColumn):
        return column
    check_unmasked(name, column)
    if not isinstance(column, np.ndarray):
        raise DataSchemaError(
            f"column {name!r} is a {type(column).__name__}: rows are streamed from NumPy arrays, Parquet and "
            "Arrow files."
        )
    check_type(name, column.dtype)
    # The file that it is mapped from, as it is now, where a path leads to it.
    path = getattr(column, "filename", None)
    file = None if path is None or not Path(path).is_file() else Written.now(Path(path))
    return HostColumn(column.shape, column.dtype, partial(_of_array, column, file))


def _of_array(
    values: np.ndarray, file: Written | None, first: int, last: int, size: int
) -> Iterator[np.ndarray]:
    for start in range(first, last, size):
        yield values[start : min(start + size, last)]
    if file is not None:
        file.check()


Columns = Mapping[str, npt.ArrayLike | HostColumn]


@np.errstate(all="ignore")
def data_mark(key: bytes, data: Columns) -> str:
    """A keyed hash of columns: names, shapes and values, block by block, and the numbers of the holes.

    What lies in a hole does not matter, and without holes it does not matter how their absence was told.
    """
    mark = hmac.new(key, b"data", hashlib.sha256)
    values = {
        name: host_column(name, one if isinstance(one, HostColumn) else numeric_column(name, one))
        for name, one in data.items()
    }
    flags = values.pop(PRESENT, None)
    for name in sorted(values):
        mark.update(f"\n{name} {values[name].shape}\n".encode())
        blocks = values[name].blocks(_AT_ONCE)
        for block in blocks if flags is None else map(blank, blocks, flags.blocks(_AT_ONCE)):
            # One type for all numbers, so that a narrower copy of the same data is recognised.
            mark.update(np.ascontiguousarray(block, dtype=np.float64).tobytes())
    for number, block in enumerate(() if flags is None else flags.blocks(_AT_ONCE)):
        holes = number * _AT_ONCE + np.flatnonzero(~holds_person(block))
        mark.update(holes.astype("<i8").tobytes())
    return mark.hexdigest()
