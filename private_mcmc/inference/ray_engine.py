"""Rows in the memory of a Ray cluster's workers: each holds one partition and answers questions about it.

What a worker is given: places of rows in files, a program of the question (StableHLO of public functions),
states and keys of batches. The noise, its keys, the ledger and the release stay with the driver. A worker
that is lost is replaced: its rows are read again, held against a keyed hash of those it had, and asked the
same question, whose answer is a pure function; nothing that draws noise is ever tried twice. Sums of rows are
as private as rows: answers travel in pieces that Ray passes in its messages, never as objects of its store,
which may be written to disk, and what fails at a worker is told by its kind alone.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.columns import HostColumn
from private_mcmc.domains.persons import Slots
from private_mcmc.errors import DataSchemaError, DeclarationError, ReleaseError
from private_mcmc.inference.declared import Ray, cluster_of
from private_mcmc.kernels.partitions import Ask, Partition, Question, Share, shares
from private_mcmc.potential.rowwise import abstract
from private_mcmc.system import versions_here

# Ray passes what is smaller than 100 KiB within a message, and keeps the rest in a store that spills to disk.
_PIECE = 2**16
_ATTEMPTS = 3


def partitions_at(
    engine: Ray, columns: Mapping[str, HostColumn], slots: Slots | None
) -> tuple[Partition, ...]:
    """The rows of ``columns`` divided among new workers, which read them now.

    With ``slots`` each reads all files, and keeps the rows that lie in its own.
    """
    if wrong := sorted(name for name, column in columns.items() if not column.of_files):
        raise DeclarationError(
            f"engine=Ray(…): columns {wrong} are not of files that workers read: pmc.Parquet or pmc.Arrow."
        )
    ray, key, parts = cluster_of(engine), secrets.token_bytes(32), shares(columns, engine.workers, slots)
    found = [_Partition(ray, engine.cpus, engine.wait, share, key) for share in parts]
    for each in found:
        each.start()
    for each in found:
        each.check()
    return tuple(found)


@dataclass(eq=False)
class _Partition:
    """One worker's share of the rows, and how to have them read again."""

    ray: Any = field(repr=False)
    cpus: float
    wait: float
    share: Share
    key: bytes = field(repr=False)
    _worker: Any = None
    _there: Any = None
    _mark: Any = None
    _digest: bytes = field(default=b"", repr=False)
    _shapes: Mapping[str, tuple[tuple[int, ...], np.dtype]] = field(default_factory=dict, repr=False)
    _programs: dict[str, bytes] = field(default_factory=dict, repr=False)

    def start(self) -> None:
        """Begin to read the rows at a new worker."""
        actor = self.ray.remote(num_cpus=self.cpus, max_restarts=0, max_task_retries=0)(_Worker)
        self._worker = actor.remote()
        self._there = self._worker.versions.remote()
        self._mark = self._sent("load", pickle.dumps((self.share, self.key)))

    def _sent(self, what: str, content: bytes, *beside: str) -> Any:
        """Have a worker do something with what is sent in pieces; it does what it is told in order."""
        *pieces, last = _cut(content)
        for piece in pieces:
            self._worker.receive.remote(piece)
        return getattr(self._worker, what).remote(last, *beside)

    def check(self) -> None:
        """Wait until they are read, elsewhere where that worker is lost; refuse other rows than before."""
        self._insisted(self._read, self.start)

    def _read(self) -> None:
        try:
            there = self.ray.get(self._there, timeout=self.wait)
        except self.ray.exceptions.GetTimeoutError:
            self.ray.kill(self._worker)
            raise ReleaseError(
                f"within {self.wait:g} s the cluster had no room for a worker of {self.cpus:g} CPUs. Start a "
                "machine, or end what fills it; then resume from the checkpoint, or run again without one."
            ) from None
        if there != (here := versions_here()):
            one, other = (", ".join(sorted(found)) for found in (there - here, here - there))
            raise ReleaseError(f"a worker has {one}; here is {other}. Install the same on all machines.")
        digest, self._shapes = _found(self.ray.get(self._mark))
        if self._digest and not hmac.compare_digest(self._digest, digest):
            raise ReleaseError(
                "a worker that took the place of a lost one reads other rows than that had: nothing more is "
                "done with them. Start again, on files that nobody writes to."
            )
        self._digest = digest

    def _insisted(self, wait: Callable[[], Any], again: Callable[[], None]) -> Any:
        """What ``wait`` gives; where the worker is lost, after ``again`` at another one."""
        for attempt in range(_ATTEMPTS):
            with suppress(self.ray.exceptions.RayActorError):
                if attempt:
                    again()
                return wait()
        raise ReleaseError(
            f"rows from {self.share.first} on: {_ATTEMPTS} workers were lost. Was memory too small? Can they "
            "import private_mcmc? Mend that; then resume from the checkpoint, or run again without one."
        )

    def ask(self, question: Question) -> Ask:
        """The question at the worker; where that is lost, once more at another one."""
        name = secrets.token_hex(8)

        def started(*given: Any) -> Callable[[], Any]:
            if name not in self._programs:
                # Programs are made of public functions: Ray's store may hold them.
                self._programs[name] = _exported(question, self._shapes, self.share.size, given)
                self._worker.learn.remote(name, self._programs[name])
            sent = pickle.dumps([_plain(leaf) for leaf in jax.tree.leaves(given)])
            return partial(self._awaited, name, sent, self._asked(name, sent))

        return started

    def _asked(self, name: str, sent: bytes) -> Any:
        return self._sent("answer", sent, name)

    def _awaited(self, name: str, sent: bytes, reference: Any) -> Any:
        def again() -> None:
            nonlocal reference
            self.start()
            self._read()
            for known, text in self._programs.items():
                self._worker.learn.remote(known, text)
            reference = self._asked(name, sent)

        def answer() -> Any:
            number, piece = _found(self.ray.get(reference))
            more = (_found(self.ray.get(self._worker.piece.remote(place))) for place in range(1, number))
            found = pickle.loads(b"".join([piece, *more]))
            if not np.isfinite(found).all():
                # Terms are clipped or counted: of whatever rows, every sum is a number.
                raise ReleaseError("a worker's answer is no number: nothing more is done with its rows.")
            return jnp.asarray(found)

        return self._insisted(answer, again)


