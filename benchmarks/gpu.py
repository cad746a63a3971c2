"""Kernels, a plan and a fit on the device that JAX finds, held against this machine's CPU.

    python benchmarks/gpu.py            # some minutes on a data-centre GPU; nothing is downloaded
    python benchmarks/gpu.py --tiny     # anywhere, to see that it runs

Prints the device's name, seconds, the share of its memory bandwidth, and by how much sums and chains differ
from those of the CPU for the same keys; exit code 1 where that is more than rounding.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import kernels_chains as whole
import kernels_gradients as gradients
from kernels_problems import CLIP, Problem, logistic, machine, many, medians, network

import private_mcmc as pmc
from private_mcmc.kernels.gradient import clipped_gradient, whitening

# Bytes a second that makers state, by a part of the device's name; the first that fits.
STATED = {
    "H200": 4.8e12, "H100 PCIe": 2.0e12, "H100": 3.35e12, "A100-SXM4-80GB": 2.04e12, "A100": 1.56e12,
    "V100": 0.9e12, "L40": 0.86e12, "A10": 0.6e12, "L4": 0.3e12, "T4": 0.32e12,
}  # fmt: skip
# Relative to rows × clip: what two orders of summation, and two roundings of each term, may differ by.
SUMS, STATES = 1e-12, 1e-6
TINY = {"rows": 2_000, "dims": (3, 5), "chain_rows": 500, "chains": 4, "network_rows": 500, "fitted": 500}
FULL = {
    "rows": 1_000_000, "dims": (10, 50), "chain_rows": 1_000_000, "chains": 64, "network_rows": 100_000,
    "fitted": 1_000_000,
}  # fmt: skip


def bandwidth(repeats: int) -> tuple[float, str]:
    """Bytes a second of the device: as its maker states, or as measured by a sum."""
    name = jax.devices()[0].device_kind
    stated = next((value for part, value in STATED.items() if part in name), None)
    return (stated, "stated") if stated else (gradients.bandwidth(repeats), "measured by a sum")


def on_cpu(compute: Callable[[], Any]) -> Any:
    """What ``compute`` gives on the CPU."""
    with jax.default_device(jax.devices("cpu")[0]):
        return compute()


def clipped_sum(model: Callable[..., None], n: int, p: int) -> np.ndarray:
    """The clipped gradients' sum of a problem's synthetic rows."""
    problem = Problem(model, n, p)
    clipped = clipped_gradient(problem.reading, whitening(None, problem.reading.dim), CLIP, states=1)
    rows = jax.jit(clipped.prepare)(problem.columns, problem.present)
    return np.asarray(jax.jit(clipped.total)(problem.u, rows))


def read_share(n: int, p: int, bytes_a_second: float, repeats: int) -> dict[str, float]:
    """Seconds of the sum of clipped gradients, and the share of the bandwidth at which it reads its rows."""
    problem = Problem(logistic, n, p)
    clipped = clipped_gradient(problem.reading, whitening(None, p), CLIP, states=1)
    rows = jax.jit(clipped.prepare)(problem.columns, problem.present)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(rows))
    count = 20
    several = many(lambda u, k, rows: u - 1e-12 * clipped.total(u, rows), count)
    seconds = medians(lambda: several(problem.u, rows), repeats=repeats)[0] / count
    return {
        "clipped gradient, µs": 1e6 * seconds,
        "share of the memory bandwidth": size / seconds / bytes_a_second,
    }


def path(n: int, p: int) -> np.ndarray:
    """Twenty private steps of the driver, from a seed."""
    mcmc = pmc.PrivateMCMC(
        pmc.PrivateULA(logistic, 1.0 / n, CLIP), rows=pmc.Rows(X=pmc.Ball(1.0, dim=p), y=pmc.Binary()),
        target=pmc.Target(1e4, 1e-6), release="path", num_steps=20, guarantee="run",
        execution=pmc.Execution(unsafe_seed=True, progress_bar=False),
    )  # fmt: skip
    mcmc.run(rng_key=1, **data(n, p))
    return np.asarray(mcmc.get_samples()["w"])


def data(n: int, p: int) -> dict[str, np.ndarray]:
    """Rows of a logistic regression in the unit ball."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, p)) / np.sqrt(p)
    return {"X": X, "y": (rng.random(n) < 1 / (1 + np.exp(-X @ np.linspace(-2, 2, p)))).astype(int)}


