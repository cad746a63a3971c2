"""Parquet and Arrow files as sources of columns, read in blocks; a folder of them is one table."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from private_mcmc.domains.columns import HostColumn, Written, without_cells
from private_mcmc.errors import DataSchemaError
from private_mcmc.records import Fields, Record


@dataclass(frozen=True, eq=False)
class Table:
    """An open file: its number of rows, and its columns' types.

    ``batches(names, size, first, last)``: the rows ``first … last − 1`` in order, at most ``size`` at a time.
    """

    num_rows: int
    types: Fields
    batches: Callable[[list[str], int, int, int], Iterator[Any]]


Opener = Callable[[Path], AbstractContextManager[Table]]


class FileColumn(HostColumn):
    """A column of files: whoever sees them under the same paths reads its own part of the rows."""

    files: TableFiles

    @abstractmethod
    def part(self, first: int, last: int) -> FileColumn:
        """The rows ``first … last − 1`` of the column."""

    @property
    def ordered_by_cells(self) -> bool:
        """Whether folders' names are cells: a row whose cell changes is in another file then."""
        return self.files.ordered_by_cells

    @abstractmethod
    def _batches(self, size: int) -> Iterator[npt.NDArray[np.float64]]:
        """The rows in order, as they come."""

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


@dataclass(frozen=True, eq=False)
class TableColumn(FileColumn):
    """A column of files, or several side by side, as float64; missing values are NaN.

    ``first``: the first of the files' rows that is one of the column's. A file's path tells names that it
    does not have, as in ``year=2020/part.parquet``.
    """

    files: TableFiles
    names: tuple[str, ...]
    first: int = 0

    def part(self, first: int, last: int) -> TableColumn:
        """The rows ``first … last − 1`` of the column."""
        return replace(self, shape=(last - first, *self.shape[1:]), first=self.first + first)

    def _batches(self, size: int) -> Iterator[npt.NDArray[np.float64]]:
        for batch in self.files.batches(self.names, size, self.first, self.first + self.shape[0]):
            parts = [_numbers(batch[name]) for name in self.names]
            yield np.stack(parts, axis=1) if len(self.shape) == 2 else parts[0]


@dataclass(frozen=True, eq=False)
class PickedColumn(FileColumn):
    """Those ``rows`` of a column, by their numbers in it, in an order that follows no cell."""

    column: FileColumn
    rows: npt.NDArray[np.int64]

    @property
    def ordered_by_cells(self) -> bool:
        """They are not."""
        return False

    def part(self, first: int, last: int) -> PickedColumn:
        """The rows ``first … last − 1`` of the column."""
        return replace(self, shape=(last - first, *self.shape[1:]), rows=self.rows[first:last])

    def at(self, rows: npt.NDArray[np.int64]) -> np.ndarray:
        """The rows of these numbers; all files are read."""
        order = np.argsort(self.rows[rows])
        return self.column.at(self.rows[rows][order])[np.argsort(order)]

    def _batches(self, size: int) -> Iterator[npt.NDArray[np.float64]]:
        every = np.arange(len(self.rows))
        for first in range(0, len(every), size):
            yield self.at(every[first : first + size])


def _batches(
    file: Written, opened: Opener, names: Sequence[str], size: int, first: int, last: int
) -> Iterator[Record]:
    """These rows of a file, which is checked before and after: arrays of Arrow, or the text of a folder."""
    file.check()
    with opened(file.path) as table:
        told = _told_by(file.path, table.types)
        # One at least: without any column nothing would tell how many rows there are.
        own = [name for name in names if name not in told] or [*table.types][:1]
        for batch in table.batches(own, size, first, last):
            yield {
                name: [told[name]] * batch.num_rows if name in told else batch.column(name) for name in names
            }
    file.check()


def _numbers(column: Any) -> npt.NDArray[np.float64]:
    if isinstance(column, list):
        return np.array([float(text or "nan") for text in column], dtype=np.float64)
    # One type whatever is missing: an integer column with gaps must not look different from one without.
    return np.asarray(column.cast("float64", safe=False).to_numpy(zero_copy_only=False), np.float64)


