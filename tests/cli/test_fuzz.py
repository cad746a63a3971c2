"""Malformed files never end in anything but the library's own errors, which never quote a table."""

import re
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc.cli.common import load_model, read_arguments
from private_mcmc.cli.table import read_columns, read_fates
from private_mcmc.domains import Ball, Binary, Rows, domain_from_dict
from private_mcmc.errors import PrivateMCMCError

ROWS = Rows(X=Ball(1.0, dim=2), y=Binary())
CORPUS = (
    b"",
    b"\xff\xfe\x00",
    b"a,b,y",
    b"a,b,y\n1,2",
    b"a,b,y\n\x00,2,3",
    b'"a,b,y\n1,2,3',
    b"y,y,y\n1,2,3",
    b"a,b,y\n" + b"9" * 200_000 + b",1,1",
    b"a,b,y\n1e999,-inf,nan\n",
)


# All that may be said of a table: the names of declared fields and fixed words, whatever is in the file.
NAMES = r"\[('[aby]'(, )?)+\]"
SENTENCES = re.compile(
    r"(is empty\.|is not a CSV file: a quotation is not closed\.|"
    r"is not in UTF-8\. Save it as UTF-8, or declare its encoding: .*|"
    rf"its first line is not a header with the fields {NAMES} "
    rf"\(({NAMES} are not there|names are numbers, or given twice)\)\. "
    r"The line is not shown: it may be a person's record\.|"
    rf"fields {NAMES} hold something other than numbers in some rows, or some rows have more or fewer cells "
    r"than the header\. No row was used\. Give words numbers of their own in the file; for missing values "
    r"declare what they count as, --missing [aby]=NUMBER\.)"
)


def check_table(path, missing=None):
    """A table is read as numbers, or refused in words of ours; returns the columns or ``None``."""
    try:
        columns = read_columns(path, ROWS, ["X=a,b"], missing)
    except PrivateMCMCError as error:
        assert SENTENCES.fullmatch(str(error).removeprefix(f"{path}: ")), str(error)
        assert error.__context__ is None or error.__suppress_context__
        return None
    assert columns["X"].shape == (len(columns["y"]), 2)
    assert np.isfinite(columns["X"]).all() and np.isfinite(columns["y"]).all()
    return columns


@pytest.mark.parametrize("content", CORPUS)
def test_a_corpus_of_malformed_tables(tmp_path, content):
    path = tmp_path / "people.csv"
    path.write_bytes(content)
    found = check_table(path)
    assert found is None or (content == b"a,b,y" and not len(found["y"]))


LINES = st.lists(
    st.lists(st.sampled_from(["1", "0.5", "a", "b", "y", "Ada", "", "999", '"', "nan"]), max_size=4).map(
        ",".join
    ),
    max_size=5,
).map("\n".join)


@pytest.mark.long
@given(
    content=st.one_of(
        st.binary(max_size=200),
        st.one_of(st.text(max_size=200), LINES).map(lambda s: ("a,b,y\n" + s).encode(errors="replace")),
        LINES.map(str.encode),
    )
)
def test_random_tables(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "people.csv"
    path.write_bytes(content)
    check_table(path)
    check_table(path, read_fates(["a=0", "y=1"], ["a=999"]))


@pytest.mark.long
@given(
    text=st.one_of(
        st.text(max_size=200),
        st.builds(
            lambda name, kind, argument: f"{name} = {{{kind} = {{{argument}}}}}",
            st.text(string.ascii_letters, min_size=1, max_size=5),
            st.sampled_from(["ball", "box", "binary", "counts", "categories", "real", "disc"]),
            st.sampled_from(
                ["radius = 1, dim = 2", "lo = 1, hi = 0", "k = -3", "max = 1e9", "dim = 'x'", "", "a = 1"]
            ),
        ),
    )
)
def test_random_row_declarations(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("fuzz") / "rows.toml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    try:
        rows = Rows.from_toml(path)
    except PrivateMCMCError:
        return
    assert all(np.size(domain.interval()[0]) >= 1 for domain in rows.columns.values())


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    record=st.one_of(
        JSON, st.dictionaries(st.sampled_from(["ball", "box", "counts", "real"]), JSON, max_size=2)
    )
)
def test_random_domain_records(record):
    try:
        domain = domain_from_dict(record)
    except PrivateMCMCError:
        return
    assert domain.norm_bound >= 0


@pytest.mark.parametrize(
    "content", [b"", b"def model(:", b"raise SystemError('no')", b"\xff\xfe", b"model = 3"]
)
def test_model_files_that_do_not_work(tmp_path, content):
    path = tmp_path / "model.py"
    path.write_bytes(content)
    with pytest.raises(PrivateMCMCError):
        load_model(f"{path}:model")


@given(
    text=st.one_of(
        st.text(max_size=100),
        st.recursive(
            st.sampled_from(["1", "1.5", "'w'", "true", "2020-01-01", "inf", "9" * 30, "{a = 1}"]),
            lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
            max_leaves=5,
        ).map(lambda value: f"x = {value}"),
    )
)
def test_random_arguments(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("fuzz") / "args.toml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    try:
        arguments = read_arguments(path)
    except PrivateMCMCError:
        return
    for value in arguments.values():
        assert isinstance(value, bool | int | float | str) or value.dtype.kind in "biuf"


def test_a_declaration_may_name_a_column_as_python_names_its_own(tmp_path):
    (tmp_path / "rows.toml").write_text('self = "binary"\ncls = "binary"\n')
    assert set(Rows.from_toml(tmp_path / "rows.toml").columns) == {"self", "cls"}
