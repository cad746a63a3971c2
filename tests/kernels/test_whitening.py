"""The change of variables is the metric of the accountant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.errors import DeclarationError
from private_mcmc.kernels.gradient import whitening

MATRICES = {
    "identity": None,
    "diagonal": (0.5, 2.0, 3.0),
    "full": ((2.0, 0.3, 0.0), (0.3, 1.0, 0.1), (0.0, 0.1, 0.5)),
}


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
