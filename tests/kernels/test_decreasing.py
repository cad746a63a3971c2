"""Decreasing step sizes: the chain makes the steps of its schedule; kernels are frozen."""

import dataclasses

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.domains import Box, Rows
from private_mcmc.kernels import PrivateULA
from tests.examples_of_models import normal_mean
from tests.kernels.chains import run

DECREASING = tuple(0.09 / k**0.3 for k in range(1, 41))


@pytest.mark.parametrize("matrix", [2.0, "identity", [[1.0], [2.0, 3.0]], np.zeros((2, 2, 2))])
def test_a_preconditioner_is_a_diagonal_or_a_matrix(matrix):
    with pytest.raises(pmc.DeclarationError, match="preconditioner: numbers, a diagonal"):
        PrivateULA(normal_mean, step_size=0.05, clip=1.0, preconditioner=matrix)


def test_a_kernel_is_frozen_and_hashable():
    kernel = PrivateULA(normal_mean, step_size=0.05, clip=1.0, preconditioner=np.eye(2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.step_size = 0.1
    assert hash(kernel) == hash(PrivateULA(normal_mean, step_size=0.05, clip=1.0, preconditioner=np.eye(2)))


@pytest.mark.long
def test_the_chain_makes_the_declared_steps():
    """θ' = (1 − 10γ_k)θ + γ_k Σy + N(0, 2γ_k): exact mean and variance; failure probability below 1e-6."""
    y, chains = np.linspace(-1.0, 1.0, 9) + 0.3, 20_000
    kernel = PrivateULA(normal_mean, DECREASING, 1e3)
    states = run(kernel, Rows(y=Box(-5.0, 5.0)), {"y": y}, num_steps=40, num_chains=chains)[:, 0, 0]
    mean = variance = 0.0
    for size in DECREASING:
        mean, variance = (1 - 10 * size) * mean + size * y.sum(), (1 - 10 * size) ** 2 * variance + 2 * size
    assert abs(states.mean() - mean) < 5 * np.sqrt(variance / chains)
    assert abs(states.var() / variance - 1) < 5 * np.sqrt(2 / chains)
