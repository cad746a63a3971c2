"""Tables become columns of the declared domains; refusals name fields and quote nothing."""

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.data.table import read_header, read_table

SCHEMA = pmc.Schema.from_dict(
    {
        "missingValues": ["", "NA"],
        "fields": [
            {
                "name": "age",
                "type": "number",
                "constraints": {"minimum": "0", "maximum": "120"},
                "private_mcmc": {"missing": "indicator"},
            },
            {"name": "sex", "constraints": {"enum": ["m", "f"]}},
            {"name": "parity", "type": "integer", "constraints": {"minimum": "0", "maximum": "9"}},
        ],
    }
)
EXPECTED = {"age": [30.5, 60.0, 120.0], "age_missing": [0, 1, 0], "sex": [0, 1, 1], "parity": [2, 0, 9]}
CSV = "sex,note,age,parity\nm,secret-word,30.5,2\nf,,NA,0\nf,x,130,11\n"
NAMES = ["age", "sex", "parity"]


def check(columns):
    assert columns.keys() == EXPECTED.keys()
    for name, values in EXPECTED.items():
        np.testing.assert_array_equal(columns[name], values)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_csv_file_becomes_the_declared_columns(tmp_path, mark):
    (tmp_path / "t.csv").write_text(mark + CSV, encoding="utf-8")
    check(read_table(tmp_path / "t.csv", SCHEMA, NAMES))


def test_a_parquet_file_a_data_frame_and_a_dict_give_the_same_columns(tmp_path):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {"sex": ["m", "f", "f"], "age": [30.5, None, 130.0], "parity": [2, 0, 11]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "t.parquet")
    check(read_table(tmp_path / "t.parquet", SCHEMA, NAMES))
    check(read_table(pandas.DataFrame(rows), SCHEMA, NAMES))
    check(read_table(rows, SCHEMA, NAMES))
    assert read_header(tmp_path / "t.parquet") == ["sex", "age", "parity"]


def test_files_are_read_in_chunks_without_a_seam(tmp_path, monkeypatch):
    monkeypatch.setattr("private_mcmc.data.readers._CHUNK", 2)
    (tmp_path / "t.csv").write_text(CSV)
    check(read_table(tmp_path / "t.csv", SCHEMA, NAMES))


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("secret-word,n,30,1", "['sex']"),
        ("m,n,secret-word,1", "['age']"),
        ("m,n,30,1,secret-word", "['age', 'sex', 'parity']"),
        ("m,n,30,1.5", "['parity']"),
        ("m,n,30,NA", "['parity']"),
    ],
)
def test_a_cell_without_a_fate_refuses_the_table_and_names_fields_only(tmp_path, line, fields):
    (tmp_path / "t.csv").write_text(CSV + line + "\n")
    with pytest.raises(pmc.DataSchemaError) as refusal:
        read_table(tmp_path / "t.csv", SCHEMA, NAMES)
    assert f"fields {fields}" in str(refusal.value)
    assert not any(word in str(refusal.value) for word in ("secret-word", "row 4", "line 5"))


def test_fields_that_no_model_reads_are_never_looked_at(tmp_path):
    (tmp_path / "t.csv").write_text(CSV + "unknown,n,30,words\n")
    assert len(read_table(tmp_path / "t.csv", SCHEMA, ["age"])["age"]) == 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m,secret-word,30.5,2\n",
        "1,2,3\n",
        "sex,sex,age,parity\n1,2,3,4\n",
        'sex,"age\n',
        "sex,age,parity\n",
    ],
)
def test_a_file_that_is_no_table_with_a_header_is_refused_and_never_quoted(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(pmc.DataSchemaError) as refusal:
        read_table(tmp_path / "t.csv", SCHEMA, NAMES)
    assert "secret-word" not in str(refusal.value)


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(pmc.DataSchemaError, match="cannot be read"):
        read_header(tmp_path / "t.csv")