def _cut(content: bytes) -> list[bytes]:
    return [content[first : first + _PIECE] for first in range(0, max(len(content), 1), _PIECE)]


def _found(answer: tuple[bool, Any]) -> Any:
    done, found = answer
    if not done:
        raise ReleaseError(f"a worker could not answer ({found}).")
    return found


def _plain(leaf: Any) -> np.ndarray:
    """An array; of a key its words."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return np.asarray(leaf)


def _restored(like: Any, words: Any) -> Any:
    """The key that ``like`` is, from its words; other arrays as they are."""
    if isinstance(like, jax.Array) and jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(like))
    return words


def _exported(
    question: Question, columns: Mapping[str, tuple[tuple[int, ...], np.dtype]], size: int, given: Any
) -> bytes:
    """The question as a program for arrays of these shapes: what is public of it, in JAX's own form."""
    leaves, tree = jax.tree.flatten(given)
    with jax.enable_x64(True):
        raw = {name: abstract(*column) for name, column in columns.items()}
        present = abstract((size,), np.bool_)
        shapes, kept_tree = jax.tree.flatten(jax.eval_shape(question.prepare, raw, present))
        prepare = jax.jit(lambda *rows: jax.tree.leaves(question.prepare(*rows)))

        def answer(kept: list[jax.Array], first: jax.Array, plain: list[jax.Array]) -> jax.Array:
            keys = [_restored(like, words) for like, words in zip(leaves, plain, strict=True)]
            return question.answer(
                jax.tree.unflatten(kept_tree, kept), first, *jax.tree.unflatten(tree, keys)
            )

        first, sent = abstract((), np.int64), [abstract(one.shape, one.dtype) for one in map(_plain, leaves)]
        programs = (
            bytes(jax.export.export(prepare)(raw, present).serialize()),
            bytes(jax.export.export(jax.jit(answer))(shapes, first, sent).serialize()),
        )
    return pickle.dumps((*programs, question.reduce))


def _guarded(action: Callable[..., Any]) -> Callable[..., tuple[bool, Any]]:
    """What an action gives, or the kind of its error: a message may quote rows, and Ray keeps messages."""

    @wraps(action)
    def guarded(*given: Any) -> tuple[bool, Any]:
        try:
            return True, action(*given)
        except DataSchemaError as error:
            # Of tables: it names files and fields, and no cell.
            return False, str(error)
        except Exception as error:
            return False, type(error).__name__

    return guarded


class _Worker:
    """What a worker does: it holds rows and answers; every error leaves by its kind alone."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._sent: list[bytes] = []
        self._pieces: list[bytes] = []

    def versions(self) -> frozenset[str]:
        """Of what runs here."""
        return versions_here()

    def learn(self, name: str, program: bytes) -> None:
        """Keep a question under a name."""
        self._known[name] = program

    def receive(self, piece: bytes) -> None:
        """A part of what it is told next."""
        self._sent.append(piece)

    def _joined(self, last: bytes) -> bytes:
        sent, self._sent = b"".join([*self._sent, last]), []
        return sent

    @_guarded
    def load(self, last: bytes) -> tuple[bytes, dict[str, tuple[tuple[int, ...], np.dtype]]]:
        """Read the rows; a keyed hash of them, and the columns' shapes and types."""
        share, key = pickle.loads(self._joined(last))
        self._known, self._first = {}, share.first
        read, self._present = share.read()
        mark = hmac.new(key, self._present.tobytes(), hashlib.sha256)
        for column in read.values():
            mark.update(np.ascontiguousarray(column).tobytes())
        with jax.enable_x64(True):
            self._columns = {name: jnp.asarray(column) for name, column in read.items()}
        return mark.digest(), {name: (column.shape, column.dtype) for name, column in read.items()}

    @_guarded
    def answer(self, last: bytes, name: str) -> tuple[int, bytes]:
        """Compute an answer: in how many pieces it is there, and the first."""
        sent = self._joined(last)
        with jax.enable_x64(True):
            if isinstance(self._known[name], bytes):
                prepare, answer, reduce = pickle.loads(self._known[name])
                kept = jax.jit(jax.export.deserialize(prepare).call)(self._columns, self._present)
                self._known[name] = kept, jax.jit(jax.export.deserialize(answer).call), reduce
            kept, answer, reduce = self._known[name]
            found = np.asarray(answer(kept, jnp.int64(self._first), pickle.loads(sent)))
        self._pieces = _cut(pickle.dumps(found if reduce is None else reduce(found, self._present)))
        return len(self._pieces), self._pieces[0]

    @_guarded
    def piece(self, place: int) -> bytes:
        """Another one of them."""
        return self._pieces[place]
