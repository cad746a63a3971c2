"""Rows in the memory of a Ray cluster's workers: the chain of the same rows here, whoever is lost."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from types import ModuleType

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.inference import ray_engine
from tests.cli.test_fit import command
from tests.conftest import within
from tests.data import fields
from tests.examples_of_models import declared, logistic
from tests.inference.test_folders import FIELDS, FITS, SCHEMA, same_answers
from tests.inference.test_folders import tables as tables
from tests.inference.test_folders import without_noise as without_noise

ray = pytest.importorskip("ray")
arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
pytest.importorskip("flatbuffers")
# Ray starts its processes by forking, beside what JAX does in a process that ran other tests.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")]

N, WORKERS = 400, pmc.Ray(workers=2, cpus=0.5)
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary())
SEEDED = pmc.Execution(unsafe_seed=True)


@pytest.fixture(scope="module", autouse=True)
def session(tmp_path_factory):
    """A cluster on this machine, for this module alone; the folder where Ray writes."""
    # Sockets have short paths.
    folder = tmp_path_factory.mktemp("r")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", str(folder))
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(
            num_cpus=2, object_store_memory=200 * 2**20, include_dashboard=False, log_to_driver=False,
            _temp_dir=str(folder),
        )  # fmt: skip
        yield folder
        ray.shutdown()


@pytest.fixture(autouse=True)
def bounded():
    """A cluster that answers no more fails the test."""
    with within(600):
        yield


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A folder of two files in folders of years."""
    random, folder = np.random.default_rng(5), tmp_path_factory.mktemp("people")
    for year, count in ((0, 150), (1, 250)):
        (folder / f"late={year}").mkdir()
        X = random.uniform(-0.6, 0.6, (count, 2))
        columns = {"age": X[:, 0], "income": X[:, 1], "y": random.integers(0, 2, count)}
        parquet.write_table(arrow.table(columns), folder / f"late={year}" / "a.parquet", row_group_size=70)
    return folder


def people(table):
    file = pmc.Parquet(table)
    return {"X": file[["age", "income", "late"]], "y": file["y"]}


def driver(engine, kernel=None, **options):
    settings = {"rows": ROWS, "num_steps": 6, "num_chains": 2, "execution": replace(SEEDED, engine=engine)}
    return declared(kernel or pmc.PrivateULA(logistic, 0.002, 1.0), **settings | options)


def draws(table, engine, kernel=None, seed=4, others=None, **options):
    mcmc = driver(engine, kernel, **options)
    mcmc.run(rng_key=seed, **people(table), **(others or {}))
    return mcmc.get_samples()["w"]


@pytest.fixture(scope="module")
def wanted(table):
    return draws(table, WORKERS)


