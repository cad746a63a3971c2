"""An interrupted run that goes on is the same run: same numbers, one charge, one release."""

import contextlib
import errno
import json
import os
import shutil
import zipfile
from dataclasses import replace
from importlib.metadata import version

import jax
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.inference import checkpoint as checkpoint_module
from private_mcmc.inference import execute
from private_mcmc.inference.bookkeeping import RunKeysAndState
from private_mcmc.kernels import PrivateSGLD, PrivateULA, run_keys
from private_mcmc.kernels import chain as chain_module
from private_mcmc.kernels.chain import ChainState
from private_mcmc.potential.potential import program_mark
from private_mcmc.release.ledger.file import Transaction
from tests.examples_of_models import logistic, normal_mean

N = 30
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
SEEDED = pmc.Execution(unsafe_seed=True, generator="threefry2x32")
KERNEL = PrivateULA(logistic, 0.02, 1.0)
BATCHES = PrivateSGLD(logistic, 0.02, 1.0, scheme="fixed", batch_size=5)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    return {"X": rng.uniform(-1, 1, (N, 2)) / 2, "y": rng.integers(0, 2, N)}


class Crash(KeyboardInterrupt):
    """What ends a run in these tests."""


def driver(path, kernel=KERNEL, rows=ROWS, **changes):
    settings = dict(
        release="path", num_steps=80, guarantee="run", progress_bar=False, target=pmc.Target(20.0, 1e-6),
        execution=SEEDED,
    ) | changes  # fmt: skip
    checkpoint = None if path is None else pmc.Checkpoint(path, seconds=0.0)
    books = replace(settings.pop("books", pmc.Bookkeeping()), checkpoint=checkpoint)
    return pmc.PrivateMCMC(kernel, rows=rows, bookkeeping=books, **settings)


def interrupted(mcmc, monkeypatch, after, **columns):
    """Run until ``after`` calls of the compiled block, then crash."""
    real = chain_module.segments

    def some(schedule, done=0, paced=None):
        for number, segment in enumerate(real(schedule, done, paced)):
            if number == after:
                raise Crash
            yield segment

    with monkeypatch.context() as patched:
        patched.setattr(chain_module, "segments", some)
        with pytest.raises(Crash):
            mcmc.run(**columns)


@pytest.mark.some(1)
@pytest.mark.parametrize(("kernel", "release"), [(KERNEL, "path"), (BATCHES, "last")])
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(data, monkeypatch, tmp_path, kernel, release):
    whole = driver(None, kernel, release=release)
    whole.run(rng_key=3, **data)
    path = tmp_path / "run"
    mcmc = driver(path, kernel, release=release)
    interrupted(mcmc, monkeypatch, 5, rng_key=3, **data)
    with pytest.raises(pmc.ReleaseError):
        _ = mcmc.released
    assert path.stat().st_mode & 0o777 == 0o600
    # A new driver, as after a crash of the process.
    again = driver(path, kernel, release=release)
    again.resume(**data)
    np.testing.assert_array_equal(again.get_samples()["w"], whole.get_samples()["w"])
    assert "NOT PRIVATE" in str(again.statement)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("the libraries", lambda patched: patched.setattr(execute, "version", lambda _: "0.0.1")),
        ("the machine", lambda patched: patched.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")),
        ("the machine", lambda patched: patched.setattr(execute.platform, "machine", lambda: "other")),
    ],
)
def test_a_run_is_resumed_by_the_compiler_that_began_it(data, monkeypatch, where, change):
    """jaxlib compiles the noise and the sums; its version was not among what must be the same."""
    decision, start = driver(None).decide(N), np.zeros(2)
    before = execute.identity(decision, start, pmc.Execution())
    assert f"jaxlib {version('jaxlib')}" in before["the libraries"]
    assert execute.identity(decision, start, pmc.Execution()) == before
    change(monkeypatch)
    after = execute.identity(decision, start, pmc.Execution())
    assert [name for name in before if before[name] != after[name]] == [where]


def test_a_run_is_resumed_with_the_precision_that_began_it(data):
    """Products of another precision, where a device has several, round sums otherwise under one noise."""
    decision, start = driver(None).decide(N), np.zeros(2)
    before = execute.identity(decision, start, pmc.Execution())
    with jax.default_matmul_precision("highest"):
        after = execute.identity(decision, start, pmc.Execution())
    assert [name for name in before if before[name] != after[name]] == ["the machine"]


