"""Synthetic rows have every outcome as often as the model says, where outcomes are few."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.planning.outcomes import with_outcomes


def test_a_row_has_each_of_few_outcomes_as_often_as_it_is_likely():
    rows = {"X": jnp.asarray([[0.1], [0.2]]), "y": jnp.asarray([0, 0])}
    logits = jnp.log(jnp.asarray([[0.25, 0.75], [1.0, 1e-30]]))
    copies, weights = with_outcomes(rows, {"y": jnp.asarray([0, 1])}, logits, 10_000.0, 3)
    np.testing.assert_array_equal(copies["y"], [0, 1, 0, 1])
    np.testing.assert_allclose(copies["X"][:, 0], [0.1, 0.1, 0.2, 0.2])
    assert weights == pytest.approx([2500.0, 7500.0, 10_000.0, 0.0])


def test_where_outcomes_take_many_values_all_copies_of_a_row_share_one():
    values = jnp.linspace(0.0, 1.0, 50)
    rows = {"y": jnp.zeros(3)}
    copies, weights = with_outcomes(rows, {"y": values}, jnp.zeros((3, 50)), 7.0, 0)
    assert set(np.asarray(copies["y"])) <= set(np.asarray(values))
    assert weights.tolist() == [7.0] * 3
