"""Whole steps and runs: minibatches, many chains, a second run, the progress bar, peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from kernels_problems import CLIP, Problem, chacha_key, logistic, many, medians

import private_mcmc as pmc
from private_mcmc.kernels.batches import BatchDraw, batch_sum
from private_mcmc.kernels.gradient import AffineRows, ClippedGradient


def batches(problem: Problem, size: int, repeats: int) -> dict[str, float]:
    """Drawing a Poisson batch against the step it feeds, and steps per second against BlackJAX."""
    import blackjax

    n, count = problem.n, 1000
    kernel = pmc.PrivateSGLD(logistic, 1e-9, CLIP, batch_size=size)
    mine, rows = problem.steps(kernel, count)

    def log_density(u: jax.Array, batch: Any) -> jax.Array:
        sign = 2.0 * batch["y"] - 1.0
        return -0.5 * u @ u - n / size * jnp.sum(jax.nn.softplus(-sign * (batch["X"] @ u)))

    rival = blackjax.sgld(jax.grad(log_density))

    def rivals_step(key: jax.Array) -> Callable[..., jax.Array]:
        def one(u: jax.Array, k: jax.Array, columns: Any) -> jax.Array:
            now = jax.random.fold_in(key, k)
            index = jax.random.randint(now, (size,), 0, n)
            batch = {name: column[index] for name, column in columns.items()}
            return rival.step(jax.random.fold_in(now, 1), u, batch, 1e-9)

        return one

    blackjaxs = many(rivals_step(jax.random.key(3)), count)
    guarded = many(rivals_step(chacha_key(3)), count)
    draw = drawing(problem, kernel, count)
    u, present = problem.u, problem.present
    found = medians(
        lambda: mine(u[None], rows), lambda: draw(u, present),
        lambda: blackjaxs(u, problem.columns), lambda: guarded(u, problem.columns), repeats=repeats,
    )  # fmt: skip
    return {
        "Poisson draw / the rest of its step": found[1] / (found[0] - found[1]),
        "Poisson SGLD steps a second / BlackJAX SGLD with replacement": found[2] / found[0],
        "the same, BlackJAX with ChaCha20 as well": found[3] / found[0],
        "Poisson SGLD step, µs": 1e6 * found[0] / count,
    }


def drawing(problem: Problem, kernel: Any, count: int) -> Callable[..., jax.Array]:
    """The draws of ``count`` steps' batches, whose rows are then only counted."""

    def prepare(columns: Any, present: jax.Array) -> AffineRows:
        return AffineRows(present, present, None, {}, present)

    nothing = ClippedGradient(prepare, lambda u, rows: u + 1e-300 * jnp.sum(rows.present))
    estimate = batch_sum(nothing, problem.schedule(kernel, count))
    stream = chacha_key(2)

    def several(u: jax.Array, present: jax.Array) -> jax.Array:
        rows = prepare(problem.columns, present)
        keys = jax.vmap(lambda k: jax.random.fold_in(stream, k))(jnp.arange(count))
        drawn = jax.vmap(estimate.draw)(keys)

        def step(k: jax.Array, u: jax.Array) -> jax.Array:
            draw = BatchDraw(stream, k, jnp.asarray(0), drawn[k][0])
            return 0.5 * estimate.total(u, rows, draw)

        return jax.lax.fori_loop(0, count, step, u)

    return jax.jit(several)


def chains(problem: Problem, number: int, repeats: int) -> dict[str, float]:
    # Noise is drawn for some fifty steps of one chain at once, whether they are taken or not.
    count = 51
    kernel = pmc.PrivateULA(logistic, 1e-9, CLIP)
    (first, rows), (second, wide) = problem.steps(kernel, count), problem.steps(kernel, count, number)
    u = problem.u[None]
    found = medians(lambda: first(u, rows), lambda: second(jnp.tile(u, (number, 1)), wide), repeats=repeats)
    return {f"{number} chains / 1 chain, cost of a chain's step": found[1] / found[0] / number}


def runs(problem: Problem, repeats: int) -> dict[str, float]:
    """A second run of one step by the same driver; a long run with and without its progress bar."""
    columns = {name: np.asarray(column) for name, column in problem.columns.items()}

    def driver(num_steps: int, progress_bar: bool) -> Callable[[], None]:
        mcmc = pmc.PrivateMCMC(
            pmc.PrivateULA(logistic, step_size=1e-7, clip=CLIP),
            rows=problem.rows, target=pmc.Target(epsilon=1.0, delta=1e-6), release="last",
            num_steps=num_steps, guarantee="run", progress_bar=progress_bar,
        )  # fmt: skip
        return lambda: mcmc.run(**columns)

    short, bare, shown = driver(1, False), driver(20_000, False), driver(20_000, True)
    begin = time.perf_counter()
    short()
    first = time.perf_counter() - begin
    again, without, with_bar = medians(short, bare, shown, repeats=repeats)
    return {
        "first run of one step, s": first,
        "second run of equal shape to its first step, s": again,
        "progress bar, share of a run": with_bar / without - 1,
    }


def peak_memory(n: int, p: int) -> float:
    """Peak resident memory of a network's clipped gradients over the data's size, in a process of its own."""
    command = [sys.executable, str(Path(__file__)), str(n), str(p)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(answer.splitlines()[-1]))


def _measure_peak(n: int, p: int) -> float:
    from kernels_problems import network

    from private_mcmc.kernels.gradient import clipped_gradient, whitening
    from private_mcmc.model import read

    jax.config.update("jax_enable_x64", True)
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=p), y=pmc.Binary())

    def gradients(count: int) -> None:
        model = read(network, rows, n=count)
        gradient = clipped_gradient(model, whitening(None, model.dim), CLIP, states=1)
        columns = {"X": jnp.zeros((count, p)), "y": jnp.zeros(count, dtype=int)}
        prepared = jax.jit(gradient.prepare)(columns, jnp.ones(count, dtype=bool))
        jax.block_until_ready(jax.jit(gradient.total)(jnp.ones(model.dim), prepared))

    # What Python, JAX and its compiler take does not count.
    gradients(50_000)
    before = _peak_bytes()
    gradients(n)
    return (_peak_bytes() - before) / (8 * n * (p + 1))


def _peak_bytes() -> int:
    """Of this program alone: ``ru_maxrss`` begins at the peak of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    print(json.dumps(_measure_peak(int(sys.argv[1]), int(sys.argv[2]))))
