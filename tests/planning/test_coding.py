"""Answers do not depend on how columns are coded, nor are intervals narrower than without privacy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import private_mcmc as pmc
from private_mcmc.accounting import gdp
from private_mcmc.inference.posterior import Chains, posterior_of
from private_mcmc.inference.question import question
from private_mcmc.inference.reading import read_columns
from private_mcmc.model import read
from private_mcmc.planning.facts import facts_of
from private_mcmc.planning.general import Policy
from private_mcmc.planning.simulate import simulate
from tests.data import fields
from tests.examples_of_models import logistic
from tests.planning.exact import posterior_mode

N, DIM, RUNS = 4000, 4, 4


@functools.cache
def policy():
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=DIM), y=pmc.Binary())
    return Policy(facts_of(read(logistic, rows, n=N), N, "replace_one", gdp.budget(3.0, 1e-6)))


def draws_of(made, rows, weights, seed):
    """Of the posterior given what a simulated run releases, ``(draws, p)``."""
    history = simulate(made, rows, weights, seed)
    given = posterior_of(made.facts.reading, history, made.conclude(history), None, Chains(2, 200, 400))
    return given.draws.reshape(-1, made.facts.reading.dim)


def base():
    """An intercept, two levels of three, and a number, in a ball of radius 1; a rare outcome."""
    random = np.random.default_rng(0)
    level, number = random.choice(3, N, p=[0.6, 0.3, 0.1]), random.uniform(-1, 1, N)
    X = np.column_stack([np.ones(N), level == 1, level == 2, number]) / np.sqrt(3)
    y = random.random(N) < 1 / (1 + np.exp(-X @ np.array([-2.5, 1.0, -1.0, 1.0])))
    return X, y.astype(int)


CODINGS = {
    "as it is": lambda X: X,
    "turned": lambda X: X @ np.linalg.qr(np.random.default_rng(1).standard_normal((DIM, DIM)))[0],
    "rescaled": lambda X: X * np.array([1.0, 1.0, 1.0, 0.05]),
    "another reference level": lambda X: np.column_stack([X[:, 0] - X[:, 1] - X[:, 2], X[:, 1:]]),
    "a column that others determine": lambda X: np.column_stack([X[:, :3], X[:, 0] - X[:, 1]]) / 1.2,
    "a level that nobody is in": lambda X: X * np.array([1.0, 1.0, 0.0, 1.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("coding", CODINGS)
def test_intervals_hold_and_are_no_narrower_than_without_privacy_whatever_the_coding(coding):
    """Of four runs. A direction without information has the prior's width and centre.

    A floor of the curvature left a column that another determines 0.45 of its sd, an empty level 0.86 of it.
    """
    X, y = base()
    rows, weights = {"X": jnp.asarray(CODINGS[coding](X)), "y": jnp.asarray(y)}, np.ones(N)
    mode, covariance = posterior_mode(policy().facts.reading, rows, weights)
    found = [draws_of(policy(), rows, weights, seed) for seed in range(RUNS)]
    sds = np.array([draws.std(axis=0) for draws in found])
    off = np.array([draws.mean(axis=0) for draws in found]) - mode
    assert np.all(np.median(sds, axis=0) > 0.9 * np.sqrt(np.diag(covariance)))
    assert np.all(np.abs(off) < 4 * sds)
    assert np.mean(np.abs(off) < 1.645 * sds) > 0.7


def as_formula():
    """The same rows as a table, with the level that is common as reference."""
    X, y = base()
    table = pd.DataFrame(
        {
            "level": np.array(["a", "b", "c"])[(X[:, 1] > 0) + 2 * (X[:, 2] > 0)],
            "number": X[:, 3] * np.sqrt(3),
            "y": y,
        }
    )
    schema = fields.schema(fields.levels("level", *"abc"), fields.number("number", -1, 1), fields.flag("y"))
    asked = question(schema, "y ~ level + number")
    columns = read_columns(table.astype({"y": bool}), schema, asked, "replace_one")
    made = Policy(facts_of(read(asked.model, asked.rows, n=N), N, "replace_one", gdp.budget(3.0, 1e-6)))
    return made, {name: jnp.asarray(column) for name, column in columns.items()}


def predicted(made, rows):
    """Means and sds of every row's predictor, of a simulated run."""
    draws = draws_of(made, rows, np.ones(N), 0)
    with jax.enable_x64(True):
        design = np.asarray(jax.vmap(made.facts.reading.predictor.designs)(rows))[:50, 0]
    return (draws @ design.T).mean(axis=0), (draws @ design.T).std(axis=0)


@pytest.mark.long
def test_a_formula_and_a_matrix_in_a_ball_give_the_same_predictors_up_to_noise():
    """Priors and metrics differ a little; noise is that of two runs."""
    X, y = base()
    by_matrix = predicted(policy(), {"X": jnp.asarray(X), "y": jnp.asarray(y)})
    by_formula = predicted(*as_formula())
    off = (by_matrix[0] - by_formula[0]) / np.hypot(by_matrix[1], by_formula[1])
    assert np.all(np.abs(off) < 3)
    assert np.all(np.abs(np.log(by_matrix[1] / by_formula[1])) < np.log(2))
