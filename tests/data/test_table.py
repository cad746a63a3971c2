"""Tables become columns of the declared domains; refusals name fields and quote nothing."""

import datetime
import gzip
import importlib
import shutil
from functools import partial

import numpy as np
import pandas
import polars
import pyarrow
import pyreadstat
import pytest
from pyarrow import feather, parquet

import private_mcmc as pmc
from private_mcmc.data.codebook import read_header
from private_mcmc.data.table import data_marks, read_identifiers, read_table, refuse_changed, spooled_table
from private_mcmc.domains.cells import Source
from private_mcmc.domains.columns import PRESENT, HostColumn, data_mark
from private_mcmc.domains.persons import identified
from private_mcmc.dossier.record import texts
from tests.data.fields import flag, levels, number, schema

OUTSIDE = {"outside": "nearest"}
SCHEMA = schema(
    number("age", 0, 120, own=OUTSIDE | {"missing": "indicator"}),
    levels("sex", "m", "f"),
    number("parity", 0, 9, "integer", own=OUTSIDE),
    missingValues=["", "NA"],
)
EXPECTED = {"age": [30.5, 60.0, 120.0], "age_missing": [0, 1, 0], "sex": [0, 1, 1], "parity": [2, 0, 9]}
CSV = "sex,note,age,parity\nm,secret-word,30.5,2\nf,,NA,0\nf,x,130,11\n"
NAMES = ["age", "sex", "parity"]


def check(columns):
    assert columns.keys() == EXPECTED.keys()
    for name, values in EXPECTED.items():
        np.testing.assert_array_equal(columns[name], values)


ROWS = {"sex": ["m", "f", "f"], "age": [30.5, None, 130.0], "parity": [2, 0, 11]}
NULLABLE = {"sex": "category", "age": "Float64", "parity": "Int8"}


