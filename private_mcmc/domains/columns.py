"""Columns that may hold private rows: in memory, told by their type alone, or in a file, block by block."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DataSchemaError
from private_mcmc.records import Fields, Record

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
_SHORT = (jax.dtypes.bfloat16,)
_WORDS = {
    "O": "objects",
    "U": "text",
    "S": "text",
    "T": "text",
    "M": "dates",
    "m": "durations",
    "c": "complex numbers",
}
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
        held = _held(dtype)
        instead = "cast it, for example by column.astype(np.float64)"
        if held in ("text", "objects", "dates"):
            instead += "; words and dates become numbers by a schema, as in pmc.fit"
        raise DataSchemaError(
            f"column {name!r} is not numeric: it holds {held}. Columns are {_WHAT}; {instead}."
        )


def _held(dtype: object) -> str:
    """What a type is of; its own name could tell the longest text in a column."""
    kind = str(getattr(dtype, "kind", ""))
    return (
        f"numbers of type {dtype}" if kind in "biuf" or dtype in _SHORT else _WORDS.get(kind, "other things")
    )


def check_unmasked(name: str, column: object) -> None:
    """Raise ``DataSchemaError`` for a masked array: what a mask hides would enter as data."""
    if isinstance(column, np.ndarray) and hasattr(column, "mask"):
        raise DataSchemaError(
            f"column {name!r} is a masked array, and rows have no masks: fill it (column.filled(…)) with "
            "what a missing value is to count as, whether or not anything is masked."
        )


def numeric_column(name: str, column: object) -> np.ndarray:
    """``column``, a NumPy or JAX array or a pandas object, as a plain NumPy array in native byte order.

    Its type alone decides what happens: a missing value must not change it. Columns of pandas whose types
    are nullable or mixed become float64, missing values NaN.
    """
    check_unmasked(name, column)
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


def _types(name: str, column: object) -> list[Any]:
    """The type of an array, or of every column of a table."""
    types = getattr(column, "dtypes", None)
    found = list(types) if types is not None and np.ndim(types) == 1 else [getattr(column, "dtype", None)]
    if any(getattr(dtype, "kind", None) is None for dtype in found):
        raise DataSchemaError(
            f"column {name!r} is a {type(column).__name__}: pass an array (NumPy, JAX) or a pandas object."
        )
    return found


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
    # The file that it is mapped from, as it is now, where a path leads to it.
    path = getattr(column, "filename", None)
    file = None if path is None or not Path(path).is_file() else Written.now(Path(path))
    return ArrayColumn(column.shape, column.dtype, column, file)


@dataclass(frozen=True, eq=False)
class Table:
    """An open file: its number of rows, and its columns' types.

    ``batches(names, size, first, last)``: the rows ``first … last − 1`` in order, at most ``size`` at a time.
    """

    num_rows: int
    types: Fields
    batches: Callable[[list[str], int, int, int], Iterator[Any]]


Opener = Callable[[Path], AbstractContextManager[Table]]


@dataclass(frozen=True, eq=False)
class TableColumn(HostColumn):
    """A column of files, or several side by side, as float64; missing values are NaN.

    ``counts``: the rows of each file; ``first``: the first of the files' rows that is one of the column's.
    A file's path tells names that it does not have, as in ``year=2020/part.parquet``.
    """

    files: tuple[Written, ...]
    counts: tuple[int, ...]
    names: tuple[str, ...]
    opened: Opener
    first: int = 0

    def part(self, first: int, last: int) -> TableColumn:
        """The rows ``first … last − 1`` of the column."""
        return replace(self, shape=(last - first, *self.shape[1:]), first=self.first + first)

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Consecutive rows, whatever the groups of rows in the files, which are checked before and after."""
        waiting: list[np.ndarray] = []
        for part in self._batches(size):
            waiting.append(part)
            while sum(map(len, waiting)) >= size:
                rows = np.concatenate(waiting)
                waiting = [rows[size:]]
                yield rows[:size]
        if rest := [part for part in waiting if len(part)]:
            yield np.concatenate(rest)

    def _batches(self, size: int) -> Iterator[npt.NDArray[np.float64]]:
        begin, end, here = self.first, self.first + self.shape[0], 0
        for file, count in zip(self.files, self.counts, strict=True):
            first, last = max(begin - here, 0), min(end - here, count)
            here += count
            if first < last:
                file.check()
                told = _told_by(file.path)
                own = [name for name in self.names if name not in told]
                with self.opened(file.path) as table:
                    for batch in table.batches(own, size, first, last):
                        yield self._numbers(batch, told)
                file.check()

    def _numbers(self, batch: Any, told: Mapping[str, float]) -> npt.NDArray[np.float64]:
        # One type whatever is missing: an integer column with gaps must not look different from one without.
        parts = [
            np.full(batch.num_rows, told[name])
            if name in told
            else batch.column(name)
            .cast("float64", safe=False)
            .to_numpy(zero_copy_only=False)
            .astype(np.float64)
            for name in self.names
        ]
        return np.stack(parts, axis=1) if len(self.shape) == 2 else parts[0]


