"""Rows that stay outside the device give the chain of rows that lie on it."""

import os
from dataclasses import replace
from functools import partial

import numpy as np
import numpyro.distributions as dist
import pyarrow
import pytest
from pyarrow import ipc, parquet

import private_mcmc as pmc
from private_mcmc.domains.columns import HostColumn
from private_mcmc.inference.columns import checked, placed
from private_mcmc.kernels import PrivateULA, run_keys
from private_mcmc.kernels.partitions import Question, summed
from tests.examples_of_models import declared, logistic, outcomes

N = 53
SEEDED = pmc.Execution(unsafe_seed=True)
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.5, 1.5, (N, 2))
    # Outside the domain: enforced block by block.
    X[7], X[-1, 0] = np.nan, 1e30
    return {"X": X, "y": rng.integers(0, 2, N)}


def draws(columns, kernel=None, seed=4, **changes):
    settings = {"num_steps": 4, "num_chains": 2, "execution": SEEDED} | changes
    mcmc = declared(kernel or PrivateULA(logistic, 0.02, 1.0), ROWS, **settings)
    mcmc.run(rng_key=seed, **columns)
    return mcmc.get_samples()["w"]


@pytest.fixture(scope="module")
def wanted(data):
    return draws(data)


def mapped(data, folder):
    found = {}
    for name, values in data.items():
        np.save(folder / f"{name}.npy", values)
        found[name] = np.load(folder / f"{name}.npy", mmap_mode="r")
    return found


def test_mapped_columns_stay_on_disk_unasked(data, tmp_path):
    mcmc = declared(PrivateULA(logistic, 0.02, 1.0), ROWS)
    columns, _ = checked(mcmc._run.declared, (), mapped(data, tmp_path), None, mcmc._execution)
    assert all(isinstance(column, HostColumn) for column in columns.values())


class Shared(np.ndarray):
    """An array whose copy is itself."""

    def __copy__(self):
        return self


def read_back(values, folder, mode):
    np.save(folder / "y.npy", values)
    return np.load(folder / "y.npy", mmap_mode=mode)


