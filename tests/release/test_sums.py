"""Sums by cell and second moments: sensitivities attained by explicit data, exact sums, the noise's law."""

import math
import warnings
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from private_mcmc.accounting import Statement
from private_mcmc.domains.columns import data_mark
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.release import Contribution, Family, plan_second_moments, plan_sums, sums
from private_mcmc.target import Unit

ADJACENCIES = ["replace_one", "add_remove", "zero_out"]
FAMILIES = (Family("levels", 2), Family("means", 2, 1, 0.5), Family("numbers", 3, 2, 1.7))
POINTS = (-1.0, -0.25, 0.0, 0.6, 1.0)


def planned(families=FAMILIES, adjacency="replace_one", rows=1, n=4, gdp=0.5):
    unit = None if rows == 1 else Unit("patient", rows)
    return plan_sums(gdp, families, num_rows=n, adjacency=adjacency, unit=unit)


def every_row(families):
    """All cells of all families, with every point; the absent row is an empty choice."""
    of_each = [
        [(cell, t) for cell in range(-1, one.cells) for t in (POINTS if one.moments else (0.0,))]
        for one in families
    ]
    return list(product(*of_each))


def weighted_sums(mechanism, rows):
    """What the noise is added to, of one person who has these rows."""
    k = mechanism.rows
    there = np.zeros((1, k), bool)
    there[0, : len(rows)] = True
    padded = [*rows, *([rows[0] if rows else ((0, 0.0),) * len(mechanism.families)] * (k - len(rows)))]
    parts = [
        Contribution(np.array([[row[f][0] for row in padded]]), np.array([[row[f][1] for row in padded]]))
        for f in range(len(mechanism.families))
    ]
    if k == 1:
        parts, there = [Contribution(part.cells[:, 0], part.t[:, 0]) for part in parts], there[:, 0]
    sums = mechanism.sums(parts, there)
    sizes = [one.cells * (1 + one.moments) for one in mechanism.families]
    return sums * np.repeat([one.weight for one in mechanism.families], sizes)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    "families",
    [
        FAMILIES[:1],
        (Family("sums", 2, 1),),
        (Family("squares", 1, 2),),
        (FAMILIES[0], Family("one", 1, 1, 3.0)),
    ],
)
def test_no_row_moves_sums_by_more_than_is_charged_and_in_different_cells_by_as_much(families, adjacency):
    mechanism = planned(families, adjacency)
    vectors = np.array([weighted_sums(mechanism, [row]) for row in every_row(families)])
    absent = np.zeros((1, vectors.shape[1]))
    others = vectors if adjacency == "replace_one" else absent
    farthest = max(np.linalg.norm(vectors - other, axis=1).max() for other in others)
    charged = mechanism.statement.argument.constants["sensitivity"]
    assert farthest <= charged
    if all(one.cells > 1 for one in families) or adjacency != "replace_one":
        assert farthest == pytest.approx(charged, rel=1e-5)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_person_with_any_number_of_rows_moves_sums_by_more_than_is_charged(adjacency):
    families = (Family("numbers", 2, 2, 1.7), FAMILIES[0])
    mechanism = planned(families, adjacency, rows=3)
    rows = [row for row in every_row(families) if row[0][1] in (-1.0, -0.25, 1.0)]
    few = np.random.default_rng(1).choice(len(rows), 9, replace=False)
    persons = [[], *([rows[i]] for i in range(len(rows)))]
    persons += [[rows[i] for i in some] for size in (2, 3) for some in combinations(few, size)]
    vectors = np.array([weighted_sums(mechanism, person) for person in persons])
    others = vectors if adjacency == "replace_one" else vectors[:1]
    farthest = max(np.linalg.norm(vectors - other, axis=1).max() for other in others)
    # The noise drawn covers what rounding of shares adds to the charge.
    assert farthest <= mechanism.noise.sensitivity
    assert farthest == pytest.approx(mechanism.statement.argument.constants["sensitivity"], rel=1e-5)


def test_the_noise_has_room_for_what_shares_of_rows_are_rounded_up():
    """Seven sevenths are a little more than one."""
    mechanism = planned((Family("one", 1),), "add_remove", rows=7)
    moved = np.linalg.norm(weighted_sums(mechanism, [((0, 0.0),)] * 7))
    assert mechanism.statement.argument.constants["sensitivity"] < moved <= mechanism.noise.sensitivity


