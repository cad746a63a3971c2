"""Under zero_out a row may be absent, a hole in its own slot: it adds nothing, and no other row moves."""

import functools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.domains.columns import PRESENT, ArrayColumn
from private_mcmc.inference import execute
from private_mcmc.inference.columns import placed
from private_mcmc.kernels import PrivateSGLD, PrivateULA, chain
from private_mcmc.kernels.devices import ONE_DEVICE
from private_mcmc.release.ledger.file import data_mark
from private_mcmc.schedule import Batch, BatchScheme
from private_mcmc.target import Adjacency
from tests.examples_of_models import logistic

N = 8
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=N), y=pmc.Binary())
# Row i is the i-th unit vector: coordinate i of the chain is moved by row i alone.
DATA = {"X": np.eye(N), "y": np.arange(N) % 2}
EVERYBODY = np.ones(N, dtype=bool)


def curved(X, y=None):
    """Rows without an affine predictor."""
    w = numpyro.sample("w", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=(X @ w) ** 2 + X @ w), obs=y)


def sgld(model=logistic, **options):
    return PrivateSGLD(model, 0.02, 1.0, **options)


SCHEMES = {
    "all rows": PrivateULA(logistic, 0.02, 1.0),
    "cyclic": sgld(scheme="cyclic", batch_size=1),
    "cyclic, general": sgld(curved, scheme="cyclic", batch_size=2),
    "poisson": sgld(rate=0.125),
    "poisson, large": sgld(rate=0.5),
    "fixed": sgld(scheme="fixed", batch_size=1),
    "fixed, large": sgld(scheme="fixed", batch_size=4),
}
PLACES = [(name, None) for name in SCHEMES if name != "fixed"] + [("cyclic", 3), ("fixed", 3)]


def driver(kernel, rows=ROWS, adjacency="zero_out", **changes):
    settings = dict(
        target=pmc.Target(1e4, 1e-6, adjacency), release="path", num_steps=2 * N, guarantee="run", n=N,
        progress_bar=False,
    ) | changes  # fmt: skip
    execution = pmc.Execution(
        unsafe_seed=True,
        generator="threefry2x32",
        rows_on_device=settings.pop("rows_on_device", None),
        curator=settings.pop("curator", False),
    )
    return pmc.PrivateMCMC(kernel, rows=rows, execution=execution, **settings)


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
    if scheme.startswith(("all", "cyclic")):
        whole, empty = path(mcmc), path(mcmc, ~EVERYBODY)
        assert np.all(np.any(whole != empty, axis=0))
        for i in range(N):
            np.testing.assert_array_equal(path(mcmc, hole(i))[:, i], empty[:, i])


@pytest.mark.some(1)
@pytest.mark.parametrize("scheme", ["cyclic", "cyclic, general", "poisson, large", "fixed, large"])
def test_slots_that_are_packed_before_the_run_would_be_seen(scheme, monkeypatch):
    load = execute.on_device

    def packing(rows, columns, *where):
        kept = np.flatnonzero(columns.get(PRESENT, EVERYBODY))
        order = np.concatenate([kept, np.setdiff1d(np.arange(N), kept)])
        columns = {name: column[order] for name, column in columns.items() if name != PRESENT}
        return load(rows, columns | {PRESENT: np.arange(N) < len(kept)}, *where)

    monkeypatch.setattr(execute, "on_device", packing)
    assert len(others_moved(compiled(scheme, None))) >= N - 2


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
    mcmc = compiled("cyclic", None)
    wanted = path(mcmc, np.isin(np.arange(N), [0, 1, 2]))
    for flags in ([1, 1, 1, 0, 0, 0, 0, 0], [1.0, 1.0, 1.0, np.nan, 0.0, 2.0, -1.0, np.inf]):
        np.testing.assert_array_equal(path(mcmc, np.array(flags)), wanted)
    np.testing.assert_array_equal(path(mcmc, EVERYBODY), path(mcmc))


@pytest.mark.long
def test_flags_may_be_streamed_and_columns_need_not_be():
    flags = hole(4).astype(float)
    column = ArrayColumn(flags.shape, flags.dtype, flags)
    np.testing.assert_array_equal(
        path(driver(SCHEMES["cyclic"]), column), path(compiled("cyclic", 3), hole(4))
    )


def narrow_mean(y=None):
    """A prior so narrow that a step forgets more than half."""
    mu = numpyro.sample("mu", dist.Normal(0, 0.3))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


