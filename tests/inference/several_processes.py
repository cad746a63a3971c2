"""Run by test_processes.py, once for each process: plans, and declared runs that are saved and resumed."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np

import private_mcmc as pmc
from private_mcmc.inference import execute
from private_mcmc.models import logistic, logistic_rows

N = 1_501
STEPS = 12


def people():
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(N), rng.uniform(-1, 1, N)]) / 2**0.5
    return X, rng.binomial(1, 1 / (1 + np.exp(-X @ [-1.0, 1.5])))


def planned(folder: Path, changed: bool = False) -> pmc.PrivateMCMC:
    """A plan so well paid for that its noise hides no row; the first process has the ledger."""
    target = pmc.Target(40.0, 1e-5)
    plan = pmc.plan(
        logistic, logistic_rows(2), target, n=N, guarantee="run", model_args={"sd": 2.0 + changed}
    )
    books = None
    if jax.process_index() == 0 and not changed:
        ledger = pmc.Ledger.create(folder / "ledger.db")
        ledger.declare("people", pmc.Target(50.0, 1e-5))
        books = pmc.Bookkeeping(ledger, "people")
    everywhere = pmc.Execution(devices=jax.device_count())
    mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False, bookkeeping=books, execution=everywhere)
    X, y = people()
    here = mcmc.local_rows(N)
    mcmc.run(X=X[here], y=y[here])
    return mcmc


def plan(folder: Path) -> None:
    mcmc = planned(folder)
    if jax.process_index() > 0:
        try:
            mcmc.get_samples()
        except pmc.ReleaseError:
            assert mcmc.history == ()
            return
        raise AssertionError("a second release")
    moments = next(stage.value for stage in mcmc.history if hasattr(stage.value, "matrix"))
    draws = mcmc.posterior().get_samples()["w"]
    np.savez(folder / "plan.npz", moments=moments.matrix, noise=moments.noise_sd, draws=draws)


def other_plan(folder: Path) -> None:
    """The last process plans for another prior: all of them refuse before a row is touched."""
    try:
        planned(folder, changed=jax.process_index() == jax.process_count() - 1)
    except pmc.ReleaseError as error:
        print(error)


def saved(folder: Path, resume: bool = False) -> pmc.PrivateMCMC:
    """A declared run under a checkpoint, or the same run taken up again."""
    mcmc = pmc.PrivateMCMC(
        pmc.PrivateULA(logistic, 0.01, 1.0),
        rows=logistic_rows(2),
        target=pmc.Target(40.0, 1e-5),
        release="path",
        num_steps=STEPS,
        guarantee="run",
        n=N,
        progress_bar=False,
        execution=pmc.Execution(unsafe_seed=True),
        bookkeeping=pmc.Bookkeeping(checkpoint=pmc.Checkpoint(folder / "run.ckpt", seconds=0)),
    )
    X, y = people()
    here = mcmc.local_rows(N)
    if resume:
        mcmc.resume(X=X[here], y=y[here])
    else:
        mcmc.run(X=X[here], y=y[here], rng_key=7)
    if jax.process_index() == 0:
        np.save(folder / "saved.npy", mcmc.get_samples()["w"])
    return mcmc


def killed(folder: Path) -> None:
    """All processes die in the middle of the run."""

    @contextmanager
    def dying(*_):
        yield lambda done: os._exit(9) if done >= STEPS // 2 else None

    execute.progress = dying
    saved(folder)


def resumed(folder: Path) -> None:
    saved(folder, resume=True)


def main(what: str, address: str, number: str, processes: str, folder: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, num_processes=int(processes), process_id=int(number))
    globals()[what](Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
