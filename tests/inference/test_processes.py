"""Two processes on the loopback are one run: the same chain, one charge, one release."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import private_mcmc as pmc
from tests.inference import several_processes, two_processes

SCRIPT, SEVERAL = Path(two_processes.__file__), Path(several_processes.__file__)


@pytest.mark.long
def test_two_processes_run_one_chain_and_the_first_alone_charges_and_releases(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    both = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), address, str(number), str(tmp_path)],
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (0, 1)
    ]
    ends = [process.communicate(timeout=900) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    # The ledger refuses the last run in the first process, and the other one does not run it alone.
    for (out, _), said in zip(ends, ("BudgetExceeded", "ReleaseError"), strict=True):
        assert out.endswith(said)
    for name, kernel in two_processes.KERNELS.items():
        alone = two_processes.draws(kernel, holes=name == "holes")
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), alone, atol=1e-6)


def started(script, *arguments, processes):
    """What each of so many processes of ``script`` printed, and how it ended; one alone has 3 devices."""
    flags = "--xla_force_host_platform_device_count=3" if processes == 1 else ""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    what, folder = arguments
    each = [
        subprocess.Popen(
            [sys.executable, str(script), what, address, str(number), str(processes), str(folder)],
            env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    ends = [process.communicate(timeout=1500) for process in each]
    return [process.returncode for process in each], ends


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_a_plan_is_one_run_of_all_rows_charged_and_released_by_the_first_process(tmp_path, processes):
    codes, ends = started(SEVERAL, "plan", tmp_path, processes=processes)
    assert codes == [0] * processes, ends
    found, X = np.load(tmp_path / "plan.npz"), several_processes.people()[0]
    # Of six standard deviations: a correct library fails this once in 10^8 runs. A row adds 0.5 and more.
    np.testing.assert_allclose(found["moments"], X.T @ X, atol=6 * found["noise"])
    assert 6 * found["noise"] < several_processes.N / processes / 2
    assert [charge.outcome for charge in pmc.Ledger(tmp_path / "ledger.db").history("people")] == ["released"]
    draws = found["draws"]
    assert np.max(np.abs(draws.mean(0) - [-1.0, 1.5]) / draws.std(0)) < 5


@pytest.mark.long
def test_processes_that_are_about_to_buy_different_stages_refuse_all(tmp_path):
    _, ends = started(SEVERAL, "other_plan", tmp_path, processes=2)
    assert all("differ between the processes" in out for out, _ in ends), ends


@pytest.mark.long
@pytest.mark.parametrize("processes", [2, 4])
def test_a_run_that_all_processes_lost_goes_on_where_it_was(tmp_path, processes):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir(), broken.mkdir()
    assert started(SEVERAL, "saved", whole, processes=processes)[0] == [0] * processes
    assert 0 not in started(SEVERAL, "killed", broken, processes=processes)[0]
    assert not (broken / "saved.npy").exists()
    codes, ends = started(SEVERAL, "resumed", broken, processes=processes)
    assert codes == [0] * processes, ends
    np.testing.assert_array_equal(np.load(broken / "saved.npy"), np.load(whole / "saved.npy"))
    # Whoever resumes a second time, or in another number of processes, is refused.
    assert 0 not in started(SEVERAL, "resumed", broken, processes=processes)[0]
