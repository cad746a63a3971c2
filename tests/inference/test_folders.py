"""A folder of Parquet is fitted, described, checked and compared in blocks, as one file of its rows is."""

import functools

import jax
import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import private_mcmc as pmc
from private_mcmc.domains.columns import HostColumn, host_column
from private_mcmc.inference import columns, execute_plan, fitting, runs
from private_mcmc.inference.columns import _put, partitions_of, placed, without_rows
from private_mcmc.inference.fitting import plan_fit
from private_mcmc.inference.question import question
from private_mcmc.inference.reading import read_columns
from private_mcmc.kernels.keys import Streams, run_keys
from private_mcmc.release.noise import GaussianNoise
from tests.data import fields

N = 900
AGE = fields.number("age", 18, 95)
FIELDS = [AGE, fields.levels("region", "a", "b c"), fields.flag("died")]
SCHEMA = fields.schema(*FIELDS)
TWO_ROWS = {"person": {"field": "who", "at_most": "2"}}
PERSONS = fields.schema(*FIELDS, fields.person("who"), private_mcmc=TWO_ROWS)
ONE_ROW = pmc.Schema.from_dict(PERSONS.to_dict() | {"private_mcmc": {"person": {"field": "who"}}})
FORMULA = "died ~ age + region"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The same rows in the same order in a file and in folders of ten files."""
    place, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    age, region = rng.uniform(20, 90, N), np.repeat(["a", "b c"], N // 2)
    age[::40] = 19.0
    whole = {"age": age, "region": region, "died": rng.random(N) < age / 100, "who": np.arange(N) // 2}
    parquet.write_table(pyarrow.table(whole), place / "rows.parquet")
    for part in range(10):
        rows = slice(part * N // 10, (part + 1) * N // 10)
        folder = place / "rows" / f"region={'a' if part < 5 else 'b%20c'}"
        folder.mkdir(parents=True, exist_ok=True)
        cells = {name: values[rows] for name, values in whole.items() if name != "region"}
        parquet.write_table(pyarrow.table(cells), folder / f"{part}.parquet")
    return place / "rows.parquet", place / "rows"


@pytest.fixture
def without_noise(monkeypatch):
    """No noise in sums, the same noise in every path, and blocks that rows do not fill."""
    monkeypatch.setattr(GaussianNoise, "drawn", lambda self, values: np.asarray(values, float))
    monkeypatch.setattr(runs, "run_keys", lambda key: run_keys(3))
    monkeypatch.setattr("private_mcmc.kernels.keys.Provenance.check_releasable", lambda *_: None)
    for module in (fitting, execute_plan):
        monkeypatch.setattr(module, "BLOCK", 128)


ASKED = {
    "public bounds": ({}, {}),
    "bounds that are bought": ({"private_mcmc": {"bounds": "private"}}, {}),
    "empty slots": (
        {"missingValues": ["19"], "private_mcmc": {"missing": "drop"}},
        {"adjacency": "zero_out"},
    ),
    "a hidden number of rows": ({}, {"adjacency": "add_remove", "n": N + 100}),
    "persons": ({}, {"n": N}),
}


def fitted(table, schema=SCHEMA, **more):
    given = {"epsilon": 2.0, "delta": 1e-6, "progress_bar": False} | more
    return pmc.fit(table, schema, FORMULA, **given)


@functools.cache
def fitted_once(table, asked="public bounds"):
    """``without_noise``, so that it is the same whoever asks."""
    ours, more = ASKED[asked]
    whole = PERSONS if asked == "persons" else SCHEMA
    schema = pmc.Schema.from_dict(whole.to_dict() | {"fields": [AGE | ours, *whole.to_dict()["fields"][1:]]})
    return fitted(table, schema, **more)


@pytest.mark.some(1)
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.filterwarnings("ignore")
def test_a_folder_is_fitted_as_one_file_is(tables, without_noise, asked):
    one, several = (fitted_once(table, asked) for table in tables)
    for name, draws in one.draws.items():
        np.testing.assert_allclose(several.draws[name], draws, rtol=1e-6, atol=1e-6)
    assert several.price.epsilon(1e-6) == one.price.epsilon(1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_folder_is_described_checked_and_compared_as_one_file_is(tables, without_noise, monkeypatch):
    study = fitted_once(tables[0])
    other = pmc.fit(tables[0], SCHEMA, "died ~ 1", epsilon=2.0, progress_bar=False)
    monkeypatch.setattr(execute_plan, "run_keys", lambda: run_keys(3))
    # In slots drawn at random rows of the folder would have other uniform numbers.
    monkeypatch.setattr(columns, "moves", lambda *_: False)
    for ask in (
        lambda table: pmc.describe(table, SCHEMA, by=["region"], epsilon=1.0),
        lambda table: pmc.check(study, table, by=["region"], epsilon=1.0),
        lambda table: pmc.compare(study, other, table, epsilon=1.0),
    ):
        one, several = (ask(table).released for table in tables)
        np.testing.assert_allclose(several, one, rtol=1e-9, atol=1e-4)


@pytest.mark.parametrize("schema", [SCHEMA, PERSONS, ONE_ROW], ids=["rows", "persons", "one row"])
def test_rows_of_a_folder_stay_outside_memory_and_no_file_has_them(tables, tmp_path, monkeypatch, schema):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for adjacency in ("replace_one", "zero_out", "add_remove"):
        columns = read_columns(tables[1], schema, question(schema, FORMULA), adjacency)
        assert {name for name, one in columns.items() if not isinstance(one, HostColumn)} <= {"who"}
        assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("schema", [PERSONS, ONE_ROW], ids=["persons", "one row"])
def test_persons_are_found_over_all_files_whichever_copies_of_them_are_in_memory(tables, schema, monkeypatch):
    """A copy is made of few slots at a time; each person has the rows that a table in memory gives them."""
    found, asked = [], question(schema, FORMULA)
    for copied, table in ((2**19, tables[0]), (2**19, tables[1]), (64, tables[1])):
        monkeypatch.setattr(columns, "_COPIED", copied)
        read = read_columns(table, schema, asked, "replace_one")
        if schema is PERSONS:
            data = {name: one if name == "who" else host_column(name, one) for name, one in read.items()}
            _, who = asked.rows.numbered(without_rows(data), N // 2)
            held = data | {"who": host_column("who", who)}
            (blocks,) = partitions_of(held, N // 2, pmc.Execution(), asked.rows.unit, np.arange(N // 2))
            parts = [rows for _, rows, _ in blocks]
            read = {name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]}
        else:
            read = {name: host_column(name, one).loaded() for name, one in read.items()}
            order = np.lexsort([*read.values()])
            read = {name: one[order] for name, one in read.items()}
        found.append(read)
    for name, one in found[0].items():
        assert len(one) == N // 2
        for other in found[1:]:
            np.testing.assert_array_equal(other[name][: N // 2], one)


@pytest.mark.parametrize(("place", "drawn"), [(0, False), (1, True)])
def test_rows_of_folders_that_cells_name_lie_in_slots_drawn_at_random(tables, place, drawn):
    """A person whose region changes is in another file then: all rows between would move up."""
    ages = pmc.Parquet(tables[place])["age"]
    given = _put({"age": ages}, pmc.Execution(), whole=True)
    assert isinstance(given["age"], HostColumn) == drawn
    rows, held = pmc.Rows(age=pmc.Real()), {"age": host_column("age", given["age"])}
    orders = []
    for seed in range(2):
        key = jax.random.key(seed)
        (blocks,) = placed(held, N, pmc.Execution(), rows, "replace_one", Streams(key, key, key))
        orders.append(np.concatenate([rows["age"] for _, rows, _ in blocks])[:N])
        np.testing.assert_array_equal(np.sort(orders[-1]), np.sort(ages.loaded()))
        assert np.array_equal(orders[-1], ages.loaded()) != drawn
    assert np.array_equal(*orders) != drawn


def test_a_folder_that_changes_after_the_plan_is_refused_and_nothing_is_charged(tables, books, tmp_path):
    (tmp_path / "rows").mkdir()
    for place in sorted(tables[1].rglob("*.parquet")):
        folder = tmp_path / "rows" / place.parent.name
        folder.mkdir(exist_ok=True)
        (folder / place.name).write_bytes(place.read_bytes())
    planned = plan_fit(tmp_path / "rows", question(SCHEMA, FORMULA), epsilon=2.0, progress_bar=False)
    (tmp_path / "rows/region=a/0.parquet").rename(tmp_path / "rows/region=b%20c/0.parquet")
    with pytest.raises(pmc.DataSchemaError, match="changed"):
        planned.run(ledger=books, dataset="people", progress_bar=False)
    assert not books.history()


def same_slots(monkeypatch):
    """Rows of a query in the same slots wherever they are, with the same uniform numbers."""
    drawn = np.random.default_rng
    monkeypatch.setattr(execute_plan, "run_keys", lambda: run_keys(3))
    # Of the one row that each person has, whose slot the table's reader draws.
    monkeypatch.setattr(np.random, "default_rng", lambda seed=7: drawn(seed))


def same_fit(table, schema, other, **more):
    """A fit here, whose releases are those of one at the other engine, to rounding."""
    found = []
    for engine in (None, other):
        kept, asked = [], {"epsilon": 2.0, "delta": 1e-6, "engine": engine} | more
        planned = plan_fit(table, question(schema, FORMULA), progress_bar=False, **asked)
        study = planned.run(progress_bar=False, keep=kept.append)
        found.append((study, [stage["values"] for stage in kept[-1]["stages"]]))
    (here, values), (there, others) = found
    assert len(values) == len(others) > 3
    for one, other in zip(values, others, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)
    for name, draws in here.draws.items():
        # NUTS, given these releases, carries what their last bit differs by to the fourth digit, or further.
        apart = np.mean(np.subtract(there.draws[name], draws), axis=0)
        assert np.all(abs(apart) < 0.05 * np.std(draws, axis=0))
    return here


DROPPED = AGE | {"missingValues": ["19"], "private_mcmc": {"missing": "drop"}}
FITS = {
    "rows": (SCHEMA, {}),
    "empty slots": (fields.schema(DROPPED, *FIELDS[1:]), {"adjacency": "zero_out"}),
    "a hidden number of rows": (SCHEMA, {"n": 1000, "adjacency": "add_remove"}),
    "persons": (PERSONS, {"n": 500}),
    "one row of each person": (ONE_ROW, {}),
}


def same_answers(table, engine, fit, monkeypatch):
    """A fit, a table, a check and a comparison have the releases at ``engine`` that they have here."""
    schema, more = FITS[fit]
    here = same_fit(table, schema, engine, **more)
    other = pmc.fit(table, schema, "died ~ 1", epsilon=2.0, progress_bar=False, **more)
    same_slots(monkeypatch)
    for ask in (
        lambda engine: pmc.describe(table, schema, by=["region"], epsilon=1.0, engine=engine, **more),
        lambda engine: pmc.check(here, table, by=["region"], epsilon=1.0, engine=engine, **more),
        lambda engine: pmc.compare(here, other, table, epsilon=1.0, engine=engine, **more),
    ):
        np.testing.assert_allclose(ask(engine).released, ask(None).released, rtol=1e-9, atol=1e-4)


@pytest.mark.some(1)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", [0, 1], ids=["file", "folder"])
@pytest.mark.parametrize("fit", FITS)
def test_two_devices_have_the_releases_of_one(tables, without_noise, monkeypatch, fit, place):
    """Where there is one device it has both halves, in two partitions."""
    same_answers(tables[place], pmc.Devices((jax.devices() * 2)[:2]), fit, monkeypatch)
