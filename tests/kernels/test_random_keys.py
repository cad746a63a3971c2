"""Keys: all bits from the operating system, streams apart, each used once, never written anywhere."""

import copy
import pickle
import traceback

import jax
import numpy as np
import pytest

from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.kernels import keys as random_keys
from private_mcmc.kernels.keys import run_keys

STREAMS = ("start", "batches", "steps")


def data(key):
    return np.asarray(jax.random.key_data(key))


@pytest.mark.parametrize(("generator", "words"), [("chacha20", 8), ("threefry2x32", 2)])
def test_every_bit_of_the_operating_systems_bytes_reaches_the_key(monkeypatch, generator, words):
    given = bytes(range(1, 4 * words + 1))
    asked = []
    monkeypatch.setattr(random_keys.secrets, "token_bytes", lambda n: asked.append(n) or given)
    keys = run_keys(generator=generator)
    assert asked == [4 * words]
    assert np.asarray(jax.random.key_data(keys._root)).tobytes() == given
    assert not keys.provenance.reproducible


def test_runs_and_their_streams_never_share_a_key():
    keys = [run_keys() for _ in range(3)]
    seen = np.concatenate([np.stack([data(k.take(s)) for s in STREAMS]) for k in keys])
    assert len(np.unique(seen, axis=0)) == 9


def test_a_stream_is_handed_out_once():
    keys = run_keys()
    keys.take("steps")
    with pytest.raises(ReleaseError, match="used already"):
        keys.take("steps")
    keys.take("start")


@pytest.mark.parametrize("seed", [0, 7, jax.random.key(7), jax.random.PRNGKey(7)])
def test_a_callers_seed_is_reproducible_and_marked(seed):
    first, second = run_keys(seed), run_keys(seed)
    np.testing.assert_array_equal(data(first.take("steps")), data(second.take("steps")))
    assert first.provenance.reproducible
    assert "not private" in str(first.provenance)
    with pytest.raises(ReleaseError, match="unsafe_seed"):
        first.provenance.check_releasable()
    first.provenance.check_releasable(unsafe_seed=True)
    run_keys().provenance.check_releasable()


@pytest.mark.parametrize("save", [pickle.dumps, copy.copy, copy.deepcopy, lambda k: k.__getstate__()])
def test_keys_are_never_saved(save):
    with pytest.raises(ReleaseError, match="never"):
        save(run_keys())


def test_no_word_of_the_key_in_repr_or_errors():
    keys = run_keys()
    words = [str(int(w)) for w in data(keys._root)] + [hex(int(w))[2:] for w in data(keys._root)]
    text = repr(keys) + str(keys)
    keys.take("steps")
    try:
        keys.take("steps")
    except ReleaseError:
        text += traceback.format_exc()
    assert not any(word in text for word in words if len(word) > 4)


TWO_KEYS = jax.random.split(jax.random.key(3), 2)


@pytest.mark.parametrize("bad", [-1, 2**32, 1.5, True, "secret-phrase", TWO_KEYS])
def test_what_is_not_one_key_is_refused_without_being_quoted(bad):
    with pytest.raises(DeclarationError) as refusal:
        run_keys(bad)
    assert "secret-phrase" not in str(refusal.value)


def test_unknown_names_are_refused():
    with pytest.raises(DeclarationError, match="generator"):
        run_keys(generator="rbg")
    with pytest.raises(DeclarationError, match="stream"):
        run_keys().take("noise")
