"""Runs of several processes, joined by ``jax.distributed``: one of them decides, charges and releases.

Every process holds its own rows and the same state. The network between them carries keys and sums of
rows, so it must be as trusted as the processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from private_mcmc.errors import ReleaseError
from private_mcmc.kernels import Streams


def releases() -> bool:
    """Whether this process charges the ledger and releases: the first one alone.

    Two processes that add noise of their own to one average would make two releases of it.
    """
    return jax.process_index() == 0


def shared(streams: Streams) -> Streams:
    """The first process's keys, in every process."""
    if jax.process_count() == 1:
        return streams
    return Streams(*(None if key is None else _shared_key(key) for key in streams))  # type: ignore[arg-type]


def _shared_key(key: jax.Array) -> jax.Array:
    words = multihost_utils.broadcast_one_to_all(np.asarray(jax.random.key_data(key)))
    shared_key: jax.Array = jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(key))
    return shared_key


@contextmanager
def charged_once(charge: AbstractContextManager[Any]) -> Iterator[None]:
    """Enter ``charge`` in the first process alone; the others go on only if that succeeds.

    Raises:
        ReleaseError: in the others, if the first process was refused.
    """
    if jax.process_count() == 1:
        with charge:
            yield
        return
    if not releases():
        if not _agreed(False):
            raise ReleaseError("the first process could not charge this run; its own error says why.")
        yield
        return
    entered = False
    try:
        with charge:
            entered = True
            _agreed(True)
            yield
    finally:
        if not entered:
            _agreed(False)


def _agreed(answer: bool) -> bool:
    """The first process's answer."""
    return bool(multihost_utils.broadcast_one_to_all(np.asarray(answer)))
