"""The private table is not taken for public rows; rows of persons lie in no order of their identifiers."""

import tracemalloc

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.domains.columns import PRESENT
from private_mcmc.domains.persons import OWN_ROWS, identified
from private_mcmc.inference.fitting import plan_fit
from private_mcmc.inference.question import question
from private_mcmc.inference.reading import read_columns, read_once
from tests.data.fields import flag, number, person, schema


def persons(at_most="1", who=None, died=None, *more):
    """A schema of persons, each with at most so many rows."""
    fields = person("who", **(who or {})), flag("died", **(died or {})), *more
    return schema(*fields, private_mcmc={"person": {"field": "who", "at_most": str(at_most)}})


def test_one_row_of_each_person_lies_in_a_slot_drawn_at_random():
    """In those of sorted identifiers every row between two of them would move for one person replaced."""
    declared = persons(1, None, None, number("age", 0, 99))
    ages = np.repeat(np.arange(60), 2)
    table = {"who": [f"p{age}" for age in ages], "age": ages, "died": ages % 2 == 0}
    asked = question(declared, "died ~ age")
    first, second = (read_columns(table, declared, asked, "replace_one") for _ in range(2))
    for columns in (first, second):
        assert sorted(columns["age"]) == list(range(60)) and list(columns["age"]) != list(range(60))
        np.testing.assert_array_equal(columns["died"], columns["age"] % 2 == 0)
    assert list(first["age"]) != list(second["age"])


def test_the_number_of_persons_is_not_counted_in_the_table():
    """Whoever takes a person's place may have no rows: identifiers would be one fewer, and ``n`` is shown."""
    several, one = persons(2), persons(1)
    table = {"who": [f"p{index // 2}" for index in range(40)], "died": np.arange(40) % 2 == 0}
    with pytest.raises(pmc.DeclarationError, match="give their number"):
        pmc.fit(table, several, "died ~ 1", epsilon=1.0, progress_bar=False)
    with pytest.raises(pmc.NotYetSupported, match="which slot is empty"):
        pmc.fit(table, one, "died ~ 1", epsilon=1.0, adjacency="zero_out", progress_bar=False)


def test_of_a_person_with_several_rows_those_that_drop_out_are_none():
    dropped = {"private_mcmc": {"missing": "drop"}}
    declared = persons(2, None, dropped)
    asked = question(declared, "died ~ 1")
    # The rows that are kept of more than at_most are chosen among those that do not drop out.
    table = {"who": ["a", "a", "a", "b", "c"], "died": ["", "1", "0", "", "1"]}
    found = asked.rows.grouped(read_columns(table, declared, asked, "replace_one"), 3)
    assert [sorted(rows) for rows in found["died"].tolist()] == [[0, 1], [0, 1], [0, 0]]
    assert found[PRESENT].tolist() == [True, True, False] and found[OWN_ROWS].sum() == 3
    nobody = read_columns({"who": ["a", "b"], "died": ["", ""]}, declared, asked, "replace_one")
    assert not asked.rows.grouped(nobody, 3)[PRESENT].any()
    # Too many persons are refused whether or not one of them has no row left, which is private.
    for last in ("1", ""):
        with pytest.raises(pmc.DataSchemaError, match="more identifiers than the declared n=2"):
            plan_fit({"who": ["a", "b", "c"], "died": ["1", "0", last]}, asked, epsilon=1.0, n=2)
    with pytest.raises(pmc.NotYetSupported, match="at_most"):
        pmc.fit(table, persons(1, None, dropped), "died ~ 1", epsilon=1.0)


@pytest.mark.parametrize("nobody", ["", None, "NA"])
def test_whether_somebody_has_an_identifier_is_not_told_by_the_number_of_persons(nobody):
    """That number is counted, and public, under ``replace_one``: a row of nobody made it one fewer."""
    declared = persons(1, {"missingValues": ["", "NA"]})
    table = {"who": ["a", "b", nobody], "died": [True, False, True]}
    with pytest.raises(pmc.DataSchemaError, match="rows without an identifier") as refusal:
        pmc.fit(table, declared, "died ~ 1", epsilon=1.0, progress_bar=False)
    assert "'a'" not in str(refusal.value)


@pytest.mark.parametrize("at_most", [1, 2])
def test_one_long_identifier_takes_no_more_memory_than_itself(at_most):
    """In an array of text every row would have room for it: a single cell could end a run."""
    declared = persons(at_most)
    asked, people = question(declared, "died ~ 1"), 2000
    table = {"who": ["x" * 20_000, *map(str, range(1, people))], "died": [True] * people}
    tracemalloc.start()
    try:
        columns = read_columns(table, declared, asked, "replace_one")
        found = asked.rows.grouped(columns, people)["died"] if at_most > 1 else columns["died"]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == people and most < 10e6


@pytest.mark.parametrize("at_most", [1, 2])
def test_a_table_that_nobody_is_in_is_one_where_the_number_of_rows_is_private(tmp_path, at_most):
    """Its neighbours have one person, and are read."""
    declared = persons(at_most)
    asked = question(declared, "died ~ 1")
    (tmp_path / "nobody.csv").write_text("who,died\n")
    for table in (tmp_path / "nobody.csv", {"who": [], "died": []}):
        assert not len(read_once(table, asked, "add_remove")[0]["died"])
        if at_most > 1:
            assert not len(read_once(table, asked, "replace_one")[0]["died"])
            continue
        with pytest.raises(pmc.DataSchemaError, match="no rows"):
            read_once(table, asked, "replace_one")


def test_an_identifier_that_has_no_text_is_none_and_what_it_raises_is_not_shown():
    class Broken:
        def __str__(self):
            raise ValueError("Rosalind")

    column = np.empty(3, object)
    column[:] = ["a", Broken(), "a"]
    assert identified("who", column).tolist() == [0, -1, 0]
