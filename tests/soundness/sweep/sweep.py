"""The soundness sweep: the library against itself, every claim attacked, all confidence shared out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from private_mcmc.auditing.auditing import audit_at
from private_mcmc.auditing.result import AuditResult
from private_mcmc.errors import DeclarationError
from private_mcmc.report import (
    Block,
    Facts,
    Heading,
    Report,
    Table,
    Verdict,
    number,
)
from tests.soundness.sweep.kept import Kept
from tests.soundness.sweep.settings import POINTS, Setting, settings

_FEWEST_RUNS = 200


@dataclass(frozen=True)
class Swept:
    """One setting and what the audit found at one (ε, δ)."""

    setting: str
    adjacency: str
    result: AuditResult


@dataclass(frozen=True)
class Sweep:
    """The whole sweep.

    **Guarantee**: if every claim of the library holds, any one audit refutes its claim with probability at
    most ``failure_probability``, and any of them with probability at most ``any_failure``.
    """

    found: tuple[Swept, ...]
    num_runs: int
    failure_probability: float

    @property
    def any_failure(self) -> float:
        """``failure_probability`` times the number of audits (union bound)."""
        return min(1.0, self.failure_probability * len(self.found))

    @property
    def refuted(self) -> tuple[Swept, ...]:
        """Settings in which a lower bound exceeds an upper bound: a bug in the library."""
        return tuple(swept for swept in self.found if not swept.result.sound)

    @property
    def sound(self) -> bool:
        """True if no claim was refuted."""
        return not self.refuted

    @property
    def summary(self) -> Report:
        """Verdict, refuted claims, and how likely either is wrong."""
        return Report("Soundness sweep", _blocks(self))

    @property
    def report(self) -> Report:
        """The summary, and every setting."""
        return Report(self.summary.title, (*self.summary.blocks, *_every(self)))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "sound": self.sound,
            "settings": len(self.found),
            "num_runs": self.num_runs,
            "failure_probability": self.failure_probability,
            "any_failure": self.any_failure,
            "results": [_record(one) for one in self.found],
        }


def sweep(
    chosen: Sequence[Setting] | None = None,
    *,
    num_runs: int = 4_000,
    failure_probability: float = 1e-6,
    seed: int = 0,
    workers: int = 1,
    kept: Path | None = None,
    on_setting: Callable[[Sequence[Swept], bool], None] = lambda found, now: None,
) -> Sweep:
    """Audit every setting at every one of ``POINTS`` on its worst pair.

    ``failure_probability`` is that of each audit. ``on_setting`` is told what was found of each setting,
    and whether now or before. Most of a setting's time is tracing and compilation, on one core: several
    ``workers`` are processes, each with settings of its own. Chains and exact draws are reproducible by
    ``seed``; release noise never is.

    In the folder ``kept`` lies what was found of each setting. A sweep of the same code with the same numbers
    goes on from there: it asks nothing twice, so that stopping and going on chooses among no results.

    Raises:
        DeclarationError: without settings.
    """
    todo = tuple(settings() if chosen is None else chosen)
    if not todo:
        raise DeclarationError("the sweep needs at least one setting.")
    # By its name: what is found of a setting is the same whichever others are chosen.
    jobs = [(one, _seed_of(one, seed), num_runs, failure_probability) for one in todo]
    store = None if kept is None else Kept.of(kept, num_runs, failure_probability, seed)
    found = {one.name: store.load(one) for one in todo if store is not None and store.has(one)}
    for swept in found.values():
        on_setting(swept, False)
    with _running([job for job in jobs if job[0].name not in found], workers) as results:
        for setting, swept in results:
            if store is not None:
                store.save(setting, swept)
            found[setting.name] = swept
            on_setting(swept, True)
    return Sweep(tuple(one for each in todo for one in found[each.name]), num_runs, failure_probability)


def _record(one: Swept) -> dict[str, Any]:
    result = one.result
    comparisons = [asdict(comparison) for comparison in result.comparisons]
    attacks = {name: asdict(bounds) for name, bounds in result.attacks.items()}
    named = {"setting": one.setting, "adjacency": one.adjacency, "sound": result.sound}
    at = {"epsilon": result.epsilon, "delta": result.delta, "num_runs": result.num_runs}
    return {**named, **at, "tightness": result.tightness, "comparisons": comparisons, "attacks": attacks}


Job = tuple[Setting, np.random.SeedSequence, int, float]


def _seed_of(setting: Setting, seed: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, *setting.name.encode()])


@contextmanager
def _running(jobs: Sequence[Job], workers: int) -> Iterator[Iterator[tuple[Setting, list[Swept]]]]:
    """Settings and what was found of them, as they are done."""
    if workers == 1 or len(jobs) < 2:
        yield ((job[0], _audited(*job)) for job in jobs)
        return
    # A fresh interpreter each: JAX does not survive a fork. Never replaced after so many settings: a pool
    # whose processes all end at once waits for ever (Python 3.11).
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        settings_of = {pool.submit(_audited, *job): job[0] for job in jobs}
        try:
            yield ((settings_of[done], done.result()) for done in as_completed(settings_of))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _audited(
    setting: Setting, seed: np.random.SeedSequence, num_runs: int, failure_probability: float
) -> list[Swept]:
    mechanism = setting.build()
    runs = max(_FEWEST_RUNS, round(num_runs * setting.share))
    pair = mechanism.pairs()[0]
    results = audit_at(mechanism, pair, POINTS, num_runs=runs, failure=failure_probability, seed=seed)
    return [Swept(setting.name, setting.adjacency, result) for result in results]


def _blocks(swept: Sweep) -> tuple[Block, ...]:
    refuted = swept.refuted
    word = "sound" if swept.sound else "claims refuted"
    line = f"{len(swept.found)} audits, {len(refuted)} with a lower bound above the claim"
    reasons = tuple(f"{one.setting}: {one.result.violations[0].quantity}" for one in refuted[:5])
    return (
        Verdict(word, line, "good" if swept.sound else "bad", reasons),
        Facts(
            (
                ("settings", len({one.setting for one in swept.found})),
                ("runs on each data set, most settings", swept.num_runs),
                ("failure probability of each audit", swept.failure_probability),
                ("number of audits, each of several attacks and quantities", len(swept.found)),
                ("failure probability of any of them", number(swept.any_failure)),
            )
        ),
    )


def _every(swept: Sweep) -> tuple[Block, ...]:
    rows = tuple(_row(one) for one in swept.found)
    return (
        Heading("Every setting: lower bound … claimed upper bound"),
        Table(("setting", "ε", "at δ", "δ", "at ε", "m"), rows),
    )


def _row(one: Swept) -> tuple[str, ...]:
    epsilon, delta, *gdp = (f"{number(c.lower, 3)} … {number(c.upper, 3)}" for c in one.result.comparisons)
    at_delta, at_epsilon = number(one.result.delta), number(one.result.epsilon)
    return one.setting, epsilon, at_delta, delta, at_epsilon, gdp[0] if gdp else ""
