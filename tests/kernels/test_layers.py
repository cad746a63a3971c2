"""Rows clipped by the layers of their program: what factors, what does not, and the same sum either way."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_mcmc.accounting import Curvature
from private_mcmc.accounting.langevin.moduli import gradient_bound
from private_mcmc.accounting.langevin.sensitivity import CLIP_SLACK
from private_mcmc.domains import Ball, Binary, Box, Categories, Real, Rows
from private_mcmc.kernels import PrivateULA
from private_mcmc.kernels.gradient.clipped import _program, clipped_gradient
from private_mcmc.kernels.gradient.clipping import whitening
from private_mcmc.kernels.gradient.layered import find_layers
from private_mcmc.model import read
from private_mcmc.preflight.certificates import curvature

N, P = 30, 4
X = Ball(2.0, dim=P)


def normal(name, *shape):
    return numpyro.sample(name, dist.Normal(0, 1).expand(shape).to_event(len(shape)))


def network(X, y=None):
    logits = jnp.tanh(X @ normal("a", P, 5) + normal("c", 5)) @ normal("b", 5)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def softmax(X, y=None):
    logits = X @ normal("w", P, 3) + normal("b", 3)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


def shared(X, y=None):
    """One matrix in two layers, beside a product whose both factors are parameters."""
    a, b = normal("a", P, P), normal("b", P)
    hidden = jnp.tanh(jnp.tanh(X @ a) @ a)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(hidden @ b, 1.0), obs=y)


def overlapping(X, y=None):
    """A part of a vector is used beside the whole of it."""
    a = normal("a", P)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(jnp.tanh(X @ a) + jnp.sin(a[:2]).sum(), 1.0), obs=y)


def location_and_scale(X, g, y=None):
    """A group's effect, a scale behind a transform, and a scaled vector."""
    w, e, tau = normal("w", P), normal("e", 6), normal("tau")
    scale = numpyro.sample("scale", dist.LogNormal(0, 1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ (jnp.exp(tau) * w) + e[g], scale), obs=y)


def bilinear(X, y=None):
    """A product of two parameters, one of them used again, and one that no row reads."""
    a, b = normal("a", 3), normal("b", 3)
    normal("unread", 2)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(jnp.sin(a @ b + X[:, 0] ** 2 * a[0:3].sum()), 1.0), obs=y)


MODELS = {
    "network": (network, Rows(X=X, y=Binary()), 2, 1),
    "softmax": (softmax, Rows(X=X, y=Categories(3)), 1, 1),
    "shared": (shared, Rows(X=X, y=Box(-3.0, 3.0)), 1, 1),
    "overlapping": (overlapping, Rows(X=X, y=Box(-3.0, 3.0)), None, None),
    "location and scale": (location_and_scale, Rows(X=X, g=Categories(6), y=Box(-3.0, 3.0)), 0, 4),
    "bilinear": (bilinear, Rows(X=X, y=Box(-3.0, 3.0)), 1, 1),
}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    model, rows, products, direct = MODELS[request.param]
    with jax.enable_x64(True):
        return read(model, rows, n=N), rows.synthetic(2, N), products, direct


@pytest.mark.long
def test_products_with_a_vector_factor_and_the_rest_does_not(case):
    model, _, products, direct = case
    with jax.enable_x64(True):
        layers = find_layers(_program(model))
    if products is None:
        assert layers is None
    else:
        assert (len(layers.products), len(layers.direct)) == (products, direct)