# An exact chain: slopes of rows this far out are held at the clip C = 1 wherever it goes, so that a step is
# θ' = ρθ ± γ·8·C + N(0, 2γ), and two runs with one seed differ by their means alone. It ends in mid-pass.
FAR, STEP, STEPS, BURN_IN = 1e6, 0.05, 28, 8
KEPT = 1 - STEP / 0.3**2


def signs(text):
    return np.array([FAR if sign == "+" else -FAR for sign in text])


@functools.cache
def exact(release):
    return driver(
        PrivateSGLD(narrow_mean, STEP, 1.0, scheme="cyclic", batch_size=1),
        pmc.Rows(y=pmc.Box(-FAR, FAR)),
        num_steps=STEPS,
        release=release or pmc.Expectations("mu", burn_in=BURN_IN),
        curator=release is None,
    )


def moved(release, first, second):
    """What tells two data sets apart: μ of two Gaussians, for averages the distance in sensitivities."""
    mcmc, seen = exact(release), []
    for y, present in (first, second):
        mcmc.run(y=y, present=present, rng_key=1)
        hidden = release is None
        seen.append(mcmc.curator.averages.unsafe_value() if hidden else mcmc.get_samples()["mu"])
    apart = seen[1] - seen[0]
    if release is None:
        return abs(apart[0])
    if release == "last":
        return abs(apart[0]) / math.sqrt(2 * STEP * np.sum(KEPT ** (2.0 * np.arange(STEPS))))
    steps = apart - KEPT * np.concatenate([[0.0], apart[:-1]])
    return math.sqrt(np.sum(steps**2) / (2 * STEP))


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("release", "tightness", "rows", "packed"),
    [
        ("path", 1 - 1e-6, "-+-+-+-+", 5.0),
        ("last", 0.89, "----+---", 1.8),
        (None, 1 - 1e-6, "-++++---", 1.4),
    ],
)
def test_a_hole_at_any_slot_of_cyclic_batches_moves_a_release_by_what_is_claimed(
    release, tightness, rows, packed
):
    """By the compiled chain itself, and packing the rows after a hole is found to break the claim."""
    claimed = 1.0 if release is None else exact(release).decide().statement.gdp
    y, few = signs(rows), np.isin(np.arange(N), [0, 1, 3, 6])
    found = [
        moved(release, (y, others | ~hole(i)), (y, others & hole(i)))
        for others in (EVERYBODY, few)
        for i in range(N)
    ]
    # States are released on a grid, much coarser than float64.
    assert tightness * claimed < max(found) <= claimed * (1.0 if release is None else 1 + 1e-6)
    assert moved(release, (y, EVERYBODY), (np.roll(y, -1), hole(N - 1))) > packed * claimed


ACCEPTED = {
    ("all rows", "replace_one"), ("all rows", "add_remove"), ("all rows", "zero_out"),
    ("poisson", "replace_one"), ("poisson", "add_remove"), ("poisson", "zero_out"),
    # Which present rows are drawn depends on how many there are, never on where they lie.
    ("truncated_poisson", "add_remove"),
    # The law depends on slots: they are public, and rows may leave them empty but never move.
    ("fixed", "replace_one"), ("fixed", "zero_out"),
    ("cyclic", "replace_one"), ("cyclic", "zero_out"),
}  # fmt: skip


def test_rows_come_and_go_only_where_their_order_has_no_part_in_the_law():
    """Every scheme under every adjacency: what is accepted is listed, with the reason."""
    accepted = set()
    for scheme in ("all rows", *get_args(BatchScheme)):
        for adjacency in get_args(Adjacency):
            batch = {
                "all rows": None,
                "poisson": Batch(scheme="poisson", rate=0.1),
                "truncated_poisson": Batch(scheme="truncated_poisson", rate=0.1, size=2),
            }.get(scheme, Batch(scheme=scheme, size=2) if scheme in ("fixed", "cyclic") else None)
            schedule = PrivateULA(logistic, 0.02, 1.0).schedule(
                adjacency=adjacency, num_rows=N, dim=N, num_steps=2, num_chains=1, release="path"
            )
            try:
                accounting.langevin_statement(replace(schedule, batch=batch))
            except pmc.DeclarationError:
                continue
            accepted.add((scheme, adjacency))
    assert accepted == ACCEPTED


def test_leaving_rows_out_under_zero_out_is_refused_with_the_way_to_do_it():
    mcmc = compiled("cyclic", None)
    for rows in (slice(1, None), np.r_[0:N, 0]):
        columns = {name: column[rows] for name, column in DATA.items()}
        with pytest.raises(pmc.DataSchemaError, match=r"n=8 public slots.*present=") as refused:
            mcmc.run(rng_key=1, **columns)
        assert str(len(columns["y"])) not in str(refused.value)
    with pytest.raises(pmc.DeclarationError, match="slots, empty ones included"):
        driver(SCHEMES["cyclic"], n=None).run(**DATA)


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


