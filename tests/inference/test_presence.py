"""Under zero_out a row may be absent, a hole in its own slot: it adds nothing, and no other row moves."""

import functools

import jax
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.domains.columns import PRESENT, data_mark, host_column
from private_mcmc.inference import columns as placing
from private_mcmc.inference.columns import moves
from private_mcmc.kernels import PrivateSGLD, PrivateULA, Streams, chain
from tests.examples_of_models import declared, logistic

N = 8
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=N), y=pmc.Binary())
# Row i is the i-th unit vector: coordinate i of the chain is moved by row i alone.
DATA = {"X": np.eye(N), "y": np.arange(N) % 2}
EVERYBODY = np.ones(N, dtype=bool)


def sgld(model=logistic, **options):
    return PrivateSGLD(model, 0.02, 1.0, **options)


SCHEMES = {
    "all rows": PrivateULA(logistic, 0.02, 1.0),
    "poisson": sgld(rate=0.125),
    "poisson, large": sgld(rate=0.5),
}
PLACES = [*((name, None) for name in SCHEMES), ("all rows", 3), ("poisson", 3)]


def driver(kernel, rows=ROWS, adjacency="zero_out", **changes):
    block = changes.pop("rows_on_device", None)
    execution = pmc.Execution(unsafe_seed=True, rows_on_device=block)
    asked = {"target": pmc.Target(1e4, 1e-6, adjacency), "num_steps": 2 * N, "n": N} | changes
    return declared(kernel, rows, execution=execution, **asked)


@functools.cache
def compiled(scheme, rows_on_device):
    return driver(SCHEMES[scheme], rows_on_device=rows_on_device)


def path(mcmc, present=None, **columns):
    mcmc.run(rng_key=3, present=present, **(DATA | columns))
    return mcmc.get_samples()["w"]


def hole(i):
    return np.arange(N) != i


def others_moved(mcmc):
    """The holes that change a coordinate of the path which belongs to another row."""
    whole = path(mcmc)
    return [i for i in range(N) if not np.array_equal(path(mcmc, hole(i))[:, hole(i)], whole[:, hole(i)])]


@pytest.mark.some(1)
@pytest.mark.parametrize(("scheme", "block"), PLACES)
def test_no_other_row_is_moved_by_a_hole_in_any_slot(scheme, block):
    mcmc = compiled(scheme, block)
    assert others_moved(mcmc) == []
    # Coordinates show their rows: over two passes, or with nobody left, all of them move.
    if scheme.startswith("all"):
        whole, empty = path(mcmc), path(mcmc, ~EVERYBODY)
        assert np.all(np.any(whole != empty, axis=0))
        for i in range(N):
            np.testing.assert_array_equal(path(mcmc, hole(i))[:, i], empty[:, i])


@pytest.mark.some(2)
@pytest.mark.parametrize(("scheme", "block"), PLACES)
def test_what_lies_in_a_hole_is_ignored(scheme, block):
    mcmc, absent = compiled(scheme, block), np.isin(np.arange(N), [0, 5])
    wanted = path(mcmc, ~absent)
    for garbage in (np.nan, np.inf, -1e300):
        X, y = DATA["X"].copy(), DATA["y"].astype(float)
        X[absent], y[absent] = garbage, garbage
        np.testing.assert_array_equal(path(mcmc, ~absent, X=X, y=y), wanted)


def test_flags_are_true_or_one_and_anything_else_is_a_hole():
    mcmc = compiled("all rows", None)
    wanted = path(mcmc, np.isin(np.arange(N), [0, 1, 2]))
    for flags in ([1, 1, 1, 0, 0, 0, 0, 0], [1.0, 1.0, 1.0, np.nan, 0.0, 2.0, -1.0, np.inf]):
        np.testing.assert_array_equal(path(mcmc, np.array(flags)), wanted)
    np.testing.assert_array_equal(path(mcmc, EVERYBODY), path(mcmc))


def test_leaving_rows_out_under_zero_out_is_refused_with_the_way_to_do_it():
    mcmc = compiled("all rows", None)
    for rows in (slice(1, None), np.r_[0:N, 0]):
        columns = {name: column[rows] for name, column in DATA.items()}
        with pytest.raises(pmc.DataSchemaError, match=r"n=8 public slots.*present=") as refused:
            mcmc.run(rng_key=1, **columns)
        assert str(len(columns["y"])) not in str(refused.value)
    with pytest.raises(pmc.DeclarationError, match="slots, empty ones included"):
        driver(SCHEMES["all rows"], n=None).run(**DATA)


@pytest.mark.parametrize(
    ("adjacency", "flags", "words"),
    [
        ("replace_one", EVERYBODY, "no row is absent"),
        ("add_remove", EVERYBODY, "pass the rows there are"),
        ("zero_out", EVERYBODY[1:], "one flag for every slot"),
        ("zero_out", EVERYBODY[:, None], "one flag for every slot"),
        ("zero_out", np.array(["yes"] * N), "not numeric"),
        ("zero_out", 3, "pass an array"),
    ],
)
def test_flags_that_make_no_sense_are_refused(adjacency, flags, words):
    with pytest.raises(pmc.DataSchemaError, match=words):
        driver(SCHEMES["all rows"], adjacency=adjacency).run(present=flags, **DATA)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_data_set_is_known_by_its_holes_and_not_by_what_lies_in_them(streamed):
    def mark(present=None, **columns):
        data = {**DATA, **columns} | ({} if present is None else {PRESENT: np.asarray(present)})
        if streamed:
            data = {name: host_column(name, c) for name, c in data.items()}
        return data_mark(b"key", data)

    other = DATA["y"].astype(float)
    other[3] = np.nan
    assert mark(EVERYBODY) == mark() == mark(EVERYBODY.astype(float))
    assert mark(hole(3)) == mark(hole(3), y=other)
    assert len({mark(), mark(y=other), *(mark(hole(i)) for i in range(N))}) == N + 2


