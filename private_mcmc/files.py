"""Files: written whole or not at all, their place taken before the work they will hold; read with a limit."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from private_mcmc.errors import OutputError

PathLike = str | os.PathLike[str]

# Bytes: of what a person writes by hand or keeps as a secret, and of a record with all of its draws.
DECLARED, RECORDED = 8 * 2**20, 256 * 2**20


def read_whole(path: PathLike, most: int = DECLARED, links: bool = True) -> bytes:
    """The content of a regular file of at most ``most`` bytes.

    Whoever sent a file may have put a pipe, a device or a link there, or more than memory holds.

    Args:
        path: of the file.
        most: bytes.
        links: whether a link to a regular file will do; not in a folder that somebody else made.

    Raises:
        OSError: with the reason in words, for what is none or cannot be read.
    """
    if b"\0" in os.fsencode(path):
        raise OSError(errno.EINVAL, "no name for a file", str(path))
    if not links and Path(path).is_symlink():
        raise OSError(errno.ELOOP, "a link, where a file is needed", str(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
    with os.fdopen(descriptor, "rb") as file:
        kind = os.fstat(descriptor)
        if stat.S_ISDIR(kind.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind.st_mode):
            raise OSError(errno.EINVAL, "a device or a pipe, where a file is needed", str(path))
        content = file.read(most + 1) if kind.st_size <= most else b""
    if kind.st_size > most or len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes, the most that is read here", str(path))
    return content


def write_whole(path: PathLike, content: str | bytes) -> None:
    """Write a file at once: after a failure the old one is there, or none. Text is UTF-8.

    Links are followed; devices and pipes are written to as they are.
    """
    data = content.encode() if isinstance(content, str) else content
    with _in_words(path):
        target = Path(os.path.realpath(path))
        if _is_stream(target):
            target.write_bytes(data)
            return
        part = _beside(target)
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, target)
            sync_folder(target.parent)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(path: PathLike) -> None:
    """Raise what :func:`write_whole` would, before long work; nothing is left behind."""
    with _in_words(path):
        target = Path(os.path.realpath(path))
        if _is_stream(target):
            os.close(os.open(target, os.O_WRONLY | os.O_NONBLOCK))
            return
        for tried in (_beside(target),) if target.exists() else (_beside(target), target):
            os.close(os.open(tried, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            tried.unlink()


@contextlib.contextmanager
def new_file(path: PathLike) -> Iterator[Callable[[str], None]]:
    """Take the place of a new file before the work whose result it will hold; what is yielded writes it.

    Nobody else can take the place meanwhile. Nothing is left if the work ends without a result; what somebody
    else put there after removing the placeholder stays.
    """
    place = Path(path)
    with _in_words(path):
        if os.path.lexists(place):
            empty = place.is_file() and place.stat().st_size == 0
            hint = " It is empty: if a run that was stopped left it, remove it." if empty else ""
            raise OutputError(f"{path}: exists already; a release is never overwritten.{hint}")
        # Kept open: the number of a file that is only removed is given to the next one.
        holder = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def is_placeholder() -> bool:
        return os.path.samestat(os.lstat(place), os.fstat(holder))

    def write(content: str) -> None:
        if os.path.lexists(place) and not is_placeholder():
            raise OutputError(f"{path}: cannot be written (another file took its place).")
        write_whole(place, content)

    try:
        yield write
    finally:
        with contextlib.suppress(OSError):  # it is out of reach
            if is_placeholder():
                place.unlink()
        os.close(holder)


def _beside(path: Path) -> Path:
    # Short, so that a long name is refused for its own length only.
    return path.with_name(f".{secrets.token_hex(8)}.part")


def _is_stream(path: Path) -> bool:
    """Whether this is a device or a pipe; a folder raises as if it were opened for writing."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return path.exists() and not path.is_file()


@contextlib.contextmanager
def _in_words(path: PathLike) -> Iterator[None]:
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        folder = Path(path).parent
        missing = error.errno == errno.ENOENT and not folder.exists()
        why = f"there is no folder {folder}" if missing else error.strerror or type(error).__name__
        raise OutputError(f"{path}: cannot be written ({why}).") from error
    except ValueError as error:  # a name with a null byte
        raise OutputError(f"{path!r}: is no name for a file.") from error
