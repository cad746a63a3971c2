"""NumPy's evaluation of a program gives JAX's values, primitive by primitive, at one point and at many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln, logsumexp, xlogy

from private_mcmc.model.ir.evaluate import evaluate, evaluate_each
from private_mcmc.model.ir.flatten import trace

A = np.random.default_rng(0).normal(size=(5, 3))
I = np.array([4, 0, 2, 9, -1])  # noqa: E741

FUNCTIONS = {
    "products": lambda a, i: (a @ a.T, jnp.einsum("ij,kj->ki", a, a)),
    "batched products": lambda a, i: jnp.einsum("bij,bjk->bik", jnp.stack([a] * 2), jnp.stack([a.T] * 2)),
    "log-sum-exp": lambda a, i: (logsumexp(a, axis=1), jax.nn.log_softmax(a), jax.nn.softplus(a)),
    "special": lambda a, i: (gammaln(jnp.abs(a)), xlogy(a**2, jnp.abs(a)), jax.nn.sigmoid(a), a**-3),
    "choices": lambda a, i: (jnp.where(a > 0, a, jnp.exp(a)), jnp.clip(a, -0.1, 0.2), jnp.round(a)),
    "gather with a filler": lambda a, i: a[i],
    "gather": lambda a, i: (jnp.take(a, i % 5, axis=0), jax.vmap(lambda row, j: row[j])(a, i % 3)),
    "gather in batches": lambda a, i: jax.vmap(jax.vmap(lambda j: a[j % 5, j % 3]))(jnp.stack([i, i])),
    "windows": lambda a, i: jax.vmap(lambda row, j: jax.lax.dynamic_slice(row, (j,), (2,)))(a, i),
    "scatter": lambda a, i: jax.grad(lambda b: (b[i % 5] ** 2).sum())(a),
    "scatter in windows": lambda a, i: (
        jnp.zeros((5, 3)).at[1:3].add(a[:2]),
        jnp.zeros((5, 3)).at[i % 5, i % 3].add(a[:, 0]),
        jnp.zeros((5, 3)).at[jnp.array([3, 0])].set(a[:2]),
        jax.vmap(lambda row, j: row.at[j].add(2.0))(a, i % 3),
        jnp.zeros((5, 3)).at[i].add(a),
    ),
    "branches": lambda a, i: (
        jax.lax.cond(a[0, 0] > 0, jnp.exp, jnp.sin, a),
        jax.lax.switch(i[3], [jnp.sin, jnp.cos, jnp.exp], a),
        jax.lax.switch(i[4], [jnp.sin, jnp.cos, jnp.exp], a),
    ),
    "remainders": lambda a, i: (jax.lax.rem(i - 3, jnp.full(5, -2)), jnp.fmod(a, 0.3), i % 4),
    "moves": lambda a, i: (a.T[::-1], jnp.pad(a, 1), a[1:4, ::2], jnp.split(a, [1, 3])[1]),
    "sums": lambda a, i: (
        jnp.cumsum(a, 0),
        jnp.cumprod(a, 1),
        a.prod(1),
        a.max(0),
        (a > 0).all(1),
        (a > 0).any(1),
    ),
    "integers": lambda a, i: (i // 2, i % 3, jnp.argmax(a, 1), jax.nn.one_hot(i % 3, 3), a.astype(int)),
    "narrow floats": lambda a, i: jnp.exp(a.astype(jnp.float32)) + 1,
    "linear algebra": lambda a, i: (
        jnp.linalg.cholesky(a.T @ a + jnp.eye(3)),
        jnp.linalg.cholesky(a.T @ a - 3 * jnp.eye(3)),
        jnp.sort(a),
        jnp.argsort(a, 0),
    ),
    "triangular systems": lambda a, i: [
        jax.lax.linalg.triangular_solve(
            a[:3] + 3 * jnp.eye(3), b, left_side=left, lower=lower, transpose_a=turned
        )
        for left, b in ((True, a.T), (False, a))
        for lower in (True, False)
        for turned in (True, False)
    ],
    "no triangular systems": lambda a, i: jax.scipy.linalg.solve_triangular(0 * a[:3], a[:3, 0] + jnp.inf),
    "cut off": lambda a, i: (jax.lax.stop_gradient(a), (9 * a).astype(int), (9 * a).astype(jnp.uint8)),
    "random numbers": lambda a, i: jax.random.normal(jax.random.key(0), (2,)) + a[0, 0],
    "constants": lambda a, i: (a[0, 0] * A, jnp.where(a[0, 0] > 0, A, a), a @ A.T, jnp.concatenate([A, a])),
    "overflow": lambda a, i: jnp.exp(1e3 * a) - jnp.exp(1e3 * a),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_gives_the_values_of_jax(name):
    function = FUNCTIONS[name]
    with jax.enable_x64(True):
        expected = jax.tree.leaves(function(jnp.asarray(A), jnp.asarray(I)))
        program = trace(lambda a, i: dict(enumerate(jax.tree.leaves(function(a, i)))), a=A, i=I)
        values = evaluate(program, range(len(expected)), a=A, i=I)
        points = {"a": np.stack([A, A[::-1] + 0.3]), "i": np.stack([I, I[::-1]])}
        mapped = evaluate_each(program, range(len(expected)), **points)
        last = jax.tree.leaves(function(*(jnp.asarray(column[-1]) for column in points.values())))
    assert_same(values, expected)
    assert_same([value[0] for value in mapped], expected)
    assert_same([value[1] for value in mapped], last)


def assert_same(values, expected):
    for value, other in zip(values, map(np.asarray, expected), strict=True):
        assert (value.shape, value.dtype) == (other.shape, other.dtype)
        tolerance = 1e-6 if other.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(value, other, rtol=tolerance, atol=1e-300)