@pytest.mark.slow
def test_other_random_numbers_from_the_same_keys_are_another_run(data, monkeypatch, tmp_path):
    """Two copies of a file released two paths, apart from the saved step on, for one charge."""
    path = tmp_path / "run"
    interrupted(driver(path), monkeypatch, 2, rng_key=3, **data)
    other = not jax.config.jax_threefry_partitionable
    with (
        jax.threefry_partitionable(other),
        pytest.raises(pmc.ReleaseError, match="the random numbers differ"),
    ):
        driver(path).resume(**data)


@pytest.mark.slow
def test_a_released_run_leaves_no_secret_and_is_never_released_again(data, tmp_path):
    path = tmp_path / "run"
    mcmc = driver(path)
    mcmc.run(rng_key=3, **data)
    with np.load(path, allow_pickle=False) as file:
        assert file.files == ["header"]
        assert json.loads(file["header"].tobytes()) == {"format": 2, "status": "released"}
    for again in (mcmc.resume, mcmc.run):
        with pytest.raises(pmc.ReleaseError):
            again(**data)


@pytest.mark.long
def test_what_does_not_match_is_refused(data, monkeypatch, tmp_path):
    path = tmp_path / "run"
    interrupted(driver(path), monkeypatch, 2, rng_key=3, **data)
    other = data | {"y": 1 - data["y"]}
    with pytest.raises(pmc.ReleaseError, match="other rows"):
        driver(path).resume(**other)
    for changes, said in (
        (dict(num_steps=81), "schedule"),
        (dict(execution=replace(SEEDED, init_params=np.ones(2))), "start"),
        (dict(execution=replace(SEEDED, devices=1)), "devices"),
        (dict(kernel=PrivateULA(another_prior, 0.02, 1.0)), "the model"),
    ):
        with pytest.raises(pmc.ReleaseError, match=said):
            driver(path, **changes).resume(**data)
    with pytest.raises(pmc.ReleaseError, match=r"resume\(\)"):
        driver(path).run(**data)
    path.chmod(0o644)
    with pytest.raises(pmc.ReleaseError, match="others may read"):
        driver(path).resume(**data)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(pmc.ReleaseError, match="damaged"):
        driver(path).resume(**data)
    with pytest.raises(pmc.ReleaseError, match="no checkpoint"):
        driver(tmp_path / "nothing").resume(**data)


def another_prior(X, y=None):
    import numpyro
    import numpyro.distributions as dist

    w = numpyro.sample("w", dist.Normal(0, 2.5).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


@jax.custom_jvp
def straight(x):
    return 1.0 * x


@jax.custom_jvp
def straight_but_steep(x):
    return 1.0 * x


straight.defjvps(lambda tangent, answer, x: tangent)
straight_but_steep.defjvps(lambda tangent, answer, x: 2.0 * tangent)


def test_a_model_whose_derivative_is_its_own_is_known_by_it():
    marks = {program_mark(jax.value_and_grad(link), 0.0) for link in (straight, straight_but_steep)}
    assert len(marks) == 2


@pytest.mark.long
def test_one_charge_pays_for_the_run_and_its_end(data, monkeypatch, tmp_path):
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("rows", pmc.Target(20.0, 1e-6))
    path, copy = tmp_path / "run", tmp_path / "copy"
    books = dict(books=pmc.Bookkeeping(ledger, "rows"))
    # Before the first step the keys are in the file already.
    interrupted(driver(path, **books), monkeypatch, 0, rng_key=3, **data)
    shutil.copy2(path, copy)
    spent = ledger.balance("rows").spent
    assert spent > 0
    with pytest.raises(pmc.ReleaseError, match="ledger"):
        driver(path).resume(**data)
    first, again = driver(path, **books), driver(copy, **books)
    first.resume(**data)
    # A copy gives the same release: its keys fix it.
    again.resume(**data)
    assert np.array_equal(first.get_samples()["w"], again.get_samples()["w"])
    assert ledger.balance("rows").spent == spent
    assert [charge.outcome for charge in ledger.history("rows")] == ["released"]


def test_averages_whose_noise_no_key_fixes_are_not_saved(tmp_path):
    with pytest.raises(pmc.DeclarationError, match="drawn at the release"):
        driver(
            tmp_path / "run",
            kernel=PrivateULA(normal_mean, 0.02, 2.0),
            rows=pmc.Rows(y=pmc.Box(-1.0, 1.0)),
            target=pmc.Target(2.0, 0.0),
            release=pmc.Expectations("mu", bounds={"mu": (-1.0, 1.0)}),
            num_steps=100,
        )


def _with_constant(constant):
    return lambda x: jax.jit(lambda y: (y * constant).sum())(x)


def _in_a_branch(constant):
    inner = _with_constant(constant)
    return lambda x: jax.lax.cond(x[0] > 0, inner, jax.numpy.sum, x)


@pytest.mark.parametrize("make", [_with_constant, _in_a_branch])
def test_the_mark_of_a_function_sees_constants_wherever_they_are(make):
    x = np.zeros(3)
    one, other = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0])
    assert program_mark(make(one), x) == program_mark(make(one.copy()), x)
    assert program_mark(make(one), x) != program_mark(make(other), x)


