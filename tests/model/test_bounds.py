"""Ends and norms of functions of a row hold for every row, are sharp where affine, or are not said.

Affine means affine: proved levels against what the functions do.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc.domains import Ball, Box, Categories, Counts, Real, Rows
from private_mcmc.model.bounds import bounds, ends_of_rows, function_of_rows, is_whole, proposed_radius
from private_mcmc.model.program import Level, affinity, trace
from private_mcmc.potential.rowwise import abstract, row_shapes

MATRIX = np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 0.5], [3.0, 0.0, 1.0]])
TABLE = np.arange(12.0).reshape(4, 3)
BALL, BOX = Ball(2.0, 3), Box([-1, 0, 0.5], [1, 0.5, 1])


def rows_of(x):
    return Rows(x=x, k=Categories(4))


def of(function):
    return lambda row: jnp.ravel(function(row["x"], row["k"])).astype(float)


def sample(function, x, count=400):
    with jax.enable_x64(True):
        values = np.asarray(jax.vmap(of(function))(rows_of(x).synthetic(0, count)))
    return values.reshape(count, -1)


SHARP = [
    (lambda x, k: x, 2.0),
    (lambda x, k: jnp.concatenate([x, jnp.ones(1)]), np.sqrt(5)),
    (lambda x, k: jnp.concatenate([jnp.zeros(2), x]) + jnp.pad(jnp.ones(1), (0, 4)), np.sqrt(5)),
    (lambda x, k: jnp.concatenate([x, jax.nn.one_hot(k, 4)]), np.sqrt(5)),
    (lambda x, k: MATRIX @ x, 2 * np.linalg.norm(MATRIX, 2)),
    (lambda x, k: jnp.stack([x, x]), 2 * np.sqrt(2)),
    (lambda x, k: jnp.where(k == 1, x, 0.0), 2.0),
    (lambda x, k: 3 * x + 0 * x[0], 6.0),
    (lambda x, k: jnp.zeros(9).at[k].add(1.0), 1.0),
    (lambda x, k: jnp.zeros((4, 3)).at[k].set(x), 2.0),
    (lambda x, k: jax.grad(lambda w: (TABLE @ w)[k])(jnp.zeros(3)), np.linalg.norm(TABLE[3])),
    (lambda x, k: jnp.asarray(TABLE)[k] @ jnp.eye(3), np.linalg.norm(TABLE[3])),
    (lambda x, k: k * x, 6.0),
    (lambda x, k: jnp.array([1.0, 2.0, 3.0, 400.0])[k] * x, 800.0),
    (lambda x, k: jnp.concatenate([x, x]) + jnp.concatenate([x, -x]), 4.0),
    (lambda x, k: x - x, 0.0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("function", "norm"), SHARP)
def test_norms_of_affine_functions_are_as_sharp_as_geometry_allows(function, norm):
    assert function_of_rows(of(function), rows_of(BALL)).norm() == pytest.approx(norm, rel=1e-9)


def test_cross_terms_of_intervals_count_once():
    """Standardised numbers beside an intercept, and two sums of which one cancels."""
    ages = Rows(age=Box(18, 90))
    found = function_of_rows(lambda row: jnp.stack([jnp.ones(()), (row["age"] - 50.0) / 15.0]), ages)
    assert found.norm() == pytest.approx(np.hypot(1, 40 / 15))
    turned = function_of_rows(
        lambda row: jnp.array([[1.0, 1.0], [1.0, -1.0]]) @ row["x"], Rows(x=Box(-1, 1, 2))
    )
    assert turned.norm() == pytest.approx(2.0)


NOT_AFFINE = {
    "a product of columns": lambda x, k: x[0] * x[1] * x,
    "a square": lambda x, k: x * x,
    "an exponential": lambda x, k: jnp.exp(5 * x),
    "a quotient": lambda x, k: x / (3.0 + x[0]),
    "a choice by a number": lambda x, k: jnp.where(x[0] > 0.99, 50 * x, x),
    "a magnitude": lambda x, k: jnp.abs(x),
    "a part that a number chooses": lambda x, k: jnp.asarray(TABLE)[jnp.digitize(x[:1], jnp.arange(3.0))],
    "a short float": lambda x, k: x.astype(jnp.float32) * 2,
    "a loop": lambda x, k: jax.lax.while_loop(lambda s: s[0] > 0.5, lambda s: s / 2, x),
}


@pytest.mark.parametrize("function", NOT_AFFINE.values(), ids=NOT_AFFINE)
def test_nothing_is_proved_of_what_is_not_affine(function):
    assert function_of_rows(of(function), rows_of(BALL)) is None


@pytest.mark.slow
@pytest.mark.parametrize("domain", [BALL, BOX], ids=str)
@pytest.mark.parametrize("function", [function for function, _ in SHARP])
def test_no_row_is_outside_its_ends_or_longer_than_the_norm(function, domain):
    found, values = function_of_rows(of(function), rows_of(domain)), sample(function, domain)
    lo, hi = found.ends()
    assert np.all(values >= lo.min(0) - 1e-9) and np.all(values <= hi.max(0) + 1e-9)
    assert np.linalg.norm(values, axis=1).max() <= found.norm() * (1 + 1e-9)


@pytest.mark.slow
def test_a_number_that_is_not_finite_at_some_row_proves_nothing():
    assert function_of_rows(lambda row: 1.0 / row["k"], Rows(k=Categories(3))) is None


def test_columns_without_ends_have_none_and_large_counts_are_not_listed():
    with jax.enable_x64(True):
        rows = Rows(z=Real(), y=Counts(2**31 - 1), few=Counts(3))
        program = trace(
            lambda z, y, few: {
                "z": jnp.where(few == 1, 2 * z, 0.0),
                "y": y.astype(float),
                "few": jnp.minimum(few, 2),
            },
            **row_shapes(rows),
        )
        z, y, few = (bounds(program, rows, [program.outputs[name]])[0] for name in ("z", "y", "few"))
    assert (z.lowest, z.highest) == (-np.inf, np.inf)
    assert (y.lowest, y.highest) == (0.0, 2.0**31 - 1)
    assert (few.lowest, few.highest) == (0.0, 2.0)
    assert [is_whole(program, program.outputs[name]) for name in ("z", "y", "few")] == [False, True, True]
    assert function_of_rows(lambda row: row["z"], Rows(z=Real())).norm() == np.inf


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a square", "a product of columns", "an exponential", "a magnitude"])
@pytest.mark.parametrize("domain", [BOX, Box([-1, -2, -3], [2, 1, 1])], ids=str)
def test_a_proposed_radius_is_that_of_the_longest_row(name, domain):
    function = NOT_AFFINE[name]
    with jax.enable_x64(True):
        found = proposed_radius(lambda row: jnp.linalg.norm(of(function)(row)), rows_of(domain))
    longest = np.linalg.norm(sample(function, domain, 5000), axis=1).max()
    assert longest * (1 - 1e-6) <= found <= longest * 1.2


def test_nothing_is_proposed_where_a_column_that_is_read_has_no_ends():
    with jax.enable_x64(True):
        assert proposed_radius(lambda row: row["z"] ** 2, Rows(z=Real())) == np.inf
        rows = Rows(z=Real(), x=Box(1.0, 4.0))
        program = trace(lambda z, x: {"z": z * z, "x": jnp.log(x)}, **row_shapes(rows))
        none, _ = ends_of_rows(program, rows, [program.outputs["z"]], {})
        (found,), proved = ends_of_rows(program, rows, [program.outputs["x"]], {})
    assert none is None and not proved
    assert (found.lowest, found.highest) == pytest.approx((0.0, np.log(4.0)))


@pytest.mark.parametrize(("low", "at", "proved"), [(0.1, 0.0, True), (0.0, 0.0, False), (0.1, 1.0, False)])
def test_an_outcome_that_is_moved_from_zero_has_its_ends_where_it_never_is(low, at, proved):
    rows = Rows(y=Box(low, 5.0))
    with jax.enable_x64(True):
        program = trace(lambda y: {"y": jnp.where(y == at, 1e-300, y)}, **row_shapes(rows))
        found = bounds(program, rows, [program.outputs["y"]])
    assert (found is not None) == proved
    assert not proved or (found[0].lowest, found[0].highest) == pytest.approx((low, 5.0), rel=1e-12)


C, A, U = Level.CONSTANT, Level.AFFINE, Level.UNKNOWN

# What each function of the latents t, a vector x, and an index i is.
FUNCTIONS = {
    "dot": (lambda t, x, i: x @ t, A),
    "sum of products": (lambda t, x, i: (x * t).sum(), A),
    "offset": (lambda t, x, i: x @ t + jnp.exp(x).sum(), A),
    "group": (lambda t, x, i: t[i] * x[0], A),
    "one hot": (lambda t, x, i: jax.nn.one_hot(i, 3) @ t, A),
    "scaled": (lambda t, x, i: -(2 * t[0] - x[1]) / (1 + x[2] ** 2), A),
    "concatenated": (lambda t, x, i: jnp.concatenate([t, x]).reshape(2, 3).T.sum(), A),
    "chosen by the row": (lambda t, x, i: jnp.where(x > 0, t, 0.0).sum(), A),
    "convolved": (lambda t, x, i: jnp.convolve(x, t).sum(), A),
    "set": (lambda t, x, i: jnp.zeros(5).at[1:4].set(t) @ jnp.arange(5.0), A),
    "cumulated": (lambda t, x, i: jnp.cumsum(t)[2] * x[0], A),
    "row only": (lambda t, x, i: jnp.exp(x).sum(), C),
    "shape only": (lambda t, x, i: x.sum() * t.shape[0], C),
    "square": (lambda t, x, i: t @ t, U),
    "product of two": (lambda t, x, i: t[0] * t[1], U),
    "quotient": (lambda t, x, i: x[0] / t[0], U),
    "exponential": (lambda t, x, i: jnp.exp(t[0]), U),
    "chosen by the latents": (lambda t, x, i: jnp.where(t[0] > 0, x[0], x[1]), U),
    "index from the latents": (lambda t, x, i: x[t[0].astype(int)], U),
    "largest": (lambda t, x, i: t.max(), U),
    "derivative hidden": (lambda t, x, i: jax.lax.stop_gradient(t) @ x, U),
    "rounded": (lambda t, x, i: t.astype(jnp.float32).sum(), U),
    "loop with a product": (lambda t, x, i: jax.lax.fori_loop(0, 2, lambda k, s: s * t[k], 1.0), U),
    "open loop": (
        lambda t, x, i: jax.lax.while_loop(lambda s: s[1] < 2, lambda s: (s[0] + 1, s[1] + 1), (t, 0))[0],
        U,
    ),
}


def level(function):
    with jax.enable_x64(True):
        vector = abstract((3,), np.float64)
        program = trace(
            lambda t, x, i: {"out": function(t, x, i)}, t=vector, x=vector, i=abstract((), np.int64)
        )
        return affinity(program, "t")[program.outputs["out"]]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_known_levels(name):
    function, expected = FUNCTIONS[name]
    assert level(function) is expected


STEPS = [
    lambda u, v, x: u + v,
    lambda u, v, x: u - 2 * v,
    lambda u, v, x: u * v,
    lambda u, v, x: u * x,
    lambda u, v, x: u / (1 + x**2),
    lambda u, v, x: u / (1 + v**2),
    lambda u, v, x: jnp.where(x > 0, u, v),
    lambda u, v, x: jnp.where(u > 0, x, v),
    lambda u, v, x: jnp.exp(0.1 * x) * u,
    lambda u, v, x: jnp.roll(u, 1) + jnp.flip(v),
    lambda u, v, x: jnp.cumsum(u),
    lambda u, v, x: jnp.outer(x, u).sum(axis=0),
    lambda u, v, x: jnp.tanh(u),
    lambda u, v, x: jnp.maximum(u, v),
    lambda u, v, x: jnp.full(3, u @ x),
    lambda u, v, x: jnp.full(3, u @ v),
    lambda u, v, x: jnp.concatenate([u[:1], x[1:2], v[2:]]),
    lambda u, v, x: x,
]


@pytest.mark.long
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=6
    ),
    st.integers(0, 10**6),
)
def test_what_is_called_affine_has_no_second_difference(steps, seed):
    def function(t, x, i=None):
        values = [t, x]
        for step, left, right in steps:
            values.append(step(values[left % len(values)], values[right % len(values)], x))
        return values[-1]

    found = level(function)
    if found is U:
        return
    draw = np.random.default_rng(seed)
    x, a, b = draw.normal(size=(3, 3))
    with jax.enable_x64(True):
        at = [np.asarray(function(jnp.asarray(t), jnp.asarray(x))) for t in (a, b, (a + b) / 2)]
    scale = 1 + np.max(np.abs(at))
    np.testing.assert_allclose(at[0] + at[1], 2 * at[2], atol=1e-9 * scale)
    if found is C:
        np.testing.assert_allclose(at[0], at[1], atol=1e-12 * scale)


OUTSIDE = {
    "an index": lambda b, g: b[g[None]].sum(),
    "a promised one": lambda b, g: b.at[g[None]].get(mode="promise_in_bounds").sum(),
    "a place": lambda b, g: jnp.ones(2).at[g].set(b[0], mode="promise_in_bounds").sum(),
    "an added one": lambda b, g: jnp.ones(2).at[g].add(b[0], mode="promise_in_bounds").sum(),
    "places twice": lambda b, g: jnp.ones(2).at[jnp.stack([g, g]) % 2].set(b, unique_indices=True).sum(),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("g", [-3, 0, 1, 2, 5])
def test_slopes_are_those_of_the_values_where_indices_break_their_promise(name, g):
    """Otherwise a step is no gradient of any convex function, and two chains need not come closer."""
    with jax.enable_x64(True):
        program = trace(
            lambda b, g: {"x": OUTSIDE[name](b, g)}, b=abstract((2,), np.float64), g=abstract((), np.int64)
        )

        def value(b):
            given = {program.inputs["b"]: b, program.inputs["g"]: jnp.asarray(g)}
            return program.run([program.outputs["x"]], given)[0]

        b, moves = jnp.array([0.3, 0.7]), np.eye(2)
        differences = [value(b + move) - value(b) for move in moves]
        np.testing.assert_allclose(jax.grad(value)(b), differences, atol=1e-9)
