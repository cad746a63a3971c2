"""Derivative bounds are claimed only of functions whose automatic derivatives are their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import xlogy

from private_mcmc.domains import Box, Rows
from private_mcmc.model.ir.dependence import Shape, smoothness
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.interval import anything, between
from private_mcmc.model.likelihoods.family import certified


@jax.custom_jvp
def liar(x):
    return x


liar.defjvp(lambda primals, tangents: (primals[0], 0.0 * tangents[0]))

twin = jax.custom_jvp(xlogy.fun)
twin.defjvp(lambda primals, tangents: (twin(*primals), liar(primals[1]) * tangents[1]))

FUNCTIONS = {
    "free": (lambda e, x: jnp.exp(x), Shape.FREE),
    "smooth": (lambda e, x: jnp.tanh(e) * x + jnp.exp(-(e**2)), Shape.SMOOTH),
    "guarded": (lambda e, x: jnp.where(jnp.isfinite(e), jnp.tanh(e), 0.0), Shape.SMOOTH),
    "guard of an overflow": (lambda e, x: jnp.where(jnp.isfinite(jnp.exp(20 * e)), e, 0.0), Shape.ROUGH),
    "guard of no number": (lambda e, x: jnp.where(jnp.isnan(0.0 * jnp.exp(e)), 0.0, e), Shape.ROUGH),
    "guard of the row": (lambda e, x: jnp.where(jnp.isnan(jnp.log(x)), 0.0, e), Shape.SMOOTH),
    "inactive clip": (lambda e, x: jnp.clip(jax.nn.sigmoid(e), -0.1, 1.1), Shape.SMOOTH),
    "own rule of jax": (lambda e, x: xlogy(x, 0.1 + jax.nn.sigmoid(e)), Shape.SMOOTH),
    "choice by the row": (lambda e, x: jnp.where(x > 0, e, -e), Shape.SMOOTH),
    "kink": (lambda e, x: jnp.abs(e - x), Shape.CONTINUOUS),
    "active clip": (lambda e, x: jnp.clip(e, -1, 1), Shape.CONTINUOUS),
    "jump": (lambda e, x: jnp.where(e > 0, 1.0, 0.0), Shape.ROUGH),
    "sign": (lambda e, x: jnp.sign(e), Shape.ROUGH),
    "rounded": (lambda e, x: jnp.floor(e), Shape.ROUGH),
    "own derivative": (lambda e, x: liar(e), Shape.ROUGH),
    "own derivative of a body of jax": (lambda e, x: twin(x, 0.1 + jax.nn.sigmoid(e)), Shape.ROUGH),
    "hidden derivative": (lambda e, x: jax.lax.stop_gradient(e), Shape.ROUGH),
    "loop": (lambda e, x: jax.lax.fori_loop(0, 3, lambda _, s: s + e, 0.0), Shape.SMOOTH),
    "open loop": (lambda e, x: jax.lax.while_loop(lambda s: s < 3, lambda s: s + 1.0, e), Shape.ROUGH),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_known_shapes(name):
    function, expected = FUNCTIONS[name]
    with jax.enable_x64(True):
        scalar = abstract((), np.float64)
        program = trace(lambda eta, x: {"out": function(eta, x)}, eta=scalar, x=scalar)
        given = {program.inputs["eta"]: anything(()), program.inputs["x"]: between(np.zeros(()), np.ones(()))}
        assert smoothness(program, "eta", "out", given) is expected


@pytest.mark.parametrize(
    ("loss", "score", "curvature"),
    [
        (lambda e, row: jnp.abs(row["x"] - e), 1.0, np.inf),
        (lambda e, row: 0.5 * (row["x"] - e) ** 2, np.inf, 1.0),
        (lambda e, row: jnp.where(e > 0, 1.0, 0.0), np.inf, np.inf),
        (lambda e, row: -jnp.log(0.1 + 0.8 * jax.nn.sigmoid(e)), 0.5, 0.175),
        (lambda e, row: liar(e) ** 2, np.inf, np.inf),
        (lambda e, row: jnp.tanh(e) + 0.0 * jnp.exp(20 * e), np.inf, np.inf),
        (lambda e, row: jnp.tanh(e) + jnp.where(row["x"] > 5, jnp.exp(e), 0.0), np.inf, np.inf),
    ],
)
def test_certified_bounds(loss, score, curvature):
    with jax.enable_x64(True):
        family = certified(loss, Rows(x=Box(0, 1)))
    for found, expected in ((family.score_bound, score), (family.curvature_bound, curvature)):
        if np.isinf(expected):
            assert found == np.inf
        else:
            assert expected * (1 - 1e-9) <= found <= expected * 1.15
    assert not family.convex


@pytest.mark.slow
def test_the_true_extremes_are_within_the_certified_bounds():
    def loss(eta, row):
        return -jnp.log(0.05 + 0.9 * jax.nn.sigmoid(eta)) * row["x"]

    with jax.enable_x64(True):
        family = certified(loss, Rows(x=Box(0, 1)))
        grid = jnp.linspace(-30, 30, 20001)
        row = {"x": jnp.ones(())}
        scores = jax.vmap(jax.grad(loss), (0, None))(grid, row)
        curvatures = jax.vmap(jax.grad(jax.grad(loss)), (0, None))(grid, row)
    assert 0.3 * family.score_bound <= np.max(np.abs(scores)) <= family.score_bound
    assert 0.3 * family.curvature_bound <= np.max(np.abs(curvatures)) <= family.curvature_bound
