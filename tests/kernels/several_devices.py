"""Run by test_devices.py on eight forced host devices: the same chain as on one, whatever the layout.

With names of cases as arguments, those alone.
"""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.sharding import Mesh

from private_mcmc import Execution, PrivateMCMC, Target
from private_mcmc.domains import Ball, Binary, Box, Rows
from private_mcmc.kernels import PrivateSGLD, PrivateULA, StepKeys, Streams, chain_runner, langevin_program
from private_mcmc.kernels.partitions import mesh_of, row_slots, spread
from private_mcmc.model import read
from private_mcmc.schedule import Average

N, CHAINS = 37, 4


def logistic(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def bent(X, y=None):
    """Rows without an affine predictor."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal((X @ w) ** 2, 1.0), obs=y)


CLASSES, REALS = (Rows(X=Ball(1.0, dim=2), y=domain) for domain in (Binary(), Box(-2.0, 2.0)))
CASES = {
    "all rows": (PrivateULA(logistic, 0.02, 1.0), CLASSES, "path", {}),
    "masked": (PrivateSGLD(logistic, 0.02, 1.0, rate=0.5), CLASSES, Average(2), {}),
    "general": (PrivateSGLD(bent, 0.02, 1.0, rate=0.1), REALS, (2, 5), {"devices": 4}),
    "gathered": (PrivateSGLD(logistic, 0.02, 1.0, rate=0.1), CLASSES, "path", {}),
}  # fmt: skip


def runner_and_rows(kernel, rows, release, where: Mesh | None):
    reading = read(kernel.model, rows, n=N)
    schedule = kernel.schedule(
        adjacency="add_remove", num_rows=N, dim=reading.dim, num_steps=5, num_chains=CHAINS, release=release
    )
    observable = jnp.square if isinstance(release, Average) else None
    program = spread(langevin_program(reading, schedule), where, N)
    runner = chain_runner(program, schedule, observable)
    slots = row_slots(where, N)
    rng = np.random.default_rng(0)
    # What lies beyond the rows must not matter.
    X, y = np.full((slots, 2), 99.0), np.full(slots, 99)
    X[:N], y[:N] = rng.uniform(-1, 1, (N, 2)), rng.integers(0, 2, N)
    # Some slots are empty.
    present = (np.arange(slots) < N) & (np.arange(slots) % 5 != 3)
    with jax.enable_x64(True):
        return runner, rows.project({"X": X, "y": y}), jnp.asarray(present)


def run(kernel, rows, release, where: Mesh | None):
    runner, columns, present = runner_and_rows(kernel, rows, release, where)
    streams = Streams(*jax.random.split(jax.random.key(1), 3))
    found = runner.run(np.full(runner.schedule.dim, 0.3), columns, present, streams, lambda done: None)
    return found.average if found.states is None else found.states


def with_holes(devices: int | None, present, adjacency="zero_out") -> np.ndarray:
    """The driver's run under zero_out, garbage in the holes; under add_remove without those rows."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (N, 2)), rng.integers(0, 2, N)
    X[~present], y[~present] = np.nan, 99
    hidden = adjacency == "add_remove"
    mcmc = PrivateMCMC(
        CASES["gathered"][0] if hidden else PrivateULA(logistic, 0.02, 1.0), rows=CLASSES, release="path",
        target=Target(1e4, 1e-6, adjacency), num_steps=N, guarantee="run", n=N, progress_bar=False,
        execution=Execution(devices=devices, unsafe_seed=True, generator="threefry2x32"),
    )  # fmt: skip
    if hidden:
        X, y, present = X[present], y[present], None
    mcmc.run(X, y, present=present, rng_key=1)
    return mcmc.get_samples()["w"]


def all_reduces_of_a_step() -> int:
    runner, columns, present = runner_and_rows(*CASES["all rows"][:3], mesh_of(8))
    with jax.enable_x64(True):
        rows = runner.prepare(columns, present)
        u, total = jnp.zeros((CHAINS, 2)), jnp.zeros((CHAINS, 0))
        program = runner.advance.lower(u, 0, 1, total, StepKeys(jax.random.key(0)), rows).compile().as_text()
    return len(re.findall(r"= \S+ all-reduce\(", program))


def same_chains(name: str) -> None:
    kernel, rows, release, options = CASES[name]
    spread = mesh_of(**{"devices": 8, **options})
    one, many = (run(kernel, rows, release, where) for where in (None, spread))
    np.testing.assert_allclose(many, one, rtol=1e-12, atol=1e-13, err_msg=name)


def holes_are_empty() -> None:
    for adjacency in ("zero_out", "add_remove"):
        one, many = (with_holes(devices, np.arange(N) % 5 != 3, adjacency) for devices in (None, 8))
        np.testing.assert_allclose(many, one, atol=1e-6, err_msg=adjacency)


def main(names: list[str]) -> None:
    assert len(jax.devices()) == 8
    for name in names or CASES:
        same_chains(name)
    if not names:
        assert all_reduces_of_a_step() == 1
        holes_are_empty()


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.write("same chains\n")
