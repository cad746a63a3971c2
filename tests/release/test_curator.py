"""The curator's side: nothing about a value leaks by accident, everything is there by name."""

import copy
import json
import math
import pickle

import matplotlib
import numpy as np
import pytest

from private_mcmc.errors import ReleaseError
from private_mcmc.release import Curator, CuratorOnly

SECRET = 123456.789


@pytest.fixture
def curator():
    return Curator({"states": np.full((2, 3), SECRET), "moved_rows": 4217})


def test_values_are_there_for_who_asks_by_name(curator):
    assert curator.moved_rows.unsafe_value() == 4217
    assert curator.states.unsafe_value().shape == (2, 3)
    assert dir(curator) == ["moved_rows", "states"]
    with pytest.raises(AttributeError, match="moved_rows"):
        _ = curator.clip_fraction


@pytest.mark.parametrize(
    "slip",
    [
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        np.asarray,
        np.mean,
        float,
        int,
        bool,
        list,
        len,
        math.sqrt,
        json.dumps,
        lambda v: v + 1,
        lambda v: 1 - v,
        lambda v: v > 3,
        lambda v: v == v,
        lambda v: v[0],
        lambda v: np.save("/dev/null", v),
        lambda v: [*v],
    ],
)
def test_slips_are_refused(curator, slip):
    for value in (curator.states, curator.moved_rows):
        with pytest.raises((ReleaseError, TypeError)):
            slip(value)


def test_plots_and_reports_refuse(curator):
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    with pytest.raises(ReleaseError):
        axes.plot(curator.states)
    with pytest.raises(ReleaseError):
        axes.hist(curator.states)
    pyplot.close(figure)


@pytest.mark.parametrize("save", [pickle.dumps, copy.copy, copy.deepcopy])
def test_the_whole_side_is_never_saved(curator, save):
    with pytest.raises(ReleaseError):
        save(curator)
    with pytest.raises(ReleaseError):
        save(curator.states)


def test_no_text_shows_a_value(curator):
    shown = f"{curator!r}{curator!s}{curator.states!r}{curator.states!s}{curator.moved_rows:.2f}"
    assert str(SECRET) not in shown
    assert "4217" not in shown
    assert "no privacy statement" in repr(CuratorOnly("x", 1))