def files_of(path: Path, suffix: str = ".parquet") -> list[Path]:
    """The file itself; of a folder or a pattern all files, in the order of their names.

    Those under names that begin with ``_`` or a point are what programs leave behind that write such folders.
    """
    found = [path]
    if is_pattern(path):
        found = sorted(Path(one) for one in glob(str(path), recursive=True))
    elif path.is_dir():
        inside = ((one, one.relative_to(path).parts) for one in path.rglob(f"*{suffix}"))
        found = sorted(one for one, parts in inside if not any(part[0] in "._" for part in parts))
    if not found:
        raise DataSchemaError(f"{path}: there are no such files.")
    return found


def is_pattern(path: Path) -> bool:
    """Whether a path stands for all that match it."""
    return any(sign in str(path) for sign in "*?[") and not path.exists()


# What other programs call a folder of rows in which the value is missing.
_MISSING = "__HIVE_DEFAULT_PARTITION__"
_NUMBER = re.compile(r"|[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


def _told_by(path: Path, types: Collection[str]) -> dict[str, str]:
    """What the names of a file's folders say of all its rows, ``year=2020``, beside its own columns."""
    pairs = (folder.partition("=") for folder in path.parts[:-1])
    found = {name: unquote(value) for name, equals, value in pairs if equals and name not in types}
    return {name: value.replace(_MISSING, "") for name, value in found.items()}


class TableFiles:
    """Files of one format as one table; ``types`` of its columns, ``None`` for what names of folders tell."""

    _opened: Opener
    _suffix = ""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        files, counts = [], []
        self.types: Record = {}
        paths = files_of(self.path, self._suffix)
        for one in paths:
            with _in_words(one):
                files.append(Written.now(one))
            with self._opened(one) as table:
                types = {**dict.fromkeys(_told_by(one, table.types), None), **table.types}
                counts.append(table.num_rows)
            self.types = self.types or types
            if types != self.types:
                raise DataSchemaError(
                    f"{without_cells(one)}: has other columns, or types, than {without_cells(paths[0])}."
                )
        if len({file.mark for file in files}) < len(files):
            raise DataSchemaError(
                f"{self.path}: one file is found several times (by links, or by a pattern of two **): its "
                "rows would count as often."
            )
        self._files, self._counts = tuple(files), tuple(counts)

    @property
    def num_rows(self) -> int:
        """Of all files."""
        return sum(self._counts)

    @property
    def ordered_by_cells(self) -> bool:
        """Whether names of folders are cells, which tell where among the rows a row is."""
        return len(self._files) > 1 and None in self.types.values()

    def batches(
        self, names: Sequence[str], size: int, first: int = 0, last: int | None = None
    ) -> Iterator[Record]:
        """Rows ``first … last − 1``, ``size`` at a time, by name: Arrow's arrays, or texts of folders."""
        begin, end, here = first, self.num_rows if last is None else last, 0
        for file, count in zip(self._files, self._counts, strict=True):
            low, high = max(begin - here, 0), min(end - here, count)
            here += count
            if low < high:
                yield from _batches(file, self._opened, names, size, low, high)

    def __getitem__(self, names: str | Sequence[str]) -> TableColumn:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        missing = [name for name in wanted if name not in self.types]
        if missing or not wanted:
            raise DataSchemaError(f"{self.path}: no columns {missing}; it has {sorted(self.types)}.")
        types = _pyarrow().types
        for name in wanted:
            kind = self.types[name]
            of_numbers = types.is_integer, types.is_floating, types.is_boolean
            if kind is None:
                told = {_told_by(file.path, ()).get(name, "") for file in self._files}
                whole = all(_NUMBER.fullmatch(value) for value in told)
            else:
                whole = any(check(kind) for check in of_numbers)
            if not whole:
                raise DataSchemaError(f"{self.path}: column {name!r} is {kind or 'text'}, not numeric.")
        shape = (self.num_rows,) if isinstance(names, str) else (self.num_rows, len(wanted))
        return TableColumn(shape, np.dtype(np.float64), self, wanted)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """pyarrow's errors without what they quote of the file."""
    try:
        yield
    except (_pyarrow().ArrowException, OSError) as error:
        why = getattr(error, "strerror", None) or f"{type(error).__name__}: the file cannot be read"
        raise DataSchemaError(f"{without_cells(path)}: {why}.") from None


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
        raise DataSchemaError(f"{without_cells(path)}: several columns are called {twice}; rename them.")
    return {field.name: field.type for field in fields}


class Parquet(TableFiles):
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


class Arrow(TableFiles):
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
