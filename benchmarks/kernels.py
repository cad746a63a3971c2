"""Kernels against their rivals on one problem each: ratios of medians in one run, printed and saved as JSON.

    python benchmarks/kernels.py --rows 1000 10000 --dims 10 50 --out kernels.json

Logistic regression on synthetic rows, float64, unless a line says otherwise. A ratio compares two
programs on the same data, measured in turn so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.util import potential_energy

import private_mcmc as pmc
from private_mcmc.kernels import StepKeys, langevin_program
from private_mcmc.kernels.batches import batch_sum
from private_mcmc.kernels.gradient import AffineRows, ClippedGradient, clipped_gradient
from private_mcmc.kernels.whitening import whitening
from private_mcmc.modeling import RowModel, read

Timed = Callable[[], Any]


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
    """Seconds of each program: medians over rounds in which all run in turn."""
    for program in programs:
        jax.block_until_ready(program())
    times = np.zeros((repeats, len(programs)))
    for i in range(repeats):
        for j, program in enumerate(programs):
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
    return int(np.clip(2e7 / work, 2, 500))


class Problem:
    """One model on synthetic rows, with what the rivals need."""

    def __init__(self, model: Callable[..., None], n: int, p: int) -> None:
        self.model, self.n, self.p = model, n, p
        self.rows = pmc.Rows(X=pmc.Ball(1.0, dim=p), y=pmc.Binary())
        self.reading: RowModel = read(model, self.rows, n=n)
        self.columns = self.rows.synthetic(jax.random.key(0), n)
        self.present = jnp.ones(n, dtype=bool)
        self.u = jnp.full(self.reading.dim, 0.1)

    def schedule(self, kernel: Any, chains: int = 1) -> Any:
        return kernel.schedule(
            adjacency="add_remove", num_rows=self.n, dim=self.reading.dim, num_steps=10**6,
            num_chains=chains, release="last",
        )  # fmt: skip

    def step(self, kernel: Any, chains: int = 1) -> tuple[Callable[..., jax.Array], Any]:
        """Compiled steps of a kernel, and the prepared rows they take."""
        program = langevin_program(self.reading, self.schedule(kernel, chains))
        keys = StepKeys(jax.random.key(1), jax.random.key(2))
        rows = jax.jit(program.prepare)(self.columns, self.present)
        return (lambda u, k, rows: program.step(u, k, keys, rows)), rows

    def potential_gradient(self) -> Callable[..., jax.Array]:
        """NumPyro's own gradient of the unclipped potential, flat."""
        sites = list(self.reading.sites)

        def energy(u: jax.Array, columns: Any) -> jax.Array:
            values = {site.name: u[site.slice].reshape(site.shape) for site in sites}
            return potential_energy(self.model, (), columns, values)

        return jax.grad(energy)


def affine(problem: Problem, repeats: int) -> dict[str, float]:
    """Closed-form clipping against the same products without it, and against NumPyro."""
    n, p = problem.n, problem.p
    clipped = clipped_gradient(problem.reading, whitening(None, p), 0.4, columnwise=True)
    rows = jax.jit(clipped.prepare)(problem.columns, problem.present)
    score = jax.vmap(jax.grad(problem.reading.predictor.loss))

    def unclipped(u: jax.Array, rows: AffineRows) -> jax.Array:
        return rows.design @ score(u @ rows.design + rows.offset, rows.columns)

    count = repeats_of(n * p)
    step, prepared = problem.step(pmc.PrivateULA(logistic, 1e-9, 0.4))
    ours, theirs = descent(clipped.total, n, p), descent(unclipped, n, p)
    chain, numpyros = many(step, count), descent(problem.potential_gradient(), n, p)
    u = problem.u
    found = medians(
        lambda: ours(u, rows), lambda: theirs(u, rows), lambda: chain(u[None], prepared),
        lambda: numpyros(u, problem.columns), repeats=repeats,
    )  # fmt: skip
    gigabytes = 8 * n * p * count / found[0] / 1e9
    return {
        "clipped / unclipped gradient": found[0] / found[1],
        "NumPyro's potential gradient / private step": found[3] / found[2],
        "private step, µs": 1e6 * found[2] / count,
        "clipped gradient reads its rows at, GB/s": gigabytes,
    }


def general(problem: Problem, repeats: int) -> dict[str, float]:
    clipped = clipped_gradient(problem.reading, whitening(None, problem.reading.dim), 0.4)
    rows = jax.jit(clipped.prepare)(problem.columns, problem.present)
    n, dim = problem.n, problem.reading.dim
    mine, theirs = descent(clipped.total, n, dim), descent(problem.potential_gradient(), n, dim)
    found = medians(
        lambda: mine(problem.u, rows), lambda: theirs(problem.u, problem.columns), repeats=repeats
    )
    return {"general clipped / unclipped gradient": found[0] / found[1]}


