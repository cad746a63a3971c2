"""Parquet and Arrow files as sources of columns, read in blocks; a folder of them is one table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc.domains.columns import HostColumn, Written
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


def _files_of(path: Path, suffix: str) -> list[Path]:
    """The file itself; of a folder or a pattern all files, in the order of their names."""
    found = [path]
    if any(sign in str(path) for sign in "*?[") and not path.exists():
        found = sorted(Path(one) for one in glob(str(path), recursive=True))
    elif path.is_dir():
        found = sorted(path.rglob(f"*{suffix}"))
    if not found:
        raise DataSchemaError(f"{path}: there are no such files.")
    return found


def _told_by(path: Path) -> dict[str, float]:
    """The numbers that the names of a file's folders say of all its rows, ``year=2020``."""
    found = {}
    for name, _, value in (folder.partition("=") for folder in path.parts[:-1]):
        with suppress(ValueError):
            found[name] = float(value)
    return found


class _TableFile:
    _opened: Opener
    _suffix = ""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        paths = _files_of(self._path, self._suffix)
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
        if len({file.mark for file in files}) < len(files):
            raise DataSchemaError(
                f"{self._path}: one file is found several times (by links, or by a pattern of two **): its "
                "rows would count as often."
            )
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
