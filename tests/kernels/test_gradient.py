"""The clipped gradient is the sum of the rows' gradients, each clipped in the metric of M."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc.domains import Ball, Binary, Box, Rows
from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.gradient import AffineRows, GeneralRows, clipped_gradient, whitening
from private_mcmc.model import read
from tests.examples_of_models import bent, logistic, observed

N, P, CLIP = 40, 3, 0.7


def shifted(X, y=None):
    """An affine predictor with an offset."""
    w = numpyro.sample("w", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
    observed(X, dist.Bernoulli(logits=X @ w + 0.7 * X[:, 0]), y)


def beside(X, z, y=None):
    """The same, and a site whose density no latent is in."""
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("z", dist.Normal(0, 1), obs=z)
    shifted(X, y)


MATRIX = ((2.0, 0.3, 0.0), (0.3, 1.0, 0.1), (0.0, 0.1, 0.5))
CASES = {
    "affine": (logistic, Rows(X=Ball(2.0, dim=P), y=Binary())),
    "affine with an offset": (shifted, Rows(X=Ball(2.0, dim=P), y=Binary())),
    "affine beside a site without latents": (beside, Rows(X=Ball(2.0, dim=P), z=Box(-1.0, 1.0), y=Binary())),
    "general": (bent, Rows(X=Ball(2.0, dim=P), y=Box(-3.0, 3.0))),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    model, rows = CASES[request.param]
    with jax.enable_x64(True):
        return request.param, read(model, rows, n=N), rows.synthetic(1, N)


def naive(model, change, columns, present, u, clip):
    """Row by row: gradient, norm in the whitened coordinates, clip, add."""
    one = jax.jit(jax.grad(lambda u, row: model.row_loss(change.to_parameter(u), row)))
    total = np.zeros(model.dim)
    for i in np.flatnonzero(present):
        gradient = np.asarray(one(u, {name: column[i] for name, column in columns.items()}))
        total += gradient * min(1.0, clip / max(np.linalg.norm(gradient), 1e-300))
    return total


def matrix_for(model, kind):
    if kind == "identity":
        return None
    if kind == "diagonal":
        return tuple(np.linspace(0.5, 2.0, model.dim))
    full = np.eye(model.dim)
    full[:3, :3] = MATRIX
    return tuple(map(tuple, full))


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["identity", "diagonal", "full"])
@pytest.mark.parametrize("clip", [0.05, 0.4, 100.0])
def test_equals_the_naive_sum(case, kind, clip):
    _, model, columns = case
    with jax.enable_x64(True):
        change = whitening(matrix_for(model, kind), model.dim)
        present = jnp.arange(N) % 5 != 0
        u = jnp.linspace(-1.0, 1.5, model.dim)
        found = []
        for states in (None, 1):
            gradient = clipped_gradient(model, change, clip, states)
            found.append(
                jax.jit(lambda u, c, p, g=gradient: g.total(u, g.prepare(c, p)))(u, columns, present)
            )
        wanted = naive(model, change, columns, present, u, clip)
    np.testing.assert_allclose(found, [wanted] * 2, rtol=1e-9, atol=1e-12)


@pytest.mark.some(1)
def test_the_route_is_chosen_by_the_proved_structure(case):
    name, model, columns = case
    with jax.enable_x64(True):
        gradient = clipped_gradient(model, whitening(None, model.dim), 1.0)
        prepared = gradient.prepare(columns, jnp.ones(N, bool))
    assert isinstance(prepared, GeneralRows if name == "general" else AffineRows)
    if name != "general":
        assert model.predictor.centred == (name == "affine")
        # An offset that is zero for every row is not stored.
        assert prepared.design.shape == (N, P) and (prepared.offset is None) == (name == "affine")


@pytest.mark.slow
def test_columns_that_no_slope_reads_are_not_kept():
    model, rows = CASES["affine"]
    with jax.enable_x64(True):
        reading, columns = read(model, rows, n=N), rows.synthetic(1, N)
        gradient = clipped_gradient(reading, whitening(None, P), 1.0, states=1)
        assert list(gradient.prepare(columns, jnp.ones(N, bool)).columns) == ["y"]


MATRICES = {"identity": None, "diagonal": (0.5, 2.0, 3.0), "full": MATRIX}


@pytest.mark.parametrize("name", MATRICES)
def test_norms_are_the_primal_and_dual_norms_of_the_metric(name, rng):
    matrix = MATRICES[name]
    full = np.eye(3) if matrix is None else np.diag(matrix) if name == "diagonal" else np.asarray(matrix)
    theta, gradient = rng.normal(size=(2, 3))
    with jax.enable_x64(True):
        change = whitening(matrix, 3)
        u = change.from_parameter(jnp.asarray(theta))
        np.testing.assert_allclose(change.to_parameter(u), theta, rtol=1e-12)
        np.testing.assert_allclose(u @ u, theta @ np.linalg.solve(full, theta), rtol=1e-12)
        pulled = change.pull_back(jnp.asarray(gradient))
        np.testing.assert_allclose(pulled @ pulled, gradient @ full @ gradient, rtol=1e-12)
        # A gradient pairs with a displacement the same way in both coordinates.
        np.testing.assert_allclose(pulled @ u, gradient @ theta, rtol=1e-10)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ((1.0, 2.0), "expected 3"),
        ((1.0, -1.0, 1.0), "positive"),
        (((1.0, 0.1, 0.0), (0.2, 1.0, 0.0), (0.0, 0.0, 1.0)), "symmetric"),
        (((1.0, 2.0, 0.0), (2.0, 1.0, 0.0), (0.0, 0.0, 1.0)), "positive definite"),
        ((1.0, float("nan"), 1.0), "finite"),
    ],
)
def test_what_is_not_a_metric_is_refused(matrix, words):
    with pytest.raises(DeclarationError, match=words):
        whitening(matrix, 3)