@pytest.mark.slow
def test_a_plan_is_not_resumed(tmp_path):
    with pytest.raises(pmc.ReleaseError, match="checkpoint="):
        driver(None).resume(X=np.zeros((N, 2)), y=np.zeros(N))


@contextlib.contextmanager
def killed_while_writing(monkeypatch):
    """Save and then die between the write and the rename, as a killed process does: nothing is tidied up."""
    kept = []

    def killed(fresh, final):
        kept.append((fresh, fresh.read_bytes(), fresh.stat().st_mode & 0o777))
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_module.os, "replace", killed)
        with pytest.raises(Crash):
            yield
    for fresh, content, mode in kept:
        assert mode == 0o600
        fresh.write_bytes(content)


def key_words_in(folder):
    """Files that hold the secret of a run: its keys are in none once it has released."""
    found = []
    for path in folder.iterdir():
        if zipfile.is_zipfile(path):
            with np.load(path, allow_pickle=False) as file:
                found += [path] if "steps" in file.files else []
    return found


@pytest.mark.slow
def test_a_kill_while_writing_leaves_nothing_that_survives_resume_and_release(data, monkeypatch, tmp_path):
    folder = tmp_path / "saved"
    folder.mkdir()
    path = folder / "run"
    mcmc = driver(path)
    # Killed at the very first write: there is no checkpoint yet, and another run may start ...
    with killed_while_writing(monkeypatch):
        mcmc.run(rng_key=3, **data)
    assert len(key_words_in(folder)) == 1 and not path.exists()
    interrupted(mcmc, monkeypatch, 2, rng_key=3, **data)
    assert key_words_in(folder) == [path]
    # ... and at a later one, when it is resumed.
    with killed_while_writing(monkeypatch):
        mcmc.resume(**data)
    assert len(key_words_in(folder)) == 2
    other = folder / "run.20240101"
    other.write_text("another file of the same beginning")
    mcmc.resume(**data)
    assert key_words_in(folder) == [] and sorted(folder.iterdir()) == [path, other]


@pytest.mark.long
def test_a_run_that_was_killed_after_it_was_settled_gives_its_release_and_keeps_no_keys(
    data, monkeypatch, tmp_path
):
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("rows", pmc.Target(20.0, 1e-6))
    mcmc = driver(tmp_path / "run", books=pmc.Bookkeeping(ledger, "rows"))

    def killed(self):
        raise Crash

    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(checkpoint_module.Saver, "released", killed)
        mcmc.run(rng_key=3, **data)
    assert key_words_in(tmp_path) == [tmp_path / "run"]
    released = mcmc.get_samples()["w"]
    again = driver(tmp_path / "run", books=pmc.Bookkeeping(ledger, "rows"))
    again.resume(**data)
    assert np.array_equal(again.get_samples()["w"], released)
    assert key_words_in(tmp_path) == []


@pytest.mark.long
def test_a_checkpoint_that_cannot_be_written_is_found_out_before_the_charge(data, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("rows", pmc.Target(20.0, 1e-6))
    # The last name fits, but not the one of the draft beside it.
    for where in ("missing/run", "file/run", "folder", "dangling", "x" * 300, "x" * 250):
        with pytest.raises(pmc.ReleaseError, match="check"):
            driver(tmp_path / where, books=pmc.Bookkeeping(ledger, "rows")).run(**data)
    assert ledger.history() == ()


@pytest.mark.long
def test_a_disk_that_fills_up_ends_no_run_and_keeps_no_keys(data, monkeypatch, tmp_path):
    path = tmp_path / "run"
    mcmc, written = driver(path), []
    real = checkpoint_module._write

    def once(*args):
        written.append(args)
        if len(written) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*args)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_module, "_write", once)
        with pytest.warns(UserWarning, match=r"No space left.*goes on"):
            mcmc.run(rng_key=3, **data)
    assert mcmc.get_samples()["w"].shape == (80, 2)
    assert key_words_in(tmp_path) == [] and path.read_bytes() == b""
    for again in (mcmc.resume, mcmc.run):
        with pytest.raises(pmc.ReleaseError):
            again(**data)


def test_where_warnings_are_errors_a_paid_run_is_released_all_the_same(data, monkeypatch, tmp_path, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint_module, "_write", full)
    mcmc = driver(tmp_path / "run")
    mcmc.run(rng_key=3, **data)  # the tests' own filter makes errors of all warnings
    assert mcmc.get_samples()["w"].shape == (80, 2)
    assert "could not be saved" in capsys.readouterr().err


