"""What is installed works from anywhere: run by nox in an empty environment, outside of the checkout."""

import subprocess
import sys
from pathlib import Path

import private_mcmc as pmc

assert "site-packages" in pmc.__file__, pmc.__file__
lazy = {"jax", "numpyro", "matplotlib", "xarray", "pyarrow", "pandas"} & set(sys.modules)
assert not lazy, f"imported with the library: {lazy}"

import jax  # noqa: E402
import numpy as np  # noqa: E402

from private_mcmc.models import logistic, logistic_rows  # noqa: E402

before = jax.config.jax_enable_x64
rng = np.random.default_rng(0)
X, y = rng.uniform(-1, 1, (500, 2)) / 2, rng.integers(0, 2, 500)
mcmc = pmc.PrivateMCMC(
    pmc.PrivateULA(logistic, step_size=1e-3, clip=1.0),
    rows=logistic_rows(2),
    target=pmc.Target(3.0, 1e-5),
    guarantee="run",
    release="path",
    num_steps=50,
    progress_bar=False,
)
mcmc.run(X=X, y=y)
assert mcmc.get_samples()["w"].shape == (50, 2) and mcmc.statement.verify()
assert jax.config.jax_enable_x64 == before
mcmc.save("study")
command = [str(Path(sys.executable).parent / "private-mcmc"), "verify", "study"]
print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
