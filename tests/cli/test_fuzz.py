"""Malformed files never end in anything but the library's own errors."""

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc.cli.preflight import load_model, read_arguments
from private_mcmc.cli.table import read_columns
from private_mcmc.errors import PrivateMCMCError
from private_mcmc.modeling import Ball, Binary, Rows, domain_from_dict

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


def columns_of(path):
    try:
        return read_columns(path, ROWS, ["X=a,b"])
    except PrivateMCMCError:
        return None


@pytest.mark.parametrize("content", CORPUS)
def test_a_corpus_of_malformed_tables(tmp_path, content):
    path = tmp_path / "people.csv"
    path.write_bytes(content)
    columns = columns_of(path)
    assert columns is None or set(columns) == {"X", "y"}


@given(
    content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda s: ("a,b,y\n" + s).encode()))
)
def test_random_tables(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "people.csv"
    path.write_bytes(content)
    columns = columns_of(path)
    assert columns is None or columns["X"].shape == (len(columns["y"]), 2)


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


@pytest.mark.parametrize("content", [b"\xff", b"a = ", b"[[["])
def test_argument_files_that_do_not_work(tmp_path, content):
    path = tmp_path / "args.toml"
    path.write_bytes(content)
    with pytest.raises(PrivateMCMCError):
        read_arguments(path)
