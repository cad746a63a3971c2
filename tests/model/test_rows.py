"""The declaration of a row: schema errors come from schema alone."""

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest

from private_mcmc.domains import Ball, Binary, Box, Rows
from private_mcmc.dossier.shape import declared_rows
from private_mcmc.errors import DataSchemaError, DeclarationError

ROWS = Rows(X=Ball(1.0, dim=2), y=Binary())


def good(n=4):
    return {"X": np.zeros((n, 2)), "y": np.zeros(n)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("y"), "missing"),
        (lambda d: d.update(z=np.zeros(4)), "not declared"),
        (lambda d: d.update(X=np.zeros((4, 3))), "X"),
        (lambda d: d.update(X=np.zeros(4)), "X"),
        (lambda d: d.update(y=np.zeros(5)), "rows"),
        (lambda d: d.update(y=np.array(["a"] * 4)), "numeric"),
        (lambda d: d.update(y=np.array([1, None, 0, 1], object)), "numeric"),
        (lambda d: d.update(y=np.zeros(4, complex)), "numeric"),
        (lambda d: d.update(y=[0, 1, 0, 1]), "array"),
        (lambda d: d.update(X=np.zeros((0, 2)), y=np.zeros(0)), "rows"),
    ],
)
def test_a_wrong_schema_is_named(change, message):
    data = good()
    change(data)
    with pytest.raises(DataSchemaError, match=message):
        ROWS.validate(data, 4)


def test_values_never_matter_and_never_show(rng):
    for value in (np.nan, np.inf, -1e300, 12345.678):
        data = good() | {"X": np.full((4, 2), value), "y": np.full(4, value)}
        assert ROWS.validate(data, 4).keys() == {"X", "y"}
    with pytest.raises(DataSchemaError) as error:
        ROWS.validate({"X": np.full((4, 3), 12345.678), "y": np.full(4, 12345.678)}, 4)
    assert "12345" not in str(error.value)


def test_the_number_of_rows_is_checked_only_where_it_is_public():
    assert ROWS.validate(good(3), None)["y"].shape == (3,)
    with pytest.raises(DataSchemaError, match="n=4"):
        ROWS.validate(good(3), 4)
    with pytest.raises(DataSchemaError, match="differ"):
        ROWS.validate(good(3) | {"y": np.zeros(2)}, None)


def test_frames_of_polars_and_arrow_are_columns_of_one_type_whatever_is_missing():
    for missing in (None, 1):
        frame = polars.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})
        y = polars.Series([1, missing], dtype=polars.Int8)
        for X, outcome in (
            (frame, y),
            (frame.to_arrow(), pyarrow.chunked_array([y.to_arrow()])),
            (frame, y == 1),
        ):
            found = ROWS.validate({"X": X, "y": outcome}, 2)
            assert found["y"].dtype == found["X"].dtype == np.float64
            assert found["X"].tolist() == [[1, 3], [2, 4]] and found["y"][0] == 1
            assert np.isnan(found["y"][1]) == (missing is None)
    with pytest.raises(DataSchemaError, match="column 'y' is not numeric"):
        ROWS.validate({"X": frame, "y": polars.Series(["a", "b"])}, 2)


@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_no_cell_of_a_numeric_column_is_refused(kind):
    """Arrow has no float64 for what lies beyond 2^53: whether a row had such a cell stopped a run."""
    for cells in ([1, 2**53 + 1], [2**62, None]):
        column = pyarrow.chunked_array([pyarrow.array(cells, kind)])
        for y in (column, pd.Series(cells, dtype=f"{kind}[pyarrow]"), polars.Series(cells)):
            found = Rows(y=Binary()).validate({"y": y}, 2)["y"]
            np.testing.assert_array_equal(found, np.array(cells, np.float64))


def test_pandas_columns_with_missing_values_are_numbers():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})
    with_missing = pd.Series([1, None], dtype="Int64")
    without = pd.Series([1, 0], dtype="Int64")
    arrays = ROWS.validate({"X": frame, "y": with_missing}, 2)
    assert arrays["X"].dtype == np.float64
    assert arrays["y"].dtype == ROWS.validate({"X": frame, "y": without}, 2)["y"].dtype
    with pytest.raises(DataSchemaError, match="numeric"):
        ROWS.validate({"X": pd.DataFrame({"a": ["x"], "b": [1]}), "y": np.zeros(1)}, 1)


def test_the_fingerprint_is_of_the_declaration():
    assert Rows(y=Binary(), X=Ball(1.0, dim=2)).fingerprint == ROWS.fingerprint
    assert Rows(X=Ball(1.5, dim=2), y=Binary()).fingerprint != ROWS.fingerprint
    assert declared_rows(ROWS.to_dict()) == ROWS


def test_domains_and_rows_of_other_classes_are_refused():
    class Wide(Box):
        def project(self, column):
            return column

    with pytest.raises(DeclarationError, match="not a row domain"):
        Rows(y=Wide(-1.0, 1.0))
    with pytest.raises(DeclarationError, match="no subclasses"):
        type("Lax", (Rows,), {"project": lambda self, data: data})
