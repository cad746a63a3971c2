"""Columns that may hold private rows: in memory, told by their type alone, or in a file, block by block."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import re
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DataSchemaError

Scalar = TypeVar("Scalar", bound=np.generic)

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


_KINDS = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
_TYPES = tuple(np.dtype(kind) for kind in _KINDS)
_WHAT = "booleans, integers, or floats of 16, 32 or 64 bits"


def native(dtype: np.dtype) -> np.dtype:
    """``dtype`` in this machine's byte order, the only one that JAX takes."""
    return dtype.newbyteorder("=")


def check_type(name: str, dtype: object) -> None:
    """Raise ``DataSchemaError`` unless ``dtype`` is one of NumPy's, of booleans, integers or common floats.

    Longer floats would be narrowed and shorter ones (``bfloat16``, …) are not NumPy's own: the caller says
    by a cast what is meant.
    """
    if not (isinstance(dtype, np.dtype) and dtype.kind in "biuf" and native(dtype) in _TYPES):
        # A type's own name could tell the longest text in a column.
        raise DataSchemaError(
            f"column {name!r} is not numeric: columns are {_WHAT}; cast it, for example by "
            "column.astype(np.float64). Words and dates become numbers by a schema, as in pmc.fit."
        )


def check_unmasked(name: str, column: object) -> None:
    """Raise ``DataSchemaError`` for a masked array: what a mask hides would enter as data."""
    if isinstance(column, np.ndarray) and hasattr(column, "mask"):
        raise DataSchemaError(
            f"column {name!r} is a masked array, and rows have no masks: fill it (column.filled(…)) with "
            "what a missing value is to count as, whether or not anything is masked."
        )


def numeric_column(name: str, column: object) -> np.ndarray:
    """``column``, an array of NumPy or JAX, or of a frame, as a plain NumPy array in native byte order.

    Its type alone decides what happens: a missing value must not change it. Columns of Polars and Arrow, and
    those of pandas whose types are nullable or mixed, become float64, missing values NaN.
    """
    check_unmasked(name, column)
    if hasattr(column, "__arrow_c_stream__"):
        column = _of_frame(name, column)
    types = _types(name, column)
    plain = all(isinstance(dtype, np.dtype) for dtype in types)
    for dtype in types:
        if isinstance(dtype, np.dtype) or getattr(dtype, "kind", "O") not in "biuf":
            check_type(name, dtype)
    try:
        # A warning of a cast would tell of values.
        with np.errstate(all="ignore"):
            if not (plain and len({dtype.kind for dtype in types}) <= 1) and hasattr(column, "to_numpy"):
                column = column.to_numpy(dtype=np.float64, na_value=np.nan)
            array = np.asarray(column)
    except (TypeError, ValueError, ArithmeticError, RuntimeError):
        # Errors of a conversion may quote values.
        raise DataSchemaError(
            f"column {name!r}: this {type(column).__name__} cannot be read as an array here; pass a NumPy "
            "array."
        ) from None
    check_type(name, array.dtype)
    return array.astype(native(array.dtype), copy=False)


def _of_frame(name: str, column: Any) -> Any:
    """A series or a frame of Polars or Arrow as float64; one of pandas as it is."""
    import narwhals as nw

    found = nw.from_native(column, eager_only=True, allow_series=True, pass_through=True)
    if not isinstance(found, nw.Series | nw.DataFrame) or found.implementation.is_pandas_like():
        return column
    parts = [found] if isinstance(found, nw.Series) else [found[each] for each in found.columns]
    if not parts or not all(part.dtype.is_numeric() or part.dtype == nw.Boolean for part in parts):
        raise DataSchemaError(f"column {name!r}: is not numeric.")
    try:
        arrays = [np.asarray(part.cast(nw.Float64).to_numpy(), np.float64) for part in parts]
    except Exception as error:  # it may quote values
        raise DataSchemaError(f"column {name!r}: cannot be read ({type(error).__name__}).") from None
    return arrays[0] if isinstance(found, nw.Series) else np.stack(arrays, axis=1)


