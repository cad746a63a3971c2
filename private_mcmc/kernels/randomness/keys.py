"""Where a run's randomness comes from: one key, four disjoint streams, each handed out once."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn, get_args

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.kernels.randomness.chacha import CHACHA20


class Window(NamedTuple):
    """What the steps ``first, first + 1, …`` draw, one after the other along the first axis."""

    first: jax.Array
    values: jax.Array


@dataclass(frozen=True)
class PredrawnNoise:
    """The numbers that steps draw, ``draw(key)`` for ``size`` steps at a time, ``(size, …)``.

    A group's key is the stream's, folded with the number of the group: what a step draws depends on the
    stream and on its own number only. ``outside`` is what a step beyond a window gets: no other's numbers.
    """

    draw: Callable[[jax.Array], jax.Array]
    size: int
    outside: float

    def ahead(self, stream: jax.Array, first: jax.Array, count: int) -> Window:
        """The numbers of ``count`` steps from ``first`` on, and those that share their groups."""
        begin = first // self.size
        # So many groups hold all steps, wherever in its group the first one stands.
        groups = begin + jnp.arange(-(-(count + self.size - 1) // self.size))
        # One after the other: a group stays in cache between the rounds of its cipher.
        values = jax.lax.map(lambda group: self._group(stream, group), groups)
        return Window(begin * self.size, values.reshape(-1, *values.shape[2:]))

    def at(self, source: jax.Array | Window, k: jax.Array) -> jax.Array:
        """The numbers of step ``k``, from a window or drawn now from a stream's key."""
        if isinstance(source, Window):
            row = source.values.at[k - source.first]
            return row.get(mode="fill", fill_value=self.outside, wrap_negative_indices=False)
        return self._group(source, k // self.size)[k % self.size]

    def _group(self, stream: jax.Array, number: jax.Array) -> jax.Array:
        return self.draw(jax.random.fold_in(stream, number))


Stream = Literal["start", "batches", "steps", "release"]
Generator = Literal["chacha20", "threefry2x32"]
Source = Literal["operating system", "caller"]

# The constants that separate the streams are fixed for good: changing one changes every seeded run.
_STREAM_NUMBER: dict[str, int] = {"start": 1, "batches": 2, "steps": 3, "release": 4}
_KEY_WORDS: dict[str, int] = {"chacha20": 8, "threefry2x32": 2}

# Compiled: operation by operation it takes milliseconds.
_fold = jax.jit(jax.random.fold_in)


@dataclass(frozen=True)
class Provenance:
    """Where the randomness of a run came from; public, and part of every released object.

    Attributes:
        source: ``"operating system"`` (secret) or ``"caller"``: whoever holds the seed can run the
            noise again and subtract it, so that such a run is **reproducible and not private**.
        generator: the stream cipher or counter-based generator that was used.
    """

    source: Source
    generator: str

    @property
    def reproducible(self) -> bool:
        """True when the caller chose the seed; a release then needs ``unsafe_seed=True``."""
        return self.source == "caller"

    def check_releasable(self, unsafe_seed: bool = False) -> None:
        """Raise ``ReleaseError`` for a caller's seed, unless the caller insists."""
        if self.reproducible and not unsafe_seed:
            raise ReleaseError(
                "the run was seeded by the caller (rng_key=…), so whoever knows the seed can remove the "
                "noise: it is reproducible and not private. Leave rng_key out for a private release, or "
                "pass unsafe_seed=True for a result marked as not private."
            )

    def __str__(self) -> str:
        note = "reproducible, not private" if self.reproducible else "secret"
        return f"{self.generator}, key from the {self.source} ({note})"

    def to_dict(self) -> dict[str, str]:
        """Plain values for JSON and ArviZ attributes."""
        return {"source": self.source, "generator": self.generator}


class RunKeys:
    """The secret keys of one run. Not printable, not picklable, not copyable; each stream taken once."""

    __slots__ = ("_lock", "_root", "_taken", "provenance")

    def __init__(self, root: jax.Array, provenance: Provenance) -> None:
        self._root = root
        self._taken: set[str] = set()
        self._lock = threading.Lock()
        self.provenance = provenance

    def take(self, stream: Stream) -> jax.Array:
        """The key of a stream. Raises ``ReleaseError`` when it was taken before: no noise is used twice."""
        if stream not in get_args(Stream):
            raise DeclarationError(f"stream {stream!r}: one of {', '.join(get_args(Stream))}.")
        with self._lock:
            if stream in self._taken:
                raise ReleaseError(
                    f"the {stream!r} key of this run was used already: noise used twice cancels. Start a new "
                    "run, which is a new mechanism and is charged again."
                )
            self._taken.add(stream)
        key: jax.Array = _fold(self._root, _STREAM_NUMBER[stream])
        return key

    def __repr__(self) -> str:
        return f"<RunKeys: {self.provenance}>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise ReleaseError("the keys of a run are never copied, pickled or saved.")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse


def run_keys(rng_key: int | jax.Array | None = None, generator: Generator = "chacha20") -> RunKeys:
    """Keys for one run.

    **Guarantee**: with ``rng_key=None`` every bit of the key comes from the operating system's
    cryptographic source (256 bits for ``chacha20``, 64 for ``threefry2x32``, a fast generator that is
    not cryptographic). The streams are keys folded with distinct constants.

    **Assumptions**: the operating system's source and ChaCha20 are indistinguishable from random.

    Args:
        rng_key: ``None``, or the caller's own seed or key, which marks the run as reproducible.
        generator: used for keys from the operating system and for integer seeds.

    Raises:
        DeclarationError: for an unknown generator or something that is not one key.
    """
    if generator not in get_args(Generator):
        raise DeclarationError(f"generator={generator!r}: one of {', '.join(get_args(Generator))}.")
    implementation: Any = CHACHA20 if generator == "chacha20" else generator
    if rng_key is None:
        words = np.frombuffer(secrets.token_bytes(4 * _KEY_WORDS[generator]), dtype=np.uint32)
        root = jax.random.wrap_key_data(jnp.asarray(words), impl=implementation)
        return RunKeys(root, Provenance("operating system", generator))
    if isinstance(rng_key, (int, np.integer)) and not isinstance(rng_key, bool):
        if not 0 <= rng_key < 2**32:
            raise DeclarationError("rng_key: an integer seed must lie in [0, 2^32).")
        return RunKeys(jax.random.key(int(rng_key), impl=implementation), Provenance("caller", generator))
    root = _one_key(rng_key)
    return RunKeys(root, Provenance("caller", _name_of(root)))


def public_key(generator: str) -> jax.Array:
    """A key that everybody knows, of the kind that a run under ``generator`` uses: for trials."""
    implementation: Any = CHACHA20 if generator == "chacha20" else generator
    key: jax.Array = jax.random.key(0, impl=implementation)
    return key


def _one_key(rng_key: Any) -> jax.Array:
    """A typed key from a typed or legacy one; the message of a refusal never shows its value."""
    if isinstance(rng_key, (jax.Array, np.ndarray)):
        if jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key) and rng_key.shape == ():
            return jnp.asarray(rng_key)
        if rng_key.dtype == np.uint32 and rng_key.shape == (2,):
            key: jax.Array = jax.random.wrap_key_data(jnp.asarray(rng_key), impl="threefry2x32")
            return key
    raise DeclarationError(
        "rng_key: leave it out for a private run; otherwise one jax.random.key(...), one legacy PRNGKey of "
        "two words, or an integer seed."
    )


def _name_of(key: jax.Array) -> str:
    implementation = jax.random.key_impl(key)
    return "chacha20" if implementation == CHACHA20 else str(implementation)
