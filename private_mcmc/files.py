"""Files: written whole or not at all, their place taken before the work they will hold; read with a limit."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from private_mcmc.errors import OutputError

PathLike = str | os.PathLike[str]

# Set aside on the disk before a run; what a release needs beyond it may still find the disk full.
_ROOM = 16 * 2**20


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


class NewFile:
    """A file that is not there yet; see :func:`new_file`."""

    def __init__(self, path: Path, holder: int, part: Path, descriptor: int) -> None:
        self._path, self._holder, self._part, self._descriptor = path, holder, part, descriptor
        self.kept = False

    def write(self, content: str) -> None:
        """Write what must not be lost: to the file, else elsewhere, else on standard output."""
        data = content.encode()
        try:
            _write_all(self._descriptor, data)
            if os.path.lexists(self._path) and not _is_open_as(self._path, self._holder):
                raise FileExistsError(errno.EEXIST, "another file took its place")
            os.replace(self._part, self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            self.kept = _holds(self._part, data)
            where = f"it is in {self._part}" if self.kept else _elsewhere(data)
            raise OutputError(
                f"{self._path}: cannot be written ({error.strerror}). Nothing is lost: {where}"
            ) from error
        self.kept = True


@contextlib.contextmanager
def new_file(path: PathLike) -> Iterator[NewFile]:
    """Take the place of a new file, and some room on its disk, before the work whose result it will hold.

    Nobody else can take the place meanwhile. Nothing is left if the work ends without a result; what somebody
    else put there after removing the placeholder stays.
    """
    place, result = Path(path), None
    # Kept open: the number of a file that is only removed is given to the next one.
    made: list[tuple[Path, int]] = []
    try:
        with _in_words(path):
            _refuse_existing(place)
            for one in (place, _beside(place)):
                made.append((one, os.open(one, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)))
            _set_aside(made[1][1])
        result = NewFile(*made[0], *made[1])
        yield result
    finally:
        for one, descriptor in made:
            # What is no longer ours, or out of reach, stays.
            with contextlib.suppress(OSError):
                if not (result and result.kept) and _is_open_as(one, descriptor):
                    one.unlink()
            os.close(descriptor)


def _is_open_as(path: Path, descriptor: int) -> bool:
    return os.path.samestat(os.lstat(path), os.fstat(descriptor))


def _refuse_existing(path: Path) -> None:
    if not os.path.lexists(path):
        return
    empty = path.is_file() and path.stat().st_size == 0
    hint = " It is empty: if a run that was stopped left it, remove it." if empty else ""
    raise OutputError(f"{path}: exists already; a release is never overwritten.{hint}")


def _set_aside(descriptor: int) -> None:
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, 0, _ROOM)
    except OSError as error:
        # A file system that cannot set room aside says so; the disk may still fill up.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV, errno.ENOSYS):
            raise


def _write_all(descriptor: int, data: bytes) -> None:
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def _elsewhere(data: bytes) -> str:
    """Keep ``data`` wherever there is room, and say where."""
    with contextlib.suppress(OSError):
        descriptor, name = tempfile.mkstemp(prefix="private-mcmc-", suffix=".json")
        try:
            _write_all(descriptor, data)
        except OSError:
            os.unlink(name)
            raise
        finally:
            os.close(descriptor)
        return f"it is in {name}"
    sys.stdout.write(data.decode() + "\n")
    sys.stdout.flush()
    return "it was printed on standard output"


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