WRITTEN = {
    "plain.csv": lambda path: path.write_text(CSV),
    "marked.csv": lambda path: path.write_text("\ufeff" + CSV, encoding="utf-8"),
    "semicolons.csv": lambda path: path.write_text(CSV.replace(",", ";")),
    "tabs.tsv": lambda path: path.write_text(CSV.replace(",", "\t")),
    "quoted.csv": lambda path: path.write_text(
        '"sex","age","parity"\n"m","30.5","2"\n"f","",0\nf,"1e9",11\n'
    ),
    "blank lines.csv": lambda path: path.write_text(CSV.replace("\n", "\r\n\r\n")),
    "index.csv": lambda path: pandas.DataFrame(ROWS).to_csv(path),
    "utf16.txt": lambda path: path.write_text(CSV.replace(",", "\t"), encoding="utf-16"),
    "packed.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV.encode())),
    "t.parquet": lambda path: parquet.write_table(pyarrow.table(ROWS), path),
    "t.feather": lambda path: feather.write_feather(pyarrow.table(ROWS), path),
    "t.dta": lambda path: pandas.DataFrame(ROWS).to_stata(path, write_index=False),
    "t.sav": lambda path: pyreadstat.write_sav(pandas.DataFrame(ROWS), path),
}
IN_MEMORY = {
    "a dict": lambda: ROWS,
    "a dict of arrays": lambda: {name: np.array(values, object) for name, values in ROWS.items()},
    "a data frame": lambda: pandas.DataFrame(ROWS),
    "nullable types": lambda: pandas.DataFrame(ROWS).astype(NULLABLE),
    "an index of its own": lambda: pandas.DataFrame(ROWS, index=[5, 5, 5]),
    "an Arrow table": lambda: pyarrow.table(ROWS),
    "Polars": lambda: polars.DataFrame(ROWS),
    "Polars' categories": lambda: polars.DataFrame(ROWS).with_columns(
        polars.col("sex").cast(polars.Categorical)
    ),
    "a structured array": lambda: pandas.DataFrame(ROWS).to_records(),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_table_is_the_same_in_every_format_and_in_chunks_without_a_seam(tmp_path, monkeypatch, name):
    WRITTEN[name](tmp_path / name)
    check(read_table(tmp_path / name, SCHEMA, NAMES))
    assert set(NAMES) <= set(read_header(tmp_path / name))
    monkeypatch.setattr("private_mcmc.data.readers._CHUNK", 2)
    check(read_table(tmp_path / name, SCHEMA, NAMES))


def written(folder):
    """``ROWS`` as Spark and others write a table, with what they leave behind; the second row has no age."""
    rows = pandas.DataFrame(ROWS)
    for place, part in (
        ("age=30.5/sex=m", rows[:1]),
        ("age=__HIVE_DEFAULT_PARTITION__/sex=f", rows[1:2]),
        ("age=130/sex=f", rows[2:]),
        ("_temporary/0", rows),
    ):
        (folder / place).mkdir(parents=True)
        named = list({"age", "sex"} & {one.partition("=")[0] for one in place.split("/")})
        parquet.write_table(pyarrow.table(part.drop(columns=named)), folder / place / "a.parquet")
    return folder


def test_folders_that_are_named_by_cells_are_one_table(tmp_path):
    folder = written(tmp_path / "people")
    for several in (folder, f"{folder}/age=*/*/*.parquet"):
        columns = read_table(several, SCHEMA, NAMES)
        order = np.argsort(columns["age_missing"] * 1e3 + columns["parity"] * 10 + columns["age"])
        check({name: values[[order[0], order[2], order[1]]] for name, values in columns.items()})
        for name, one in spooled_table(several, SCHEMA, NAMES).items():
            np.testing.assert_array_equal(one.loaded(), columns[name])
    assert set(NAMES) <= set(read_header(folder))
    assert data_marks(folder).digest == data_marks(f"{folder}/age=*/*/*.parquet").digest
    (folder / "age=130").rename(folder / "age=60")
    assert data_marks(folder).digest != data_marks(written(tmp_path / "others")).digest
    for cell in ("30.5", "__HIVE_DEFAULT_PARTITION__"):
        shutil.rmtree(folder / f"age={cell}")
    before = data_marks(folder)
    (folder / "age=60").rename(folder / "age=70")
    with pytest.raises(pmc.DataSchemaError, match="changed"):
        refuse_changed(folder, before)


def test_no_error_names_a_folder_by_the_cells_that_it_is_called_by(tmp_path):
    folder = written(tmp_path / "people")
    broken = folder / "age=130" / "sex=f" / "a.parquet"
    for content in (b"PAR1", (folder / "_temporary/0/a.parquet").read_bytes()):
        broken.write_bytes(content)
        with pytest.raises(pmc.DataSchemaError) as refused:
            read_table(folder, SCHEMA, NAMES)
        assert "age=…/sex=…" in str(refused.value) and "130" not in str(refused.value)
    broken.unlink()
    broken.symlink_to("nowhere")
    for asked in (
        lambda: data_marks(folder),
        lambda: read_table(f"{folder}/age=1*", SCHEMA, NAMES),
        lambda: data_marks(f"{folder}/age=1*"),
    ):
        with pytest.raises(pmc.DataSchemaError) as refused:
            asked()
        assert "age=…" in str(refused.value) and "130" not in str(refused.value)


def test_a_frame_that_has_not_been_computed_yet_is_refused():
    """It would be computed at every reading, and may be another one each time."""
    with pytest.raises(pmc.DataSchemaError, match="collect"):
        read_table(polars.DataFrame(ROWS).lazy(), SCHEMA, NAMES)


def test_columns_of_polars_without_arrow_are_refused_whatever_is_in_them(monkeypatch):
    """One date beyond its calendar ended the process there, with what Polars said of it."""
    monkeypatch.setattr(polars.Series, "to_arrow", lambda _: importlib.import_module("no_arrow"))
    for day in (1, 2**31 - 5):
        days = polars.Series([day], dtype=polars.Int32).cast(polars.Date)
        with pytest.raises(pmc.DataSchemaError, match="need pyarrow"):
            [*read_identifiers({"who": days}, PERSONS)]


@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_table_in_memory_is_the_same_as_in_a_file(name):
    check(read_table(IN_MEMORY[name](), SCHEMA, NAMES))


def of(cells, **field):
    """One column's numbers, of cells as a CSV file has them; ``None`` where the table is refused."""
    try:
        return read_table({"x": cells}, schema({"name": "x", **field}), ["x"])["x"].tolist()
    except pmc.DataSchemaError:
        return None


RANGE = {"constraints": {"minimum": "-1000000000000", "maximum": "1000000000000"}}


@pytest.mark.parametrize(
    ("field", "cells", "expected"),
    [
        ({"type": "number", **RANGE}, ["1,5"], None),
        ({"type": "number", "decimalChar": ",", **RANGE}, ["1234,5", "-12"], [1234.5, -12]),
        ({"type": "number", "decimalChar": ",", **RANGE}, ["1.5"], None),
        ({"type": "number", **RANGE}, ["\u22125", "123456789012", "1e-300"], [-5, 123456789012, 1e-300]),
        ({"type": "number", **RANGE}, ["0x10"], None),
        ({"type": "integer", **RANGE}, ["9007199254740993"], None),
        ({"constraints": {"enum": ["1234567", "7654321"]}}, ["1234567.0", "7654321"], [0, 1]),
        ({"constraints": {"enum": ["123456", "2"]}}, ["123456.4"], None),
        ({"constraints": {"enum": [" Male", " Female"]}}, [" Female", "Male"], [1, 0]),
        ({"constraints": {"enum": ["да", "нет"]}}, ["нет", " да "], [1, 0]),
        ({"constraints": {"enum": ["東", "西", "北"]}}, ["北", "東"], [2, 0]),
        ({"constraints": {"enum": ["2,600 to 5,200", "Under 2,600"]}}, ["Under 2,600"], [1]),
        ({"type": "boolean", "trueValues": ["yes", "Y"], "falseValues": ["no"]}, ["Y", "no"], [1, 0]),
        ({"type": "boolean", "trueValues": ["dead"], "falseValues": ["alive"]}, ["dead", "DEAD"], None),
        ({"type": "boolean"}, ["True", "0", "1.0"], [1, 0, 1]),
        ({"type": "boolean"}, [True, np.False_, 1], [1, 0, 1]),
        ({"type": "year", "constraints": {"minimum": "1900", "maximum": "2030"}}, ["1900"], [1900]),
    ],
)
def test_cells_as_people_write_them_are_read_or_refused_and_never_another_number(field, cells, expected):
    assert of(cells, **field) == expected


DATE = {"type": "date", "constraints": {"minimum": "1970-01-01", "maximum": "1970-12-31"}}


@pytest.mark.parametrize(
    "cells",
    [
        ["1970-01-11", "1970-12-31"],
        ["1970-01-11T23:59:00", "1970-12-31 00:00:00"],
        [datetime.date(1970, 1, 11), datetime.datetime(1970, 12, 31, 12)],
        np.array(["1970-01-11", "1970-12-31"], "datetime64[ns]"),
        pandas.to_datetime(["1970-01-11", "1970-12-31"]),
    ],
    ids=str,
)
def test_dates_are_the_same_however_they_are_held(cells):
    assert of(cells, **DATE) == [10.0, 364.0]


def test_dates_in_a_form_of_their_own_are_read_in_that_form_alone():
    field = {"type": "date", "format": "%d/%m/%Y"}
    field["constraints"] = {"minimum": "01/01/1970", "maximum": "31/12/1970"}
    assert of(["02/03/1970", "1970-03-02"], **field) == [60.0, 60.0]
    assert of(["3/31/1970"], **field) is None
    with pytest.raises(pmc.DeclarationError, match="strptime"):
        of(["02/03/1970"], **{**DATE, "format": "dd/mm/yyyy"})


def test_a_file_in_another_encoding_is_declared_so(tmp_path):
    (tmp_path / "t.csv").write_bytes("größe\nüber\n".encode("cp1252"))
    field = levels("größe", "über", "unter")
    with pytest.raises(pmc.DataSchemaError, match="encoding: cp1252"):
        read_table(tmp_path / "t.csv", schema(field), ["größe"])
    made = schema(field, private_mcmc={"encoding": "cp1252"})
    assert read_table(tmp_path / "t.csv", made, ["größe"])["größe"].tolist() == [0]
    assert pmc.Schema.from_dict(texts(made.to_dict())) == made


def test_rows_that_drop_out_keep_their_slot_and_are_marked(tmp_path):
    drop = {"missing": "drop"}
    made = schema(number("wage", 0, 10, own=drop), levels("sex", "m", "f", own=drop))
    found = read_table({"wage": [3, None, 4], "sex": ["f", "m", None]}, made, ["wage", "sex"])
    assert found["present"].tolist() == [1, 0, 0] and found["sex"].tolist() == [1, 0, 0]
    assert (found["wage"] >= 0).all() and (found["wage"] <= 10).all()
    assert "present" not in made.rows().columns


def test_a_number_in_the_header_is_a_name_only_if_a_codebook_says_so(tmp_path):
    (tmp_path / "t.csv").write_text("id,2019,2020\nsecret-word,1,2\n")
    with pytest.raises(pmc.DataSchemaError, match="codebook") as refusal:
        read_header(tmp_path / "t.csv")
    assert "2019" not in str(refusal.value)
    assert read_header(tmp_path / "t.csv", {"2019", "2020"}) == ["id", "2019", "2020"]


def test_marks_of_a_table_do_not_depend_on_what_is_read_of_it_and_change_with_any_cell(tmp_path):
    (tmp_path / "t.csv").write_text(CSV)
    (tmp_path / "copy.csv").write_text(CSV)
    assert data_marks(tmp_path / "t.csv").digest == data_marks(tmp_path / "copy.csv").digest
    (tmp_path / "copy.csv").write_text(CSV.replace("x", "y"))
    assert data_marks(tmp_path / "t.csv").digest != data_marks(tmp_path / "copy.csv").digest
    assert data_marks(ROWS).digest == data_marks(pandas.DataFrame(ROWS)).digest
    assert data_marks(ROWS).digest == data_marks(dict(reversed(ROWS.items()))).digest
    assert data_marks(ROWS).digest != data_marks({**ROWS, "parity": [2, 0, 12]}).digest
    # Where one cell ends and the next begins is part of it.
    assert data_marks({"a": ["ab", "c"]}).digest != data_marks({"a": ["a", "bc"]}).digest
    # A cell that is no UTF-8 does not take its column out of the table.
    assert data_marks({"a": ["\ud800", "c"]}).digest != data_marks({"a": ["\ud800", "d"]}).digest


def test_a_ledger_tells_tables_apart_whatever_their_columns_are_called():
    marks = [{name: ["0", "1"], "age": [age, "60"]} for name in (PRESENT, "file", "columns") for age in "34"]
    assert len({data_mark(b"key", data_marks(table).known_by) for table in marks}) == 6


@pytest.mark.parametrize("column", [[1.0], np.zeros((2, 2)), np.ma.zeros(2), np.zeros(2, np.float32)])
def test_what_a_reader_hands_on_is_rows_of_cells_and_persons_or_refused(column):
    source = Source("t", ("who", "y"), lambda names: iter([{"who": column, "y": [0, 1]}]))
    with pytest.raises(pmc.DataSchemaError, match=r"one value|masked|numbers of rows|less than 64 bits"):
        [*source.chunks(source.names)]
        [*source.identifiers("who", ())]


@pytest.mark.parametrize("more", [-1, 1])
def test_a_column_with_other_than_its_rows_is_refused(more):
    column = HostColumn((3,), np.dtype(float), lambda first, last, size: [np.zeros(last - first + more)])
    with pytest.raises(pmc.DataSchemaError, match="another number of rows"):
        [*column.blocks(2)]


@pytest.mark.parametrize("empty", ["", '""', "  "])
def test_an_empty_cell_is_a_row_where_there_is_one_column_too(tmp_path, empty):
    """Else the number of rows, which is public, would tell that a person has no value."""
    (tmp_path / "t.csv").write_text(f"\ny\n1\n{empty}\n1\n")
    found = read_table(tmp_path / "t.csv", schema(flag("y", own={"missing": "false"})), ["y"])
    assert found["y"].tolist() == [1, 0, 1]


WHO = {"name": "who", "private_mcmc": {"role": "person"}}
PERSONS = schema(WHO, private_mcmc={"person": {"field": "who", "at_most": "2"}})
HELD = {
    "t.dta": lambda table, path: table.to_stata(path, write_index=False) or path,
    "t.parquet": lambda table, path: table.to_parquet(path) or path,
    "t.feather": lambda table, path: table.to_feather(path) or path,
    "frame": lambda table, _: table,
    "Arrow": lambda table, _: pyarrow.Table.from_pandas(table),
    "a dictionary of Arrow": lambda table, _: {"who": pyarrow.array(table["who"]).dictionary_encode()},
    "categories": lambda table, _: table.astype("category"),
    "sparse": lambda table, _: table.astype(pandas.SparseDtype(table["who"].dtype)),
}


@pytest.mark.parametrize("name", HELD)
def test_identifiers_whose_digits_a_type_has_dropped_are_refused(tmp_path, name):
    """In 32 bits 2^24 and 2^24 + 1 are one number, and two persons are one."""
    for kind, refused in ((np.float32, True), (np.float64, False), (np.int32, False)):
        table = HELD[name](pandas.DataFrame({"who": np.array([2**24, 2**24 + 1], kind)}), tmp_path / name)
        if refused:
            with pytest.raises(pmc.DataSchemaError, match="'who': identifiers are floats of less than 64 b"):
                [*read_identifiers(table, PERSONS)]
        else:
            assert [*read_identifiers(table, PERSONS)] == ["16777216", "16777217"]


def test_times_a_nanosecond_apart_are_two_identifiers():
    near = np.array(["2020-01-01T00:00:00.000000001", "2020-01-01T00:00:00.000000002", "NaT"], "M8[ns]")
    first, second, none = read_identifiers({"who": near}, PERSONS)
    assert first != second and none == ""


OF_OBJECTS = partial(polars.DataFrame, schema={"who": polars.Object})


def categories(columns):
    """Of pandas, each number one; what is missing is of none."""
    cells = columns["who"]
    codes = [-1 if cell is None else place for place, cell in enumerate(cells)]
    return {"who": pandas.Series(pandas.Categorical.from_codes(codes, [cell for cell in cells if cell]))}


@pytest.mark.parametrize("made", [polars.DataFrame, OF_OBJECTS, pyarrow.table, categories])
def test_identifiers_are_told_apart_whoever_else_has_none(made):
    """Of Polars all became floats where one was missing: those beyond 2^53 were one; objects, addresses."""
    numbers = [2**53, 2**53 + 1, 2**63 - 1]
    for gap in ([], [None]):
        table = made({"who": [*numbers, *gap]})
        assert [*read_identifiers(table, PERSONS)] == [*map(str, numbers), *[""] * len(gap)]
        if made is categories:
            assert identified("who", table["who"]).tolist() == [0, 1, 2, *[-1] * len(gap)]


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
    "text", ["", "m,secret-word,30.5,2\n", "1,2,3\n", "sex,sex,age,parity\n1,2,3,4\n", 'sex,"age\n']
)
def test_a_file_that_is_no_table_with_a_header_is_refused_and_never_quoted(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(pmc.DataSchemaError) as refusal:
        read_table(tmp_path / "t.csv", SCHEMA, NAMES)
    assert "secret-word" not in str(refusal.value)


class Broken:
    def __str__(self):
        raise ValueError("secret-word")


BROKEN = {
    "masked": (np.ma.array([1.0, 2.0], mask=[0, 1]), None),
    "a matrix": (np.ones((2, 2)), None),
    "no list": (3.0, None),
    "a broken object": ([Broken(), 1.0], None),
    "longer than the others": ([1, 2, 3], "numbers of rows"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_column_of_cells_is_refused_in_words_that_quote_nothing(kind):
    cells, why = BROKEN[kind]
    with pytest.raises(pmc.DataSchemaError, match=why) as caught:
        read_table({"age": cells, "sex": ["m", "f"]}, SCHEMA, ["age", "sex"])
    assert "secret" not in str(caught.value) and caught.value.__cause__ is None


FATED = schema(
    number("born", "1900-01-01", "2020-01-01", "date", own={"missing": "indicator", "otherwise": "missing"})
)


@pytest.mark.parametrize(
    "kind", ["csv", "arrow", "parquet", "words of Arrow", "pandas of Arrow", "list", "sav", "dta"]
)
def test_no_cell_refuses_a_table_whose_schema_gives_it_a_fate(tmp_path, kind):
    """Whatever one person's cell holds, the table is read, and the others' cells are what they were."""
    table = None
    if kind == "csv":  # more than the csv module takes without being told
        table = tmp_path / "t.csv"
        table.write_text("born,x\n2000-01-01,1\n" + "a" * 200_000 + ",1\n")
    elif kind == "list":
        table = {"born": ["2000-01-01", [1, 2]]}
    elif kind == "pandas of Arrow":
        days = pyarrow.array([10957, 2**31 - 1], pyarrow.int32()).view(pyarrow.date32())
        table = pyarrow.table({"born": days}).to_pandas(types_mapper=pandas.ArrowDtype)
    elif kind == "words of Arrow":  # not UTF-8, and not checked where they were put together
        ends, text = np.array([0, 10, 11], np.int32), b"2000-01-01\xff"
        buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(text)]
        table = pyarrow.table({"born": pyarrow.Array.from_buffers(pyarrow.string(), 2, buffers)})
    elif kind in ("sav", "dta"):  # beyond the calendar of Python
        days, form = {"sav": (13_166_064_000.0, "DATE11"), "dta": (14_610.0, "%td")}[kind]
        frame = pandas.DataFrame({"born": [days, 1e12]})
        table = str(tmp_path / f"t.{kind}")
        getattr(pyreadstat, f"write_{kind}")(frame, table, variable_format={"born": form})
    else:  # beyond the calendar of Python
        table = pyarrow.table({"born": pyarrow.array([946_684_800, 2**40], pyarrow.timestamp("s"))})
    if kind == "parquet":
        parquet.write_table(table, tmp_path / "t.parquet")
        table = tmp_path / "t.parquet"
    found = read_table(table, FATED, ["born"])
    np.testing.assert_array_equal(found["born_missing"], [0, 1])
    assert found["born"][0] == 10957  # days from 1970 to 2000


def test_an_object_without_a_text_has_the_fate_of_any_other_cell():
    """Where every cell has a fate no table is refused for one of them."""
    apart = {"missing": "indicator"}
    odd = [Broken(), 10**5000, np.array([1, 2]), 30.0]
    table = {"age": np.fromiter(odd, object, len(odd))}
    fated = number("age", 0, 99, own=apart | {"otherwise": "missing"})
    read = read_table(table, schema(fated), ["age"])
    np.testing.assert_array_equal(read["age_missing"], [1, 1, 1, 0])
    with pytest.raises(pmc.DataSchemaError, match=r"without a fate.*missing: indicator"):
        read_table(table, schema(number("age", 0, 99)), ["age"])
    # What was declared already is not asked for again.
    known = schema(number("age", 0, 99, own=apart))
    with pytest.raises(pmc.DataSchemaError, match="declare all codes of missing values"):
        read_table(table, known, ["age"])
