"""Long runs saved as they go: a secret file from which exactly the same run goes on.

**Why a resumed run is no second mechanism.** All keys are drawn before the first step. From then on a run is
a deterministic function ``g(D, κ)`` of the rows and the keys, and the file holds ``κ`` and how far the
evaluation of ``g`` has come; resuming goes on evaluating the same ``g(D, κ)``, since another schedule, model,
row declaration, price, layout, library or data set is refused. What is released is therefore the value the
uninterrupted run would have released: one draw of one mechanism, charged once. A copy of the file resumed
twice gives that same value twice, which is post-processing of one release. Noise that is drawn when an
average is released is not a function of ``κ``: there the ledger's reservation, which is settled once and
before the noise is drawn, refuses the second copy, and a checkpoint without a ledger is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import re
import secrets
import shutil
import stat
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DeclarationError, ReleaseError, warn_of_what_was_paid
from private_mcmc.files import sync_folder
from private_mcmc.kernels import Provenance, Streams
from private_mcmc.kernels.chain import ChainState
from private_mcmc.kernels.keys import CHACHA20
from private_mcmc.records import Fields, Record
from private_mcmc.release.ledger.file import data_mark

_FORMAT = 2
_SEAL_BYTES = 32
# What NumPy, zip and JSON raise at bytes that they cannot make sense of.
_DAMAGED = (
    OSError, ValueError, TypeError, AttributeError, LookupError, EOFError, RuntimeError, MemoryError,
    struct.error, zlib.error, zipfile.BadZipFile,
)  # fmt: skip
_ARRAYS = ("u", "total", "kept", "start", "steps", "batches")


@dataclass(frozen=True)
class Checkpoint:
    """Save a run in ``path`` about every so many ``seconds``, and once before its first step.

    **The file is as secret as the rows**: it holds hidden states and the keys of the noise. It is readable
    by its owner only, is no pickle, and once the run has released, nothing but that fact is left in it.
    A file that was changed by someone without the rows is refused: steps made again use noise twice.
    A run that is killed while it writes leaves the half-written file beside it, ``NAME.….part``; the next
    ``run``, ``resume`` or release on the same path removes it. A file that cannot be written (a full disk)
    is found out before the charge if it can be; later it is a warning, and the run goes on.

    Example:
        >>> pmc.Checkpoint("run.ckpt", seconds=300)
        Checkpoint(path='run.ckpt', seconds=300)
    """

    path: str | os.PathLike[str]
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise DeclarationError(f"Checkpoint seconds={self.seconds}: must not be negative.")


@dataclass(frozen=True, eq=False)
class Head:
    """What the file says of its run besides its state, and the key that seals the file.

    The key is a hash of the rows: the file has a hash of it, and only who has the rows can make it.
    """

    record: Fields
    seal: bytes = field(repr=False)


@dataclass(frozen=True, eq=False)
class Saved:
    """What the file of an unfinished run holds; ``provenance``: where its keys came from."""

    head: Head
    state: ChainState = field(repr=False)
    streams: Streams = field(repr=False)
    provenance: Provenance


@dataclass(eq=False)
class Saver:
    """Writes the state of one run, and at its end that it has released; ``saved``: a file may hold it."""

    checkpoint: Checkpoint
    head: Head
    streams: Streams = field(repr=False)
    saved: bool = False
    _last: float = field(default_factory=time.monotonic)

    def due(self) -> bool:
        """Whether so many seconds have passed since the last time."""
        return time.monotonic() - self._last >= self.checkpoint.seconds

    def save(self, state: ChainState) -> None:
        """Replace the file by one with this state; where that fails, warn and keep the older one."""
        keys = {
            name: np.zeros(0, np.uint32) if key is None else np.asarray(jax.random.key_data(key))
            for name, key in self.streams._asdict().items()
        }
        arrays = {"u": state.u, "total": state.total, "kept": state.kept}
        self._last = time.monotonic()
        try:
            record = {**self.head.record, "done": state.done}
            _write(Path(self.checkpoint.path), record, {**arrays, **keys}, self.head.seal)
            self.saved = True
        except OSError as error:
            self.saved = self.saved or os.path.lexists(self.checkpoint.path)
            # The run is paid for: its result is worth more than being able to take it up again.
            warn_of_what_was_paid(
                f"{self.checkpoint.path}: the run could not be saved at step {state.done} "
                f"({error.strerror}); it goes on, and would be resumed from an earlier step."
            )

    def released(self) -> None:
        """Leave nothing in the file but that its run has released, and nothing beside it."""
        forget(self.checkpoint)


def forget(checkpoint: Checkpoint) -> None:
    """Say in the file that its run has released, instead of all its secrets; a full disk cannot keep them."""
    path = Path(checkpoint.path)
    remove_leftovers(checkpoint)
    try:
        _write(path, {"format": _FORMAT, "status": "released"}, {}, b"")
    except OSError as error:
        try:
            os.truncate(path, 0)
        except FileNotFoundError:
            return
        except OSError:
            warn_of_what_was_paid(
                f"{path}: the run has released, but its keys could not be removed from this file "
                f"({error.strerror}): delete it."
            )


def remove_leftovers(checkpoint: Checkpoint) -> None:
    """Remove what a run left that was killed while it wrote the file."""
    path = Path(checkpoint.path)
    part = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.part")
    for other in path.parent.iterdir():
        if part.fullmatch(other.name):
            other.unlink(missing_ok=True)


def check_place(checkpoint: Checkpoint, size: int) -> None:
    """Raise ``ReleaseError`` for the file of an earlier run, or where ``size`` bytes cannot be written."""
    path = Path(checkpoint.path)
    if os.path.lexists(path):
        raise ReleaseError(
            f"{path} is the checkpoint of an earlier run: resume() goes on with it. To start another run, "
            "which is charged again, move the file away."
        )
    try:
        remove_leftovers(checkpoint)
        with _draft(path) as (descriptor, _):
            os.write(descriptor, b"nothing yet")
            os.fsync(descriptor)
        # Twice: the old file stays until the new one is complete.
        if not shutil.disk_usage(path.parent).free >= 2 * size:
            raise ReleaseError(f"{path}: too little space on the disk: up to {2 * size} bytes are needed.")
    except OSError as error:
        raise ReleaseError(f"{path}: the checkpoint cannot be written ({error.strerror}).") from error


def in_file(checkpoint: Checkpoint) -> bytes:
    """The bytes of the file."""
    path = Path(checkpoint.path)
    if not path.is_file():
        raise ReleaseError(f"{path}: there is no checkpoint to resume from.")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ReleaseError(f"{path}: others may read it; it is as secret as the rows (chmod 600).")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ReleaseError(f"{path}: it cannot be read ({error.strerror}).") from error


def saved_run(content: bytes, checkpoint: Checkpoint, identity: Fields, columns: Fields) -> Saved:
    """The unfinished run in the ``content`` of a file, if it is the declared one on the same rows.

    Raises:
        ReleaseError: if it is another run, damaged or changed, or has released already.
    """
    path = Path(checkpoint.path)
    try:
        with np.load(io.BytesIO(content[:-_SEAL_BYTES]), allow_pickle=False) as file:
            record = dict(json.loads(file["header"].tobytes()))
            arrays = {name: file[name] for name in _ARRAYS if name in file}
        if record.get("status") == "released":
            raise ReleaseError(f"{path}: this run has released; it is never run on or released again.")
        if record.get("format") != _FORMAT or set(arrays) != set(_ARRAYS):
            raise ReleaseError(f"{path}: the checkpoint of another version of this library.")
        seal = _seal_of(record, identity, columns)
    except _DAMAGED as error:
        raise ReleaseError(f"{path}: this is no checkpoint, or it is damaged.") from error
    if not hmac.compare_digest(content[-_SEAL_BYTES:], hmac.digest(seal, content[:-_SEAL_BYTES], "sha256")):
        raise ReleaseError(f"{path}: the checkpoint was changed after it was written; it is not run on.")
    state = ChainState(record["done"], arrays["u"], arrays["total"], arrays["kept"])
    provenance = Provenance(**record["provenance"])
    keys = (_key(arrays[name], provenance.generator) for name in ("start", "steps", "batches"))
    return Saved(Head(record, seal), state, Streams(*keys), provenance)  # type: ignore[arg-type]


def _seal_of(record: Fields, identity: Fields, columns: Fields) -> bytes:
    """The key of the seal; raises ``ReleaseError`` unless the run is the declared one, on the same rows."""
    different = [name for name, value in identity.items() if record["identity"].get(name) != value]
    if different:
        raise ReleaseError(
            f"the checkpoint is of another run: {', '.join(different)} differ. Resume with what it was "
            "started with; anything else is a new run, charged again."
        )
    seal = data_mark(bytes.fromhex(record["data_key"]), columns).encode()
    if not hmac.compare_digest(hashlib.sha256(seal).hexdigest(), record["data"]):
        raise ReleaseError(
            "the checkpoint is of a run on other rows: the same rows in the same order resume it."
        )
    return seal


def header(identity: Fields, columns: Fields, provenance: Provenance) -> Head:
    """What the file says of its run besides its state; the data by a hash with a key of its own."""
    key = secrets.token_bytes(32)
    seal = data_mark(key, columns).encode()
    record: Record = {
        "format": _FORMAT,
        "status": "running",
        "identity": dict(identity),
        "data_key": key.hex(),
        "data": hashlib.sha256(seal).hexdigest(),
        "provenance": provenance.to_dict(),
    }
    return Head(record, seal)


def _key(words: npt.NDArray[np.uint32], generator: str) -> jax.Array | None:
    if words.size == 0:
        return None
    kind: Any = CHACHA20 if generator == "chacha20" else generator
    return jnp.asarray(jax.random.wrap_key_data(jnp.asarray(words), impl=kind))


def _write(path: Path, record: Fields, arrays: Mapping[str, np.ndarray], seal: bytes) -> None:
    """Replace the file at once: after a crash there is the old one or the new one."""
    content = io.BytesIO()
    text = np.frombuffer(json.dumps(record).encode(), np.uint8)
    np.savez(content, header=text, **arrays)  # type: ignore[arg-type]
    content.seek(0, io.SEEK_END)
    content.write(hmac.digest(seal, content.getvalue(), "sha256"))
    with _draft(path) as (descriptor, fresh):
        rest = content.getbuffer()
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
        os.replace(fresh, path)
    sync_folder(path.parent)


@contextmanager
def _draft(path: Path) -> Iterator[tuple[int, Path]]:
    """A new file beside ``path``, for its owner only, and removed at the end unless it was renamed."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        yield descriptor, fresh
    finally:
        os.close(descriptor)
        fresh.unlink(missing_ok=True)