def test_a_person_counts_once_with_the_average_of_own_rows():
    mechanism = planned((Family("numbers", 2, 2),), rows=3, n=2)
    cells, t = np.array([[0, 0, 1], [1, 9, 9]]), np.array([[0.5, -0.5, 1.0], [0.25, np.nan, 7.0]])
    there = np.array([[1, 1, 1], [1, 0, 0]], bool)
    found = mechanism.sums([Contribution(cells, t)], there).reshape(3, 2)
    third = 1 / 3
    expected = [[2 * third, third + 1], [0, third + 0.25], [-third, third + 2 * 0.25**2 - 1]]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_cells_and_numbers_that_no_row_has_are_mapped_and_never_raised():
    mechanism = planned((Family("numbers", 3, 2),), n=5)
    cells, t = np.array([7, -4, 0, 1, 2]), np.array([9.0, 0.0, np.nan, -np.inf, 0.5])
    found = mechanism.sums([Contribution(cells, t)], np.ones(5, bool)).reshape(3, 3)
    np.testing.assert_array_equal(found, [[1, 1, 2], [0, -1, 1.5], [-1, 1, 0.5]])


def check_priced(mechanism, moved, adjacency):
    """A mechanism of 0.5-GDP, whose sums one unit moves by so much."""
    statement = mechanism.statement
    assert statement.gdp == pytest.approx(0.5, rel=1e-9) and statement.gdp <= 0.5 * (1 + 1e-12)
    assert mechanism.noise.scale == pytest.approx(moved / 0.5, rel=1e-6)
    assert mechanism.noise.gaussian_scale >= statement.argument.constants["scale"]
    assert statement.adjacency == adjacency and statement.verify()
    assert Statement.from_dict(statement.to_dict()) == statement


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_statement_is_the_declared_price_of_one_gaussian_mechanism(adjacency):
    mechanism = planned(adjacency=adjacency)
    squares = 1 + 0.5**2 * 2 + 1.7**2 * 3
    moved = math.sqrt(squares * (2 if adjacency == "replace_one" else 1))
    check_priced(mechanism, moved, adjacency)


def test_noise_is_gaussian_of_each_familys_own_scale():
    families = (Family("many", 1500), Family("few", 700, 1, 4.0))
    mechanism = planned(families, n=3)
    nobody = [Contribution(np.full(3, -1)), Contribution(np.full(3, -1), np.zeros(3))]
    noised = mechanism.noised(mechanism.sums(nobody, np.ones(3, bool)))
    for one, weight in zip(mechanism.released(noised), (1.0, 4.0), strict=True):
        assert one.noise_sd == pytest.approx(mechanism.noise.sd / weight)
        assert stats.kstest(one.values.ravel(), stats.norm(scale=one.noise_sd).cdf).pvalue > 1e-6


def test_what_was_not_planned_is_refused_by_shape_alone():
    mechanism = planned(FAMILIES[:1], n=3)
    with pytest.raises(DataSchemaError, match="3 with 1 rows"):
        mechanism.sums([Contribution(np.zeros(4, int))], np.ones(4, bool))
    with pytest.raises(DataSchemaError, match="whole number"):
        mechanism.sums([Contribution(np.zeros(3))], np.ones(3, bool))
    with pytest.raises(DeclarationError, match="at least one cell"):
        Family("none", 0)
    with pytest.raises(DeclarationError, match="positive budget"):
        planned((), n=3)


@pytest.mark.parametrize(
    "column",
    [np.ma.masked_array([1.0, 2.0], [True, False]), np.array(["secret", "1"]), [1.0, 2.0],
     np.array([1.0, 2.0], np.longdouble), np.array(["secret", 1.0], dtype=object)],
)  # fmt: skip
def test_what_is_no_column_of_numbers_is_refused_without_its_values(column):
    moments = plan_second_moments(0.5, radius=1.0, dim=2, num_rows=9, adjacency="replace_one")
    counts = plan_sums(0.5, (Family("two", 2),), num_rows=9, adjacency="replace_one")
    good = np.ones(2)
    table = np.ma.masked_array([[1.0, 2.0]]) if isinstance(column, np.ma.MaskedArray) else column
    for release, columns in (
        (moments.sums, (table,)),
        (lambda given: counts.sums((Contribution(given),), good), (column,)),
        (lambda given: counts.sums((Contribution(np.ones(2, int)),), given), (column,)),
        (lambda given: data_mark(b"key", {"y": given}), (column,)),
    ):
        with pytest.raises(DataSchemaError) as refused:
            release(*columns)
        assert "secret" not in str(refused.value) and refused.value.__cause__ is None


