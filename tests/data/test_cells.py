"""Every cell has a declared fate, and none is silently 0."""

import csv
import math
import unicodedata
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc import DataSchemaError, DeclarationError
from private_mcmc.data.fields import Field, Level, composed
from private_mcmc.data.readers import source_of
from private_mcmc.data.schema import field_from_dict, field_to_dict
from private_mcmc.data.table import encoded, read_table
from private_mcmc.domains.cells import Numbers, as_text
from private_mcmc.domains.columns import data_mark
from private_mcmc.dossier.record import texts
from private_mcmc.records import as_seen
from tests.data.fields import levels, schema

AGE = Field("age", "number", minimum=20.0, maximum=60.0, missing_values=("", "NA", "999"))
SEX = Field("sex", "string", levels=(Level("m", "male"), Level("f", "female")), missing_values=("", "?"))


def fate(field, cell):
    """What one cell counts as, by column; ``None`` where the table is refused."""
    columns, whole = encoded(field, [cell])
    return {name: float(values[0]) for name, values in columns.items()} if whole else None


def changed(field, **words):
    return field_from_dict(texts({**field_to_dict(field), "private_mcmc": words}))


@pytest.mark.parametrize(
    ("field", "cell", "expected"),
    [
        (AGE, "25", {"age": 25.0}),
        (AGE, " 25.5 ", {"age": 25.5}),
        (AGE, "19", None),
        (changed(AGE, outside="nearest"), "19", {"age": 20.0}),
        (changed(AGE, outside="missing"), "19", None),
        (changed(AGE, outside="missing", missing="middle"), "99", {"age": 40.0}),
        (AGE, "60.000001", {"age": 60.0}),
        (AGE, "1e9", None),
        (changed(AGE, outside="nearest"), "1e9", {"age": 60.0}),
        *((AGE, cell, None) for cell in ("NA", "999", "forty", "nan", "inf", "4_0", None)),
        (changed(AGE, missing="indicator"), "999", {"age": 40.0, "age_missing": 1.0}),
        (changed(AGE, missing="indicator"), "30", {"age": 30.0, "age_missing": 0.0}),
        (changed(AGE, missing="indicator"), "forty", None),
        (changed(AGE, missing="indicator", otherwise="missing"), "forty", {"age": 40.0, "age_missing": 1.0}),
        (changed(AGE, missing="middle"), "", {"age": 40.0}),
        (changed(AGE, missing="35"), "", {"age": 35.0}),
        (SEX, "m", {"sex": 0.0}),
        (SEX, "f", {"sex": 1.0}),
        (SEX, "male", None),
        (SEX, "?", None),
        (changed(SEX, otherwise="other"), "x", {"sex": 2.0}),
        (changed(SEX, otherwise="other", missing="indicator"), "?", {"sex": 3.0}),
        (changed(SEX, missing="f"), "?", {"sex": 1.0}),
        (Field("n", "integer", minimum=0.0, maximum=9.0), "2.5", None),
        (Field("n", "integer", minimum=0.0, maximum=9.0), "3.0", {"n": 3.0}),
        (Field("w", "number", minimum=0.0, maximum=99.0), "72 kg", None),
        (field_from_dict({"name": "ok", "type": "boolean"}), "2", None),
        (Field("code", "string", levels=(Level("1", "one"), Level("2", "two"))), "2.0", {"code": 1.0}),
    ],
)
def test_the_fate_of_a_cell_is_the_declared_one(field, cell, expected):
    assert fate(field, cell) == expected


@pytest.mark.slow
@given(st.one_of(st.none(), st.text(max_size=12), st.floats().map(str), st.integers().map(str)))
def test_with_a_fate_for_everything_no_cell_refuses_a_table_and_none_leaves_the_domain(cell):
    number = fate(changed(AGE, missing="indicator", otherwise="missing", outside="missing"), cell)
    assert 20 <= number["age"] <= 60 and number["age_missing"] in (0, 1)
    assert fate(changed(SEX, missing="indicator", otherwise="other"), cell)["sex"] in (0, 1, 2, 3)


