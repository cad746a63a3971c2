"""What no matrix says of covariates leaves people, and not people of negative weight."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.inference.posterior import given_releases
from private_mcmc.inference.posterior.covariates import LARGEST_SD, conditioned, fitted
from private_mcmc.inference.posterior.observations import used_paths
from private_mcmc.inference.posterior.sample import Chains
from private_mcmc.model import read
from private_mcmc.planning import CompletedStage, PathStage
from private_mcmc.schedule import Schedule

N = 1500


def votes(age, points, woman, vote=None):
    X = jnp.stack([jnp.ones_like(age), age, points, 1.0 * woman], axis=1)
    w = numpyro.sample("w", dist.Normal(0, 1.5).expand([4, 2]).to_event(2))
    with numpyro.plate("rows", age.shape[0]):
        logits = jnp.concatenate([jnp.zeros((age.shape[0], 1)), X @ w], axis=1)
        numpyro.sample("vote", dist.Categorical(logits=logits), obs=vote)


def test_curvature_is_positive_in_every_direction_where_nothing_of_covariates_was_released():
    """Else far parameters, at which people cancel, are as likely as near ones; it varied by 2 of its size."""
    rows = pmc.Rows(age=pmc.Box(-1, 1), points=pmc.Box(-1, 1), woman=pmc.Binary(), vote=pmc.Categories(3))
    with jax.enable_x64(True):
        found = fitted(read(votes, rows, n=N), [], N, np.zeros(8))
    columns = [np.asarray(found.rows[name], dtype=np.float64) for name in ("age", "points", "woman")]
    X = np.column_stack([np.ones(len(found.weights)), *columns])
    directions = np.random.default_rng(0).standard_normal((200, 4))
    each = found.weights[:, None] * (X @ directions.T) ** 2
    share = np.linalg.norm(found.deviations.T @ each, axis=0) / each.sum(axis=0)
    assert np.all(share < 0.5)
    # And is not taken for known.
    assert np.median(share) > 0.05


def test_weights_are_positive_and_their_sum_as_uncertain_as_before():
    random = np.random.default_rng(1)
    weights, moving = random.uniform(1, 3, 50), 4 * random.standard_normal((50, 6))
    found, deviations = conditioned(weights, moving, [], [], total_sd=0.7)
    common = found @ deviations / found.sum()
    assert np.all(found > 0)
    assert np.linalg.norm(common) == pytest.approx(0.7, rel=0.02)
    # Centring moves none by more than the bound.
    assert np.linalg.norm(deviations - common, axis=1).max() < 2 * LARGEST_SD


def test_deviations_that_matrices_leave_small_stay_as_they_are():
    random = np.random.default_rng(2)
    weights, moving = np.ones(30), 0.1 * random.standard_normal((30, 4))
    _, deviations = conditioned(weights, moving, [], [])
    expected = np.column_stack([moving - moving.mean(axis=0), np.zeros(30)])
    assert deviations == pytest.approx(expected, abs=1e-12)


def line(x=None, y=None):
    b = numpyro.sample("b", dist.Normal(0, 2))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(b if x is None else b * x, 1.0), obs=y)


def ran(name, seed):
    """A path of 20 steps around 1."""
    schedule = Schedule(
        adjacency="replace_one", num_rows=N, dim=1, step_size=0.5, num_steps=20, clip=9.0, release="path",
        preconditioner=((3 / N,),),
    )  # fmt: skip
    states = 1 + np.random.default_rng(seed).normal(0, (3 / N) ** 0.5, (20, 1))
    return CompletedStage(PathStage(name, schedule, np.ones(1)), states)


def test_a_guess_of_covariates_that_does_not_explain_the_paths_gives_no_draws(monkeypatch):
    """It held half of the means of a table of pupils; a remark said so, and intervals were given."""
    rows = {"x": pmc.Box(0.0, 1.0), "y": pmc.Box(-9.0, 9.0)}
    guessed, history = read(line, pmc.Rows(**rows), n=N), (ran("run", 0),)
    few = Chains(1, 20, 50)
    (remark,) = given_releases.posterior_given(guessed, [history], N, asked=few).remarks
    assert "no matrix of covariates" in remark
    monkeypatch.setattr(given_releases, "unexplained", lambda *given: ("paths are off",))
    with pytest.raises(pmc.NotYetSupported, match="no matrix of covariates"):
        given_releases.posterior_given(guessed, [history], N, asked=few)
    none = read(line, pmc.Rows(y=rows["y"]), n=N)
    assert given_releases.posterior_given(none, [history], N, asked=few).remarks == ("paths are off",)


def test_earlier_paths_are_used_where_no_matrix_tells_of_covariates():
    both = (ran("warm-up", 1), ran("run", 2))
    assert [path.stage.name for path in used_paths(both, guessed=True)] == ["warm-up", "run"]
    assert [path.stage.name for path in used_paths(both, guessed=False)] == ["run"]