def plan(gdp=0.5, radius=1.0, dim=3, num_rows=50, adjacency="replace_one"):
    return plan_second_moments(gdp, radius=radius, dim=dim, num_rows=num_rows, adjacency=adjacency)


def coordinates(rows, radius):
    """What the noise is added to: the upper triangle, off-diagonal entries times √2."""
    gram = sums._gram(rows, radius)
    upper = np.triu_indices(len(gram))
    return gram[upper] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 5]), st.floats(0.1, 10.0))
def test_one_row_moves_the_sum_by_at_most_the_charge(seed, dim, radius):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(20, dim)) * 10.0 ** random.integers(-3, 4)
    other = rows.copy()
    other[7] = random.normal(size=dim) * 100
    without = np.delete(rows, 7, axis=0)
    for adjacency, neighbour in (("replace_one", other), ("add_remove", without)):
        charged = plan(radius=radius, dim=dim, num_rows=20, adjacency=adjacency).noise.sensitivity
        moved = np.linalg.norm(coordinates(rows, radius) - coordinates(neighbour, radius))
        assert moved <= charged


def test_orthogonal_rows_on_the_sphere_reach_the_sensitivity():
    rows, other = np.zeros((20, 3)), np.zeros((20, 3))
    rows[0, 0] = other[0, 1] = 2.0
    moved = np.linalg.norm(coordinates(rows, 2.0) - coordinates(other, 2.0))
    assert moved == pytest.approx(plan(radius=2.0).noise.sensitivity, rel=1e-9)


def test_the_rounding_allowance_covers_sums_of_many_rows():
    """Sums that lose digits: large and tiny rows mixed, against exactly rounded sums."""
    random = np.random.default_rng(3)
    rows = random.normal(size=(30_000, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows *= 10.0 ** random.uniform(-8, 0, size=(30_000, 1))
    gram = sums._gram(rows, 1.0)
    errors = [
        abs(gram[i, j] - math.fsum((rows[:, i] * rows[:, j]).tolist())) for i in range(2) for j in range(2)
    ]
    assert 0 < max(errors) < sums._rounding(1.0, 2, 30_000)


def test_noise_is_symmetric_with_half_the_variance_off_the_diagonal():
    mechanism = plan(gdp=0.3, dim=60, num_rows=10)
    noise = mechanism.noised(mechanism.sums(np.zeros((10, 60))))
    np.testing.assert_array_equal(noise, noise.T)
    scale = mechanism.noise.scale
    assert stats.kstest(np.diag(noise), stats.norm(scale=scale).cdf).pvalue > 1e-6
    above = noise[np.triu_indices(60, 1)]
    assert stats.kstest(above, stats.norm(scale=scale / math.sqrt(2)).cdf).pvalue > 1e-6


@pytest.mark.parametrize(
    ("adjacency", "dim", "factor"),
    [("replace_one", 3, math.sqrt(2)), ("replace_one", 1, 1.0), ("add_remove", 3, 1.0), ("zero_out", 3, 1.0)],
)
def test_the_statement_is_the_declared_price_and_the_noise_is_what_it_needs(adjacency, dim, factor):
    mechanism = plan(gdp=0.5, radius=2.0, dim=dim, adjacency=adjacency)
    check_priced(mechanism, factor * 4.0, adjacency)


def test_no_private_value_raises_warns_or_spoils_the_sum():
    rows = np.ones((10, 3))
    rows[0], rows[1, 2], rows[2], rows[3] = math.nan, math.inf, 1e200, 5e-324
    mechanism = plan(gdp=1e3, num_rows=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        released = mechanism.noised(mechanism.sums(rows))
    clean = rows[4:] / math.sqrt(3)
    np.testing.assert_allclose(released, clean.T @ clean, atol=0.1)


def test_schema_errors_are_about_shapes_only():
    with pytest.raises(DataSchemaError, match=r"\(n, 3\)"):
        plan().sums(np.zeros((10, 2)))
    with pytest.raises(DataSchemaError, match="more rows"):
        plan(num_rows=5).sums(np.zeros((6, 3)))
    with pytest.raises(DeclarationError, match="rows"):
        plan(num_rows=0)
    with pytest.raises(DeclarationError, match="no useful bound"):
        plan(num_rows=10**14)
