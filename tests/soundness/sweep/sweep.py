"""The soundness sweep: the library against itself, every claim attacked."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from private_mcmc.auditing import AuditResult, audit
from tests.soundness.attacks import deltas
from tests.soundness.sweep.settings import POINTS, Setting

_FEWEST_RUNS = 200
Found = tuple[Setting, AuditResult]


def sweep(
    chosen: Sequence[Setting], *, num_runs: int = 4_000, failure: float = 1e-6, workers: int = 1
) -> Iterator[Found]:
    """Audit every setting at every one of ``POINTS`` on its worst pair; what is found, as it is done.

    **Guarantee**: if every claim of the library holds, each audit refutes its claim with probability at most
    ``failure``, and any of them with the sum. Most of a setting's time is tracing and compilation, on one
    core: several ``workers`` are processes, each with settings of its own. Chains and exact draws are
    reproducible, whichever settings are chosen; release noise never is.
    """
    if workers == 1:
        yield from (_audited(setting, num_runs, failure) for setting in chosen)
        return
    # A fresh interpreter each: JAX does not survive a fork. Never replaced after so many settings: a pool
    # whose processes all end at once waits for ever (Python 3.11).
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_audited, one, num_runs, failure) for one in chosen]):
            yield done.result()


def _audited(setting: Setting, num_runs: int, failure: float) -> Found:
    mechanism, runs = setting.build(), max(_FEWEST_RUNS, round(num_runs * setting.share))
    return setting, audit(
        mechanism,
        mechanism.pairs()[0],
        delta=deltas(mechanism, POINTS),
        num_runs=runs,
        failure_probability=failure,
        seed=[0, *setting.name.encode()],
    )
