"""Two processes on the loopback are one run: the same chain, one charge, one release."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.inference import two_processes

SCRIPT = Path(two_processes.__file__)


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
