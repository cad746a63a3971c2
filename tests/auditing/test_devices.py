"""Audits over several devices: chains in shares, the same claims."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import jax, numpy as np
from private_mcmc import Box, Expectations, PrivateULA, Rows, Target
from private_mcmc.auditing import Pair, chain_mechanism
from tests.soundness.sweep.zoo import mean

assert len(jax.devices()) == 8
def mechanism(release):
    return chain_mechanism(
        PrivateULA(mean, step_size=0.05, clip=1.854), rows=Rows(y=Box(-5.0, 5.0)),
        target=Target(1.0, 1e-5), release=release, num_steps=12, n=1,
    )
data = {"y": np.array([5.0])}
states = mechanism("last").draw(data, 4_001, np.random.SeedSequence(1))
assert states.shape == (4_001, 1) and len(np.unique(states)) == 4_001
# Started at 0, pulled by the prior and by one clipped row: mean and variance of the linear chain.
rho, gamma = 0.95, 0.05
variance = 2 * gamma * (1 - rho**24) / (1 - rho**2)
expected = gamma * 1.854 * (1 - rho**12) / (1 - rho)
assert abs(states.mean() - expected) < 5 * (variance / 4_001) ** 0.5, states.mean()
assert abs(states.var() / variance - 1) < 5 * (2 / 4_001) ** 0.5, states.var()
averages = mechanism(Expectations("mu", bounds=(-2.0, 2.0))).draw(data, 20, np.random.SeedSequence(1))
assert averages.shape == (20, 1)
print("done")
"""


@pytest.mark.long
def test_chains_spread_over_eight_devices_have_their_law():
    """Two tests at five standard errors: fails with probability 2e-6."""
    forced = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=forced, capture_output=True, text=True, check=False
    )
    assert found.stdout.strip() == "done", found.stderr