def batches(problem: Problem, size: int, repeats: int) -> dict[str, float]:
    """Drawing a Poisson batch against the step it feeds, and steps per second against BlackJAX."""
    import blackjax

    n, count = problem.n, 200
    kernel = pmc.PrivateSGLD(logistic, 1e-9, 0.4, batch_size=size)
    step, rows = problem.step(kernel)
    nothing = ClippedGradient(
        lambda columns, present: AffineRows(present, present, present, {}, present),
        lambda u, rows: u + 1e-300 * jnp.sum(rows.present),
    )
    drawing = batch_sum(nothing, problem.schedule(kernel))
    idle = drawing.prepare(problem.columns, problem.present)
    draw = many(
        lambda u, k, rows: 0.5 * drawing.total(u, rows, k, jax.random.fold_in(jax.random.key(2), k)), count
    )
    fixed, fixed_rows = problem.step(pmc.PrivateSGLD(logistic, 1e-9, 0.4, scheme="cyclic", batch_size=size))

    def log_density(u: jax.Array, batch: Any) -> jax.Array:
        sign = 2.0 * batch["y"] - 1.0
        return -0.5 * u @ u - n / size * jnp.sum(jax.nn.softplus(-sign * (batch["X"] @ u)))

    rival = blackjax.sgld(jax.grad(log_density))

    def rivals_step(u: jax.Array, k: jax.Array, columns: Any) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(3), k)
        index = jax.random.randint(key, (size,), 0, n)
        batch = {name: column[index] for name, column in columns.items()}
        return rival.step(jax.random.fold_in(key, 1), u, batch, 1e-9)

    mine, blackjaxs, bare = many(step, count), many(rivals_step, count), many(fixed, count)
    u = problem.u
    found = medians(
        lambda: mine(u[None], rows), lambda: draw(u, idle), lambda: bare(u[None], fixed_rows),
        lambda: blackjaxs(u, problem.columns), repeats=repeats,
    )  # fmt: skip
    return {
        "Poisson draw / clipped step of a given batch": found[1] / found[2],
        "Poisson SGLD steps a second / BlackJAX SGLD with replacement": found[3] / found[0],
        "clipped steps of given batches a second / BlackJAX SGLD": found[3] / found[2],
        "Poisson SGLD step, µs": 1e6 * found[0] / count,
    }


def chains(problem: Problem, number: int, repeats: int) -> dict[str, float]:
    count = repeats_of(problem.n * problem.p * number)
    kernel = pmc.PrivateULA(logistic, 1e-9, 0.4)
    (one, rows), (several, wide) = problem.step(kernel), problem.step(kernel, number)
    first, second = many(one, count), many(several, count)
    u = problem.u[None]
    found = medians(lambda: first(u, rows), lambda: second(jnp.tile(u, (number, 1)), wide), repeats=repeats)
    return {f"{number} chains / 1 chain, cost of a chain's step": found[1] / found[0] / number}


TARGETS = {
    "clipped / unclipped gradient": "≤ 1.05",
    "NumPyro's potential gradient / private step": "≥ 1.5",
    "general clipped / unclipped gradient": "≤ 2.5",
    "Poisson draw / clipped step of a given batch": "≤ 2",
    "Poisson SGLD steps a second / BlackJAX SGLD with replacement": "≥ 1",
    "64 chains / 1 chain, cost of a chain's step": "≤ 1/3",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--dims", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--batch-rows", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("kernels.json"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    results: list[dict[str, Any]] = []

    def add(what: str, n: int, p: int, values: dict[str, float]) -> None:
        results.append({"problem": what, "rows": n, "dim": p, "values": values})
        for name, value in values.items():
            target = f"  (target {TARGETS[name]})" if name in TARGETS else ""
            print(f"{what:10} {n:>8} × {p:<4} {name}: {value:.3g}{target}", flush=True)

    for n in options.rows:
        for p in options.dims:
            add("logistic", n, p, affine(Problem(logistic, n, p), options.repeats))
    small = min(options.rows, key=lambda n: abs(n - 10_000))
    add("network", small, options.dims[0], general(Problem(network, small, options.dims[0]), options.repeats))
    p = options.dims[0]
    add("minibatch", options.batch_rows, p,
        batches(Problem(logistic, options.batch_rows, p), options.batch_size, options.repeats))  # fmt: skip
    add("chains", small, p, chains(Problem(logistic, small, p), 64, options.repeats))
    machine = {
        "machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count(),
        "devices": [str(device) for device in jax.devices()], "python": platform.python_version(),
        "jax": jax.__version__, "numpyro": numpyro.__version__, "repeats": options.repeats,
        "load": os.getloadavg()[0],
    }  # fmt: skip
    options.out.write_text(json.dumps({"machine": machine, "results": results}, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