@given(st.lists(st.one_of(st.text(max_size=4), st.integers(0, 99).map(str)), min_size=1, max_size=8))
def test_a_cells_fate_does_not_depend_on_other_rows(cells):
    together = encoded(AGE, cells)[0]["age"]
    alone = [encoded(AGE, [cell])[0]["age"][0] for cell in cells]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"type": "colour"}, "is not one of"),
        ({"type": "Integer"}, "one of number, integer"),
        ({"type": "number", "missing_values": ["-9"]}, "write 'missingValues'"),
        ({"type": "number", "units": "years"}, "write 'unit'"),
        ({"type": "number", "na": ["-9"]}, "under missingValues"),
        ({"type": "number", "constraints": {"min": "18", "max": "95"}}, "'minimum'"),
        ({"type": "number", "constraints": {"minimum": "18 years", "maximum": "95"}}, "without a unit"),
        ({"type": "factor"}, "of a string, as constraints.enum"),
        ({"type": "number", "constraints": {"minimum": "3", "maximum": "2"}}, "below"),
        ({"type": "number", "minimum": "3"}, "belongs under constraints"),
        ({"type": "number", "role": "person"}, "belongs under private_mcmc"),
        ({"type": "number", "constraints": {"minimum": "low"}}, "is no number"),
        ({"type": "string", "constraints": {"enum": ["a"]}}, "at least two"),
        ({"type": "string", "constraints": {"enum": ["a", "a"]}}, "twice"),
        ({"type": "string", "constraints": {"enum": ["a", ""]}}, "levels and missing values"),
        ({"type": "number", "private_mcmc": {"misssing": "middle"}}, "write 'missing'"),
        ({"type": "number", "private_mcmc": {"missing": "often"}}, "refuse, indicator, marginal"),
        ({"type": "number", "private_mcmc": {"otherwise": "other"}}, "is for categories"),
        ({"type": "string"}, "free text"),
    ],
)
def test_a_field_that_leaves_a_cell_without_fate_is_refused_by_name(words, message):
    """Codes of missing values under ``missing_values`` counted as values: 999 as the oldest age."""
    with pytest.raises(DeclarationError, match=rf"(?s)'age'.*{message}"):
        field_from_dict({"name": "age", **words})


@pytest.mark.parametrize("missing", ["refuse", "indicator", "middle", "41"])
def test_a_field_survives_being_written(missing):
    field = changed(AGE, missing=missing, bounds_from="a textbook")
    assert field_from_dict(texts(field_to_dict(field))) == field
    assert not math.isnan(field.stand_in) if missing != "refuse" else True


def test_letters_with_accents_are_the_same_however_a_system_writes_them(tmp_path):
    """A file from another system had no field of that name, and no declared level, both looking the same."""
    for here, there in (("NFC", "NFD"), ("NFD", "NFC")):
        field, level = (unicodedata.normalize(here, word) for word in ("Größe", "São Paulo"))
        made = schema(levels(field, "Lima", level, missingValues=["", "né"]))
        path = tmp_path / f"{there}.csv"
        path.write_text(unicodedata.normalize(there, "Größe\nSão Paulo\nLima\n"), encoding="utf-8")
        (name,) = made.by_name
        (column,) = read_table(path, made, [name]).values()
        assert column.tolist() == [1.0, 0.0]


def test_one_long_cell_holds_nobody_up_and_changes_nothing_for_others(tmp_path):
    """Marks on one letter were put into order in quadratic time: a million of them took hours."""
    marks = "a" + "\u0301\u0327" * 500_000
    for read in (composed, as_seen):
        assert read(marks)[0] == "\u00e1"
    spelt = "\u00e9t\u00e9 " * 1_000
    assert composed(unicodedata.normalize("NFD", spelt)) == spelt
    (tmp_path / "people.csv").write_text(f"who\n{marks}\n")
    before = csv.field_size_limit()
    assert [len(chunk["who"]) for chunk in source_of(tmp_path / "people.csv").chunks(["who"])] == [1]
    assert csv.field_size_limit() == before


