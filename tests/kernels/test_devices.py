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
from private_mcmc.kernels import PrivateULA
from private_mcmc.kernels.chain import buffer_size, segments
from private_mcmc.kernels.devices import layout
from private_mcmc.schedule import Average
from tests.examples_of_models import logistic
from tests.kernels import several_devices

HERE = Path(__file__).parent


def in_another_process(script, *arguments, **environment):
    """Output of a script of the tests, run with warnings as errors."""
    command = [sys.executable, "-W", "error", str(HERE / script), *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def on_eight_devices(*arguments):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    return in_another_process("several_devices.py", *arguments, **flags)


@pytest.mark.long
def test_eight_devices_run_the_chain_of_one_with_one_all_reduce_a_step():
    assert "same chains" in on_eight_devices()


@pytest.mark.long
def test_sequential_chains_are_the_vectorised_ones():
    case = several_devices.CASES["all rows"][:3]
    one, other = (several_devices.run(*case, layout(method)) for method in ("vectorized", "sequential"))
    np.testing.assert_allclose(other, one, rtol=1e-12)


def test_layouts_that_make_no_sense_are_refused():
    for options in ({"chain_method": "serial"}, {"devices": 0}, {"devices": 99}, {"devices": ["cpu"]}):
        with pytest.raises(DeclarationError):
            layout(**options)
    assert layout().mesh is None
    assert layout(devices=1).mesh.devices.tolist() == [[jax.devices()[0]]]


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
    calls = list(segments(schedule))
    ends = np.concatenate([call.first + np.cumsum(call.gaps) for call in calls])
    kept = ends[np.concatenate([call.keep for call in calls])]
    assert [call.first for call in calls] == [0, *(call.last for call in calls[:-1])]
    assert calls[-1].last == last
    assert all(len(call.gaps) <= buffer_size(schedule) for call in calls)
    if release == "path":
        assert kept.tolist() == list(range(1, steps + 1))
    elif isinstance(release, Average):
        assert kept.size == 0
    else:
        assert kept.tolist() == list(release if isinstance(release, tuple) else [steps])
    # From any end of a call the rest is the same.
    done = data.draw(st.sampled_from([call.last for call in calls]))
    rest = [call for call in calls if call.last > done]
    assert [call.first for call in segments(schedule, done)] == [call.first for call in rest]
