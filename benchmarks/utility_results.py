"""What was measured: one record for each data set, method and ε, kept as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.utility_metrics import Score, Summary, summarise

Status = Literal["measured", "not available", "does not apply"]
Key = tuple[str, str, float | None]


@dataclass(frozen=True)
class Result:
    """Scores of all runs of one method.

    Attributes:
        epsilon: ``None`` for methods that are not private.
        reason: why nothing was measured, where nothing was.
        seconds: wall time of all runs together, planning and compilation included.
    """

    dataset: str
    method: str
    epsilon: float | None
    adjacency: str | None
    status: Status
    scores: tuple[Score, ...] = ()
    facts: Mapping[str, float | str] = field(default_factory=dict)
    seconds: float = 0.0
    reason: str = ""

    @property
    def key(self) -> Key:
        """What identifies a result."""
        return self.dataset, self.method, self.epsilon

    def summary(self, metric: str) -> Summary | None:
        """A metric over the runs; ``None`` where it was not measured."""
        return summarise(metric, [getattr(score, metric) for score in self.scores])


@dataclass(frozen=True)
class DatasetFacts:
    """What the tables say of a data set."""

    name: str
    n: int
    dim: int
    family: str
    unit: str
    source: str
    ess: float


@dataclass
class Store:
    """All results of a benchmark, saved after each one."""

    path: Path | None
    delta: float
    results: dict[Key, Result] = field(default_factory=dict)
    datasets: dict[str, DatasetFacts] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        """Add the runs of ``result`` to earlier ones of the same key, and save."""
        earlier = self.results.get(result.key)
        if earlier is not None and earlier.status == result.status == "measured":
            scores, seconds = earlier.scores + result.scores, earlier.seconds + result.seconds
            result = replace(result, scores=scores, seconds=seconds)
        self.results[result.key] = result
        self.save()

    def save(self) -> None:
        """Write everything to ``path``, if there is one."""
        if self.path is None:
            return
        record = {
            "delta": self.delta,
            "machine": {"platform": platform.platform(), "python": platform.python_version()},
            "datasets": [asdict(facts) for facts in self.datasets.values()],
            "results": [asdict(result) for result in self.results.values()],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(record, indent=1, ensure_ascii=False))

    def missing(self, key: Key, runs: int) -> int:
        """How many of ``runs`` are still to be made. A method that was not available is tried again."""
        known = self.results.get(key)
        if known is None or known.status == "not available":
            return runs
        if known.status == "does not apply" or known.epsilon is None:
            return 0
        return max(runs - len(known.scores), 0)


def load(path: Path) -> Store:
    """The store saved at ``path``."""
    record = json.loads(path.read_text())
    store = Store(path, record["delta"])
    for facts in record["datasets"]:
        store.datasets[facts["name"]] = DatasetFacts(**facts)
    for entry in record["results"]:
        result = _result(entry)
        store.results[result.key] = result
    return store


def _result(entry: Mapping[str, Any]) -> Result:
    scores: Sequence[Mapping[str, Any]] = entry["scores"]
    return Result(**{**entry, "scores": tuple(Score(**score) for score in scores)})