def test_what_is_seen_is_the_same_whichever_system_wrote_it():
    """A system that composes letters, or writes quotes its own way, makes no second person of anybody."""
    for sign in filter(unicodedata.decomposition, map(chr, range(0x110000))):
        seen = as_seen(f"a{sign}b")
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            assert as_seen(f"a{unicodedata.normalize(form, sign)}b") == seen, ascii(sign)
        assert as_seen(seen) == seen, ascii(sign)


def test_a_statistical_file_in_another_encoding_is_read_as_declared_and_tells_nothing_by_warnings(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "t.dta"
    pandas.DataFrame({"who": ["ae", "b"]}).to_stata(path, write_index=False, version=118)
    content = path.read_bytes()
    assert content.count(b"ae") == 1
    path.write_bytes(content.replace(b"ae", b"a\xe9"))  # Latin-1, where the format has UTF-8
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with pytest.raises(DataSchemaError, match="declare its encoding"):
            list(source_of(path).chunks(["who"]))
        assert [chunk["who"] for chunk in source_of(path, "latin-1").chunks(["who"])] == [["aé", "b"]]
        warnings.warn("of the caller", stacklevel=1)
    assert [str(each.message) for each in heard] == ["of the caller"]


NUMBERS = np.array(
    [25, 25.5, 19, 60.000001, 61, 999, -0.0, 0.0, 1e15, 2**53 + 2, np.nan, np.inf, -np.inf, 59.7]
)
WHOLE = np.array([25, 1, 2, 0, 999, -9, 2**53 + 1, 60])
TYPED = [NUMBERS, NUMBERS.astype(np.float32), WHOLE, WHOLE.astype(np.uint8)]
BY_NUMBER = [
    AGE,
    changed(AGE, outside="nearest", otherwise="missing", missing="indicator"),
    changed(AGE, outside="missing", missing="middle"),
    Field("n", "integer", minimum=0.0, maximum=99.0, missing_values=("-9", "inf", "1e15"), missing="middle"),
    Field("cost", "number", minimum=0.0, maximum=99.0, decimal=",", otherwise="missing", missing="middle"),
    field_from_dict({"name": "ok", "type": "boolean"}),
    Field("day", "date", minimum=0.0, maximum=99.0, otherwise="missing", missing="middle"),
    Field("code", "string", levels=(Level("1", "one"), Level("2.0", "two"), Level("25.5", "more"))),
]


@pytest.mark.parametrize("field", BY_NUMBER, ids=lambda field: f"{field.name} {field.outside}")
def test_columns_of_numbers_have_the_codes_of_their_texts(field):
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    for values in TYPED:
        words = [as_text(value) for value in values.tolist()]
        held = (values, pandas.Series(values), polars.Series(values), arrow.array(values))
        for column in (
            *held,
            arrow.chunked_array([values[:3], values[3:]]),
            arrow.array(values, from_pandas=True),
        ):
            (chunk,) = source_of({"it": column}).chunks(["it"])
            assert isinstance(chunk["it"], Numbers) and list(chunk["it"]) == words
            (here, whole), (there, known) = (encoded(field, cells) for cells in (chunk["it"], words))
            assert whole == known and here.keys() == there.keys()
            for name, codes in here.items():
                np.testing.assert_array_equal(codes, there[name])
                np.testing.assert_array_equal(np.signbit(codes), np.signbit(there[name]))
    for column in (arrow.array([2**53 + 1, None]), polars.Series([2**53 + 1, None]), np.array([True])):
        # NumPy has another type of them: their texts are read.
        (chunk,) = source_of({"it": column}).chunks(["it"])
        assert not isinstance(chunk["it"], Numbers)


@pytest.mark.parametrize("kind", ["<u8", "<u4"])
def test_a_nan_that_signals_is_one_like_others_and_nobody_is_told(kind):
    """R's NA: the first sum of it warns, and where warnings are errors it refused the table."""
    bits = {"<u8": 0x7FF00000000007A2, "<u4": 0x7F800001}[kind]
    values = np.array([bits], kind).view(kind.replace("u", "f"))
    with np.errstate(all="raise"):
        columns, whole = encoded(changed(AGE, missing="indicator", otherwise="missing"), Numbers(values))
        assert whole and columns["age_missing"] == 1.0
        assert data_mark(b"key", {"age": values})
