"""Rows at extremes are in their domain, and coordinates that are called inactive are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Person, Real, Rows
from private_mcmc.model import read
from private_mcmc.preflight.refute.pairs import extreme_rows
from private_mcmc.preflight.refute.refutation import activity, patches, refute
from private_mcmc.target import Target

DOMAINS = {
    "ball": Ball(2.0, dim=3),
    "box": Box(-1, 3),
    "box away from zero": Box(1, 3),
    "array": Box([0.0, -1.0], [2.0, 1.0]),
    "binary": Binary(),
    "categories": Categories(7),
    "counts": Counts(9),
    "real": Real(dim=2),
    "number": Real(),
}


def softmax(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 3).expand([X.shape[1], 3]).to_event(2))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=X @ w), obs=y)


def latent_scale(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, s), obs=y)


def hierarchy(X, y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    w = numpyro.sample("w", dist.Normal(0, tau).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(jnp.tanh(X @ w), 1.0), obs=y)


CLASSES = Rows(X=Ball(1.0, dim=2), y=Categories(3))
OUTCOMES = Rows(X=Ball(1.0, dim=4), y=Box(-1, 1))


@pytest.mark.some(2)
@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_extreme_rows_are_fixed_points_of_the_projection(domain) -> None:
    rows = Rows(a=domain, y=Binary())
    for row in extreme_rows(rows):
        with jax.enable_x64(True):
            moved = rows.project({name: np.asarray(value)[None] for name, value in row.items()})
        for name, value in row.items():
            # A point on a sphere may move inside by its own rounding.
            np.testing.assert_allclose(np.asarray(moved[name])[0], value, rtol=1e-13)


def test_extreme_rows_are_all_different() -> None:
    rows = extreme_rows(Rows(X=Ball(1.0, dim=3), z=Box(0, 1), y=Binary()))
    keys = {tuple((name, tuple(np.ravel(value))) for name, value in sorted(row.items())) for row in rows}
    assert len(keys) == len(rows) > 10


@pytest.mark.some(1)
@pytest.mark.parametrize(("model", "rows"), [(softmax, CLASSES), (latent_scale, OUTCOMES)])
def test_inactive_coordinates_have_no_influence(model, rows) -> None:
    read_model = read(model, rows, n=5)
    of_row = activity(read_model)
    found_inactive = False
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(read_model.row_loss))
        for row in extreme_rows(rows)[:25]:
            active = of_row(row)
            for seed in range(4):
                theta = 2 * np.random.default_rng(seed).normal(size=read_model.dim)
                moving = set(np.flatnonzero(np.asarray(gradient(theta, row))))
                assert moving <= active
            found_inactive |= len(active) < read_model.dim
    assert found_inactive


@pytest.mark.long
def test_patches_keep_to_coordinates_that_the_prior_separates() -> None:
    assert all(patch.dim == 3 for patch in patches(read(softmax, CLASSES, n=5)))
    names = {patch.coordinates for patch in patches(read(latent_scale, OUTCOMES, n=5))}
    assert ("w[0]", "unconstrained s") in names
    assert list(patches(read(hierarchy, OUTCOMES, n=5))) == []


@pytest.mark.slow
def test_refutations_on_patches_are_of_adjacent_data_sets() -> None:
    found = refute(read(softmax, CLASSES, n=50), n=50, temper=1.0, target=Target(1.0, 1e-6)).refutation
    assert found.first.size == found.second.size == 50
    assert found.coordinates == ("w[0,0]", "w[0,1]", "w[0,2]")
    assert found.p_low > np.exp(1.0) * found.q_high + 1e-6
    # The same event by importance weights from the prior: 4 standard errors.
    draws = np.random.default_rng(0).normal(0, 3, size=(400_000, 3))
    inside = np.zeros(len(draws), dtype=bool)
    for box in found.boxes:
        inside |= np.all(
            [(draws[:, i] > low) & (draws[:, i] <= high) for i, (low, high) in enumerate(box)], axis=0
        )
    for data_set, stated in ((found.first, found.p), (found.second, found.q)):
        log_weight = np.zeros(len(draws))
        for row, times in data_set.rows:
            logits = row["X"][0] * draws
            log_weight += times * (logits[:, row["y"]] - np.log(np.sum(np.exp(logits), axis=1)))
        weight = np.exp(log_weight - log_weight.max())
        share = np.sum(weight * inside) / np.sum(weight)
        error = np.sqrt(np.sum(weight**2 * (inside - share) ** 2)) / np.sum(weight)
        assert abs(share - stated) < 4 * error + 1e-3


def intercepts(X, person, persons, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    with numpyro.plate("persons", persons):
        u = numpyro.sample("u", dist.Normal(0, s))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + u[person]), obs=y)


def test_no_grid_is_made_of_losses_that_are_integrals():
    """A verdict of "unknown" costs seconds: each of thousands of points would be an integral."""
    rows = {"X": Ball(1.0, dim=2), "y": Binary()}
    persons = read(intercepts, Rows(**rows, person=Person(2)), n=9, model_args={"persons": 9})
    assert not list(patches(persons.each))
    assert list(patches(read(latent_scale, Rows(X=Ball(1.0, dim=2), y=Box(-1, 1)), n=9)))
    said = refute(persons.each, n=9, temper=1.0, target=Target(1.0, 1e-6))
    assert said.refutation is None
    assert "tried: a row's loss takes too long" in said.words
