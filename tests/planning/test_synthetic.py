"""Synthetic rows have one outcome for each row they stand for, where outcomes are few."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.planning.synthetic import with_outcomes


@pytest.mark.long
def test_copies_of_a_row_have_outcomes_of_their_own():
    rows = {"X": jnp.asarray([[0.1], [0.2]]), "y": jnp.asarray([0, 0])}
    logits = jnp.log(jnp.asarray([[0.25, 0.75], [1.0, 1e-30]]))
    copies, weights = with_outcomes(rows, {"y": jnp.asarray([0, 1])}, logits, 10_000.0, jax.random.key(3))
    np.testing.assert_array_equal(copies["y"], [0, 1, 0, 1])
    np.testing.assert_allclose(copies["X"][:, 0], [0.1, 0.1, 0.2, 0.2])
    assert weights.reshape(2, 2).sum(axis=1).tolist() == [10_000.0, 10_000.0]
    # Five standard deviations of a binomial share.
    assert weights[1] / 10_000 == pytest.approx(0.75, abs=5 * math.sqrt(0.75 * 0.25 / 10_000))
    assert weights[3] == 0


@pytest.mark.slow
def test_fewer_copies_than_rows_share_what_weight_there_is():
    rows = {"y": jnp.zeros(4, int)}
    copies, weights = with_outcomes(rows, {"y": jnp.arange(2)}, jnp.zeros((4, 2)), 0.5, jax.random.key(0))
    assert len(copies["y"]) == 8
    assert weights.sum() == pytest.approx(2.0)


@pytest.mark.long
def test_where_outcomes_take_many_values_all_copies_of_a_row_share_one():
    values = jnp.linspace(0.0, 1.0, 50)
    rows = {"y": jnp.zeros(3)}
    copies, weights = with_outcomes(rows, {"y": values}, jnp.zeros((3, 50)), 7.0, jax.random.key(0))
    assert set(np.asarray(copies["y"])) <= set(np.asarray(values))
    assert weights.tolist() == [7.0] * 3
