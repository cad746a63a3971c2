"""Synthetic people look like a table of people: inside their domains, with rare and common columns."""

import jax
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.model.synthetic import people

ROWS = pmc.Rows(
    X=pmc.Ball(2.0, dim=8),
    age=pmc.Box(18.0, 90.0),
    scores=pmc.Box([0.0, -1.0], [1.0, 5.0]),
    sex=pmc.Binary(),
    region=pmc.Categories(5),
    visits=pmc.Counts(9),
    weight=pmc.Real(),
)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_people_lie_inside_their_domains_before_they_are_mapped_into_them(seed):
    drawn = people(ROWS, 400, seed)
    with jax.enable_x64(True):
        mapped = ROWS.project(drawn)
    for name, column in drawn.items():
        assert column.shape == np.shape(mapped[name])
        tolerance = 0.5 if name == "visits" else 1e-9
        np.testing.assert_allclose(column, mapped[name], atol=tolerance)
    assert set(np.unique(drawn["region"])) == set(range(5))


def test_indicators_are_rare_in_some_data_sets_and_common_in_others():
    prevalences = [people(ROWS, 2000, seed)["sex"].mean() for seed in range(20)]
    assert min(prevalences) < 0.04 and max(prevalences) > 0.4


def test_somebody_has_every_indicator_of_a_small_table():
    """Its sd without privacy would be the prior's."""
    assert min(people(ROWS, count, seed)["sex"].sum() for count in (32, 128) for seed in range(60)) >= 1


def test_a_number_of_a_table_is_not_two_valued_and_elements_of_a_vector_may_be():
    """Two-valued ages tell nothing of a curve: its sd without privacy would be several times too large."""
    two_valued = 0
    for seed in range(20):
        drawn = people(ROWS, 2000, seed)
        for name in ("age", "visits"):
            # No value, rounded, that nearly everybody has, nor two.
            shares = np.sort(np.unique(drawn[name].round(), return_counts=True)[1] / 2000)
            assert shares[-2:].sum() < 0.9
        two_valued += sum(len(np.unique(column)) == 2 for column in drawn["scores"].T)
    assert 10 <= two_valued <= 30  # of 40, each with probability 1/2: 5 sds are 16
