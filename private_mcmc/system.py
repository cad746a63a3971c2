"""Files that are whole, text for terminals, settings of compilers: what no statement rests on."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import hashlib
import os
import re
import secrets
import socket
import stat
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from private_mcmc.errors import DeclarationError, OutputError
from private_mcmc.records import Record, sync_folder

# For ``jax.jit(compiler_options=…)``: all that LLVM could do takes longer than it saves, in programs that run
# a few times and in those that run on few rows. On CPUs XLA's older emitters compile in a third of the time:
# JAX has them up to 0.10, and refuses the option after that.
OLDER_EMITTERS: Record = {"xla_cpu_use_fusion_emitters": False} if version("jax") < "0.11" else {}
RUN_ONCE: Record = {
    "xla_backend_optimization_level": 0,
    **OLDER_EMITTERS,
    "xla_cpu_parallel_codegen_split_count": 1,
}
ON_FEW_ROWS: Record = {"xla_backend_optimization_level": 1}


def blas_of_one_thread() -> AbstractContextManager[Any]:
    """Matrices of models are small: threads of the BLAS would spin for one another, hundreds of times longer.

    A gradient of 512 bivariate Normal densities took 17 ms with two threads beside other work, .03 with one.
    """
    from threadpoolctl import threadpool_limits  # here: commands need none of it for their help

    limits: AbstractContextManager[Any] = threadpool_limits(1, user_api="blas")
    return limits


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Programs that are traced are thousands of objects: a collector that walks over all takes a tenth of it.

    What has circles waits until the end.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


# XLA maps each program into memory, a fit some two hundred of them; Linux allows a process 65,530 mappings.
_MOST_MAPPINGS = 16_000
_MAPS = Path("/proc/self/maps")


def make_room() -> None:
    """Forget compiled programs where there are many, which bounds what a process of many fits holds.

    Called before anything is charged: a compiler that finds no room ends the process.
    """
    jax = sys.modules.get("jax")
    if jax is None or not _MAPS.exists():
        return
    with _MAPS.open("rb") as lines:
        many = sum(1 for _ in lines) > _MOST_MAPPINGS
    if many:
        jax.clear_caches()


_SECONDS = 10.0


def ray_at(address: str | None) -> Any:
    """Ray, the module, once it is connected to a cluster; left out, to one that it finds or starts here.

    Ray itself waits for minutes where nothing listens, and ends the process then.

    Raises:
        DeclarationError: without the module, or a cluster.
    """
    try:
        import ray
    except ImportError as error:
        raise DeclarationError("engine=Ray(…) needs Ray: pip install 'private-mcmc[ray]'.") from error
    if not ray.is_initialized():
        try:
            given = address or os.environ.get("RAY_ADDRESS", "")
            found = given.startswith("ray://") and given.removeprefix("ray://")
            if place := found or ray._private.services.canonicalize_bootstrap_address(address):
                host, _, port = place.rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
            ray.init(address=address, log_to_driver=False)
        except (OSError, RuntimeError, ValueError) as error:
            # It is about the address: no row was read yet.
            raise DeclarationError(f"engine=Ray(address={address!r}): no cluster there ({error}).") from None
    return ray


@functools.cache
def versions_here() -> frozenset[str]:
    """What must be the same wherever a program is made or run; public."""
    sources = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        sources.update(file.read_bytes())
    names = (f"{name} {version(name)}" for name in ("private-mcmc", "jax", "jaxlib", "numpy"))
    return frozenset((*names, f"sources {sources.hexdigest()[:12]}"))


# Controls of terminals, marks that turn the direction of writing, and what nobody sees.
_STEERING = re.compile("[^\\n\\t -~\u00a1-\u00ac\u00ae-\u05ff]")
_JOINERS = "\u00ad\u200c\u200d"  # which words of some languages need


def visible(text: str) -> str:
    """``text`` for a terminal or a page: what would steer it, or turn or hide what is read, as ``\\u001b``.

    Of JSON it is the same JSON, since a sign within a string may be written so.
    """
    return _STEERING.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    if sign in _JOINERS or unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return sign
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def warn_of_what_was_paid(words: str) -> None:
    """``warnings.warn`` after a charge: where warnings are errors, the words go to standard error alone.

    Raised, they would take a result with them that was paid for.
    """
    try:
        warnings.warn(words, stacklevel=3)
    except UserWarning as error:
        print(f"UserWarning: {error}", file=sys.stderr)


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