def files_of(path: Path, suffix: str) -> list[Path]:
    """The file itself; of a folder or a pattern all files, in the order of their names."""
    found = [path]
    if any(sign in str(path) for sign in "*?[") and not path.exists():
        found = sorted(Path(one) for one in glob(str(path), recursive=True))
    elif path.is_dir():
        found = sorted(path.rglob(f"*{suffix}"))
    if not found:
        raise DataSchemaError(f"{path}: there are no such files.")
    return found


def told_by_folders(path: Path) -> dict[str, str]:
    """What the names of a file's folders say of all its rows, ``year=2020``."""
    parts = [folder.partition("=") for folder in path.parts[:-1]]
    return {name: value for name, sign, value in parts if sign and name}


def _told_by(path: Path) -> dict[str, float]:
    """The numbers among it."""
    found = {}
    for name, value in told_by_folders(path).items():
        with suppress(ValueError):
            found[name] = float(value)
    return found


class _TableFile:
    _opened: Opener
    _suffix = ""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        paths = files_of(self._path, self._suffix)
        files, counts = [], []
        self._types: Record = {}
        for one in paths:
            with _in_words(one):
                files.append(Written.now(one))
            with self._opened(one) as table:
                types = {**dict.fromkeys(_told_by(one), None), **table.types}
                counts.append(table.num_rows)
            self._types = self._types or types
            if types != self._types:
                raise DataSchemaError(f"{one}: has other columns, or types, than {paths[0]}.")
        self._files, self._counts = tuple(files), tuple(counts)

    def __getitem__(self, names: str | Sequence[str]) -> TableColumn:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        missing = [name for name in wanted if name not in self._types]
        if missing or not wanted:
            raise DataSchemaError(f"{self._path}: no columns {missing}; it has {sorted(self._types)}.")
        types = _pyarrow().types
        for name in wanted:
            kind = self._types[name]
            of_numbers = types.is_integer, types.is_floating, types.is_boolean
            # A name of folders has no type: its values are numbers.
            if kind is not None and not any(check(kind) for check in of_numbers):
                raise DataSchemaError(f"{self._path}: column {name!r} is {self._types[name]}, not numeric.")
        rows = sum(self._counts)
        shape = (rows,) if isinstance(names, str) else (rows, len(wanted))
        return TableColumn(shape, np.dtype(np.float64), self._files, self._counts, wanted, self._opened)

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

        def batches(names: list[str], size: int, first: int, last: int) -> Iterator[Any]:
            here = 0
            # A reader of the whole file keeps every group it has read.
            for group in range(file.num_row_groups):
                count, before = file.metadata.row_group(group).num_rows, here
                here += count
                if before < last and first < here:
                    batches = file.iter_batches(batch_size=size, row_groups=[group], columns=names)
                    yield from _between(batches, first - before, last - before)

        yield Table(int(file.metadata.num_rows), _types_of_fields(path, file.schema_arrow), batches)


@contextmanager
def arrow_table(path: Path) -> Iterator[Table]:
    """An open file in Arrow's IPC format, mapped into memory."""
    pyarrow = _pyarrow()
    with _in_words(path), pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_file(source) as file:

        def batches(names: list[str], size: int, first: int, last: int) -> Iterator[Any]:
            groups = (file.get_batch(number).select(names) for number in range(file.num_record_batches))
            for batch in _between(groups, first, last):
                for begin in range(0, batch.num_rows, size):
                    yield batch.slice(begin, size)

        yield Table(int(file.count_rows()), _types_of_fields(path, file.schema), batches)


def _between(batches: Iterable[Any], first: int, last: int) -> Iterator[Any]:
    """The rows ``first … last − 1`` of consecutive batches."""
    here = 0
    for batch in batches:
        low, high = max(first - here, 0), min(last - here, batch.num_rows)
        here += batch.num_rows
        if low < high:
            yield batch.slice(low, high - low)


def _types_of_fields(path: Path, fields: Any) -> Record:
    twice = sorted(name for name, count in Counter(fields.names).items() if count > 1)
    if twice:
        raise DataSchemaError(f"{path}: several columns are called {twice}; rename them.")
    return {field.name: field.type for field in fields}


class Parquet(_TableFile):
    """Parquet as a source of columns: ``Parquet(path)[["x1", "x2"]]`` for ``X``, ``["y"]`` for ``y``.

    ``path`` is a file, a folder or a pattern (``"people/year=*/*.parquet"``), whose files are read in the
    order of their names; numbers in the names of folders (``year=2020``) are columns. Only schemas and
    numbers of rows are read until a run asks for the rows, which holds one row group at a time. Needs
    ``pyarrow`` (``pip install 'private-mcmc[scale]'``).

    Raises:
        DataSchemaError: for a name that is not in the file, or a column that is not numeric.

    Example:
        >>> import pyarrow, pyarrow.parquet
        >>> pyarrow.parquet.write_table(pyarrow.table({"age": [31, 62], "hours": [40, 20]}), "people.parquet")
        >>> pmc.Parquet("people.parquet")[["age", "hours"]].shape
        (2, 2)
    """

    _opened, _suffix = staticmethod(parquet_table), ".parquet"


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

    _opened, _suffix = staticmethod(arrow_table), ".arrow"


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
