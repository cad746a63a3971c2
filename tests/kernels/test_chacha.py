"""ChaCha20: the vectors of RFC 8439 and the promises of a JAX generator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_mcmc.kernels.keys import CHACHA20, chacha20_blocks

# RFC 8439: section 2.3.2, then appendix A.1 (test vectors 1 and 4): key, counter, nonce, serialised block.
VECTORS = [
    (
        bytes(range(32)).hex(),
        1,
        "000000090000004a00000000",
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    (
        "00" * 32,
        0,
        "00" * 12,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    (
        "00" + "ff" + "00" * 30,
        2,
        "00" * 12,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
]


def words(hexadecimal):
    return np.frombuffer(bytes.fromhex(hexadecimal), dtype="<u4")


def key_of(number):
    words = jnp.asarray(np.arange(8, dtype=np.uint32) * 7 + np.uint32(number))
    return jax.random.wrap_key_data(words, impl=CHACHA20)


@pytest.mark.parametrize(("key", "counter", "nonce", "block"), VECTORS)
def test_blocks_are_those_of_rfc_8439(key, counter, nonce, block):
    out = chacha20_blocks(
        jnp.asarray(words(key)), jnp.asarray([counter], jnp.uint32), tuple(int(w) for w in words(nonce))
    )
    assert np.asarray(out)[:, 0].astype("<u4").tobytes().hex() == block


@pytest.mark.slow
def test_the_stream_of_bits_is_the_cipher_under_its_own_nonce():
    key = key_of(1)
    bits = np.asarray(jax.random.bits(key, (33,), jnp.uint32))
    blocks = np.asarray(chacha20_blocks(jax.random.key_data(key), jnp.arange(3, dtype=jnp.uint32), (0, 0, 0)))
    np.testing.assert_array_equal(bits, blocks.reshape(-1)[:33])


@pytest.mark.some(1)
@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_bits_of_every_width_fill_the_whole_range(width):
    with jax.enable_x64(True):
        bits = np.asarray(jax.random.bits(key_of(2), (4096,), jnp.dtype(f"uint{width}")))
    ones = np.unpackbits(bits.view(np.uint8)).reshape(4096, width).mean(axis=0)
    assert bits.dtype == np.dtype(f"uint{width}")
    # each bit position: 4096 fair coins, six standard deviations
    assert np.all(np.abs(ones - 0.5) < 6 * 0.5 / np.sqrt(4096))


@pytest.mark.slow
def test_split_fold_in_and_bits_never_share_a_block():
    key = key_of(3)
    split = np.asarray(jax.random.key_data(jax.random.split(key, 64)))
    folded = np.stack([np.asarray(jax.random.key_data(jax.random.fold_in(key, i))) for i in range(64)])
    bits = np.asarray(jax.random.bits(key, (64, 8), jnp.uint32))
    rows = np.concatenate([split, folded, bits])
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert len(np.unique(rows)) > len(rows) * 8 - 8


@pytest.mark.long
@settings(deadline=None, max_examples=6)
@given(st.integers(0, 2**31 - 1), st.integers(1, 6))
def test_vmap_jit_and_scan_give_what_plain_calls_give(seed, number):
    keys = jax.random.split(jax.random.key(seed, impl=CHACHA20), number)
    plain = np.stack([np.asarray(jax.random.normal(k, (5,))) for k in keys])
    draw = jax.vmap(lambda k: jax.random.normal(k, (5,)))
    np.testing.assert_array_equal(np.asarray(draw(keys)), plain)
    np.testing.assert_array_equal(np.asarray(jax.jit(draw)(keys)), plain)
    _, scanned = jax.lax.scan(lambda c, k: (c, jax.random.normal(k, (5,))), 0, keys)
    np.testing.assert_array_equal(np.asarray(scanned), plain)


@pytest.mark.slow
def test_seeds_keep_all_their_bits():
    with jax.enable_x64(True):
        low, high = jax.random.key(5, impl=CHACHA20), jax.random.key(5 + 2**32, impl=CHACHA20)
        assert not np.array_equal(jax.random.key_data(low), jax.random.key_data(high))
