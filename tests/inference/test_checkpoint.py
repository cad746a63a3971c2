"""An interrupted run that goes on is the same run: same numbers, one charge, one release."""

import json
import shutil

import jax
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.inference.checkpoint import program_mark
from private_mcmc.kernels import PrivateSGLD, PrivateULA
from private_mcmc.kernels import chain as chain_module
from tests.examples_of_models import logistic, normal_mean

N = 30
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
KERNEL = PrivateULA(logistic, 0.02, 1.0)
BATCHES = PrivateSGLD(logistic, 0.02, 1.0, scheme="cyclic", batch_size=5)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    return {"X": rng.uniform(-1, 1, (N, 2)) / 2, "y": rng.integers(0, 2, N)}


class Crash(Exception):
    """What ends a run in these tests."""


def driver(path, kernel=KERNEL, rows=ROWS, **changes):
    settings = dict(
        release="path", num_steps=80, guarantee="run", progress_bar=False, target=pmc.Target(15.0, 1e-6),
        unsafe_seed=True, generator="threefry2x32",
    ) | changes  # fmt: skip
    checkpoint = None if path is None else pmc.Checkpoint(path, seconds=0.0)
    return pmc.PrivateMCMC(kernel, rows=rows, checkpoint=checkpoint, **settings)


def interrupted(mcmc, monkeypatch, after, **columns):
    """Run until ``after`` calls of the compiled block, then crash."""
    real = chain_module.segments

    def some(schedule, done=0):
        for number, segment in enumerate(real(schedule, done)):
            if number == after:
                raise Crash
            yield segment

    with monkeypatch.context() as patched:
        patched.setattr(chain_module, "segments", some)
        with pytest.raises(Crash):
            mcmc.run(**columns)


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


def test_a_released_run_leaves_no_secret_and_is_never_released_again(data, tmp_path):
    path = tmp_path / "run"
    mcmc = driver(path)
    mcmc.run(rng_key=3, **data)
    with np.load(path, allow_pickle=False) as file:
        assert file.files == ["header"]
        assert json.loads(file["header"].tobytes()) == {"format": 1, "status": "released"}
    for again in (mcmc.resume, mcmc.run):
        with pytest.raises(pmc.ReleaseError):
            again(**data)


def test_what_does_not_match_is_refused(data, monkeypatch, tmp_path):
    path = tmp_path / "run"
    interrupted(driver(path), monkeypatch, 2, rng_key=3, **data)
    other = data | {"y": 1 - data["y"]}
    with pytest.raises(pmc.ReleaseError, match="other rows"):
        driver(path).resume(**other)
    for changes, said in (
        (dict(num_steps=81), "schedule"),
        (dict(init_params=np.ones(2)), "start"),
        (dict(devices=1), "devices"),
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


def test_one_charge_pays_for_the_run_and_its_end(data, monkeypatch, tmp_path):
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("rows", pmc.Target(20.0, 1e-6))
    path, copy = tmp_path / "run", tmp_path / "copy"
    books = dict(ledger=ledger, dataset="rows")
    # Before the first step the keys are in the file already.
    interrupted(driver(path, **books), monkeypatch, 0, rng_key=3, **data)
    shutil.copy2(path, copy)
    spent = ledger.balance("rows").spent
    assert spent > 0
    with pytest.raises(pmc.ReleaseError, match="ledger"):
        driver(path).resume(**data)
    driver(path, **books).resume(**data)
    assert ledger.balance("rows").spent == spent
    assert [charge.outcome for charge in ledger.history("rows")] == ["released"]
    with pytest.raises(pmc.ReleaseError, match="released already"):
        driver(copy, **books).resume(**data)


def test_averages_are_saved_only_where_a_ledger_refuses_a_second_copy(monkeypatch, tmp_path):
    rows = pmc.Rows(y=pmc.Box(-1.0, 1.0))
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("rows", pmc.Target(20.0, 1e-6))
    settings = dict(
        kernel=PrivateULA(normal_mean, 0.02, 2.0), rows=rows, target=pmc.Target(2.0, 0.0),
        release=pmc.Expectations("mu", bounds={"mu": (-1.0, 1.0)}), num_steps=100,
    )  # fmt: skip
    y = np.full(N, 0.5)
    with pytest.raises(pmc.DeclarationError, match="ledger"):
        driver(tmp_path / "run", **settings).run(y=y)
    settings |= dict(ledger=ledger, dataset="rows")
    mcmc = driver(tmp_path / "run", **settings)
    interrupted(mcmc, monkeypatch, 3, y=y)
    shutil.copy2(tmp_path / "run", tmp_path / "copy")
    mcmc.resume(y=y)
    assert np.isfinite(mcmc.expectation("mu"))
    with pytest.raises(pmc.ReleaseError, match="released already"):
        driver(tmp_path / "copy", **settings).resume(y=y)


def test_averages_are_released_at_the_price_that_was_charged(monkeypatch, tmp_path):
    """The noise is drawn at the release: at another price it would be smaller than what was paid for."""
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("rows", pmc.Target(20.0, 1e-6))

    def at(**price):
        return driver(
            tmp_path / "run", kernel=PrivateULA(normal_mean, 0.02, 2.0), rows=pmc.Rows(y=pmc.Box(-1.0, 1.0)),
            num_steps=100, ledger=ledger, dataset="rows", target=pmc.Target(price.pop("total", 2.0), 0.0),
            release=pmc.Expectations("mu", bounds={"mu": (-1.0, 1.0)}, **price),
        )  # fmt: skip

    y = np.full(N, 0.5)
    interrupted(at(epsilon=0.1), monkeypatch, 3, y=y)
    for price in (dict(epsilon=2.0), dict(), dict(total=4.0)):
        with pytest.raises(pmc.ReleaseError, match="price"):
            at(**price).resume(y=y)
    at(epsilon=0.1, total=4.0).resume(y=y)


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


def test_a_plan_is_not_resumed(tmp_path):
    with pytest.raises(pmc.ReleaseError, match="checkpoint="):
        driver(None).resume(X=np.zeros((N, 2)), y=np.zeros(N))
