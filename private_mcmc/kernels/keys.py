"""Where a run's randomness comes from: one key, three disjoint streams.

The keys are those of ChaCha20 as a JAX random generator: 256 bits, a cryptographic stream, plain JAX
operations. It works wherever ``jax.random`` does (jit, vmap, scan, NumPyro). Every use of a key is a block of
the cipher under its own nonce, so that the streams of bits, of split keys and of folded keys never meet.

Source: Nir, Langley, RFC 8439, section 2.3; the tests hold its vectors.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.random import define_prng_impl

from private_mcmc.errors import DeclarationError, ReleaseError

KEY_WORDS = 8
_BLOCK_WORDS = 16
_DOUBLE_ROUNDS = 10
# "expand 32-byte k" in little-endian words.
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_BITS, _SPLIT, _FOLD, _SEED = range(4)


def _rotate(x: Array, bits: int) -> Array:
    turned: Array = (x << jnp.uint32(bits)) | (x >> jnp.uint32(32 - bits))
    return turned


def _quarter_rounds(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array, Array, Array]:
    """The quarter round on four columns at once; each argument is a row of the state, ``(4, blocks)``."""
    for first, second in ((16, 12), (8, 7)):
        a = a + b
        d = _rotate(d ^ a, first)
        c = c + d
        b = _rotate(b ^ c, second)
    return a, b, c, d


def _double_round(_: int, rows: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
    a, b, c, d = _quarter_rounds(*rows)
    turned = a, jnp.roll(b, -1, axis=0), jnp.roll(c, -2, axis=0), jnp.roll(d, -3, axis=0)
    a, b, c, d = _quarter_rounds(*turned)
    return a, jnp.roll(b, 1, axis=0), jnp.roll(c, 2, axis=0), jnp.roll(d, 3, axis=0)


def chacha20_blocks(key: Array, counters: Array, nonce: tuple[int, int, int]) -> Array:
    """Blocks of the cipher: 8 words of ``key`` and ``counters`` of shape ``(blocks,)`` → ``(16, blocks)``."""

    def in_each(words: Array | tuple[int, ...]) -> Array:
        column = jnp.asarray(words, jnp.uint32)[:, None]
        return jnp.broadcast_to(column, (len(column), counters.shape[0]))

    counted = counters[None, :].astype(jnp.uint32)
    start = jnp.concatenate([in_each(_CONSTANTS), in_each(key), counted, in_each(nonce)])
    # A loop, because XLA takes minutes to compile the eighty unrolled quarter rounds.
    end = lax.fori_loop(0, _DOUBLE_ROUNDS, _double_round, tuple(start.reshape(4, 4, -1)))
    return start + jnp.concatenate(end)


def _words(key: Array, use: int, number: int) -> Array:
    """The first ``number`` words of the stream of ``key`` for one use, shape ``(number,)``."""
    blocks = -(-number // _BLOCK_WORDS)
    if blocks >= 2**32:
        raise DeclarationError(f"{number} random words from one key: split the key first (limit 2^36).")
    counters = lax.iota(jnp.uint32, blocks)
    return chacha20_blocks(key, counters, (use, 0, 0)).reshape(-1)[:number]


def _seed(seed: Array) -> Array:
    low = seed.astype(jnp.uint32)
    high = (seed >> 32).astype(jnp.uint32) if seed.dtype.itemsize == 8 else jnp.zeros_like(low)
    padded = jnp.concatenate([jnp.stack([low, high]), jnp.zeros(KEY_WORDS - 2, jnp.uint32)])
    return _words(padded, _SEED, KEY_WORDS)


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return _words(key, _SPLIT, math.prod(shape) * KEY_WORDS).reshape(*shape, KEY_WORDS)


def _fold_in(key: Array, data: int | Array) -> Array:
    counter = jnp.asarray(data).astype(jnp.uint32).reshape(1)
    return chacha20_blocks(key, counter, (_FOLD, 0, 0))[:KEY_WORDS, 0]


def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    size = math.prod(shape)
    if bit_width == 64:
        pairs = _words(key, _BITS, 2 * size).reshape(2, size).astype(jnp.uint64)
        joined: Array = (pairs[0] << jnp.uint64(32)) | pairs[1]
        return joined.reshape(shape)
    if bit_width not in (8, 16, 32):
        raise DeclarationError(f"bit_width={bit_width}: 8, 16, 32 or 64.")
    words = _words(key, _BITS, -(-size * bit_width // 32))
    narrow = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[bit_width]
    return lax.bitcast_convert_type(words, narrow).reshape(-1)[:size].reshape(shape)


CHACHA20 = define_prng_impl(
    key_shape=(KEY_WORDS,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="chacha20",
    tag="cc20",
)


# The constants that separate the streams are fixed for good: changing one changes every seeded run.
_STREAM_NUMBER: dict[str, int] = {"slots": 1, "batches": 2, "steps": 3}

# Compiled: operation by operation they take milliseconds.
fold_in = jax.jit(jax.random.fold_in)
_key = jax.jit(jax.random.key, static_argnames="impl")


@dataclass(frozen=True)
class Provenance:
    """Where the randomness of a run came from; public, and part of every released object.

    Attributes:
        source: ``"operating system"`` (secret) or ``"caller"``: whoever holds the seed can run the
            noise again and subtract it, so that such a run is **reproducible and not private**.
        generator: ``"chacha20"``, or that of a caller's own key.
    """

    source: Literal["operating system", "caller"]
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

    def to_dict(self) -> dict[str, str]:
        """Plain values for JSON and ArviZ attributes."""
        return asdict(self)


class Streams(NamedTuple):
    """Independent keys of one run, made once: they are never printed, copied or pickled.

    ``steps``: of the noise. ``batches``: all that a place where rows lie is given of a run's randomness.
    ``slots``: of the order of rows that may come and go.
    """

    steps: jax.Array
    batches: jax.Array | None = None
    slots: jax.Array | None = None

    def of_stage(self, number: int) -> Streams:
        """Those of one stage of a run, all of its own."""
        rest = (key if key is None else fold_in(key, number) for key in (self.batches, self.slots))
        return Streams(fold_in(self.steps, number), *rest)

    def __repr__(self) -> str:
        return "<Streams>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise ReleaseError("the keys of a run are never copied, pickled or saved.")


def run_keys(rng_key: int | jax.Array | None = None) -> tuple[Streams, Provenance]:
    """Keys for one run, and where they are from.

    **Guarantee**: with ``rng_key=None`` every bit of the key comes from the operating system's cryptographic
    source. The streams are keys folded with distinct constants. A caller's own seed or key marks the run as
    reproducible.

    **Assumptions**: the operating system's source and ChaCha20 are indistinguishable from random.
    """
    if rng_key is None:
        words = np.frombuffer(secrets.token_bytes(4 * KEY_WORDS), dtype=np.uint32)
        root = jax.random.wrap_key_data(jnp.asarray(words), impl=CHACHA20)
    elif isinstance(rng_key, (int, np.integer)) and not isinstance(rng_key, bool):
        if not 0 <= rng_key < 2**32:
            raise DeclarationError("rng_key: an integer seed must lie in [0, 2^32).")
        root = _key(int(rng_key), impl=CHACHA20)
    else:
        root = _one_key(rng_key)
    kind = jax.random.key_impl(root)
    provenance = Provenance(
        "operating system" if rng_key is None else "caller", "chacha20" if kind == CHACHA20 else str(kind)
    )
    return Streams(**{name: fold_in(root, number) for name, number in _STREAM_NUMBER.items()}), provenance


def _one_key(rng_key: object) -> jax.Array:
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
