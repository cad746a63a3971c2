"""Keys: all bits from the operating system, streams apart, never written anywhere."""

import copy
import pickle

import jax
import numpy as np
import pytest

from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.kernels import keys as random_keys
from private_mcmc.kernels.keys import run_keys


def data(key):
    return np.asarray(jax.random.key_data(key))


def test_every_bit_of_the_operating_systems_bytes_reaches_the_key(monkeypatch):
    given = bytes(range(1, 33))
    asked, roots, fold = [], [], random_keys.fold_in
    monkeypatch.setattr(random_keys.secrets, "token_bytes", lambda n: asked.append(n) or given)
    monkeypatch.setattr(random_keys, "fold_in", lambda root, number: roots.append(root) or fold(root, number))
    _, provenance = run_keys()
    assert asked == [32] and len(roots) == 3
    assert all(data(root).tobytes() == given for root in roots)
    assert not provenance.reproducible


def test_runs_and_their_streams_never_share_a_key():
    seen = np.concatenate([np.stack([data(key) for key in run_keys()[0]]) for _ in range(3)])
    assert len(np.unique(seen, axis=0)) == 9


@pytest.mark.parametrize("seed", [0, 7, jax.random.key(7), jax.random.PRNGKey(7)])
def test_a_callers_seed_is_reproducible_and_marked(seed):
    (first, provenance), (second, _) = run_keys(seed), run_keys(seed)
    np.testing.assert_array_equal(data(first.steps), data(second.steps))
    assert provenance.reproducible
    with pytest.raises(ReleaseError, match="unsafe_seed"):
        provenance.check_releasable()
    provenance.check_releasable(unsafe_seed=True)
    run_keys()[1].check_releasable()


@pytest.mark.parametrize("save", [pickle.dumps, copy.copy, copy.deepcopy])
def test_keys_are_never_saved(save):
    with pytest.raises(ReleaseError, match="never"):
        save(run_keys()[0])


def test_no_word_of_a_key_is_printed():
    keys = run_keys()
    words = [str(int(w)) for key in keys[0] for w in data(key)]
    assert not any(word in repr(keys) + str(keys) for word in words if len(word) > 4)


TWO_KEYS = jax.random.split(jax.random.key(3), 2)


@pytest.mark.parametrize("bad", [-1, 2**32, 1.5, True, "secret-phrase", TWO_KEYS])
def test_what_is_not_one_key_is_refused_without_being_quoted(bad):
    with pytest.raises(DeclarationError) as refusal:
        run_keys(bad)
    assert "secret-phrase" not in str(refusal.value)