MEMORY = {
    "plain": lambda values, folder: values,
    "shared": lambda values, folder: values.view(Shared),
    "copy of a file": lambda values, folder: read_back(values, folder, "r").copy(),
    "changes in memory": lambda values, folder: read_back(values, folder, "c"),
}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("rows_on_device", [None, 8])
def test_what_a_caller_writes_into_its_columns_later_is_not_what_runs(rows_on_device, memory, tmp_path):
    """Of an aligned array JAX's on a CPU was the same memory; blocks were read again at every step."""
    X, y = np.zeros((16, 2)), np.zeros(16 + 8, int)
    y = MEMORY[memory](y[-y.ctypes.data % 64 // 8 :][:16], tmp_path)
    run = declared(PrivateULA(logistic, 0.02, 1.0), ROWS)._run.declared
    place = pmc.Execution(rows_on_device=rows_on_device)
    columns, n = checked(run, (), {"X": X, "y": y}, None, place)
    (partition,) = placed(columns, n, place, ROWS, "replace_one", run_keys()[0])
    y[:] = 1
    asked = Question(lambda columns, present: columns["y"], lambda kept, first: kept.sum())
    assert summed(asked, [partition]) == 0


def write_arrow(table, path):
    with ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=17)


FILES = {
    "parquet": (pmc.Parquet, partial(parquet.write_table, row_group_size=17)),
    "arrow": (pmc.Arrow, write_arrow),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", FILES)
def test_a_file_gives_the_same_chain(data, wanted, tmp_path, kind):
    source, write = FILES[kind]
    X, y = data["X"], data["y"]
    missing = [None if np.isnan(value) else float(value) for value in X[:, 0]]
    table = pyarrow.table({"x0": missing, "x1": X[:, 1].astype(np.float64), "y": y, "name": ["?"] * N})
    write(table, tmp_path / "rows")
    file = source(tmp_path / "rows")
    found = draws({"X": file[["x0", "x1"]], "y": file["y"]}, execution=replace(SEEDED, rows_on_device=10))
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    for names in ("z", "name", []):
        with pytest.raises(pmc.DataSchemaError):
            file[names]


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("changed", [{"y": ["a secret", "another"]}, {"y": [1.0]}, {"x": [1.0, 2.0]}])
def test_a_file_that_changed_is_refused_without_its_values(tmp_path, changed, kind):
    (source, write), path = FILES[kind], tmp_path / "rows"
    write(pyarrow.table({"y": [1.0, 2.0]}), path)
    column = source(path)["y"]
    write(pyarrow.table(changed), path)
    os.utime(path, (1, 1))  # clocks of files are coarse
    with pytest.raises(pmc.DataSchemaError, match="another one") as refused:
        list(column.blocks(2))
    assert "secret" not in str(refused.value)


def write_npy(values, path):
    with open(path, "wb") as file:
        np.save(file, values["y"].to_numpy())


CHANGES = {
    "replaced": lambda fresh, path: fresh.replace(path),
    "written to": lambda fresh, path: (path.write_bytes(fresh.read_bytes()), os.utime(path, (1, 1))),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["npy", *FILES])
def test_a_file_that_changes_after_the_charge_releases_nothing(tmp_path, books, kind, change, monkeypatch):
    # As many rows of the same types: the ledger would know other people than those that ran.
    path, fresh = tmp_path / "rows", tmp_path / "fresh"
    write = write_npy if kind == "npy" else FILES[kind][1]
    write(pyarrow.table({"y": np.zeros(N)}), path)
    write(pyarrow.table({"y": np.ones(N)}), fresh)
    column = np.load(path, mmap_mode="r") if kind == "npy" else FILES[kind][0](path)["y"]
    reserve = pmc.Ledger.reserve

    def then_changed(*args, **kwargs):
        charge = reserve(*args, **kwargs)
        CHANGES[change](fresh, path)
        return charge

    monkeypatch.setattr(pmc.Ledger, "reserve", then_changed)
    kept, blocks = pmc.Bookkeeping(books, "people"), pmc.Execution(rows_on_device=10)
    mean = outcomes(lambda: dist.Normal(0, 1), lambda p: dist.Bernoulli(logits=p))
    kernel, rows = PrivateULA(mean, 0.02, 1.0), pmc.Rows(y=pmc.Binary())
    mcmc = declared(kernel, rows, release="last", num_steps=3, bookkeeping=kept, execution=blocks)
    with pytest.raises(pmc.DataSchemaError, match="another one"):
        mcmc.run(y=column)
    assert [charge.outcome for charge in books.history()] == ["kept"]
    with pytest.raises(pmc.ReleaseError):
        mcmc.get_samples()


def test_the_schema_of_streamed_columns_is_checked_without_reading_rows(data):
    def read(first, last, size):
        raise AssertionError("a row was read")

    columns = {name: HostColumn(v.shape, v.dtype, read) for name, v in data.items()}
    for bad in ({"X": columns["X"]}, {**columns, "y": columns["X"]}):
        with pytest.raises(pmc.DataSchemaError):
            draws(bad)
    with pytest.raises(pmc.DataSchemaError, match="50"):
        draws(columns, n=50)


def test_a_file_of_many_groups_is_held_one_group_at_a_time(tmp_path, rng):
    path = tmp_path / "rows"
    table = pyarrow.table({"y": rng.normal(size=200_000)})
    parquet.write_table(table, path, row_group_size=5_000)
    before = pyarrow.total_allocated_bytes()
    held = [pyarrow.total_allocated_bytes() - before for _ in pmc.Parquet(path)["y"].blocks(5_000)]
    assert len(held) == 40 and max(held) < path.stat().st_size / 4


@pytest.mark.parametrize("pattern", ["**/**/*.parquet", "*.parquet", ""])
def test_no_file_is_read_twice_however_it_is_found(pattern, tmp_path):
    """A row that is there twice moves every sum by twice what is charged."""
    folder = tmp_path / "of" / "people"
    folder.mkdir(parents=True)
    parquet.write_table(pyarrow.table({"y": [0.0, 1.0]}), folder / "a.parquet")
    where = tmp_path
    if not pattern.startswith("**"):
        where = folder
        (folder / "b.parquet").hardlink_to(folder / "a.parquet")
    with pytest.raises(pmc.DataSchemaError, match="several times"):
        pmc.Parquet(where / pattern)


def test_files_of_one_table_have_the_same_columns(tmp_path):
    with pytest.raises(pmc.DataSchemaError, match="no such files"):
        pmc.Parquet(tmp_path / "*.parquet")
    for name in "xy":
        parquet.write_table(pyarrow.table({name: [0.0]}), tmp_path / f"{name}.parquet")
    with pytest.raises(pmc.DataSchemaError, match="other columns"):
        pmc.Parquet(tmp_path)


def test_the_name_of_a_folder_tells_a_column_that_its_files_do_not_have(tmp_path):
    for place in ("year=2020/sex=f", "year=2021/sex=m"):
        (tmp_path / place).mkdir(parents=True)
        parquet.write_table(pyarrow.table({"y": [0.0, 1.0]}), tmp_path / place / "a.parquet")
    assert pmc.Parquet(tmp_path)["year"].loaded().tolist() == [2020.0, 2020.0, 2021.0, 2021.0]
    with pytest.raises(pmc.DataSchemaError, match="'sex' is text"):
        pmc.Parquet(tmp_path)["sex"]
    (tmp_path / "y=7").mkdir()
    parquet.write_table(pyarrow.table({"y": [0.0, 1.0]}), tmp_path / "y=7" / "a.parquet")
    assert pmc.Parquet(tmp_path / "y=7")["y"].loaded().tolist() == [0.0, 1.0]
