"""Codes of missing values that a codebook states as ranges, or without a label, are codes of missing values.

They counted as values, a refusal of −7 as no hours at all, where the table was not the codebook itself.
"""

import pandas
import pytest

from private_mcmc import DataSchemaError, Schema
from private_mcmc.data.codebook import read_codebook
from private_mcmc.data.table import read_identifiers, read_table


def test_of_an_spss_file(tmp_path):
    pyreadstat = pytest.importorskip("pyreadstat")
    table = pandas.DataFrame({"hours": [40.0, -7.0, -9.0], "mood": [1.0, 2.0, 8.0], "pay": [1.0, 2.0, 3.0]})
    pyreadstat.write_sav(
        table,
        tmp_path / "work.sav",
        variable_value_labels={"hours": {-9.0: "no answer"}, "mood": {1.0: "low", 2.0: "high"}},
        missing_ranges={"hours": [{"lo": -9, "hi": -7}], "mood": [8], "pay": [{"lo": -1e9, "hi": -1}]},
    )
    fields = read_codebook(tmp_path / "work.sav").by_name
    assert set(fields["hours"].missing_values) == {"", "-9", "-8", "-7"}
    assert set(fields["mood"].missing_values) == {"", "8"}
    # So many that no list has them: what is left of them lies outside every range, and is refused or bounded.
    assert fields["pay"].missing_values == ("",)


def test_they_are_read_as_missing(tmp_path):
    (tmp_path / "book.csv").write_text('name,type,min,max,missing\nhours,number,0,80,"-9,-8,-7,99"\n')
    record = read_codebook(tmp_path / "book.csv").to_dict()
    record["fields"][0]["private_mcmc"]["missing"] = "indicator"
    columns = read_table({"hours": [40, -7, 99, None, 12.0]}, Schema.from_dict(record), ["hours"])
    assert columns["hours"].tolist() == [40, 40, 40, 40, 12]
    assert columns["hours_missing"].tolist() == [0, 1, 1, 1, 0]


def field(kind, mark, **more):
    limits = {"minimum": 0, "maximum": 80} if kind in ("number", "integer") else {}
    own = {"missing": "indicator"}
    record = {
        "name": "x",
        "type": kind,
        "constraints": limits,
        "missingValues": ["", mark],
        "private_mcmc": own,
    }
    return Schema.from_dict({"fields": [record | more]})


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
    record = {
        "fields": [
            {"name": "id", "type": "string", "missingValues": ["", "-9"], "private_mcmc": {"role": "person"}}
        ],
        "private_mcmc": {"person": {"field": "id", "at_most": 2}},
    }
    cells = {"id": ["-9.0", "-9,0", "-9", "09.0", "7.0", "\u22129", "-\u200b9", "\u20119"]}
    assert read_identifiers(cells, Schema.from_dict(record)).tolist() == [
        "",
        "",
        "",
        "09.0",
        "7.0",
        "",
        "",
        "",
    ]


@pytest.mark.parametrize("kind", ["number", "string"])
def test_what_is_no_number_is_no_code(kind):
    more = {"categories": ["1", "2"]} if kind == "string" else {}
    with pytest.raises(DataSchemaError, match="without a fate"):
        read_table({"x": ["1", "nan", "?"]}, field(kind, "-9", **more), ["x"])