@pytest.mark.some(1)
@pytest.mark.parametrize("diagonal", [False, True])
def test_layers_and_per_row_gradients_give_the_same_sum(case, diagonal):
    """Some rows clipped and some not; the per-row route is held to the naive sum elsewhere."""
    model, columns, *_ = case
    matrix = tuple(np.geomspace(0.1, 3.0, model.dim)) if diagonal else None
    with jax.enable_x64(True):
        change = whitening(matrix, model.dim)
        u, present = jnp.linspace(-0.6, 0.9, model.dim), jnp.arange(N) % 4 != 0
        sums = []
        for clip in (0.3, 1e6):
            for route in ("layers", "rows"):
                gradient = clipped_gradient(model, change, clip, route=route)
                sums.append(jax.jit(gradient.total)(u, gradient.prepare(columns, present)))
    np.testing.assert_allclose(sums[0], sums[1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sums[2], sums[3], rtol=1e-9, atol=1e-12)
    assert not np.allclose(sums[0], sums[2])


@pytest.fixture(scope="module", params=[False, True])
def one_row(request):
    """Norm of one row's term at clip 0.7 in a network, plain or under a diagonal matrix; compiled once."""
    rows = Rows(X=Real(P), y=Binary())
    with jax.enable_x64(True):
        model = read(network, rows, n=1)
        matrix = tuple(np.geomspace(1e-9, 1e9, model.dim)) if request.param else None
        gradient = clipped_gradient(model, whitening(matrix, model.dim), 0.7)
        compiled = jax.jit(lambda u, row: gradient.total(u, gradient.prepare(row, jnp.ones(1, bool))))

    def norm(u, x, y):
        with jax.enable_x64(True):
            row = rows.project({"X": np.asarray(x)[None], "y": np.asarray([y])})
            total = np.asarray(compiled(jnp.asarray(u), row))
        largest = np.abs(total).max()
        return largest * np.linalg.norm(total / largest) if largest > 0 else float(largest)

    return norm, model.dim


@pytest.mark.some(1)
@given(
    scale=st.sampled_from([0.0, 1e-300, 1e-160, 1e-3, 1.0, 1e5, 1e155, 1e300]),
    design=st.sampled_from([0.0, 1e-310, 1e-160, 1e-154, 1.0, 1e100, 1e199]),
    second=st.sampled_from([1e-162, 1.0]),
    y=st.integers(0, 1),
    seed=st.integers(0, 9),
)
@settings(max_examples=150)
def test_no_row_is_longer_than_the_clip_at_any_scale(one_row, scale, design, second, y, seed):
    norm, dim = one_row
    rng = np.random.default_rng(seed)
    x = design * np.array([1.0, second, -second, 0.0])
    assert norm(scale * rng.standard_normal(dim), x, y) <= 0.7 * (1 + CLIP_SLACK)


@pytest.mark.long
@pytest.mark.parametrize("route", ["layers", "rows"])
def test_a_clip_at_the_proved_bound_scales_no_row(route: str) -> None:
    """At √2·R the farthest rows, whose norm is the bound but for rounding, must enter as they are."""
    rows = Rows(X=Ball(2.0, dim=P), y=Categories(3))
    with jax.enable_x64(True):
        model = read(softmax, rows, n=1)
        bound = model.constants.gradient_bound
        far = {"X": jnp.array([[2.0, 0.0, 0.0, 0.0]]), "y": jnp.array([1])}
        theta = jnp.zeros(model.dim).at[0].set(40.0)
        exact = jax.grad(model.row_loss)(theta, {name: column[0] for name, column in far.items()})
        gradient = clipped_gradient(model, whitening(None, model.dim), bound * (1 - 1e-11), route=route)
        term = gradient.total(theta, gradient.prepare(far, jnp.ones(1, dtype=bool)))
    assert bound * (1 - 1e-12) < np.linalg.norm(exact)
    assert np.linalg.norm(term) >= np.linalg.norm(exact) * (1 - 1e-15)


@pytest.mark.some(1)
@pytest.mark.parametrize("route", ["layers", "rows"])
def test_equal_clipped_rows_stay_within_the_accountants_bound_of_the_gradient(route: str) -> None:
    """All of them use the slack of the clip, which is more than the rounding of so many rows."""
    n = 200
    schedule = PrivateULA(softmax, step_size=0.1, clip=1.0).schedule(
        adjacency="replace_one", num_rows=n, dim=15, num_steps=1, num_chains=1, release="last"
    )
    with jax.enable_x64(True):
        model = read(softmax, Rows(X=Ball(2.0, dim=P), y=Categories(3)), n=n)
        columns = {"X": jnp.tile(jnp.array([2.0, 0.0, 0.0, 0.0]), (n, 1)), "y": jnp.ones(n, dtype=int)}
        gradient = clipped_gradient(model, whitening(None, model.dim), schedule.clip, route=route)
        total = jax.jit(lambda u, rows: gradient.total(u, gradient.prepare(*rows)))(
            jnp.zeros(model.dim), (columns, jnp.ones(n, dtype=bool))
        )
    assert model.dim == schedule.dim
    bounds = gradient_bound(schedule, Curvature()), curvature(model, schedule).gradient_bound
    assert n * (1 + 5e-11) < np.linalg.norm(total) <= min(bounds)


@pytest.mark.slow
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308])
def test_a_state_that_is_not_a_number_moves_nothing_past_the_clip(one_row, bad):
    norm, dim = one_row
    assert norm(np.full(dim, bad), np.ones(P), 1) <= 0.7 * (1 + CLIP_SLACK)


@pytest.mark.long
def test_blocks_of_rows_add_up_whatever_is_left_over():
    """More rows than one block takes, and not a multiple of it."""
    rows = Rows(X=X, y=Binary())
    count = 20_001
    with jax.enable_x64(True):
        model = read(network, rows, n=count)
        columns, u = rows.synthetic(0, count), jnp.linspace(-1, 1, model.dim)
        present = jnp.arange(count) % 3 != 0
        gradient = clipped_gradient(model, whitening(None, model.dim), 0.2)
        whole = jax.jit(gradient.total)(u, gradient.prepare(columns, present))
        parts = jnp.zeros(model.dim)
        for part in np.array_split(np.arange(count), 40):
            chosen = {name: column[part] for name, column in columns.items()}
            parts += gradient.total(u, gradient.prepare(chosen, present[part]))
    np.testing.assert_allclose(whole, parts, rtol=1e-10, atol=1e-12)