@pytest.mark.parametrize("name", ["present", "rng_key"])
def test_a_row_column_with_the_name_of_an_argument_of_run_is_refused(name):
    with pytest.raises(pmc.DeclarationError, match=f"{name}.*another name"):
        pmc.Rows(**{name: pmc.Binary()})


@pytest.mark.parametrize("streamed", [False, True])
def test_a_data_set_is_known_by_its_holes_and_not_by_what_lies_in_them(streamed):
    def mark(present=None, **columns):
        data = {**DATA, **columns} | ({} if present is None else {PRESENT: np.asarray(present)})
        if streamed:
            data = {name: ArrayColumn(c.shape, c.dtype, c) for name, c in data.items()}
        return data_mark(b"key", data)

    other = DATA["y"].astype(float)
    other[3] = np.nan
    assert mark(EVERYBODY) == mark() == mark(EVERYBODY.astype(float))
    assert mark(hole(3)) == mark(hole(3), y=other)
    assert len({mark(), mark(y=other), *(mark(hole(i)) for i in range(N))}) == N + 2


@pytest.mark.slow
def test_rows_that_may_come_and_go_lie_in_slots_drawn_at_random(monkeypatch, tmp_path):
    """Nobody moves up: a row that is removed leaves its slot, whichever it was, and the others theirs."""
    seen, run = [], chain.ChainRunner.run

    def seeing(runner, start, rows, present, **others):
        seen.append((np.asarray(rows["X"]), np.asarray(present)))
        return run(runner, start, rows, present, **others)

    monkeypatch.setattr(chain.ChainRunner, "run", seeing)
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
    books = pmc.Bookkeeping(checkpoint=pmc.Checkpoint(tmp_path / "run", seconds=0.0))
    again = driver(SCHEMES["all rows"], adjacency="add_remove", bookkeeping=books)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(chain, "segments", interrupted)
        again.run(rng_key=3, **few)
    again.resume(**few)
    np.testing.assert_array_equal(again.get_samples()["w"], wanted)


@pytest.mark.slow
def test_every_row_is_in_every_slot_as_often():
    """Of 2,000 placements of four rows each place has 500 of each row, 19.4 their sd: fails once in 10⁶."""
    rows, keys = {"i": jnp.arange(4)}, jax.random.split(jax.random.key(0), 2_000)

    def slots(key, adjacency, **unit):
        declared = SimpleNamespace(
            target=pmc.Target(1.0, 1e-6, adjacency), rows=pmc.Rows(i=pmc.Binary(), **unit)
        )
        return placed(key, declared, ONE_DEVICE, rows, jnp.ones(4, bool))[0]["i"]

    found = jax.vmap(lambda key: slots(key, "add_remove"))(keys)
    counts = np.stack([np.bincount(column, minlength=4) for column in np.asarray(found).T])
    assert np.all(np.abs(counts - 500) < 5.5 * 19.4)
    for other in ("zero_out", "replace_one"):
        np.testing.assert_array_equal(slots(keys[0], other), np.arange(4))
        # Persons stand in the order of their identifiers, which another person's changes.
        np.testing.assert_array_equal(slots(keys[0], other, who=pmc.Person(2)), found[0])


@pytest.mark.slow
def test_a_resumed_run_is_on_the_same_holes(monkeypatch, tmp_path):
    checkpoint = pmc.Checkpoint(tmp_path / "run", seconds=0.0)
    mcmc = driver(SCHEMES["cyclic"], bookkeeping=pmc.Bookkeeping(checkpoint=checkpoint))
    wanted = path(compiled("cyclic", None), hole(2))
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(chain, "segments", interrupted)
        path(mcmc, hole(2))
    for other in (None, hole(3)):
        with pytest.raises(pmc.ReleaseError, match="other rows"):
            mcmc.resume(present=other, **DATA)
    mcmc.resume(present=hole(2), **DATA)
    np.testing.assert_array_equal(mcmc.get_samples()["w"], wanted)


def interrupted(schedule, done=0):
    raise KeyboardInterrupt


@pytest.mark.long
def test_rows_that_the_domains_moved_are_counted_without_holes():
    mcmc = driver(SCHEMES["cyclic"], curator=True)
    sizes = np.array([0.5, 5.0, np.nan, 0.5, 7.0, 0.5, 0.5, 0.5])
    path(mcmc, hole(2), X=sizes[:, None] * np.ones(N) / math.sqrt(N))
    assert mcmc.curator.moved_rows.unsafe_value() == 2
