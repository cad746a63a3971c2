"""Pairs of adjacent data sets: one differing row, wherever it stands, and nothing else."""

import numpy as np
import pytest

from private_mcmc.auditing import Pair
from private_mcmc.errors import DeclarationError
from tests.soundness.attacks import pair_of_rows

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
SILENT, LOUD = {"y": np.asarray(0.0)}, {"y": np.asarray(7.0)}


def pair(first, second, present=(None, None)):
    sides = (
        {"X": np.asarray(rows), **({} if flags is None else {"present": np.asarray(flags)})}
        for rows, flags in zip((first, second), present, strict=True)
    )
    return Pair(*sides)


@pytest.mark.parametrize("place", range(3))
def test_a_row_may_differ_or_be_left_out_anywhere_and_on_either_side(place):
    """What lies in a hole does not matter."""
    flags, other, fewer = np.ones(3, dtype=bool), ROWS.copy(), np.delete(ROWS, place, axis=0)
    flags[place], other[place] = False, 99.0
    assert pair(ROWS, other).differing("replace_one") == (place, place)
    assert pair(ROWS, fewer).differing("add_remove") == (place, None)
    assert pair(fewer, ROWS).differing("add_remove") == (None, place)
    assert pair(ROWS, other, (None, flags)).differing("zero_out") == (place, None)
    assert pair(other, ROWS, (flags, None)).differing("zero_out") == (None, place)


@pytest.mark.parametrize(
    ("given", "adjacency", "said"),
    [
        (pair(ROWS, ROWS[1:]), "zero_out", "equal slots but for one"),
        (pair(ROWS, ROWS), "zero_out", "equal slots but for one"),
        (pair(ROWS, ROWS[::-1]), "replace_one", "of which one differs"),
        (pair(ROWS, ROWS[1:][::-1]), "add_remove", "without one row"),
        (pair(ROWS, ROWS[:1]), "add_remove", "without one row"),
        (pair(ROWS, ROWS, (None, [True, False, True])), "replace_one", "all present"),
    ],
)
def test_what_is_not_adjacent_is_refused(given, adjacency, said):
    with pytest.raises(DeclarationError, match=said):
        given.differing(adjacency)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_made_pairs_put_the_row_where_it_is_asked_for(place):
    assert pair_of_rows(SILENT, 2, LOUD, None, place, holes=True).differing("zero_out") == (place, None)
    assert pair_of_rows(SILENT, 2, LOUD, SILENT, place).differing("replace_one")[0] in (place, 2)
    removed = pair_of_rows(SILENT, 2, LOUD, None, place)
    assert removed.differing("add_remove") == (place, None)
