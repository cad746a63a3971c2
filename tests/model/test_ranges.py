"""Range bounds contain every value, elementwise and in norm, and are as sharp as claimed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc.domains.domain import Categories
from private_mcmc.domains.real import Ball, Box
from private_mcmc.potential.flatten import abstract, trace
from private_mcmc.potential.ranges import constant, of_domain, ranges

MATRIX = np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 0.5], [3.0, 0.0, 1.0]])


def analyse(function, x, k=None):
    """Bounds of ``function(x, k)`` with x in a domain, k in a domain."""
    with jax.enable_x64(True):
        k = Categories(4) if k is None else k
        program = trace(
            lambda x, k: {"out": function(x, k)},
            x=abstract(x.event_shape, np.float64),
            k=abstract((), np.int64),
        )
        given_values = {program.inputs["x"]: of_domain(x, ()), program.inputs["k"]: of_domain(k, ())}
        return ranges(program, given_values, [program.outputs["out"]])[0]


def sample(function, x, count=200):
    with jax.enable_x64(True):
        rows = x.synthetic(np.random.default_rng(0), count)
        whole = Categories(4).synthetic(np.random.default_rng(1), count)
        return np.asarray(jax.vmap(function)(rows, whole)).astype(np.float64)


def holds(function, x):
    found, values = analyse(function, x), sample(function, x)
    inside = (values >= found.lo - 1e-12) & (values <= found.hi + 1e-12)
    norms = np.sqrt(np.sum(values**2, axis=tuple(range(1, values.ndim))))
    whole = not found.whole or np.all(values == np.round(values))
    return bool(np.all(inside) and np.all(norms <= found.norm * (1 + 1e-12)) and whole)


FUNCTIONS = [
    lambda x, k: MATRIX @ x,
    lambda x, k: x @ MATRIX @ x,
    lambda x, k: jnp.concatenate([x, jnp.ones(1), x**2]),
    lambda x, k: jnp.stack([x, -x]).reshape(3, 2).T,
    lambda x, k: jax.nn.one_hot(k, 4),
    lambda x, k: jnp.concatenate([x, jax.nn.one_hot(k, 4)]),
    lambda x, k: jnp.arange(4.0)[k] * x,
    lambda x, k: jnp.zeros(4).at[k].add(x[0]),
    lambda x, k: jnp.exp(x) / (1 + jnp.exp(-x)),
    lambda x, k: jax.nn.softplus(x) + jax.nn.sigmoid(x) + jnp.tanh(x),
    lambda x, k: jnp.log(2 + x) + jnp.log1p(x / 2) + jnp.sqrt(jnp.abs(x)),
    lambda x, k: jnp.where(x > 0, x, k),
    lambda x, k: jnp.where(k == 2, x, 0.0),
    lambda x, k: jnp.clip(x, -0.3, 0.4) * 2,
    lambda x, k: jnp.maximum(x, 0) - jnp.minimum(x, 0),
    lambda x, k: x**3 - 2 / (3 + x),
    lambda x, k: x[:, None] ** jnp.arange(4),
    lambda x, k: jnp.vander(x, 3),
    lambda x, k: jnp.zeros(5).at[1:4].set(x),
    lambda x, k: jax.lax.dynamic_update_slice(jnp.ones(6), x, (k,)),
    lambda x, k: jax.lax.scan(lambda s, e: (s * 0.5 + e, s), 0.0, x, reverse=True)[1],
    lambda x, k: jax.lax.map(lambda e: e * x, x),
    lambda x, k: jnp.linalg.cholesky(jnp.eye(3) + 0.3) @ x,
    lambda x, k: jnp.arange(12.0).reshape(4, 3)[k],
    lambda x, k: jnp.pad(x, (1, 2)) + jnp.roll(jnp.pad(x, (2, 1)), 1),
    lambda x, k: jnp.sin(x) + jnp.floor(3 * x) + jnp.round(2 * x) + jnp.sign(x),
    lambda x, k: (k * 3 - 1) // 2,
    lambda x, k: (x > 0.2) & (k >= 1) | ~(x < 0),
    lambda x, k: x - x,
    lambda x, k: (x == x) * 1.0,
    lambda x, k: jnp.outer(x, x),
    lambda x, k: x.astype(jnp.float32) * 2,
    lambda x, k: jnp.uint8(k) * jnp.uint8(100),
    lambda x, k: jnp.int32(x * 10),
]


@pytest.mark.long
@pytest.mark.parametrize("index", range(len(FUNCTIONS)))
@pytest.mark.parametrize("domain", [Ball(1.0, 3), Box([-1, 0, 0.5], [1, 0.5, 1])], ids=str)
def test_bounds_contain_the_values(index, domain):
    assert holds(FUNCTIONS[index], domain)


ROWS = np.arange(12.0).reshape(4, 3)
PIECES = [
    lambda u, v: u + v,
    lambda u, v: u - v,
    lambda u, v: u * v,
    lambda u, v: u / (1.5 + v**2),
    lambda u, v: jnp.tanh(u),
    lambda u, v: jnp.exp(jnp.clip(u, -3, 3)),
    lambda u, v: jnp.maximum(u, v),
    lambda u, v: jnp.where(u > v, u, 0.1),
    lambda u, v: jnp.concatenate([u[:1], v[:1], jnp.zeros(1)]),
    lambda u, v: MATRIX @ u,
    lambda u, v: jnp.full(3, u @ v),
    lambda u, v: jnp.abs(u) - 0.2,
    lambda u, v: jnp.cumsum(u)[::-1],
    lambda u, v: u**2,
    lambda u, v: jnp.log(2.5 + jnp.clip(u, -2, 2)),
    # Not defined everywhere, and what makes ordinary numbers of that.
    lambda u, v: jnp.log(u),
    lambda u, v: jnp.sqrt(v),
    lambda u, v: u / v,
    lambda u, v: 1 / jnp.maximum(v, 0.0),
    lambda u, v: jnp.abs(u) ** v,
    lambda u, v: jnp.where(jnp.isnan(u), 7.0, v),
    lambda u, v: jnp.where(u == u, v, 9.0),
    lambda u, v: jnp.clip(u, -0.3, 0.3),
    lambda u, v: jnp.where(jnp.isfinite(u), u, 5.0),
    lambda u, v: u.astype(jnp.int32) * 1.5,
    lambda u, v: jnp.exp(-800 - jnp.abs(jnp.clip(u, -3, 3))),
    lambda u, v: 1e-200 * u * v,
]


@pytest.mark.long
@given(
    st.lists(
        st.tuples(st.sampled_from(PIECES), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=7
    )
)
def test_bounds_of_compositions_contain_the_values(steps):
    def function(x, k):
        values = [x, jnp.full(3, 0.25 * k)]
        for step, left, right in steps:
            values.append(step(values[left % len(values)], values[right % len(values)]))
        return values[-1]

    domain = Ball(1.0, 3)
    with np.errstate(over="ignore", invalid="ignore"):
        found, values = analyse(function, domain), sample(function, domain, 40)
        norms = np.sqrt(np.sum(values**2, axis=1))
    slack = 1e-9 * (1 + np.abs(np.where(np.isfinite(values), values, 0.0)))
    inside = (values >= found.lo - slack) & (values <= found.hi + slack)
    nothing = np.isinf(found.lo) & np.isinf(found.hi)
    # NaN and infinities are possible only where nothing is claimed.
    assert np.all(np.where(np.isnan(values), nothing, inside))
    assert np.all((norms <= found.norm * (1 + 1e-9)) | ~np.all(np.isfinite(values), axis=1))


@pytest.mark.parametrize(
    ("function", "norm"),
    [
        (lambda x, k: x, 2.0),
        (lambda x, k: jnp.concatenate([x, jnp.ones(1)]), np.sqrt(5)),
        (lambda x, k: jnp.concatenate([jnp.zeros(2), x]) + jnp.pad(jnp.ones(1), (0, 4)), np.sqrt(5)),
        (lambda x, k: jnp.concatenate([x, jax.nn.one_hot(k, 4)]), np.sqrt(5)),
        (lambda x, k: MATRIX @ x, 2 * np.linalg.norm(MATRIX, 2)),
        (lambda x, k: jnp.stack([x, x]), 2 * np.sqrt(2)),
        (lambda x, k: jnp.where(k == 1, x, 0.0), 2.0),
        (lambda x, k: 3 * x + 0 * x[0], 6.0),
        (lambda x, k: jnp.zeros(9).at[k].add(x.sum() * 0 + 1), 1.0),
        (lambda x, k: jnp.abs(x), 2.0),
        (lambda x, k: jax.grad(lambda w: w[jnp.digitize(x, jnp.arange(3.0))][0])(jnp.zeros(4)), 1.0),
        (lambda x, k: jax.grad(lambda w: w[jnp.searchsorted(jnp.arange(3.0), x[0])])(jnp.zeros(4)), 1.0),
        (lambda x, k: jnp.asarray(ROWS)[jnp.digitize(x[:1], jnp.arange(3.0))], np.linalg.norm(ROWS[3])),
        (lambda x, k: jax.grad(lambda w: (ROWS @ w)[k])(jnp.zeros(3)), np.linalg.norm(ROWS[3])),
        (lambda x, k: jnp.asarray(ROWS)[k] @ jnp.eye(3), np.linalg.norm(ROWS[3])),
        (lambda x, k: (jnp.asarray(ROWS)[k] * jnp.ones(3)).ravel(), np.linalg.norm(ROWS[3])),
    ],
)
def test_norms_are_as_sharp_as_geometry_allows(function, norm):
    assert analyse(function, Ball(2.0, 3)).norm == pytest.approx(norm, rel=1e-9)


@pytest.mark.parametrize(
    "function", [jax.nn.softplus, jax.scipy.special.erf, jnp.log1p, jax.nn.gelu, jnp.floor]
)
def test_designs_of_elementary_functions_have_a_radius(function):
    assert 0 < analyse(lambda x, k: function(jnp.abs(x)), Ball(2.0, 3)).norm < 6.0


def test_not_understood_is_unbounded():
    found = analyse(lambda x, k: jax.lax.while_loop(lambda s: s[0] > 0.5, lambda s: s / 2, x), Ball(1.0, 3))
    assert np.all(found.lo == -np.inf) and np.all(found.hi == np.inf) and found.norm == np.inf


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.where(jnp.isnan(jnp.tanh(jnp.log(x))), 100.0, 0.0),
        lambda x: jnp.where(jnp.isnan(x / x), 100.0, 0.0),
        lambda x: jnp.where(jnp.isnan(jnp.tanh(jax.nn.relu(jnp.log(x - 0.5)))), 100.0, 0.0),
        lambda x: jnp.where(jnp.isnan(jnp.tanh(jnp.sqrt(x - 0.5).astype(jnp.float32))), 100.0, 0.0),
        lambda x: jnp.where(jnp.tanh(x / x) >= -1, 0.0, 100.0),
        lambda x: jnp.clip(1 / x, 2.0, 3.0) * jnp.where(1 / x > 0, 1.0, -100.0),
        lambda x: jnp.clip(1 / (0 * x), -5.0, 5.0),
        lambda x: jnp.where(jnp.tanh(jnp.stack([x, x + 1]) ** np.array([-1.0, -1.0]) * x)[0] < 2, 0.0, 100.0),
    ],
)
def test_what_is_not_defined_somewhere_hides_nothing(function):
    found = analyse(lambda x, k: function(x), Box(0.0, 1.0))
    with np.errstate(all="ignore"), jax.enable_x64(True):
        values = [float(function(jnp.asarray(at))) for at in (0.0, -0.0, 0.5, 1.0)]
    assert found.lowest <= np.nanmin(values) and np.nanmax(values) <= found.highest


def test_overflow_and_underflow_are_no_exact_numbers():
    assert analyse(lambda x, k: jnp.exp(1000 + x), Box(0.0, 1.0)).highest == np.inf
    for small in (
        lambda x: jnp.exp(-1000 + x),
        lambda x: jax.nn.sigmoid(x - 1000),
        lambda x: (1e-200 + x) ** 2,
    ):
        found = analyse(lambda x, k, small=small: small(x * 0), Box(0.0, 1.0))
        assert -1e-300 < found.lowest <= 0 < found.highest < 1e-300


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int4"])
def test_arithmetic_in_short_types_proves_nothing(kind):
    def short(x, k):
        # 1.0063 of real numbers is 1.0078 of bfloat16's; 7 + 7 is -2 of four bits.
        narrow = jnp.clip(7 * x.sum(), 0, 7 if kind == "int4" else 1).astype(kind)
        return (narrow + narrow if kind == "int4" else narrow + jnp.asarray(0.0063, kind)).astype(float)

    found = analyse(short, Box([0.0], [1.0]))
    assert (found.lo, found.hi) == (-np.inf, np.inf)


def test_an_integer_that_may_wrap_around_is_unbounded():
    found = analyse(lambda x, k: jnp.int32(k) * 2**30, Ball(1.0, 3))
    assert found.highest == np.inf


def test_out_of_range_indices_prove_nothing():
    found = analyse(lambda x, k: jnp.take(x, k), Ball(1.0, 3))
    assert found.highest == np.inf


@pytest.mark.slow
@pytest.mark.parametrize("function", [lambda k: ~k, lambda k: jnp.minimum(jax.lax.div(5 + 0 * k, k), 0)])
def test_complements_of_integers_and_division_by_zero_stay_inside_their_bounds(function):
    found = analyse(lambda x, k: function(k), Box(0.0, 1.0))
    with jax.enable_x64(True):
        values = [int(function(jnp.asarray(k))) for k in range(4)]
    assert found.lowest <= min(values) and max(values) <= found.highest


def test_keys_of_random_numbers_are_no_integers():
    def drawn(x):
        key = jax.random.split(jax.random.fold_in(jax.random.key(0), x.astype(int)))[0]
        return {"y": jax.random.normal(key)}

    with jax.enable_x64(True):
        program = trace(drawn, x=abstract((), np.float64))
        (found,) = ranges(program, {program.inputs["x"]: constant(np.ones(()))}, [program.outputs["y"]])
    assert not found.largest < np.inf


ADVERSARIAL = {
    "a product of columns": lambda x, k: x[0] * x[1] * x,
    "a Ball times itself": lambda x, k: x * x,
    "an exponential": lambda x, k: jnp.exp(5 * x),
    "a quotient by what may be small": lambda x, k: x / (1.1 + x[0]),
    "a quotient by what may be nothing": lambda x, k: x / x[0],
    "a choice of the larger branch": lambda x, k: jnp.where(x[0] > 0.99, 50 * x, x),
    "one column scaled by another": lambda x, k: k * x,
    "an index outside": lambda x, k: jnp.array([1.0, 2.0, 3.0, 400.0])[k] * x,
    "a peak inside the domain": lambda x, k: 1 / (0.01 + (x - 0.3) ** 2),
    "a sum that does not cancel": lambda x, k: jnp.concatenate([x, x]) + jnp.concatenate([x, -x]),
    "an infinity that is cut off": lambda x, k: jnp.clip(1 / (x[0] - x[0] + 0 * x), -2, 2),
    "repeated columns": lambda x, k: jnp.tile(x, 5),
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_no_radius_is_false(name):
    """The longest of many rows, ends and points in between, is no longer than the radius."""
    function, domain = ADVERSARIAL[name], Ball(1.0, 3)
    found = analyse(function, domain)
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(sample(function, domain, 5000), axis=-1)
    assert not np.any(norms > found.norm * (1 + 1e-12))
    assert np.all(np.isfinite(norms)) or found.norm == np.inf


# The nearest float of the first is the second.
BEYOND, FLOAT = np.int64(2**53 + 1), np.int64(2**53)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, k: x * (jnp.asarray(BEYOND) - FLOAT).astype(float),
        lambda x, k: jnp.where(jnp.asarray(BEYOND) > FLOAT + jnp.minimum(k, 1), 100 * x, 0.0),
    ],
)
def test_whole_numbers_that_are_no_floats_bound_nothing(function):
    assert holds(function, Ball(1.0, 3))
