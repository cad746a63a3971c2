"""Affine means affine: proved levels against what the functions do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc.model.program import Level, affinity, trace
from private_mcmc.potential.rowwise import abstract

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
