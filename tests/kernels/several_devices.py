"""Run by test_devices.py on eight forced host devices: the same chain as on one, whatever the layout.

With names of cases as arguments, those alone.
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc import Devices, Execution
from private_mcmc.domains import Ball, Binary, Box, Rows
from private_mcmc.domains.columns import PRESENT
from private_mcmc.inference.columns import partitions_of
from private_mcmc.inference.execute import runner_of
from private_mcmc.kernels import PrivateSGLD, PrivateULA, Streams
from private_mcmc.model import read
from private_mcmc.schedule import Average
from tests.examples_of_models import bent, logistic
from tests.inference import test_checkpoint as saved

N, CHAINS = 37, 4


CLASSES, REALS = (Rows(X=Ball(1.0, dim=2), y=domain) for domain in (Binary(), Box(-2.0, 2.0)))
CASES = {
    "all rows": (PrivateULA(logistic, 0.02, 1.0), CLASSES, "path", {}),
    "masked": (PrivateSGLD(logistic, 0.02, 1.0, rate=0.5), CLASSES, Average(2), {}),
    "general": (PrivateSGLD(bent, 0.02, 1.0, rate=0.1), REALS, (2, 5), {"devices": 4}),
    "gathered": (PrivateSGLD(logistic, 0.02, 1.0, rate=0.1), CLASSES, "path", {}),
}  # fmt: skip


def run(kernel, rows, release, where):
    reading = read(kernel.model, rows, n=N)
    schedule = kernel.schedule(
        adjacency="add_remove", num_rows=N, dim=reading.dim, num_steps=5, num_chains=CHAINS, release=release
    )
    rng = np.random.default_rng(0)
    columns = {"X": rng.uniform(-1, 1, (N, 2)), "y": rng.integers(0, 2, N)}
    # Some slots are empty.
    columns[PRESENT] = np.arange(N) % 5 != 3
    partitions = partitions_of(columns, N, Execution(engine=where and Devices(where)), None)
    assert len(partitions) == (where or 1)
    observable = jnp.square if isinstance(release, Average) else None
    runner = runner_of(rows, reading, schedule, partitions, observable)
    streams = Streams(*jax.random.split(jax.random.key(1), 2))
    with jax.enable_x64(True):
        prepared = runner.prepare(partitions)
    return runner.run(np.full(schedule.dim, 0.3), prepared, streams, lambda done: None)


def same_chains(name: str) -> None:
    kernel, rows, release, options = CASES[name]
    one, many = (run(kernel, rows, release, where) for where in (None, options.get("devices", 8)))
    np.testing.assert_allclose(many, one, rtol=1e-12, atol=1e-13, err_msg=name)


def resumed(unit: str | None) -> None:
    rng = np.random.default_rng(5)
    data = {"X": rng.uniform(-1, 1, (saved.N, 2)) / 2, "y": rng.integers(0, 2, saved.N)}
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as place:
        saved.test_a_resumed_run_is_bit_for_bit_a_whole_one(
            data, patched, Path(place), saved.KERNEL, "path", {"engine": Devices(8)}, unit
        )


def main(names: list[str]) -> None:
    assert len(jax.devices()) == 8
    for name in names or CASES:
        same_chains(name)
    if not names:
        for unit in (None, "who"):
            resumed(unit)


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.write("same chains\n")