@pytest.mark.slow
def test_rows_that_may_come_and_go_lie_in_slots_drawn_at_random(monkeypatch, tmp_path):
    """Nobody moves up: a row that is removed leaves its slot, whichever it was, and the others theirs."""
    seen, made = [], placing.partitions_of

    def seeing(*given):
        (held,) = made(*given)
        seen.append((np.asarray(held.columns["X"]), np.asarray(held.present)))
        return (held,)

    monkeypatch.setattr(placing, "partitions_of", seeing)
    few = {name: column[:5] for name, column in DATA.items()}
    mcmc = driver(SCHEMES["all rows"], adjacency="add_remove")
    for seed in (0, 0, 1, 2, 3):
        mcmc.run(rng_key=seed, **few)
    for X, present in seen:
        np.testing.assert_array_equal(np.sort(np.argmax(X[present], axis=1)), np.arange(5))
        assert not np.any(X[~present])
    order = [tuple(np.argmax(X, axis=1)) for X, _ in seen]
    assert order[0] == order[1] and len(set(order)) == 4
    wanted = mcmc.get_samples()["w"]
    books = saved_in(tmp_path, "add_remove")
    again = driver(SCHEMES["all rows"], adjacency="add_remove", bookkeeping=books)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(chain, "calls", interrupted)
        again.run(rng_key=3, **few)
    again.resume(**few)
    np.testing.assert_array_equal(again.get_samples()["w"], wanted)


@pytest.mark.slow
def test_every_row_is_in_every_slot_as_often():
    """Of 2,000 placements each of seven slots has 286 of each row, 15.7 their sd: fails once in 10⁶."""
    keys = jax.random.split(jax.random.key(0), 2_000)
    found = np.stack([placed(np.arange(1, 8), key)[0] for key in keys])
    counts = np.stack([np.bincount(column, minlength=8)[1:] for column in found.T])
    assert np.all(np.abs(counts - 2000 / 7) < 5.7 * 15.7)
    assert [moves(one, ROWS, {}) for one in ("add_remove", "zero_out", "replace_one")] == [True, False, False]
    # Persons stand in the order of their identifiers, which another person's changes.
    persons = pmc.Rows(i=pmc.Binary(), who=pmc.Person(2))
    assert moves("zero_out", persons, {}) and moves("replace_one", persons, {})


def placed(column, key, rows_on_device=None):
    """A column in slots of a run under add_remove, and which of them there are."""
    rows, where, n = pmc.Rows(i=pmc.Binary()), pmc.Execution(rows_on_device=rows_on_device), 7
    (found,) = placing.placed({"i": column}, n, where, rows, "add_remove", Streams(key, key, key))
    if rows_on_device is None:
        return np.asarray(found.columns["i"]), np.asarray(found.present)
    blocks = [(rows["i"], present) for _, rows, present in found]
    return [np.concatenate(each)[:n] for each in zip(*blocks, strict=True)]


def test_rows_outside_memory_lie_in_the_same_slots(tmp_path):
    """Of seven slots five rows take those that they would take in memory, and none moves up for another."""
    np.save(tmp_path / "i.npy", np.arange(1, 6))
    mapped, key = np.load(tmp_path / "i.npy", mmap_mode="r"), jax.random.key(3)
    whole = placed(np.arange(1, 6), key)
    for here, there in zip(placed(host_column("i", mapped), key, 2), whole, strict=True):
        np.testing.assert_array_equal(here, there)


@pytest.mark.slow
def test_a_resumed_run_is_on_the_same_holes(monkeypatch, tmp_path):
    mcmc = driver(SCHEMES["all rows"], bookkeeping=saved_in(tmp_path))
    wanted = path(compiled("all rows", None), hole(2))
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(chain, "calls", interrupted)
        path(mcmc, hole(2))
    for other in (None, hole(3)):
        with pytest.raises(pmc.LedgerError, match="not the data"):
            mcmc.resume(present=other, **DATA)
    mcmc.resume(present=hole(2), **DATA)
    np.testing.assert_array_equal(mcmc.get_samples()["w"], wanted)


def saved_in(folder, adjacency="zero_out"):
    ledger = pmc.Ledger.create(folder / "ledger")
    ledger.declare("rows", pmc.Target(1e5, 1e-6, adjacency))
    return pmc.Bookkeeping(ledger, "rows", checkpoint=pmc.Checkpoint(folder / "run", seconds=0.0))


CALLS = chain.calls


def interrupted(*arguments):
    """In the middle: after the first of several calls."""
    first, *others = CALLS(*arguments)
    assert others
    yield first
    raise KeyboardInterrupt
