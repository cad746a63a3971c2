"""Run by test_processes.py, twice at a time: each process holds half of the rows of one run."""

import os
import sys
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

import private_mcmc as pmc

N = 21


def logistic(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def draws(kernel, release="path", ledger=None, holes=False):
    """Samples of a seeded run, or ``None`` where this process releases nothing."""
    rng = np.random.default_rng(3)
    X, y = rng.uniform(-1, 1, (N, 2)) / 2, rng.integers(0, 2, N)
    mcmc = pmc.PrivateMCMC(
        kernel,
        rows=pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary()),
        target=pmc.Target(*((1e4, 1e-6, "zero_out") if holes else (9.0, 1e-6))),
        release=release,
        num_steps=6,
        num_chains=2,
        guarantee="run",
        n=N,
        progress_bar=False,
        execution=pmc.Execution(unsafe_seed=True, generator="threefry2x32"),
        bookkeeping=None if ledger is None else pmc.Bookkeeping(ledger, "rows"),
    )
    here = mcmc.local_rows(N)
    # Only the first process's seed counts: all use its keys.
    present = (np.arange(N) % 4 != 1)[here] if holes else None
    mcmc.run(X=X[here], y=y[here], present=present, rng_key=5 + jax.process_index())
    try:
        return mcmc.get_samples()["w"]
    except pmc.ReleaseError:
        return None


KERNELS = {
    "all rows": pmc.PrivateULA(logistic, 0.02, 1.0),
    "batches": pmc.PrivateSGLD(logistic, 0.02, 1.0, scheme="fixed", batch_size=4),
    "holes": pmc.PrivateULA(logistic, 0.02, 1.0),
}


def main(address: str, process: str, folder: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, num_processes=2, process_id=int(process))
    for name, kernel in KERNELS.items():
        found = draws(kernel, holes=name == "holes")
        assert (found is None) == (process != "0"), name
        if found is not None:
            np.save(Path(folder) / f"{name}.npy", found)
    ledger = None
    if process == "0":
        path = os.path.join(folder, "ledger")
        ledger = pmc.Ledger.create(path)
        ledger.declare("rows", pmc.Target(0.01, 1e-6))
    try:
        draws(KERNELS["all rows"], ledger=ledger)
    except (pmc.BudgetExceeded, pmc.ReleaseError) as error:
        sys.stdout.write(type(error).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
