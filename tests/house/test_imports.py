"""The core is lean: what is heavy is imported when it is used; and the user's settings stay theirs."""

import subprocess
import sys

import pytest


def loaded(code):
    """The modules that are there after ``code``, in a fresh interpreter."""
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{code}\nimport sys; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(said.stdout.split())


DRAWN_OR_READ = {"matplotlib", "arviz_base", "xarray", "pyarrow", "pandas", "pyreadstat", "formulaic"}
RUN = """
import jax, numpy as np
import private_mcmc as pmc
from private_mcmc.models import logistic, logistic_rows
jax.config.update("jax_enable_x64", {x64})
mcmc = pmc.PrivateMCMC(
    pmc.PrivateULA(logistic, step_size=1e-3, clip=1.0), rows=logistic_rows(2), guarantee="run",
    target=pmc.Target(3.0, 1e-6), release="path", num_steps=3, n=20, progress_bar=False,
)
mcmc.run(X=np.zeros((20, 2)), y=np.zeros(20, int))
mcmc.get_samples()
assert jax.config.jax_enable_x64 is {x64}
"""


@pytest.mark.slow
def test_the_import_loads_neither_jax_nor_what_draws_and_reads():
    heavy = DRAWN_OR_READ | {"jax", "numpyro", "opendp"}
    assert heavy & loaded("import private_mcmc; private_mcmc.Target(1.0, 1e-6)") == set()


@pytest.mark.long
@pytest.mark.parametrize("x64", [False, True])
def test_a_run_loads_nothing_that_draws_and_leaves_the_setting_of_x64(x64):
    assert DRAWN_OR_READ & loaded(RUN.format(x64=x64)) == set()
