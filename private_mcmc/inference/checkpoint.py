"""Saving a long run where it can be taken up again.

**Why a resumed run is no second mechanism.** A checkpoint holds the run's keys and the state that it has come
to. What was computed after that state and lost was never released; so whoever resumes goes on with one draw
of the one mechanism that was charged. A copy of the file, or a second process, could release another draw, or
the same noise on other rows: hence a run is saved only under a ledger, whose charge stays open until the run
settles it, once and before anything leaves, and which knows the rows. Whoever changes the file would choose
what is resumed: it is authenticated under a key of that ledger (HMAC-SHA-256), and a changed one is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.kernels import Provenance, Streams
from private_mcmc.kernels.chain import ChainState
from private_mcmc.kernels.keys import CHACHA20
from private_mcmc.records import sync_folder
from private_mcmc.system import warn_of_what_was_paid

_CODE_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Checkpoint:
    """Save a run in ``path`` about every so many ``seconds``, and once before its first step.

    **The file is as secret as the rows**: it holds hidden states and the keys of the noise. It is readable
    by its owner only, is no pickle, and is removed when the run has released. A file that cannot be written
    is found out before the charge if it can be; later (a full disk) it is a warning, and the run goes on.

    Example:
        >>> pmc.Checkpoint("run.ckpt", seconds=300)
        Checkpoint(path='run.ckpt', seconds=300)
    """

    path: str | os.PathLike[str]
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise DeclarationError(f"Checkpoint seconds={self.seconds}: must not be negative.")

    def begin(self) -> None:
        """Take the file's place, with nothing in it; refuse that of a run that was saved."""
        path = Path(self.path)
        try:
            if os.path.lexists(path) and path.stat().st_size:
                raise ReleaseError(
                    f"{path} is the checkpoint of an earlier run: resume() goes on with it. To start another "
                    "run, which is charged again, move the file away."
                )
            self.write(b"")
        except OSError as error:
            raise ReleaseError(f"{path}: the checkpoint cannot be written ({error.strerror}).") from error

    def remove(self) -> None:
        """Remove the file, whose run has released, and what was left of one half-written."""
        try:
            for path in (self._draft, Path(self.path)):
                path.unlink(missing_ok=True)
        except OSError as error:
            warn_of_what_was_paid(
                f"{self.path}: the run has released, and this file with its keys could not be removed "
                f"({error.strerror}): delete it."
            )

    def load(self, key: bytes) -> SavedRun:
        """The run in the file; raises ``ReleaseError`` where there is none that was saved under ``key``."""
        path = Path(self.path)
        if not (path.is_file() and path.stat().st_size):
            raise ReleaseError(f"{path}: there is no checkpoint of a run to resume.")
        whole = path.read_bytes()
        code, content = whole[:_CODE_BYTES], whole[_CODE_BYTES:]
        if not hmac.compare_digest(code, _code(key, content)):
            raise ReleaseError(
                f"{path}: damaged, changed, or no checkpoint of a run that this ledger was charged for; it "
                "is not resumed."
            )
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        record = json.loads(arrays.pop("record").tobytes())
        provenance = Provenance(**record["provenance"])
        kind = CHACHA20 if provenance.generator == "chacha20" else provenance.generator
        streams = Streams(
            *(jax.random.wrap_key_data(jnp.asarray(arrays[name]), impl=kind) for name in Streams._fields)
        )
        state = ChainState(record["done"], arrays["u"], arrays["total"], arrays["kept"])
        return SavedRun(self, key, record["run"], record["charge"], provenance, streams, state)

    @property
    def _draft(self) -> Path:
        path = Path(self.path)
        return path.with_name(f"{path.name}.part")

    def write(self, content: bytes) -> None:
        """Replace the file at once: a crash leaves one of both."""
        self._draft.unlink(missing_ok=True)
        descriptor = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._draft, self.path)
        except BaseException:
            self._draft.unlink(missing_ok=True)
            raise
        sync_folder(Path(self.path).parent)


@dataclass(eq=False)
class SavedRun:
    """An unfinished run, which a checkpoint's file holds.

    Attributes:
        key: of the ledger, under which the file is authenticated.
        run: a mark of what must be the same for the same run.
        charge: that pays for it.
        provenance: where its keys came from.
        state: from which it is taken up; ``None`` before its first step.
    """

    checkpoint: Checkpoint
    key: bytes = field(repr=False)
    run: str
    charge: str
    provenance: Provenance
    streams: Streams = field(repr=False)
    state: ChainState | None = field(default=None, repr=False)
    _last: float = field(default_factory=time.monotonic)

    def due(self) -> bool:
        """Whether so many seconds have passed since the last time."""
        return time.monotonic() - self._last >= self.checkpoint.seconds

    def save(self, state: ChainState) -> None:
        """Replace the file by one with this state; where that fails, warn and keep the older one."""
        self._last, file = time.monotonic(), io.BytesIO()
        record = {"run": self.run, "charge": self.charge, "provenance": self.provenance.to_dict()}
        text = np.frombuffer(json.dumps(record | {"done": state.done}).encode(), np.uint8)
        keys = {name: np.asarray(jax.random.key_data(key)) for name, key in self.streams._asdict().items()}
        np.savez(file, record=text, u=state.u, total=state.total, kept=state.kept, **keys)  # type: ignore[arg-type]
        try:
            self.checkpoint.write(_code(self.key, file.getvalue()) + file.getvalue())
        except OSError as error:
            # The run is paid for: its result is worth more than being able to take it up again.
            warn_of_what_was_paid(
                f"{self.checkpoint.path}: the run could not be saved at step {state.done} "
                f"({error.strerror}); it goes on, and would be resumed from an earlier step."
            )


def _code(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()
