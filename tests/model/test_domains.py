"""Row domains: the map always lands inside, for every type, value and storage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Real, Rows
from private_mcmc.domains.synthetic import synthetic_values
from private_mcmc.dossier.shape import declared_column
from private_mcmc.errors import DeclarationError
from private_mcmc.model.synthetic import extreme_rows

ANY_FLOAT = st.floats(width=64, allow_nan=True, allow_infinity=True)
DOMAINS = [
    *(Ball(0.1, 4), Box(-1, 2), Box([0.1, -5.0], [0.1000001, 7.0]), Box(-1, 2, dim=3)),
    *(Binary(), Categories(5), Counts(300), Real(3)),
]


def inside(domain, rows):
    rows = np.asarray(rows).astype(np.float64)
    lo, hi = domain.interval()
    finite = np.all(np.isfinite(rows)) and np.all(rows >= lo) and np.all(rows <= hi)
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.sum(rows**2, axis=tuple(range(1, rows.ndim))))
    return bool(finite and np.all(norms <= domain.norm_bound))


@pytest.mark.some(1)
@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@given(data=st.data())
def test_every_value_lands_inside(domain, data):
    column = data.draw(arrays(np.float64, (5, *domain.event_shape), elements=ANY_FLOAT))
    with jax.enable_x64(True):
        projected = domain.project(column)
    assert projected.dtype == domain.dtype
    assert inside(domain, projected)


@pytest.mark.slow
@given(arrays(np.float64, (6, 5), elements=st.floats(-1e30, 1e30)))
@example(np.full((6, 5), 1e30))
@example(np.full((6, 5), 1e-300))
def test_a_ball_only_shortens_rows(column):
    domain = Ball(1.0, 5)
    with jax.enable_x64(True):
        projected = np.asarray(domain.project(column))
    scale = np.max(np.abs(column), axis=1, keepdims=True)
    norms = (scale * np.linalg.norm(column / np.where(scale > 0, scale, 1), axis=1, keepdims=True))[:, 0]
    short = norms <= 1 - 1e-13
    np.testing.assert_allclose(projected[short], column[short], rtol=0, atol=1e-300)
    lengths = np.linalg.norm(projected, axis=1)
    assert np.all(lengths[~short] >= 1 - 1e-13)
    ours, theirs = projected * norms[:, None], column * lengths[:, None]
    np.testing.assert_allclose(ours[~short], theirs[~short], rtol=1e-12, atol=1e-280)


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_a_row_is_mapped_without_looking_at_the_others(domain, rng):
    column = rng.normal(size=(8, *domain.event_shape)) * 3
    with jax.enable_x64(True):
        project = jax.jit(domain.project)
        before = np.asarray(project(column))
        changed = column.copy()
        changed[3] = np.nan
        after = np.asarray(project(changed))
    np.testing.assert_array_equal(np.delete(before, 3, axis=0), np.delete(after, 3, axis=0))


@pytest.mark.some(1)
@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_integers_and_booleans_are_accepted(domain):
    with jax.enable_x64(True):
        for dtype in (bool, np.int8, np.uint16, np.int64):
            assert inside(domain, domain.project(np.ones((3, *domain.event_shape), dtype)))


@pytest.mark.slow
def test_large_integers_do_not_wrap_around():
    with jax.enable_x64(True):
        counts = Counts(2**31 - 1).project(np.array([2**62, -(2**62), 7]))
        np.testing.assert_array_equal(counts, [2**31 - 1, 0, 7])
        np.testing.assert_array_equal(Counts(300).project(np.array([255, 3], np.uint8)), [255, 3])
        np.testing.assert_array_equal(
            Counts(9).project(np.array([np.inf, -np.inf, np.nan, 1e300])), [9, 0, 0, 9]
        )


@pytest.mark.some(1)
@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_synthetic_rows_are_inside_and_reach_the_extremes(domain):
    with jax.enable_x64(True):
        drawn = synthetic_values(domain, np.random.default_rng(0), 400)
        rows = np.asarray(domain.project(drawn)).astype(np.float64)
    assert rows.shape == (400, *domain.event_shape)
    assert inside(domain, rows)
    if isinstance(domain, Ball):
        assert np.linalg.norm(rows, axis=1).max() >= domain.radius * (1 - 1e-12)
        assert np.abs(rows).max() >= domain.radius * (1 - 1e-12)
    elif not isinstance(domain, Real):
        lo, hi = domain.interval()
        np.testing.assert_allclose(rows.min(axis=0), lo, rtol=1e-6)
        np.testing.assert_allclose(rows.max(axis=0), hi, rtol=1e-6)


@pytest.mark.parametrize("domain", [*DOMAINS, Real()], ids=str)
def test_a_domain_survives_its_dictionary(domain):
    assert declared_column(domain.to_dict()) == domain
    assert hash(declared_column(domain.to_dict())) == hash(domain)


@pytest.mark.parametrize(
    ("declare", "given"),
    [
        *((Ball, one) for one in ((0.0, 3), (np.nan, 3), (np.inf, 3), (1.0, 0), (1.0, 2.5), ("a", 2))),
        *((Box, one) for one in ((1, 0), (0, np.inf), (np.nan, 1), ([0, 0], [1, 1, 1]), ([], []))),
        *((Box, (0, 1, 0)), (Box, ([0, 0], 1, 3)), (Categories, (1,)), (Counts, (0,)), (Counts, (2**40,))),
        *((Real, (0,)), (declared_column, ("sphere",)), (declared_column, ({"ball": {"radius": 1.0}},))),
        (declared_column, ({"ball": {}, "box": {}},)),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(declare, given):
    with pytest.raises(DeclarationError):
        declare(*given)


@pytest.mark.parametrize("ends", [(1e-310, 1.0), (-1.0, -1e-42), (1e-42, 1.0), (-1e-6, 0.0)])
def test_bounds_that_compiled_code_takes_for_zero_are_moved_inside(ends):
    """Logarithms and quotients of such values are proved to be finite."""
    with jax.enable_x64(True):
        column = np.array([-np.inf, -2.0, -1e-320, 0.0, np.nan, 1e-320, 2.0])
        assert inside(Box(*ends), jax.jit(lambda x: Box(*ends).project(x) * 1.0)(column))


def test_a_box_holds_its_ends_in_every_mode_of_jax():
    for wide in (True, False):
        with jax.enable_x64(wide):
            assert float(Box(0.1, 0.1).project(jnp.zeros(1))[0]) == 0.1


def test_a_box_of_a_length_is_that_of_as_many_ends():
    assert Box(-1, 2, dim=3) == Box([-1.0] * 3, [2.0] * 3) == declared_column(Box(-1, 2, dim=3).to_dict())


@pytest.mark.some(2)
@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_extreme_rows_are_fixed_points_of_the_projection_and_all_different(domain):
    rows = extreme_rows(Rows(a=domain, y=Binary()))
    assert len({np.ravel(row["a"]).tobytes() + bytes([row["y"]]) for row in rows}) == len(rows)
    with jax.enable_x64(True):
        moved = np.asarray(domain.project(np.stack([np.asarray(row["a"]) for row in rows])))
    # A point on a sphere may move inside by its own rounding.
    np.testing.assert_allclose(moved, np.stack([row["a"] for row in rows]), rtol=1e-13)
