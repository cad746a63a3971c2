"""Parquet and Arrow files as sources of columns, read in blocks; a folder of them is one table."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from private_mcmc.domains.columns import HostColumn, Written, in_words, read_files, without_cells
from private_mcmc.errors import DataSchemaError
from private_mcmc.records import Record

# An open file: its schema, and its groups of rows, each with their number and how batches of them are read.
Groups: TypeAlias = list[tuple[int, Callable[[list[str], int], Iterable[Any]]]]
Opener: TypeAlias = Callable[[Path], AbstractContextManager[tuple[Any, Groups]]]


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
            where = without_cells(one)
            with in_words(where), self._opened(one) as (schema, groups):
                files.append(Written.now(one.absolute()))  # workers have other working folders
                counts.append(sum(count for count, _ in groups))
                if twice := sorted(name for name, count in Counter(schema.names).items() if count > 1):
                    raise DataSchemaError(f"{where}: several columns are called {twice}; rename them.")
                types = {**dict.fromkeys(_told_by(one, schema.names), None)}
                types |= {each.name: each.type for each in schema}
            self.types = self.types or types
            if types != self.types:
                raise DataSchemaError(
                    f"{where}: has other columns, or types, than {without_cells(paths[0])}."
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

    def batches(self, names: Sequence[str], first: int, last: int, size: int) -> Iterator[Record]:
        """Rows ``first … last − 1``, at most ``size`` at a time, by name: of Arrow, or texts of folders."""

        def read(path: Path, low: int, high: int) -> Iterator[Record]:
            with self._opened(path) as (schema, groups):
                told = _told_by(path, schema.names)
                # One at least: without any column nothing would tell how many rows there are.
                own = [name for name in names if name not in told] or schema.names[:1]
                for batch in _between(groups, own, low, high, size):
                    texts = {name: [told[name]] * batch.num_rows for name in names if name in told}
                    yield {name: texts.get(name) or batch.column(name) for name in names}

        return read_files(zip(self._files, self._counts, strict=True), first, last, read)

    def __getitem__(self, names: str | Sequence[str]) -> HostColumn:
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
        width = () if isinstance(names, str) else (len(wanted),)
        return column_of(self, partial(self._numbers, names), *width)

    def _numbers(
        self, names: str | Sequence[str], first: int, last: int, size: int
    ) -> Iterator[npt.NDArray[np.float64]]:
        """One column, or several side by side, as float64; missing values are NaN."""
        for batch in self.batches([names] if isinstance(names, str) else names, first, last, size):
            parts = [_numbers(one) for one in batch.values()]
            yield parts[0] if isinstance(names, str) else np.stack(parts, axis=1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"


def column_of(
    files: TableFiles, read: Callable[[int, int, int], Iterable[np.ndarray]], *width: int
) -> HostColumn:
    """A column of all rows, which ``read`` makes of files."""
    shape, by_cells = (files.num_rows, *width), files.ordered_by_cells
    return HostColumn(shape, np.dtype(np.float64), read, ordered_by_cells=by_cells, of_files=True)


def _numbers(column: Any) -> npt.NDArray[np.float64]:
    if isinstance(column, list):
        return np.array([float(text or "nan") for text in column], dtype=np.float64)
    # One type whatever is missing: an integer column with gaps must not look different from one without.
    return np.asarray(column.cast("float64", safe=False).to_numpy(zero_copy_only=False), np.float64)


def _between(groups: Groups, names: list[str], first: int, last: int, size: int) -> Iterator[Any]:
    """The rows ``first … last − 1`` of the groups, of which only those are read that have some."""
    here = 0
    for count, read in groups:
        before, here = here, here + count
        for batch in read(names, size) if before < last and first < here else ():
            low, high = max(first - before, 0), min(last - before, batch.num_rows)
            before += batch.num_rows
            for begin in range(low, high, size):
                yield batch.slice(begin, min(size, high - begin))


@contextmanager
def _parquet(path: Path) -> Iterator[tuple[Any, Groups]]:
    with _pyarrow().parquet.ParquetFile(path) as file:

        def read(group: int, names: list[str], size: int) -> Iterable[Any]:
            # A reader of the whole file keeps every group it has read.
            batches: Iterable[Any] = file.iter_batches(batch_size=size, row_groups=[group], columns=names)
            return batches

        counts = (file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
        yield file.schema_arrow, [(count, partial(read, group)) for group, count in enumerate(counts)]


@contextmanager
def _arrow(path: Path) -> Iterator[tuple[Any, Groups]]:
    """Mapped into memory."""
    pyarrow = _pyarrow()
    with pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_file(source) as file:

        def read(names: list[str], size: int) -> Iterable[Any]:
            return (file.get_batch(number).select(names) for number in range(file.num_record_batches))

        yield file.schema, [(int(file.count_rows()), read)]


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

    _opened, _suffix = staticmethod(_parquet), ".parquet"


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

    _opened, _suffix = staticmethod(_arrow), ".arrow"


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
