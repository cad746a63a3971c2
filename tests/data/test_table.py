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
    monkeypatch.setattr("private_mcmc.data.table._CHUNK", 2)
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


class Broken:
    def __str__(self):
        raise ValueError("secret-word")


BROKEN = {
    "masked": np.ma.array([1.0, 2.0], mask=[0, 1]),
    "a matrix": np.ones((2, 2)),
    "no list": 3.0,
    "a broken object": [Broken(), 1.0],
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_column_of_cells_is_refused_in_words_that_quote_nothing(kind):
    with pytest.raises(pmc.DataSchemaError) as caught:
        read_table({"age": BROKEN[kind], "sex": ["m", "f"]}, SCHEMA, ["age"])
    assert "secret" not in str(caught.value) and caught.value.__cause__ is None


def test_a_column_in_memory_is_as_long_as_the_others():
    with pytest.raises(pmc.DataSchemaError, match="number of rows"):
        read_table({"age": [1, 2, 3], "sex": ["m", "f"]}, SCHEMA, ["age", "sex"])


def test_a_missing_value_of_pandas_is_a_missing_cell():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"age": pandas.array([30, None], dtype="Int64")})
    np.testing.assert_array_equal(read_table(table, SCHEMA, ["age"])["age_missing"], [0, 1])


def test_a_date_that_no_calendar_has_is_refused_in_words(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        pyarrow.table({"age": pyarrow.array([10**7], pyarrow.date32())}), tmp_path / "t.parquet"
    )
    with pytest.raises(pmc.DataSchemaError, match="cell cannot be read"):
        read_table(tmp_path / "t.parquet", SCHEMA, ["age"])


def test_a_level_is_not_read_from_a_number_next_to_it():
    schema = pmc.Schema.from_dict({"fields": [{"name": "code", "constraints": {"enum": ["1", "2"]}}]})
    np.testing.assert_array_equal(read_table({"code": ["1.0", "2"]}, schema, ["code"])["code"], [0, 1])
    with pytest.raises(pmc.DataSchemaError, match="fate"):
        read_table({"code": ["1.0000001", "2"]}, schema, ["code"])


def test_truth_values_in_memory_are_cells():
    schema = pmc.Schema.from_dict({"fields": [{"name": "died", "type": "boolean"}]})
    for column in ([False, True], np.array([False, True])):
        np.testing.assert_array_equal(read_table({"died": column}, schema, ["died"])["died"], [0, 1])