def planned(n: int, p: int) -> dict[str, float]:
    """Seconds of a plan, and of its run."""
    rows, began = pmc.Rows(X=pmc.Ball(1.0, dim=p), y=pmc.Binary()), time.perf_counter()
    plan = pmc.plan(logistic, rows, pmc.Target(1.0, 1e-8), n=n, guarantee="run", progress_bar=False)
    made = time.perf_counter()
    mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
    mcmc.run(**data(n, p))
    return {"plan, s": made - began, "its run, s": time.perf_counter() - made}


def fitted(n: int, p: int) -> dict[str, float]:
    """Seconds of a fit from a table to a study, and its largest error in the standard deviations it tells."""
    fields = [
        {"name": f"x{j}", "type": "number", "constraints": {"minimum": "-1", "maximum": "1"}}
        for j in range(p)
    ]
    schema = pmc.Schema.from_dict({"fields": [*fields, {"name": "y", "type": "boolean"}]})
    found = data(n, p)
    table = {f"x{j}": found["X"][:, j] for j in range(p)} | {"y": found["y"].astype(bool)}
    began = time.perf_counter()
    study = pmc.fit(
        table, schema, "y ~ " + " + ".join(f"x{j}" for j in range(p)), epsilon=1.0, progress_bar=False
    )
    told = {one.name: one for one in study.answers().summary()}
    truth = dict(zip((f"x{j}" for j in range(p)), np.linspace(-2, 2, p), strict=True))
    errors = [abs(told[name].mean - value) / told[name].sd for name, value in truth.items()]
    return {"fit, s": time.perf_counter() - began, "largest error of a fit, sds": max(errors)}


def measured(sizes: dict[str, Any], repeats: int) -> dict[str, Any]:
    """All numbers; ``differences`` relative to what rounding allows."""
    speed, source = bandwidth(repeats)
    found: dict[str, Any] = {"device": jax.devices()[0].device_kind, "bandwidth": speed, "of": source}
    found |= {"machine": machine(repeats), "numbers": {}, "differences": {}}
    for p in sizes["dims"]:
        found["numbers"][f"{sizes['rows']:,} × {p}"] = read_share(sizes["rows"], p, speed, repeats)
    p = sizes["dims"][0]
    for name, model, n in (("affine", logistic, sizes["rows"]), ("network", network, sizes["network_rows"])):
        here = clipped_sum(model, n, p)
        there = on_cpu(lambda model=model, n=n: clipped_sum(model, n, p))
        found["differences"][f"sum, {name}"] = float(np.max(np.abs(here - there))) / (SUMS * n * CLIP)
    here, there = path(sizes["chain_rows"], p), on_cpu(lambda: path(sizes["chain_rows"], p))
    found["differences"]["path"] = float(np.max(np.abs(here - there))) / STATES
    chains = whole.chains(Problem(logistic, sizes["chain_rows"], p), sizes["chains"], repeats)
    network_ratio = gradients.general(Problem(network, sizes["network_rows"], p), repeats)
    found["numbers"]["chains"], found["numbers"]["network"] = chains, network_ratio
    found["numbers"]["plan"] = planned(sizes["fitted"], p)
    found["numbers"]["fit"] = fitted(sizes["fitted"], p)
    return found


def main(given: list[str] | None = None) -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="sizes that say nothing of speed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    options = parser.parse_args(given)
    warnings.simplefilter("ignore")
    with jax.enable_x64(True):
        found = measured(TINY if options.tiny else FULL, options.repeats)
    options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False))
    print(f"{found['device']}: {found['bandwidth'] / 1e9:,.0f} GB/s, {found['of']}")
    for what, numbers in found["numbers"].items():
        for name, value in numbers.items():
            print(f"{what:>16}  {name}: {value:.3g}")
    for name, value in found["differences"].items():
        print(f"{name:>16}  differs from the CPU's by {value:.2g} of what rounding allows")
    return 0 if all(value <= 1 for value in found["differences"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
