"""The shapes in kernels' types are checked while tests run, in modules that exist."""

import importlib.util

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from private_mcmc.kernels.gradient import clipped_sum
from tests.shapes import CHECKED


def test_the_modules_whose_shapes_are_checked_are_there_and_are_the_kernels():
    assert all(importlib.util.find_spec(name) is not None for name in CHECKED)
    parts = {name.removeprefix("private_mcmc.kernels.") for name in CHECKED}
    assert {"step", "chain", "gradient"} <= parts


def test_a_wrong_shape_in_a_kernel_is_refused():
    present = jnp.ones(3, bool)
    for gradients in (jnp.ones((3, 2, 2)), jnp.ones((4, 2))):
        with pytest.raises(TypeCheckError):
            clipped_sum(gradients, present, 1.0)
