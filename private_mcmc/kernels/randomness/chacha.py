"""ChaCha20 as a JAX random generator: 256-bit keys, a cryptographic stream, plain JAX operations.

Works wherever ``jax.random`` does (jit, vmap, scan, NumPyro). Every use of a key is a block of the
cipher under its own nonce, so that the streams of bits, of split keys and of folded keys never meet.

Source: Nir, Langley, RFC 8439, section 2.3; the tests hold its vectors.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.random import define_prng_impl

from private_mcmc.errors import DeclarationError

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
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    b = _rotate(b ^ c, 7)
    return a, b, c, d


def _double_round(_: int, rows: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
    a, b, c, d = _quarter_rounds(*rows)
    turned = a, jnp.roll(b, -1, axis=0), jnp.roll(c, -2, axis=0), jnp.roll(d, -3, axis=0)
    a, b, c, d = _quarter_rounds(*turned)
    return a, jnp.roll(b, 1, axis=0), jnp.roll(c, 2, axis=0), jnp.roll(d, 3, axis=0)


def chacha20_blocks(key: Array, counters: Array, nonce: tuple[int, int, int]) -> Array:
    """Blocks of the cipher: 8 words of ``key`` and ``counters`` of shape ``(blocks,)`` → ``(16, blocks)``."""
    number = counters.shape[0]

    def row(words: Array) -> Array:
        return jnp.broadcast_to(words[:, None], (4, number))

    nonce_rows = jnp.broadcast_to(jnp.asarray(nonce, jnp.uint32)[:, None], (3, number))
    start = (
        row(jnp.asarray(_CONSTANTS, jnp.uint32)),
        row(key[:4]),
        row(key[4:]),
        jnp.concatenate([counters[None, :].astype(jnp.uint32), nonce_rows]),
    )
    # A loop, because XLA takes minutes to compile the eighty unrolled quarter rounds.
    end = lax.fori_loop(0, _DOUBLE_ROUNDS, _double_round, start)
    return jnp.concatenate([first + last for first, last in zip(start, end, strict=True)])


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


def chacha20_key(words: Array) -> Array:
    """A typed key from eight words (or ``(…, 8)`` for a batch of keys)."""
    if words.shape[-1:] != (KEY_WORDS,) or words.dtype != jnp.uint32:
        raise DeclarationError(f"a ChaCha20 key is 8 words of uint32, not {words.shape} of {words.dtype}.")
    key: Array = jax.random.wrap_key_data(words, impl=CHACHA20)
    return key
