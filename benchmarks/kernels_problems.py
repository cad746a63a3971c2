"""Models, synthetic rows and clocks that the kernel benchmarks share."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.util import potential_energy

import private_mcmc as pmc
from private_mcmc.kernels import Streams, chain_runner
from private_mcmc.kernels.keys import CHACHA20
from private_mcmc.model import RowModel, read

Timed = Callable[[], Any]
CLIP = 0.4


def logistic(X: Any, y: Any = None) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([X.shape[-1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def network(X: Any, y: Any = None) -> None:
    """One hidden layer of eight units: no affine predictor, so rows take the general path."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([X.shape[-1], 8]).to_event(2))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([8]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.tanh(X @ a) @ b), obs=y)


def medians(*programs: Timed, repeats: int) -> list[float]:
    """Seconds of each program: medians over rounds in which all run in turn, each once before it is timed.

    Else whichever follows a program on other rows would pay for fetching its own.
    """
    times = np.zeros((repeats, len(programs)))
    for i in range(repeats):
        for j, program in enumerate(programs):
            jax.block_until_ready(program())
            begin = time.perf_counter()
            jax.block_until_ready(program())
            times[i, j] = time.perf_counter() - begin
    return [float(value) for value in np.median(times, axis=0)]


def many(step: Callable[..., jax.Array], count: int) -> Callable[..., jax.Array]:
    """``count`` steps of ``step(u, k, *data)`` in one compiled program, data as arguments."""
    return jax.jit(lambda u, *data: jax.lax.fori_loop(0, count, lambda k, u: step(u, k, *data), u))


def descent(gradient: Callable[..., jax.Array], rows: int, dim: int) -> Callable[..., jax.Array]:
    """Tiny moves along a gradient, so that no step can be left out by the compiler."""
    return many(lambda u, k, *data: u - 1e-12 * gradient(u, *data), repeats_of(rows * dim))


def repeats_of(work: int) -> int:
    return int(np.clip(2e7 / work, 2, 2000))


class Problem:
    """One model on synthetic rows, with what the rivals need."""

    def __init__(self, model: Callable[..., None], n: int, p: int) -> None:
        self.model, self.n, self.p = model, n, p
        self.rows = pmc.Rows(X=pmc.Ball(1.0, dim=p), y=pmc.Binary())
        self.reading: RowModel = read(model, self.rows, n=n)
        self.columns = self.rows.synthetic(0, n)
        self.present = jnp.ones(n, dtype=bool)
        self.u = jnp.full(self.reading.dim, 0.1)

    def schedule(self, kernel: Any, count: int, chains: int = 1) -> Any:
        """A run of some dozens of calls of ``count`` steps."""
        return kernel.schedule(
            adjacency="add_remove", num_rows=self.n, dim=self.reading.dim, num_steps=64 * count,
            num_chains=chains, release="last",
        )  # fmt: skip

    def steps(self, kernel: Any, count: int, chains: int = 1) -> tuple[Callable[..., jax.Array], Any]:
        """``count`` compiled steps of a kernel, a call of a run, and the prepared rows they need."""
        schedule = self.schedule(kernel, count, chains)
        runner = chain_runner(self.reading, schedule)
        keys, total = Streams(chacha_key(1), chacha_key(2)), jnp.zeros((chains, 0))
        return (
            lambda u, rows: runner.advance(u, 0, count, total, keys, rows)[0],
            runner.prepare(self.columns, self.present),
        )

    def potential_gradient(self) -> Callable[..., jax.Array]:
        """NumPyro's own gradient of the unclipped potential, flat."""
        sites = list(self.reading.sites)

        def energy(u: jax.Array, columns: Any) -> jax.Array:
            values = {site.name: u[site.slice].reshape(site.shape) for site in sites}
            return potential_energy(self.model, (), columns, values)

        return jax.grad(energy)


def chacha_key(seed: int) -> jax.Array:
    """A key of the generator that runs use by default."""
    return jax.random.key(seed, impl=CHACHA20)


def machine(repeats: int) -> dict[str, Any]:
    return {
        "machine": platform.machine(), "system": platform.system(), "processor": processor(),
        "cores": os.cpu_count(), "devices": [str(device) for device in jax.devices()],
        "python": platform.python_version(), "jax": jax.__version__, "numpyro": numpyro.__version__,
        "repeats": repeats, "load": os.getloadavg()[0],
    }  # fmt: skip


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
