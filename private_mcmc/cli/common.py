"""What the commands share: their options, the files they name, and errors in words."""

from __future__ import annotations

import contextlib
import os
import sys
import tokenize
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.errors import DeclarationError, PrivateMCMCError
from private_mcmc.files import check_writable
from private_mcmc.records import Record

if TYPE_CHECKING:
    from private_mcmc.domains import Rows
    from private_mcmc.release import Ledger

ModelArgument = Annotated[str, typer.Argument(help="a NumPyro model, as FILE.py:FUNCTION")]
RowsOption = Annotated[Path, typer.Option("--rows", help="TOML file: a domain for every column of a row")]
NumRows = Annotated[int, typer.Option("--n", help="number of rows (its public bound under add_remove)")]
Epsilon = Annotated[float, typer.Option(help="ε of the target")]
Delta = Annotated[float, typer.Option(help="δ of the target")]
AdjacencyOption = Annotated[str, typer.Option(help="replace_one, add_remove or zero_out")]
ArgsOption = Annotated[Path | None, typer.Option(help="TOML file: the model's public arguments")]


def _writable(path: Path | None) -> Path | None:
    if path is not None:
        check_writable(path)
    return path


# Checked when the command line is read, before any work.
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="write an HTML report to this file", callback=_writable)
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]
KeyOption = Annotated[Path | None, typer.Option("--key", help="file with the ledger owner's secret key")]


def open_ledger(path: Path, key: Path | None, create: bool = False) -> Ledger:
    """The ledger in a file, with its owner's key from another if there is one."""
    from private_mcmc.release import Ledger

    secret = None if key is None else key.read_bytes().strip()
    return Ledger.create(path, secret) if create else Ledger(path, secret)


def read_rows(path: Path) -> Rows:
    """The row domains of a TOML file."""
    from private_mcmc.domains import Rows

    return Rows.from_toml(path)


def load_model(place: str) -> tuple[Callable[..., object], str]:
    """The function ``NAME`` of the file ``FILE.py``, given as ``FILE.py:NAME``, and the text of the file.

    The text that is shown is the one that runs: it is read once, and no bytecode of an earlier one is taken.
    """
    path, colon, name = place.rpartition(":")
    file = Path(path)
    if not colon or not name.isidentifier() or not file.is_file():
        table = (
            " A table is named to fit and run alone: in its place plan takes --schema, --formula and --n."
            if Path(place).is_file() and Path(place).suffix != ".py"
            else ""
        )
        raise DeclarationError(
            f"{place!r}: give a file and a function in it, for example model.py:model.{table}"
        )
    if file.suffix != ".py":
        raise DeclarationError(f"{path}: not a Python file.")
    module = ModuleType(f"_model_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        with tokenize.open(file) as opened:
            source = opened.read()
        exec(compile(source, str(file), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        raise DeclarationError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    model = getattr(module, name, None)
    if not callable(model):
        raise DeclarationError(f"{path} has no function {name!r}.")
    return model, source


def read_arguments(path: Path | None) -> Record:
    """Public arguments of the model from a TOML file: numbers, words, truth values; lists become arrays."""
    from private_mcmc.domains.rows import read_toml

    return {} if path is None else {key: _argument(key, value) for key, value in read_toml(path).items()}


def _argument(name: str, value: object) -> object:
    import numpy as np

    if isinstance(value, bool | int | float | str):
        return value
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):  # lists of different lengths, numbers too large
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise DeclarationError(f"argument {name!r}: a number, a word, or a list of numbers in equal rows.")
    return array


ERROR = 3
# As shells say of programs ended by Ctrl-C, and of those whose output nobody reads any more.
INTERRUPTED, UNREAD = 130, 141


def in_words(error: PrivateMCMCError | OSError | ArithmeticError) -> str:
    """An error of the library, of the operating system, or of numbers too large, as one line."""
    if isinstance(error, PrivateMCMCError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, ArithmeticError):
        return f"{type(error).__name__}: these numbers are too large or too small to compute with."
    what = error.strerror or type(error).__name__
    if error.filename is None:
        return f"OSError: reading or writing failed ({what})."
    return f"OSError: {error.filename}: {what}."


@contextlib.contextmanager
def near_private_rows() -> Iterator[None]:
    """Where rows are read and used: an unforeseen error's message could quote them, so it is not shown."""
    try:
        yield
    except (PrivateMCMCError, OSError):
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise PrivateMCMCError(
            f"stopped by {type(error).__name__} at {place.filename}:{place.lineno}. Its message is not "
            "shown, since it could quote a row."
        ) from None


def ask(words: str) -> str:
    """A line from standard input, asked for on standard error: standard output is for results."""
    sys.stderr.write(f"{words} ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError("there is nobody to answer.")
    return line.strip()


def quiet_end() -> None:
    """Leave nothing for Python to write to a standard output that is closed or full."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
