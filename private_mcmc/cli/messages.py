"""What the command line says when it stops, in a sentence, and what it never says."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator

from private_mcmc.errors import PrivateMCMCError

ERROR = 3
INTERRUPTED = 130  # as shells say of a program ended by Ctrl-C


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
    """Where rows are read and used: an unforeseen error's message could quote them, so it is not shown.

    Raises:
        PrivateMCMCError: in place of any error but the library's own and the operating system's.
    """
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
    """A line from standard input, asked for on standard error: standard output is for results.

    Raises:
        EOFError: if there is nobody to answer.
    """
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
