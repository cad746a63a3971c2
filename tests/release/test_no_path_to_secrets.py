"""From no released object, through any chain of references, is there a way to a private row or a key."""

import gc
import pickle
import types

import jax
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.kernels import keys as random_keys
from private_mcmc.release import plan_second_moments
from tests.examples_of_models import logistic

N = 30
# Values that occur nowhere by chance, and whose bytes are looked for.
MARKS = np.linspace(0.1234567891, 0.2345678912, 2 * N).reshape(N, 2)
KEY = bytes(range(101, 133))


def reachable(start):
    """Everything that can be reached from ``start``, without leaving through modules, classes or globals."""
    seen, found, waiting = set(), [], [start]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (types.ModuleType, type, types.CodeType, types.FrameType)):
            continue
        seen.add(id(thing))
        found.append(thing)
        if isinstance(thing, types.FunctionType):
            cells = [cell.cell_contents for cell in thing.__closure__ or () if gc.get_referents(cell)]
            waiting += [*cells, thing.__defaults__, thing.__kwdefaults__, thing.__dict__]
        elif isinstance(thing, np.ndarray):
            waiting += [thing.base, *(thing.ravel().tolist() if thing.dtype == object else [])]
        else:
            waiting += gc.get_referents(thing)
            waiting += [getattr(thing, name) for name in _slots(thing)]
    return found


def _slots(thing):
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()) or ()]
    return [name for name in names if name not in ("__weakref__", "__dict__") and hasattr(thing, name)]


def content(thing):
    """The bytes of an array, a number or a text."""
    if isinstance(thing, jax.Array):
        typed = jax.dtypes.issubdtype(thing.dtype, jax.dtypes.prng_key)
        thing = np.asarray(jax.random.key_data(thing) if typed else thing)
    if isinstance(thing, (np.ndarray, np.generic)):
        return np.asarray(thing).tobytes() if thing.dtype != object else b""
    if isinstance(thing, float):
        return np.float64(thing).tobytes()
    if isinstance(thing, (bytes, bytearray)):
        return bytes(thing)
    return thing.encode("utf-8", "surrogatepass") if isinstance(thing, str) else b""


def secrets_in(start, keys):
    rows = [np.asarray(mark, kind).tobytes() for mark in MARKS.ravel() for kind in (np.float64, np.float32)]
    rows += [repr(float(mark)).encode() for mark in MARKS.ravel()]
    blobs = [content(thing) for thing in reachable(start)]
    return [secret for secret in [*rows, *keys] for blob in blobs if secret in blob]


@pytest.fixture
def keys(monkeypatch):
    """Every key that the run uses, as bytes."""
    monkeypatch.setattr(random_keys.secrets, "token_bytes", lambda size: KEY[:size])
    streams, _ = random_keys.run_keys()
    return [KEY, *(np.asarray(jax.random.key_data(key)).tobytes() for key in streams)]


RELEASES = {"path": "path", "last": "last", "steps": (3, 7), "expectations": pmc.Expectations("w")}


@pytest.mark.some(1)
@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_no_released_object_leads_to_a_row_or_a_key(release, keys):
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
    kernel = pmc.PrivateULA(logistic, step_size=0.01, clip=1.0, temper=0.1)
    target = pmc.Target(5.0, 1e-6)
    mcmc = pmc.PrivateMCMC(
        kernel, rows=rows, target=target, release=release, num_steps=8, guarantee="run", progress_bar=False
    )
    mcmc.run(X=MARKS.copy(), y=np.arange(N) % 2)
    released = {"released": mcmc.released, "statement": mcmc.statement, "text": repr(mcmc.released)}
    if isinstance(release, (str, tuple)):
        released |= {"samples": mcmc.get_samples(), "arviz": mcmc.to_arviz()}
    for name, thing in released.items():
        assert not secrets_in(thing, keys), name
        if name != "arviz":
            saved = pickle.dumps(thing)
            assert not any(np.float64(mark).tobytes() in saved for mark in MARKS.ravel())
            assert not any(key in saved for key in keys)


def test_released_second_moments_lead_to_no_row(keys):
    plan = plan_second_moments(0.5, radius=1.0, dim=2, num_rows=N, adjacency="replace_one")
    assert not secrets_in((plan.released(plan.noised(plan.sums(MARKS.copy()))), plan), keys)


def test_the_walk_finds_what_is_there(keys):
    held = MARKS[:1].copy()

    def closure():
        return held

    narrow = jax.numpy.asarray(held, "float32")
    for thing in ({"a": [closure]}, types.SimpleNamespace(x=(held,)), narrow, KEY, repr(held.tolist())):
        assert secrets_in(thing, keys)
    assert secrets_in([random_keys.run_keys()], keys)
