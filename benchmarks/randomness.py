"""What a cryptographic generator costs: ChaCha20 against threefry, in bulk and inside a small chain."""

import time

import jax
import jax.numpy as jnp

from private_mcmc.kernels.keys import CHACHA20

REPEATS = 7


def best_time(function, key):
    jax.block_until_ready(function(key))
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(function(key))
        times.append(time.perf_counter() - start)
    return min(times)


def million_normals(key):
    return jax.random.normal(key, (1_000_000,), jnp.float64)


def small_chain(steps=10_000, shape=(4, 10)):
    def run(key):
        def step(state, i):
            noise = jax.random.normal(jax.random.fold_in(key, i), shape, jnp.float64)
            return 0.9 * state + noise, None

        return jax.lax.scan(step, jnp.zeros(shape), jnp.arange(steps))[0]

    return run, steps


def main():
    run, steps = small_chain()
    rows = []
    for name, implementation in (("chacha20", CHACHA20), ("threefry2x32", "threefry2x32")):
        key = jax.random.key(0, impl=implementation)
        bulk = best_time(jax.jit(million_normals), key)
        chain = best_time(jax.jit(run), key)
        rows.append((name, 1e3 * bulk, 1e6 * chain / steps))
    print(f"{'generator':14s} {'10^6 float64 normals, ms':>26s} {'a step of 4 chains in R^10, us':>32s}")
    for name, bulk, chain in rows:
        print(f"{name:14s} {bulk:26.1f} {chain:32.2f}")
    print(f"{'ratio':14s} {rows[0][1] / rows[1][1]:26.2f} {rows[0][2] / rows[1][2]:32.2f}")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
