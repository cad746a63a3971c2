"""A CSV file against what its fields are declared to be: numbers, a fate for what is none, and no quotes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc.cli.table import read_columns, read_fates
from private_mcmc.domains import Ball, Binary, Person, Rows
from private_mcmc.errors import DataSchemaError, DeclarationError

ROWS = Rows(X=Ball(1.0, dim=2), y=Binary())
TOTAL = read_fates(["a=-1", "b=-2", "y=-3"], [])


def table(folder, content, missing=None):
    path = folder / "people.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_columns(path, ROWS, ["X=a,b"], missing)


def refusal(folder, content, missing=None):
    with pytest.raises(DataSchemaError) as raised:
        table(folder, content, missing)
    # A traceback would print the error behind it, and that one quotes.
    assert raised.value.__context__ is None or raised.value.__suppress_context__
    return str(raised.value)


def test_columns_are_put_together_by_name(tmp_path):
    columns = table(tmp_path, "b, a ,other,y\n1,2,word,1\n3,4e0,,0\n")
    np.testing.assert_array_equal(columns["X"], [[2, 1], [4, 3]])
    np.testing.assert_array_equal(columns["y"], [1, 0])


def test_a_spreadsheets_mark_and_an_unnamed_first_column_are_no_obstacle(tmp_path):
    columns = table(tmp_path, "\ufeff,a,b,y\n0,1,2,1\n".encode())
    np.testing.assert_array_equal(columns["X"], [[1, 2]])


@pytest.mark.parametrize("blank", ["\n", "\r\n", "  \n", "\n\n\n"])
def test_blank_lines_are_no_people(tmp_path, blank):
    columns = table(tmp_path, f"{blank}a,b,y\n{blank}1,2,1\n{blank}3,4,0\n{blank}")
    assert len(columns["y"]) == 2


def test_of_one_column_a_blank_line_is_an_empty_cell(tmp_path):
    """Else the number of rows, which is public, would tell that a person has no value."""
    path = tmp_path / "people.csv"
    path.write_text("\ny\n1\n\n1\n")
    found = read_columns(path, Rows(y=Binary()), [], read_fates(["y=0"], []))
    assert found["y"].tolist() == [1, 0, 1]


# What is no finite number, in the field y, and a row that is no row.
CELLS = ["alive", "", " ", "NA", "nan", "inf", "-Infinity", "1e999", "1_0", "12,5", "0x1", "one"]


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_that_is_no_number_refuses_the_file_by_its_field_alone(tmp_path, cell):
    message = refusal(tmp_path, f'a,b,y\n1,2,1\n3,4,"{cell}"\n5,6,0\n')
    assert "['y']" in message and "--missing y=" in message
    # Neither the cell nor the row nor a count: the same words whatever is in it, and wherever.
    assert message == refusal(tmp_path, "a,b,y\n3,4,something\n3,4,else\n")


@pytest.mark.parametrize("line", ["1,2", "1,2,3,4", "1", "1,2,3,,"])
def test_a_row_of_another_length_is_no_row_of_numbers(tmp_path, line):
    assert "['a', 'b', 'y']" in refusal(tmp_path, f"a,b,y\n{line}\n1,2,1\n")
    columns = table(tmp_path, f"a,b,y\n{line}\n1,2,1\n", TOTAL)
    np.testing.assert_array_equal(columns["X"], [[-1, -2], [1, 2]])


def test_a_declared_number_takes_the_place_of_what_is_none(tmp_path):
    content = "a,b,y\n1,2,dead\n,4,1\nNA,999,0\n"
    columns = table(tmp_path, content, read_fates(["a=0.5", "y=0"], []))
    np.testing.assert_array_equal(columns["X"], [[1, 2], [0.5, 4], [0.5, 999]])
    np.testing.assert_array_equal(columns["y"], [0, 1, 0])
    coded = table(tmp_path, content, read_fates(["a=0.5", "b=7", "y=0"], ["b=999,-1"]))
    np.testing.assert_array_equal(coded["X"][:, 1], [2, 4, 7])
    assert "['y']" in refusal(tmp_path, content, read_fates(["a=0.5"], []))


@pytest.mark.slow
@given(cells=st.lists(st.tuples(*[st.text(alphabet='12.,"\n ae', max_size=4)] * 3), min_size=1, max_size=5))
def test_with_a_number_for_every_field_no_cell_decides_what_happens(tmp_path_factory, cells):
    folder = tmp_path_factory.mktemp("total")
    quoted = ["a,b,y"] + [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in cells]
    columns = table(folder, "\n".join(quoted), TOTAL)
    assert len(columns["y"]) == len(cells) and np.isfinite(columns["X"]).all()


@pytest.mark.parametrize(
    ("missing", "codes", "words"),
    [
        (["y"], [], "FIELD=NUMBER"),
        (["y=dead"], [], "FIELD=NUMBER"),
        (["y=nan"], [], "FIELD=NUMBER"),
        (["y=1,2"], [], "one number"),
        ([], ["y=9"], "--missing y="),
        (["y=0"], ["y=x"], "FIELD=NUMBER"),
        (["z=0"], [], "not among"),
    ],
)
def test_a_fate_that_makes_no_sense_is_refused(tmp_path, missing, codes, words):
    with pytest.raises(DeclarationError, match=words):
        table(tmp_path, "a,b,y\n1,2,1\n", read_fates(missing, codes))


# First lines that are a person, or no header for these rows; every secret is a word or a number of its own.
SECRETS = ("Rosalind", "73501", "1815-12-10", "8.125", "k9@mail")
NO_HEADERS = [
    "Rosalind,73501,1815-12-10",
    "73501,8.125,1",
    "a,b,Rosalind",
    "a,b,y,73501",
    "a,b,y,8.125",
    "a,b,y,k9@mail,k9@mail",
    "a,b,b,y",
]


# Rows that are none of a header with all fields and more; of a table without rows it is one.
RESTS = ["1,2,1\n", "Rosalind,73501,8.125\n", '"k9@mail\n']


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        *[(line, rest) for line in NO_HEADERS for rest in ["", *RESTS]],
        *[(line, rest) for line in ("a;b;y;Rosalind", "a,b,y,nan\x00Rosalind,") for rest in RESTS],
    ],
)
def test_a_first_line_that_may_be_a_person_is_refused_and_never_quoted(tmp_path, line, rest):
    message = refusal(tmp_path, f"{line}\n{rest}")
    assert not [secret for secret in SECRETS if secret in message]


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfeR\x00o\x00s\x00a\x00l\x00i\x00n\x00d\x00",
        b"a,b,y\n1,2,\xe9Rosalind",
        b"a,b,y\n" + b"7" * 200_000 + b",1,1",
        b"a,b,y\nRosalind,73501,8.125\n",
        b'a,b,y\n"Rosalind,73501\n1,2,3',
    ],
)
def test_a_file_that_cannot_be_read_is_never_quoted(tmp_path, content):
    message = refusal(tmp_path, content)
    assert not [secret for secret in (*SECRETS, "777", "xe9", "0xff") if secret in message]


def test_vector_columns_need_their_fields(tmp_path):
    (tmp_path / "p.csv").write_text("a,b,y\n1,2,1\n")
    with pytest.raises(DataSchemaError, match=r"\['c'\] are not there"):
        read_columns(tmp_path / "p.csv", ROWS, ["X=a,c"])
    with pytest.raises(DeclarationError, match="2 fields"):
        read_columns(tmp_path / "p.csv", ROWS, [])


def test_identifiers_of_persons_are_read_as_text(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text("who,a,b,y\n007,1,2,0\n7,3,4,1\n,5,6,0\n")
    rows = Rows(**ROWS.columns, who=Person(2))
    columns = read_columns(path, rows, ["X=a,b"])
    assert columns["who"].tolist() == ["007", "7", ""] and columns["X"].shape == (3, 2)
    with pytest.raises(DataSchemaError, match="who"):
        path.write_text("a,b,y\n1,2,0\n")
        read_columns(path, rows, ["X=a,b"])
