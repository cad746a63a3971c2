"""Schemas, formulas and tables of whoever wishes ill, or mistypes: one clear line each, and soon."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import private_mcmc as pmc
from private_mcmc.data.formula import read_formula
from private_mcmc.data.schema import Schema
from private_mcmc.data.table import read_identifiers, read_table
from private_mcmc.errors import PrivateMCMCError
from tests.data.fields import flag, levels, number

FIELDS = [
    *(number("age", 0, 120), number("kappa", 1, 9)),
    *(levels("arm", "a", "b"), flag("smoker"), flag("dead")),
]
SCHEMA = Schema.from_dict({"fields": FIELDS})
ODD = (
    "", " ", "²", "9" * 5_000, "-1", "1e999", "nan", "%", "%Q", "%-", "\x00", "rot13", "idna", "\ud800", "[",
)  # fmt: skip
WORDS = (
    *("type", "format", "missingValues", "trueValues", "decimalChar"),
    *("constraints", "categories", "title", "name", "unit"),
)
OWN = ("missing", "otherwise", "outside", "role", "bounds")

values = st.recursive(
    st.one_of(
        st.sampled_from(ODD), st.text(max_size=4), st.none(), st.integers(), st.floats(), st.booleans()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["minimum", "maximum", "enum", "value", "label"]), inner, max_size=3),
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(WORDS), values, max_size=3),
    st.dictionaries(st.sampled_from(OWN), values, max_size=2),
    st.dictionaries(st.sampled_from(["person", "encoding", "?"]), values, max_size=2),
    st.dictionaries(st.sampled_from(["field", "at_most"]), values, max_size=2),
    st.sampled_from(["number", "integer", "date", "boolean", "string", "year"]),
    st.one_of(st.text(max_size=9), st.sampled_from(ODD)),
)
def test_a_schema_of_anything_is_a_schema_or_one_line(words, own, whole, person, kind, cell):
    field = {"name": "x", "type": kind, "constraints": {"minimum": "1", "maximum": "9"}, **words}
    top = {**whole, **({"person": {"field": "x", **person}} if person else {})}
    record = {"fields": [{**field, **({"private_mcmc": own} if own else {})}], "private_mcmc": top}
    try:
        schema = Schema.from_dict(record)
        read = Schema.from_dict(schema.to_dict())
        schema.rows()
        if schema.person:
            [*read_identifiers({"x": [cell]}, read)]
        else:
            read_table({"x": [cell]}, read, ["x"])
    except PrivateMCMCError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("content", [b"", b"\x00" * 9, b"<stata_dta>", b"PAR1"], ids=repr)
@pytest.mark.parametrize("ending", [".dta", ".sav", ".parquet", ".arrow", ".csv", ".csv.gz"])
def test_a_file_that_is_none_of_its_format_is_one_line(tmp_path, ending, content):
    (tmp_path / f"t{ending}").write_bytes(content)
    with pytest.raises(PrivateMCMCError) as refusal:
        read_table(tmp_path / f"t{ending}", SCHEMA, ["age"])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("encoding", ["rot13", "hex", "undefined", "base64", "\x00", "zip"])
def test_an_encoding_that_is_none_of_texts_is_refused(encoding):
    with pytest.raises(pmc.DeclarationError, match="encoding"):
        Schema.from_dict({"fields": FIELDS, "private_mcmc": {"encoding": encoding}})


BOMBS = [
    "dead ~ (age + kappa)**100000",
    f"dead ~ ({' + '.join(f'I(age + {k})' for k in range(20))})**9",
    f"dead ~ {'*'.join(f'I(age + {k})' for k in range(30))}",
    f"dead ~ {':'.join(f'bs(age, df={df})' for df in range(10, 20))}",
    f"dead ~ age + {'(' * 4000}kappa",
    f"dead ~ {' + '.join(f'I(age + {k})' for k in range(3000))}",
]


@pytest.mark.parametrize("text", BOMBS, ids=range(len(BOMBS)))
def test_a_formula_of_too_many_terms_is_refused_before_they_are_made(text):
    with pytest.raises(pmc.DeclarationError):
        read_formula(text, SCHEMA)