def _types(name: str, column: object) -> list[Any]:
    """The type of an array, or of every column of a table."""
    types = getattr(column, "dtypes", None)
    found = list(types) if types is not None and np.ndim(types) == 1 else [getattr(column, "dtype", None)]
    if any(getattr(dtype, "kind", None) is None for dtype in found):
        raise DataSchemaError(
            f"column {name!r} is a {type(column).__name__}: pass an array, a series or a frame; of a list, "
            "np.asarray(…, float)."
        )
    return found


_LOADED = 2**16


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


@dataclass(frozen=True, eq=False)
class HostColumn(ABC):
    """A column of known shape and type whose rows are read in order."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @abstractmethod
    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """All rows in order, ``size`` at a time; the last block may be shorter."""

    @property
    def ordered_by_cells(self) -> bool:
        """Whether the order of the rows follows cells of theirs, as in folders such as ``region=north``."""
        return False

    @property
    def schema(self) -> np.ndarray:
        """An array of this shape and type that holds no row, for checks of the schema."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def loaded(self) -> np.ndarray:
        """All rows, in memory."""
        return np.concatenate([np.zeros((0, *self.shape[1:]), native(self.dtype)), *self.blocks(_LOADED)])

    def at(self, rows: npt.NDArray[np.int64]) -> np.ndarray:
        """The rows of these numbers, which increase; all are read."""
        found, first = [np.zeros((0, *self.shape[1:]), native(self.dtype))], 0
        for block in self.blocks(_LOADED):
            low, high = np.searchsorted(rows, (first, first + len(block)))
            found.append(block[rows[low:high] - first])
            first += len(block)
        return np.concatenate(found)


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


class Spool:
    """A file without a name: only this process can open it, and it is gone when the process ends."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self.file.close)

    def append(self, part: np.ndarray) -> None:
        """Write the next rows of a column."""
        self.file.write(part.tobytes())


@dataclass(frozen=True, eq=False)
class SpooledColumn(HostColumn):
    """A column in such a file."""

    spool: Spool = field(repr=False)
    by_cells: bool = False

    @classmethod
    def of(cls, spool: Spool, like: np.ndarray, by_cells: bool = False) -> SpooledColumn:
        """All that was written, rows like these."""
        width = math.prod(like.shape[1:]) * like.itemsize
        return cls((spool.file.tell() // width, *like.shape[1:]), like.dtype, spool, by_cells)

    @property
    def ordered_by_cells(self) -> bool:
        """As the files that it was read from."""
        return self.by_cells

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Copies of consecutive rows."""
        self.spool.file.flush()
        width = math.prod(self.shape[1:]) * self.dtype.itemsize
        for first in range(0, self.shape[0], size):
            count = min(size, self.shape[0] - first)
            read = os.pread(self.spool.file.fileno(), width * count, width * first)
            yield np.frombuffer(read, self.dtype).reshape(count, *self.shape[1:])


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
    # The file that it is mapped from, as it is now, where a path leads to it.
    path = getattr(column, "filename", None)
    file = None if path is None or not Path(path).is_file() else Written.now(Path(path))
    return ArrayColumn(column.shape, column.dtype, column, file)


Columns = Mapping[str, npt.ArrayLike | HostColumn]
_AT_ONCE = 2**16


def data_mark(key: bytes, data: Columns) -> str:
    """A keyed hash of columns: names, shapes and values, block by block, and the numbers of the holes.

    What lies in a hole does not matter, and without holes it does not matter how their absence was told.
    """
    mark = hmac.new(key, b"data", hashlib.sha256)
    values = {name: _by_block(name, column) for name, column in data.items()}
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


def _by_block(name: str, column: npt.ArrayLike | HostColumn) -> HostColumn:
    if isinstance(column, HostColumn):
        return column
    values = numeric_column(name, column)
    return ArrayColumn(values.shape, values.dtype, np.atleast_1d(values))