@pytest.mark.parametrize("saves", [0, 1])
def test_a_paid_run_that_no_disk_takes_is_released(data, monkeypatch, tmp_path, saves):
    """It was neither released nor resumed, and its charge was spent."""
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("rows", pmc.Target(20.0, 1e-6))
    mcmc, written = driver(tmp_path / "run", books=pmc.Bookkeeping(ledger, "rows")), []
    real, settle = checkpoint_module._write, Transaction.append

    def few(*args):
        written.append(args)
        if len(written) > saves:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*args)

    def full(self, entry):
        if entry["kind"] == "settle":
            raise pmc.LedgerError("the disk is full")
        settle(self, entry)

    with monkeypatch.context() as patched, pytest.warns(UserWarning) as told:
        patched.setattr(checkpoint_module, "_write", few)
        patched.setattr(Transaction, "append", full)
        mcmc.run(rng_key=3, **data)
    assert any("stays open" in str(each.message) for each in told)
    assert mcmc.get_samples()["w"].shape == (80, 2) and key_words_in(tmp_path) == []
    assert [charge.outcome for charge in ledger.history()] == ["reserved"]


@pytest.mark.slow
def test_a_disk_without_the_space_is_refused_before_the_charge(data, monkeypatch, tmp_path):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(checkpoint_module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(pmc.ReleaseError, match="too little space"):
        driver(tmp_path / "run").run(**data)


def test_what_holds_the_keys_does_not_print_them():
    keys = run_keys(1)
    streams = RunKeysAndState.of(keys).streams
    checkpoint = pmc.Checkpoint("run")
    head = checkpoint_module.Head({}, b"key<")
    saver = checkpoint_module.Saver(checkpoint, head, streams)
    state = ChainState(1, np.ones((1, 2)), np.zeros((1, 0)), np.ones((1, 1, 2)))
    saved = checkpoint_module.Saved(head, state, streams, keys.provenance)
    for thing in (saved, saver, RunKeysAndState(streams, keys.provenance, saver, state)):
        assert "key<" not in repr(thing) and "streams" not in repr(thing) and "array" not in repr(thing)


@pytest.mark.slow
def test_whatever_happened_to_the_bytes_of_a_checkpoint_is_said_in_words(tmp_path):
    path, keys = tmp_path / "run", run_keys(1)
    checkpoint, state = (
        pmc.Checkpoint(path),
        ChainState(1, np.ones((1, 2)), np.zeros((1, 0)), np.ones((1, 1, 2))),
    )
    rows = {"y": np.zeros(3)}
    header = checkpoint_module.header({}, rows, keys.provenance)
    checkpoint_module.Saver(checkpoint, header, RunKeysAndState.of(keys).streams).save(state)
    whole, random, damaged = path.read_bytes(), np.random.default_rng(0), 0
    for case in range(400):
        content = np.frombuffer(whole, np.uint8).copy()
        content[random.integers(len(whole), size=1 + case % 4)] = random.integers(256)
        path.write_bytes(content[: random.integers(len(whole)) if case % 5 == 0 else None].tobytes())
        try:
            checkpoint_module.saved_run(checkpoint_module.in_file(checkpoint), checkpoint, {}, rows)
        except pmc.ReleaseError:
            damaged += 1
    assert damaged >= 395  # a byte may be replaced by the same


@pytest.mark.long
def test_a_checkpoint_that_was_changed_by_hand_is_not_run_on(data, monkeypatch, tmp_path):
    """Steps made again from a later state would use their noise twice, under the same statement."""
    path = tmp_path / "run"
    mcmc = driver(path)
    interrupted(mcmc, monkeypatch, 3, rng_key=3, **data)
    whole = path.read_bytes()
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    record = json.loads(arrays.pop("header").tobytes())
    changes = [{"done": 0}, {"done": None}, {"status": "done"}, {"reservation": "x"}, {"provenance": {}}]
    changes += [{"data": ""}, {"data_key": "zz"}, {"identity": None}]
    changes += [{name: array[..., ::-1]} for name, array in arrays.items() if array.size > 1]
    for change in changes:
        said = {name: change.get(name, value) for name, value in record.items()}
        held = {name: change.get(name, value) for name, value in arrays.items()}
        checkpoint_module._write(path, said, held, record["data"].encode())
        with pytest.raises(pmc.ReleaseError, match=r"changed|damaged|other rows"):
            mcmc.resume(**data)
    path.write_bytes(whole)
    mcmc.resume(**data)
