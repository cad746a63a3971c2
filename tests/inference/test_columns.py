"""Whatever is passed as a column: the run is what it would be on plain floats, or nothing is charged."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import polars
import pyarrow.ipc
import pyarrow.parquet
import pytest

import private_mcmc as pmc
from private_mcmc.domains.columns import numeric_column
from private_mcmc.kernels import PrivateULA
from tests.examples_of_models import declared, normal_mean

ROWS = pmc.Rows(y=pmc.Box(-1.0, 1.0))
# Values that every numeric type holds.
VALUES = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
N = len(VALUES)
KERNEL = PrivateULA(normal_mean, 0.02, 1.0)


class Subclass(np.ndarray):
    """An array of a class of its own."""


def unaligned():
    raw = np.zeros(8 * N + 1, np.uint8)
    raw[1:] = np.frombuffer(VALUES.tobytes(), np.uint8)
    return raw[1:].view(np.float64)


def mapped(folder, dtype=np.float64):
    np.save(folder / "y.npy", VALUES.astype(dtype))
    return np.load(folder / "y.npy", mmap_mode="r")


def parquet(folder, kind="float64"):
    pyarrow.parquet.write_table(pyarrow.table({"y": pyarrow.array(VALUES).cast(kind)}), folder / "y.parquet")
    return pmc.Parquet(folder / "y.parquet")["y"]


def arrow(folder):
    table = pyarrow.table({"y": VALUES})
    with pyarrow.ipc.new_file(folder / "y.arrow", table.schema) as file:
        file.write_table(table)
    return pmc.Arrow(folder / "y.arrow")["y"]


NUMERIC = ["?", "i1", "<i2", ">i2", "i4", ">i4", "i8", ">i8", "u1", "u2", "u4", "u8", ">u8",
           "<f2", ">f2", "f4", ">f4", "f8", ">f8"]  # fmt: skip
OTHER = ["longdouble", "complex64", "complex128", ">c16", "object", "S3", "U3", "M8[s]", "m8[s]", "V8",
         [("a", "f8")]]  # fmt: skip

# Columns that NumPy holds, which every kind of run takes ...
ARRAYS = {f"numpy {kind}": lambda _, kind=kind: VALUES.astype(kind) for kind in NUMERIC} | {
    "read-only": lambda _: np.frombuffer(VALUES.tobytes()),
    "not contiguous": lambda _: np.stack([VALUES, VALUES], axis=1)[:, 0],
    "reversed": lambda _: VALUES[::-1].copy()[::-1],
    "unaligned": lambda _: unaligned(),
    "subclass": lambda _: VALUES.view(Subclass),
    "memmap": mapped,
    "memmap, big-endian": lambda folder: mapped(folder, ">f8"),
    "Parquet": parquet,
    "Parquet, int8": lambda folder: parquet(folder, "int8"),
    "Parquet, bool": lambda folder: parquet(folder, "bool"),
    "Arrow": arrow,
}
# ... others, which must be in memory ...
IN_MEMORY = {
    "JAX": lambda _: jnp.asarray(VALUES),
    "JAX bool": lambda _: jnp.asarray(VALUES, bool),
    "JAX float16": lambda _: jnp.asarray(VALUES, jnp.float16),
    "pandas": lambda _: pandas.Series(VALUES),
    "pandas Int64": lambda _: pandas.Series(VALUES).astype("Int64"),
    "pandas boolean": lambda _: pandas.Series(VALUES == 1).astype("boolean"),
    "pandas sparse": lambda _: pandas.Series(VALUES).astype(pandas.SparseDtype("float")),
    "pandas index": lambda _: pandas.Index(VALUES),
    "Polars": lambda _: polars.Series(VALUES),
    "Polars Int8": lambda _: polars.Series(VALUES.astype("int8")),
    "Arrow, in memory": lambda _: pyarrow.chunked_array([VALUES]),
}
# ... and what no run takes.
REFUSED = {f"numpy {kind}": lambda _, kind=kind: np.zeros(N, kind) for kind in OTHER} | {
    "numpy strings": lambda _: np.array(["1"] * N, np.dtypes.StringDType()),
    "bfloat16": lambda _: jnp.asarray(VALUES, jnp.bfloat16),
    "float8": lambda _: jnp.asarray(VALUES, jnp.float8_e5m2),
    "int4": lambda _: jnp.asarray(VALUES, jnp.int4),
    "numpy bfloat16": lambda _: VALUES.astype(jnp.bfloat16),
    "deleted JAX": lambda _: deleted(),
    "random keys": lambda _: jax.random.split(jax.random.key(0), N),
    "masked": lambda _: np.ma.masked_array(VALUES, VALUES == 1),
    "masked nowhere": lambda _: np.ma.masked_array(VALUES),
    "masked memmap": lambda folder: np.ma.masked_array(mapped(folder), VALUES == 1),
    "list": lambda _: VALUES.tolist(),
    "tuple": lambda _: tuple(VALUES),
    "number": lambda _: 1.0,
    "none": lambda _: None,
    "text": lambda _: "secret",
    "bytes": lambda _: b"secret",
    "memoryview": lambda _: memoryview(VALUES),
    "generator": lambda _: (v for v in VALUES),
    "dict": lambda _: {"y": VALUES},
    "0-d": lambda _: np.array(1.0),
    "0-d JAX": lambda _: jnp.asarray(1.0),
    "NumPy scalar": lambda _: np.float64(1.0),
    "two axes": lambda _: VALUES[:, None],
    "no rows": lambda _: VALUES[:0],
    "records": lambda _: np.rec.array([(1.0,)] * N),
    "pandas text": lambda _: pandas.Series(["secret"] * N),
    "pandas objects": lambda _: pandas.Series(["secret", 1.0, None, 2, 3], dtype=object),
    "pandas category": lambda _: pandas.Series(["secret"] * N, dtype="category"),
    "pandas dates": lambda _: pandas.Series(pandas.date_range("2020-01-01", periods=N)),
    "pandas longdouble": lambda _: pandas.Series(VALUES.astype(np.longdouble)),
    "pandas table": lambda _: pandas.DataFrame({"y": VALUES}),
    "a table's column": lambda folder: pyarrow.array(VALUES),
}


def deleted():
    column = jnp.asarray(VALUES)
    column.delete()
    return column


MODES = {"declared": None, "streamed": 2}


@pytest.fixture(scope="module")
def drivers(tmp_path_factory):
    """One driver of every kind, and its ledger: the same people have no second name in one ledger."""
    found = {}
    for name, block in MODES.items():
        ledger = pmc.Ledger.create(tmp_path_factory.mktemp("books") / name)
        ledger.declare(name, pmc.Target(1000.0, 1e-3))
        seeded = pmc.Execution(unsafe_seed=True, rows_on_device=block)
        books = pmc.Bookkeeping(ledger, name)
        found[name] = declared(KERNEL, ROWS, num_steps=2, execution=seeded, bookkeeping=books), ledger
    return found


def outcome(drivers, mode, column):
    """The draws, or the refusal, after checking that charge and result go together."""
    mcmc, ledger = drivers[mode]
    before = len(ledger.history(mode))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            mcmc.run(y=column, rng_key=3)
        except (pmc.DataSchemaError, pmc.DeclarationError) as refused:
            assert len(ledger.history(mode)) == before, "a refused run was charged"
            with pytest.raises(pmc.ReleaseError):
                _ = mcmc.released
            assert "secret" not in str(refused) and refused.__cause__ is None
            return refused
    assert [c.outcome for c in ledger.history(mode)[before:]] == ["released"]
    return mcmc.released.get_samples()["mu"]


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_every_column_that_is_taken_is_the_column_of_its_values(drivers, mode, tmp_path):
    wanted = outcome(drivers, mode, VALUES.copy())
    assert isinstance(wanted, np.ndarray)
    made = ARRAYS | IN_MEMORY
    for name in made:
        found = outcome(drivers, mode, made[name](tmp_path))
        if mode == "streamed" and name in IN_MEMORY:
            assert isinstance(found, pmc.DataSchemaError), name
        else:
            assert isinstance(found, np.ndarray), (name, found)
            np.testing.assert_allclose(found, wanted, atol=1e-9, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_what_is_no_column_of_numbers_is_refused_before_the_charge(drivers, mode, tmp_path):
    for name, make in REFUSED.items():
        assert isinstance(outcome(drivers, mode, make(tmp_path)), pmc.DataSchemaError), name


@pytest.mark.parametrize("there", [[0, 1], [0, 2]])
def test_sparse_whole_numbers_whose_gaps_are_missing_are_floats_whether_or_not_one_is(there):
    kind = pandas.SparseDtype("int64", np.nan)
    column = pandas.Series([1, 1], there).astype(kind).reindex(range(there[-1] + 1))
    assert numeric_column("y", column).dtype == np.float64
