"""An interrupted run that goes on is the same run: same numbers, one charge, one release."""

import contextlib
import os
import shutil
from dataclasses import replace

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.inference.checkpoint import SavedRun
from private_mcmc.inference.execute import no_value_checks
from private_mcmc.kernels import PrivateSGLD, PrivateULA, run_keys
from private_mcmc.kernels import chain as chain_module
from private_mcmc.kernels.chain import ChainState
from private_mcmc.potential.rowwise import program_mark
from private_mcmc.release.ledger_file import Transaction
from tests.examples_of_models import declared, logistic, normal_mean, observed
from tests.full_disk import full

N = 30
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
PERSONS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary(), who=pmc.Person(2))
SEEDED = pmc.Execution(unsafe_seed=True)
KERNEL = PrivateULA(logistic, 0.02, 1.0)
BATCHES = PrivateSGLD(logistic, 0.02, 1.0, batch_size=5)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    return {"X": rng.uniform(-1, 1, (N, 2)) / 2, "y": rng.integers(0, 2, N)}


@pytest.fixture
def ledger(tmp_path):
    made = pmc.Ledger.create(tmp_path / "ledger")
    made.declare("rows", pmc.Target(1e4, 1e-6))
    return made


class Crash(KeyboardInterrupt):
    """What ends a run in these tests."""


def driver(path, ledger, kernel=KERNEL, rows=ROWS, known_by=None, **changes):
    settings = {"num_steps": 80, "target": pmc.Target(20.0, 1e-6), "execution": SEEDED} | changes
    books = pmc.Bookkeeping(ledger, "rows", checkpoint=pmc.Checkpoint(path, seconds=0.0), known_by=known_by)
    return declared(kernel, rows, bookkeeping=books, **settings)


