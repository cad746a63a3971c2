"""Codes of missing values that a codebook states are codes of missing values, however they are written."""

import pytest

from private_mcmc import DataSchemaError, Schema
from private_mcmc.data.codebook import read_codebook
from private_mcmc.data.table import read_identifiers, read_table
from tests.data.fields import number, schema


def test_they_are_read_as_missing(tmp_path):
    (tmp_path / "book.csv").write_text('name,type,min,max,missing\nhours,number,0,80,"-9,-8,-7,99"\n')
    record = read_codebook(tmp_path / "book.csv").to_dict()
    record["fields"][0]["private_mcmc"]["missing"] = "indicator"
    columns = read_table({"hours": [40, -7, 99, None, 12.0]}, Schema.from_dict(record), ["hours"])
    assert columns["hours"].tolist() == [40, 40, 40, 40, 12]
    assert columns["hours_missing"].tolist() == [0, 1, 1, 1, 0]


def field(kind, mark, **more):
    record = number("x", 0, 80, kind, own={"missing": "indicator"}, missingValues=["", mark])
    return schema(record | ({} if kind in ("number", "integer") else {"constraints": {}}) | more)


@pytest.mark.parametrize(
    ("kind", "mark", "cells", "more"),
    [
        ("integer", "-9", ["-9.0", "-9", "\u22129", "40.0"], {}),
        ("number", "99", ["99.0", "99.00", "9.9e1", "40"], {}),
        ("number", "-9", ["-9,0", "-9", "-9,00", "40,0"], {"decimalChar": ","}),
        ("string", "9", ["9.0", "9", "9.00", "2"], {"categories": ["1", "2"]}),
        ("boolean", "9", ["9.0", "9", "9.00", "1"], {}),
    ],
)
def test_a_code_is_the_same_number_however_it_is_written(kind, mark, cells, more):
    """A column of whole numbers with an empty cell is written -9.0 by pandas: it was read as the minimum."""
    columns = read_table({"x": cells}, field(kind, mark, **more), ["x"])
    if kind in ("integer", "number"):
        assert columns["x_missing"].tolist() == [1, 1, 1, 0] and columns["x"][3] == 40
    else:
        assert columns["x"].tolist() == [2, 2, 2, 1]


def test_a_level_is_not_taken_for_a_code_of_the_same_number():
    columns = read_table({"x": ["09", "9", "1"]}, field("string", "9", categories=["1", "09"]), ["x"])
    assert columns["x"].tolist() == [1, 2, 0]


def test_a_code_among_identifiers_is_nobodys():
    who = {"name": "id", "missingValues": ["", "-9"], "private_mcmc": {"role": "person"}}
    persons = schema(who, private_mcmc={"person": {"field": "id", "at_most": 2}})
    cells = {"id": ["-9.0", "-9,0", "-9", "09.0", "7.0", "\u22129", "-\u200b9", "\u20119"]}
    assert [*read_identifiers(cells, persons)] == [*[""] * 3, "09.0", "7.0", *[""] * 3]


@pytest.mark.parametrize("kind", ["number", "string"])
def test_what_is_no_number_is_no_code(kind):
    more = {"categories": ["1", "2"]} if kind == "string" else {}
    with pytest.raises(DataSchemaError, match="without a fate"):
        read_table({"x": ["1", "nan", "?"]}, field(kind, "-9", **more), ["x"])
