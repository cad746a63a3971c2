"""Shared test settings."""

import numpy as np
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# Array shapes in the kernels' types are checked in every call; before anything imports them.
install_import_hook([f"private_mcmc.kernels.{name}" for name in ("step", "whitening")], "beartype.beartype")

settings.register_profile("default", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("default")


@pytest.fixture
def rng():
    """A generator with a fixed seed: statistical tests state their failure rate for fresh seeds."""
    return np.random.default_rng(20260101)
