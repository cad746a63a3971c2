"""Several processes joined by ``jax.distributed``: the first one decides, charges, saves and releases.

Every process holds its own rows and the same state. The network between them carries keys, sums of rows and
checkpoints, so it must be as trusted as the processes. What passes is passed as words of 32 bits: JAX's
setting of float64 would round numbers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.experimental import multihost_utils

from private_mcmc.errors import ReleaseError
from private_mcmc.kernels import Streams
from private_mcmc.release import Reservation

Array = npt.NDArray[np.float64]
Found = TypeVar("Found")


def releases() -> bool:
    """Whether this process charges the ledger and releases: the first one alone.

    Two processes that add noise of their own to one average would make two releases of it.
    """
    return bool(jax.process_index() == 0)


def alone() -> bool:
    """Whether there is one process."""
    return bool(jax.process_count() == 1)


def shared(streams: Streams) -> Streams:
    """The first process's keys, in every process."""
    if alone():
        return streams
    return Streams(*(None if key is None else _shared_key(key) for key in streams))  # type: ignore[arg-type]


def _shared_key(key: jax.Array) -> jax.Array:
    words = _from_the_first(np.asarray(jax.random.key_data(key)))
    shared_key: jax.Array = jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(key))
    return shared_key


def shared_values(values: Array) -> Array:
    """The first process's numbers, bit for bit; all give an array of one shape."""
    if alone():
        return values
    words = np.ascontiguousarray(values, dtype=np.float64).reshape(-1).view(np.uint32)
    return _from_the_first(words).view(np.float64).reshape(np.shape(values))


def shared_bytes(content: bytes | None) -> bytes:
    """The first process's bytes; the others give none."""
    mine = b"" if content is None else content
    if alone():
        return mine
    length = int(_from_the_first(np.asarray([len(mine)], np.uint32))[0])
    padded = np.zeros(-(-length // 4) * 4, np.uint8)
    padded[: len(mine)] = np.frombuffer(mine, np.uint8)
    return _from_the_first(padded.view(np.uint32)).tobytes()[:length]


def summed(own: Array) -> Array:
    """The sum of every process's numbers, each rounded once, whatever their order."""
    if alone():
        return own
    words = np.ascontiguousarray(own, dtype=np.float64).reshape(-1).view(np.uint32)
    parts = _of_all(words).view(np.float64)
    return np.asarray([math.fsum(column) for column in parts.T]).reshape(np.shape(own))


def joined(mark: str) -> str:
    """The marks, hexadecimal and of one length, of all processes in their order."""
    if alone():
        return mark
    return _of_all(np.frombuffer(bytes.fromhex(mark), np.uint32)).tobytes().hex()


def check_same_everywhere(what: str, mark: str) -> None:
    """Raise ``ReleaseError`` in every process unless ``mark`` is the same in all of them."""
    if alone():
        return
    digest = hashlib.sha256(mark.encode()).hexdigest()
    if joined(digest) != digest * jax.process_count():
        raise ReleaseError(f"{what} differ between the processes: start the same script in each of them.")


def in_the_first(action: Callable[[], Found]) -> Found | None:
    """What ``action`` gives in the first process, where alone it is done; ``None`` in the others."""
    if alone():
        return action()
    if not releases():
        if not _agreed(False):
            raise ReleaseError("the first process was refused a charge or a file; its own error says why.")
        return None
    done = False
    try:
        found = action()
        done = True
        return found
    finally:
        _agreed(done)


@contextmanager
def charged_once(charge: AbstractContextManager[Reservation | None]) -> Iterator[Reservation | None]:
    """Enter ``charge`` in the first process alone; the others go on only if that succeeds."""
    with ExitStack() as stack:
        yield in_the_first(lambda: stack.enter_context(charge))


def _agreed(answer: bool) -> bool:
    """The first process's answer."""
    return bool(multihost_utils.broadcast_one_to_all(np.asarray(answer)))


def _from_the_first(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return np.asarray(multihost_utils.broadcast_one_to_all(words))


def _of_all(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """One line for every process."""
    return np.asarray(multihost_utils.process_allgather(words)).reshape(jax.process_count(), -1)