def interrupted(mcmc, ledger, monkeypatch, after, **columns):
    """Run until ``after`` calls of the compiled block, then crash: before the last step, as is checked."""
    real = chain_module.calls

    def some(schedule, done=0):
        for number, call in enumerate(real(schedule, done)):
            if number == after:
                raise Crash
            yield call

    with monkeypatch.context() as patched:
        patched.setattr(chain_module, "calls", some)
        with pytest.raises(Crash):
            mcmc.run(**columns)
    schedule = mcmc.decide(N).schedule
    saved = mcmc._books.checkpoint.load(ledger.checkpoint_key).state.done
    assert saved == after * chain_module.call_length(schedule) < schedule.num_steps


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("kernel", "release", "where"),
    [(KERNEL, "path", {}), (BATCHES, "last", {}), (KERNEL, "path", {"rows_on_device": 7})],
)
@pytest.mark.parametrize("unit", [None, "who"])
def test_a_resumed_run_is_bit_for_bit_a_whole_one(data, monkeypatch, tmp_path, kernel, release, where, unit):
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("rows", pmc.Target(1e4, 1e-6), unit=unit)
    settings = dict(kernel=kernel, release=release, execution=replace(SEEDED, **where))
    if unit:
        settings |= dict(rows=PERSONS, n=N)
        data = data | {unit: np.arange(N) // 2}
    whole = driver(tmp_path / "whole", ledger, **settings)
    whole.run(rng_key=3, **data)
    path = tmp_path / "run"
    mcmc = driver(path, ledger, **settings)
    interrupted(mcmc, ledger, monkeypatch, 5, rng_key=3, **data)
    with pytest.raises(pmc.ReleaseError):
        _ = mcmc.released
    assert path.stat().st_mode & 0o777 == 0o600
    # A new driver, as after a crash of the process.
    again = driver(path, ledger, **settings)
    again.resume(**data)
    np.testing.assert_array_equal(again.get_samples()["w"], whole.get_samples()["w"])
    assert "NOT PRIVATE" in str(again.statement)
    assert list(tmp_path.iterdir()) == [ledger.path]


@pytest.mark.slow
def test_one_charge_releases_once_whatever_copies_of_the_file_there_are(data, ledger, monkeypatch, tmp_path):
    """Two copies released two paths, apart from the saved step on, for one charge."""
    path, copy = tmp_path / "run", tmp_path / "copy"
    # Before the first step the keys are in the file already.
    interrupted(driver(path, ledger), ledger, monkeypatch, 0, rng_key=3, **data)
    shutil.copy2(path, copy)
    spent = ledger.balance("rows").spent
    assert spent > 0
    driver(path, ledger).resume(**data)
    assert not path.exists()
    for again in (path, copy):
        late = driver(again, ledger)
        with pytest.raises(pmc.ReleaseError, match=r"released already|no checkpoint"):
            late.resume(**data)
    # Of two that go on at once, the one that comes second releases nothing.
    interrupted(driver(path, ledger), ledger, monkeypatch, 0, rng_key=3, **data)
    shutil.copy2(path, copy)
    late, finish = driver(copy, ledger), SavedRun.save
    with monkeypatch.context() as patched:

        def save(saver, state):
            finish(saver, state)
            if state.done == 80:
                patched.undo()
                driver(path, ledger).resume(**data)

        patched.setattr(SavedRun, "save", save)
        with pytest.raises(pmc.LedgerError, match="not open"):
            late.resume(**data)
    with pytest.raises(pmc.ReleaseError):
        _ = late.released
    assert [charge.outcome for charge in ledger.history("rows")] == ["released"] * 2


def test_a_charge_for_persons_pays_for_no_run_of_rows(data, tmp_path):
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("rows", pmc.Target(1e4, 1e-6), unit="who")
    price = declared(KERNEL, ROWS, num_steps=5, target=pmc.Target(20.0, 1e-6)).decide(N).statement
    charge = ledger.reserve("rows", price, purpose="", unit="who")
    for person in ("", "other", "who"):
        books = pmc.Bookkeeping(ledger, "rows", person=person, reserved=charge)
        mcmc = declared(KERNEL, ROWS, num_steps=5, target=pmc.Target(20.0, 1e-6), bookkeeping=books)
        refused = pytest.raises(pmc.ReleaseError, match="another")
        with contextlib.nullcontext() if person == "who" else refused:
            mcmc.run(**data)


@pytest.mark.long
def test_averages_are_resumed_and_their_noise_is_drawn_once(ledger, monkeypatch, tmp_path):
    settings = dict(
        kernel=PrivateULA(normal_mean, 0.02, 2.0), rows=pmc.Rows(y=pmc.Box(-1.0, 1.0)),
        target=pmc.Target(2.0, 1e-6), release=pmc.Expectations("mu", bounds={"mu": (-1.0, 1.0)}),
        num_steps=100,
    )  # fmt: skip
    y = np.linspace(-1, 1, 50)
    interrupted(driver(tmp_path / "run", ledger, **settings), ledger, monkeypatch, 2, rng_key=3, y=y)
    other = settings | {"release": pmc.Expectations("mu", bounds={"mu": (-0.9, 1.1)})}
    with pytest.raises(pmc.ReleaseError, match="another run"):
        driver(tmp_path / "run", ledger, **other).resume(y=y)
    again = driver(tmp_path / "run", ledger, **settings)
    again.resume(y=y)
    assert np.isfinite(again.expectation("mu"))
    assert [charge.outcome for charge in ledger.history("rows")] == ["released"]


@pytest.mark.long
def test_what_does_not_match_is_refused(data, ledger, monkeypatch, tmp_path):
    path = tmp_path / "run"
    interrupted(driver(path, ledger), ledger, monkeypatch, 2, rng_key=3, **data)
    with pytest.raises(pmc.LedgerError, match="not the data"):
        driver(path, ledger).resume(**data | {"y": 1 - data["y"]})
    whole = path.read_bytes()
    for changed in (whole[:-40], whole[:40], whole.replace(b"chacha20", b"threefry"), *flips(whole)):
        path.write_bytes(changed)
        with pytest.raises(pmc.ReleaseError, match="damaged, changed"):
            driver(path, ledger).resume(**data)
    path.write_bytes(whole)
    for changes in (
        dict(num_steps=81),
        dict(execution=replace(SEEDED, init_params=np.ones(2))),
        dict(kernel=PrivateULA(another_prior, 0.02, 1.0)),
    ):
        with pytest.raises(pmc.ReleaseError, match="another run"):
            driver(path, ledger, **changes).resume(**data)
    with pytest.raises(pmc.ReleaseError, match=r"resume\(\)"):
        driver(path, ledger).run(**data)
    elsewhere = pmc.Ledger.create(tmp_path / "other")
    elsewhere.declare("rows", pmc.Target(1e4, 1e-6))
    with pytest.raises(pmc.ReleaseError, match="this ledger"):
        driver(path, elsewhere).resume(**data)
    with pytest.raises(pmc.ReleaseError, match="no checkpoint"):
        driver(tmp_path / "nothing", ledger).resume(**data)


def test_a_saved_run_knows_its_rows_whatever_its_ledger_knows_them_by(data, ledger, monkeypatch, tmp_path):
    part = {"known_by": {"file": np.arange(3)}}
    interrupted(driver(tmp_path / "run", ledger, **part), ledger, monkeypatch, 2, rng_key=3, **data)
    with pytest.raises(pmc.ReleaseError, match="another run"):
        driver(tmp_path / "run", ledger, **part).resume(**data | {"y": data["y"][::-1]})
    driver(tmp_path / "run", ledger, **part).resume(**data)


def flips(content):
    """The file with one bit changed, in places all over it."""
    for place in range(0, len(content), len(content) // 7):
        yield content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def another_prior(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2.5).expand([X.shape[1]]).to_event(1))
    observed(X, dist.Bernoulli(logits=X @ w), y)


def test_a_model_whose_derivative_is_its_own_is_known_by_it():
    def straight(slope):
        link = jax.custom_jvp(lambda x: 1.0 * x)
        link.defjvps(lambda tangent, answer, x: slope * tangent)
        return jax.value_and_grad(link)

    assert len({program_mark(straight(slope), 0.0) for slope in (1.0, 2.0)}) == 2


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


def test_the_mark_of_a_function_is_the_same_within_a_run():
    """Within a run products are marked as exact: no fit that was killed could be resumed."""
    with no_value_checks():
        within = program_mark(jax.numpy.dot, np.zeros(3), np.zeros(3))
    assert within == program_mark(jax.numpy.dot, np.zeros(3), np.zeros(3))


@pytest.mark.slow
def test_a_kill_while_writing_leaves_nothing_that_survives_the_release(data, ledger, monkeypatch, tmp_path):
    path = tmp_path / "run"
    mcmc, replaced = driver(path, ledger), os.replace

    def killed(*args):
        raise Crash

    def kept(self, *args, **named):
        if not self.name.endswith(".part"):
            unlink(self, *args, **named)

    unlink = type(path).unlink
    interrupted(mcmc, ledger, monkeypatch, 2, rng_key=3, **data)
    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(os, "replace", killed)
        patched.setattr(type(path), "unlink", kept)
        (tmp_path / "run.part").write_bytes(b"keys of a run that was killed while it wrote")
        patched.setattr(os, "open", lambda *args, **named: killed())
        mcmc.resume(**data)
    assert os.replace is replaced and (tmp_path / "run.part").exists()
    mcmc.resume(**data)
    assert list(tmp_path.iterdir()) == [ledger.path]


@pytest.mark.long
def test_a_checkpoint_that_cannot_be_written_is_found_out_before_the_charge(data, ledger, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for where in ("missing/run", "file/run", "folder", "x" * 300):
        with pytest.raises(pmc.ReleaseError, match="check"):
            driver(tmp_path / where, ledger).run(**data)
    assert ledger.history() == ()


@pytest.mark.parametrize("as_errors", [False, True])
def test_a_disk_that_fills_up_ends_no_run(data, ledger, monkeypatch, tmp_path, capsys, as_errors):
    """Where warnings are errors, too: a paid run is released all the same."""
    mcmc = driver(tmp_path / "run", ledger)
    with monkeypatch.context() as patched:
        patched.setattr(pmc.Checkpoint, "write", lambda _, content: content and full())
        if as_errors:
            mcmc.run(rng_key=3, **data)  # the tests' own filter makes errors of all warnings
            assert "could not be saved" in capsys.readouterr().err
        else:
            with pytest.warns(UserWarning, match=r"No space left.*goes on"):
                mcmc.run(rng_key=3, **data)
    assert mcmc.get_samples()["w"].shape == (80, 2)
    assert list(tmp_path.iterdir()) == [ledger.path]


@pytest.mark.slow
def test_a_run_the_ledger_cannot_settle_releases_nothing_and_is_resumed(data, ledger, monkeypatch, tmp_path):
    mcmc, append = driver(tmp_path / "run", ledger), Transaction.append

    def refusing(self, kind, **fields):
        if kind == "settle":
            raise pmc.LedgerError("the disk is full")
        append(self, kind, **fields)

    with monkeypatch.context() as patched, pytest.raises(pmc.LedgerError, match="disk is full"):
        patched.setattr(Transaction, "append", refusing)
        mcmc.run(rng_key=3, **data)
    with pytest.raises(pmc.ReleaseError):
        _ = mcmc.released
    mcmc.resume(**data)
    assert mcmc.get_samples()["w"].shape == (80, 2)
    assert [charge.outcome for charge in ledger.history()] == ["released"]


def test_what_holds_the_keys_does_not_print_them():
    streams, provenance = run_keys(1)
    state = ChainState(1, np.ones((1, 2)), np.zeros((1, 0)), np.ones((1, 1, 2)))
    shown = repr(SavedRun(pmc.Checkpoint("run"), b"secret key", "", "", provenance, streams, state))
    assert not any(word in shown for word in ("key", "streams", "array")), shown