SGLD = pmc.PrivateSGLD(logistic, 0.002, 1.0, rate=0.1)
UNIT = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary(), who=pmc.Person(2))
# Some have one row, others three, of which two are kept; five are of nobody.
WHO = np.repeat(np.arange(N // 2, dtype=float), 2)
WHO[::11], WHO[:5] = 7.0, np.nan
CASES = {
    "all rows": (None, {}, {}),
    "batches": (SGLD, {}, {}),
    "a hidden number of rows": (SGLD, {"n": N + 30, "target": pmc.Target(9.0, 1e-6, "add_remove")}, {}),
    "persons": (SGLD, {"n": N // 2 + 9, "rows": UNIT}, {"who": WHO}),
}


@pytest.mark.parametrize("case", CASES)
def test_workers_run_the_chain_of_the_rows_here(table, case):
    kernel, options, others = CASES[case]
    here, there = (draws(table, engine, kernel, others=others, **options) for engine in (None, WORKERS))
    np.testing.assert_allclose(there, here, rtol=1e-12, atol=1e-12)
    loaded = {name: column.loaded() for name, column in people(table).items()}
    mcmc = driver(None, kernel, **options)
    mcmc.run(rng_key=4, **loaded, **others)
    if options:
        # In memory each of them has the same slot.
        np.testing.assert_allclose(mcmc.get_samples()["w"], here, rtol=1e-12, atol=1e-12)


def test_two_drivers_of_one_cluster_each_have_their_own_rows(table, wanted):
    """Workers have no names by which another driver finds them: another's run beside ours changes no bit."""
    address = ray.get_runtime_context().gcs_address
    other = get_context("spawn").Process(target=beside, args=(address, table), daemon=True)
    other.start()
    while other.is_alive():
        np.testing.assert_array_equal(draws(table, WORKERS), wanted)
    other.join()
    assert other.exitcode == 0


def beside(address, table):
    """Another driver, of another seed, twice."""
    first, second = (draws(table, replace(WORKERS, address=address, cpus=0.2), seed=5) for _ in range(2))
    np.testing.assert_array_equal(second, first)


def test_a_driver_that_is_no_part_of_the_cluster_has_the_same_draws(table, wanted, tmp_path):
    """By ``ray://``, of files under names that workers, whose folder is another, do not know."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    address, out = ray.get_runtime_context().gcs_address, tmp_path / "draws.npy"
    serve = "-m", "ray.util.client.server", "--address", address, "--port", port, "--host", "127.0.0.1"
    with subprocess.Popen([sys.executable, *serve, "--mode", "specific-server"]) as server:
        given = f"ray://127.0.0.1:{port}", table, out
        other = get_context("spawn").Process(target=elsewhere, args=given, daemon=True)
        other.start()
        other.join(200)
        server.terminate()
    assert other.exitcode == 0
    np.testing.assert_array_equal(np.load(out), wanted)


def elsewhere(address, table, out):
    """A driver that reaches the cluster through its server."""
    os.chdir(table.parent)
    np.save(out, draws(table.name, replace(WORKERS, address=address)))


def test_a_worker_of_another_version_is_given_no_rows(table, monkeypatch):
    """Neither is one that has none: where its class cannot be imported Ray gives a reason of its own."""
    monkeypatch.setattr(ray_engine, "versions_here", lambda: frozenset(["jax 0.0"]))
    with pytest.raises(pmc.ReleaseError, match=r"a worker has jax .*, private-mcmc .*; here is jax 0\.0\."):
        draws(table, WORKERS)
    monkeypatch.undo()
    elsewhere = ModuleType("of_this_process")
    elsewhere.Worker = type("Worker", (ray_engine._Worker,), {"__module__": "of_this_process"})
    monkeypatch.setitem(sys.modules, "of_this_process", elsewhere)
    monkeypatch.setattr(ray_engine, "_Worker", elsewhere.Worker)
    with pytest.raises(pmc.ReleaseError, match=r"workers were lost.*Can they import private_mcmc"):
        draws(table, WORKERS)


@ray.remote
class Filler:
    """What else a cluster does."""

    def is_there(self):
        return True


def fill(cpus):
    filler = Filler.options(num_cpus=cpus).remote()
    return filler, ray.get(filler.is_there.remote())


def test_where_no_room_is_left_for_a_lost_worker_the_run_ends_soon_and_is_resumed(
    table, wanted, monkeypatch, tmp_path
):
    asked, fillers, seen = ray_engine._Partition._asked, [fill(1)], []

    def then_lost(self, *question):
        found = asked(self, *question)
        seen.append(self.share.first)
        if len(seen) == 10:
            ray.kill(self._worker)
            fillers.append(fill(0.5))
        return found

    monkeypatch.setattr(ray_engine._Partition, "_asked", then_lost)
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("people", pmc.Target(1e4, 1e-6))
    with within(60), pytest.raises(pmc.ReleaseError, match=r"within 20 s .*no room .* 0.5 CPUs.*resume"):
        draws(table, replace(WORKERS, wait=20.0), bookkeeping=books_in(tmp_path))
    while fillers:
        ray.kill(fillers.pop()[0])
    again = driver(WORKERS, bookkeeping=books_in(tmp_path))
    again.resume(**people(table))
    np.testing.assert_array_equal(again.get_samples()["w"], wanted)
    assert [charge.outcome for charge in ledger.history()] == ["released"]


def test_what_the_cluster_has_no_room_for_and_columns_in_memory_are_refused(table):
    with pytest.raises(pmc.DeclarationError, match="needs 9 CPUs, and the cluster has 2"):
        draws(table, pmc.Ray(workers=9))
    with pytest.raises(pmc.DeclarationError, match="not of files"):
        driver(WORKERS).run(X=np.zeros((4, 3)), y=np.zeros(4, int))


def test_an_answer_that_is_no_number_ends_the_run(table, monkeypatch):
    monkeypatch.setattr(ray_engine.pickle, "loads", lambda content: np.full(3, np.nan))
    with pytest.raises(pmc.ReleaseError, match="is no number"):
        draws(table, WORKERS)


def test_a_worker_that_is_lost_changes_no_bit_and_is_charged_once(table, wanted, monkeypatch, tmp_path):
    """The one in its place is lost, too, while it reads."""
    asked, lost = ray_engine._Partition._asked, []

    def then_lost(self, *question):
        found = asked(self, *question)
        if self.share.first and len(lost) < 30:
            lost.append(self.share.first)
            if len(lost) == 4:
                ray.kill(self._worker)
        return found

    start, again = ray_engine._Partition.start, []

    def lost_again(self):
        start(self)
        if self._digest and not again:
            again.append(self.share.first)
            ray.kill(self._worker)

    monkeypatch.setattr(ray_engine._Partition, "_asked", then_lost)
    monkeypatch.setattr(ray_engine._Partition, "start", lost_again)
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("people", pmc.Target(1e4, 1e-6))
    books = pmc.Bookkeeping(ledger, "people")
    np.testing.assert_array_equal(draws(table, WORKERS, bookkeeping=books), wanted)
    assert [charge.outcome for charge in ledger.history()] == ["released"]
    # One for each of seven steps, the first of them a trial, and the one that was asked again.
    assert len(lost) == 8 and again == [200]


def test_one_that_is_lost_while_it_reads_is_replaced_and_nobody_tries_for_ever(table, wanted, monkeypatch):
    start, lost = ray_engine._Partition.start, []

    def then_lost(self, *worker):
        start(self, *worker)
        if len(lost) < most:
            lost.append(self.share.first)
            ray.kill(self._worker)

    monkeypatch.setattr(ray_engine._Partition, "start", then_lost)
    most = 2
    np.testing.assert_array_equal(draws(table, WORKERS), wanted)
    assert lost == [0, 200]
    most = 100
    with pytest.raises(pmc.ReleaseError, match="from 0 on: 3 workers were lost"):
        draws(table, WORKERS)


@pytest.mark.parametrize("case", ["all rows", "a hidden number of rows", "persons"])
def test_a_run_whose_driver_was_killed_goes_on_at_new_workers(table, tmp_path, case):
    """Its process is killed, with its workers, between two questions of the third step."""
    kernel, options, others = CASES[case]
    wanted, adjacency = draws(table, WORKERS, kernel, others=others, **options), "replace_one"
    if "target" in options:
        adjacency = options["target"].adjacency
    ledger = pmc.Ledger.create(tmp_path / "ledger")
    ledger.declare("people", pmc.Target(1e4, 1e-6, adjacency), unit="who" if others else None)
    address = ray.get_runtime_context().gcs_address
    given = address, table, tmp_path, case
    driven = get_context("spawn").Process(target=killed, args=given, daemon=True)
    driven.start()
    driven.join()
    assert driven.exitcode == -signal.SIGKILL
    again = driver(WORKERS, kernel, bookkeeping=books_in(tmp_path), **options)
    again.resume(**people(table), **others)
    np.testing.assert_array_equal(again.get_samples()["w"], wanted)
    assert [charge.outcome for charge in ledger.history()] == ["released"]


def books_in(folder):
    saved = pmc.Checkpoint(folder / "run.ckpt", seconds=0)
    return pmc.Bookkeeping(pmc.Ledger(folder / "ledger"), "people", checkpoint=saved)


def killed(address, table, folder, case):
    """A driver that ends at its tenth question."""
    asked, seen = ray_engine._Partition._asked, []

    def then_killed(self, *question):
        seen.append(self.share.first)
        if len(seen) == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return asked(self, *question)

    ray_engine._Partition._asked = then_killed
    kernel, options, others = CASES[case]
    mcmc = driver(replace(WORKERS, address=address), kernel, bookkeeping=books_in(folder), **options)
    mcmc.run(rng_key=4, **people(table), **others)


def test_a_worker_that_reads_other_rows_than_the_lost_one_is_refused(table, monkeypatch):
    asked, digest = ray_engine._Partition._asked, ray_engine._found

    def lost(self, *question):
        found = asked(self, *question)
        ray.kill(self._worker)
        monkeypatch.setattr(ray_engine, "_found", other)
        return found

    def other(one):
        first, second = digest(one)
        return (b"other rows" if isinstance(first, bytes) else first), second

    monkeypatch.setattr(ray_engine._Partition, "_asked", lost)
    with pytest.raises(pmc.ReleaseError, match="other rows"):
        draws(table, WORKERS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fit", FITS)
def test_a_folder_is_fitted_described_and_checked_by_workers_as_here(tables, without_noise, monkeypatch, fit):
    """Words, folders' names and empty slots are read by the workers, with equal noise."""
    same_answers(tables[1], WORKERS, fit, monkeypatch)


def test_the_command_describes_at_workers_and_refuses_what_they_do_not_read(tables, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    (tmp_path / "schema.yaml").write_text(SCHEMA.to_yaml())
    given = ["describe", str(tables[1]), "--schema", "schema.yaml", "--epsilon", "1", "--yes", "--out", "out"]
    assert "died" in command(tmp_path, *given, "--engine", "ray,1").stdout
    refused = (*given[:-1], "none", "--engine")
    assert "ray,WORKERS" in command(tmp_path, *refused, "dask", code=3).stderr
    with socket.socket() as taken, within(60):
        # Nobody listens there.
        taken.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{taken.getsockname()[1]}"
        assert "no cluster there" in command(tmp_path, *refused, f"ray://{nowhere},1", code=3).stderr
        monkeypatch.setenv("RAY_ADDRESS", nowhere)
        assert "no cluster there" in command(tmp_path, *refused, "ray,1", code=3).stderr


def test_a_cell_without_a_fate_is_told_by_its_field_alone(tables):
    narrow = fields.schema(fields.number("age", 40, 95), *FIELDS[1:])
    with pytest.raises(pmc.ReleaseError, match=r"fields \['age'\] have cells"):
        pmc.describe(tables[1], narrow, epsilon=1.0, engine=WORKERS)


def files_with(numbers, folder):
    """The files that hold one of the numbers, as words or as their first digits."""
    secrets = [np.float64(one).tobytes() for one in numbers] + [repr(one)[:12].encode() for one in numbers]
    found, read = [], 0
    for file in folder.rglob("*"):
        content = b""
        with suppress(OSError):
            content = file.read_bytes()
        read += len(content)
        found += [file] * any(secret in content for secret in secrets)
    assert read > 10_000
    return found


def test_rows_and_their_sums_are_in_no_file_of_the_cluster(table, session, monkeypatch):
    awaited, seen = ray_engine._Partition._awaited, []

    def noted(self, *question):
        seen.append(np.asarray(awaited(self, *question)))
        return seen[-1]

    monkeypatch.setattr(ray_engine._Partition, "_awaited", noted)
    kernel, options, others = CASES["persons"]
    draws(table, WORKERS, kernel, others=others, **options)
    numbers = {float(entry) for answer in seen for entry in np.ravel(answer) if entry}
    X = np.concatenate([np.ravel(block) for block in people(table)["X"].part(0, 20).blocks(20)])
    numbers |= {float(entry) for entry in X if entry not in (0.0, 1.0)}
    assert len(seen) >= 14 and len(numbers) > 40
    assert files_with(numbers, session) == []

    @ray.remote
    def tell(number):
        print(f"a sum: {number!r}", flush=True)

    # What a worker prints is in a file, and is found.
    ray.get(tell.remote(0.123456789123))
    assert files_with({0.123456789123}, session) != []


def test_what_fails_at_a_worker_is_told_by_its_kind_alone():
    def quotes(_):
        raise ValueError("a row: 3.14")

    assert ray_engine._guarded(quotes)(1) == (False, "ValueError")
    with pytest.raises(pmc.ReleaseError, match=r"could not answer \(ValueError\)\.$"):
        ray_engine._found(ray_engine._guarded(quotes)(1))
