"""A run's layout changes nothing but where it runs; a run's calls are cut by its schedule alone."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_mcmc.errors import DeclarationError
from private_mcmc.inference import Devices, Execution
from private_mcmc.inference.columns import partitions_of
from private_mcmc.kernels import PrivateULA
from private_mcmc.kernels.chain import call_length, calls
from private_mcmc.schedule import Average
from tests.examples_of_models import logistic

ROOT = Path(__file__).parents[2]


def in_another_process(script, *arguments, **environment):
    """Output of a script of the tests, run with warnings as errors."""
    command = [sys.executable, "-W", "error", "-m", f"tests.kernels.{script}", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.long
def test_eight_devices_run_the_chain_of_one():
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    assert "same chains" in in_another_process("several_devices", **flags)


def test_layouts_that_make_no_sense_are_refused():
    for devices in (0, 99, 1.5, ["cpu"], []):
        with pytest.raises(DeclarationError, match="Devices"):
            Devices(devices)
    where = Execution(engine=Devices(jax.devices()[:1]))
    (here,) = partitions_of({"x": np.arange(3.0)}, 3, where)
    assert here.columns["x"].devices() == {jax.devices()[0]}


releases = st.one_of(
    st.sampled_from(["last", "path", Average(first=1)]),
    st.sets(st.integers(1, 3000), min_size=1).map(lambda steps: tuple(sorted(steps))),
)


@settings(max_examples=20)
@given(release=releases, steps=st.integers(3000, 6000), rows=st.integers(1, 10**6), data=st.data())
def test_the_calls_of_a_run_make_every_step_once_and_keep_what_is_released(release, steps, rows, data):
    schedule = PrivateULA(logistic, 0.1, 1.0).schedule(
        adjacency="replace_one", num_rows=rows, dim=50, num_steps=steps, num_chains=30, release=release
    )
    last = release[-1] if isinstance(release, tuple) else steps
    made = list(calls(schedule))
    assert [first for first, _, _ in made] == [0, *(first + count for first, count, _ in made[:-1])]
    assert made[-1][0] + made[-1][1] == last
    assert all(count <= call_length(schedule) for _, count, _ in made)
    kept = [first + count for first, count, keep in made if keep]
    if release == "path":
        assert all(keep for _, _, keep in made)
    elif isinstance(release, Average):
        assert kept == []
    else:
        assert kept == list(release if isinstance(release, tuple) else [steps])
    # From any end of a call the rest is the same.
    number = data.draw(st.integers(1, len(made)))
    assert list(calls(schedule, sum(made[number - 1][:2]))) == made[number:]
