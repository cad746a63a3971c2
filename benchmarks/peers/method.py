"""What a method of the benchmark is: data set and budget in, one array of draws per run out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.datasets import Dataset

Array = npt.NDArray[np.float64]
Adjacency = Literal["replace_one", "add_remove"]


class Unavailable(Exception):
    """The method cannot run on this machine; the message says what is missing."""


class DoesNotApply(Exception):
    """The method has no guarantee for this model; the message says why."""


@dataclass(frozen=True)
class Budget:
    """(ε, δ)-DP, and how many runs of it were made before: theirs are other seeds."""

    epsilon: float
    delta: float
    made: int = 0


@dataclass(frozen=True, eq=False)
class Runs:
    """Independent runs.

    Attributes:
        draws: for every run, shape ``(k, p)``; a point estimate has ``k = 1``.
        facts: public numbers worth showing, such as a predicted error.
    """

    draws: tuple[Array, ...]
    facts: Mapping[str, float | str] = field(default_factory=dict)


class Method(Protocol):
    """A way to estimate the posterior.

    Attributes:
        name: what the tables call it.
        adjacency: neighbouring relation of its guarantee; ``None`` for methods that are not private.
        about: its guarantee and settings in a line.
    """

    @property
    def name(self) -> str: ...
    @property
    def adjacency(self) -> Adjacency | None: ...
    @property
    def about(self) -> str: ...

    def run(self, dataset: Dataset, budget: Budget, runs: int) -> Runs:
        """Run ``runs`` times.

        Raises:
            DoesNotApply: where the method has no guarantee.
            Unavailable: where it cannot run.
        """
        ...


def seeds(method: Method, dataset: Dataset, budget: Budget, runs: int) -> list[int]:
    """One for each run, below ``2**31``, the same whenever it is repeated: versions are compared in pairs."""
    whose = f"{dataset.name} {method.name} {budget.epsilon:g}"
    texts = (f"{whose} {budget.made + run}" for run in range(runs))
    return [int(hashlib.sha256(text.encode()).hexdigest(), 16) % 2**31 for text in texts]


def generators(method: Method, dataset: Dataset, budget: Budget, runs: int) -> list[np.random.Generator]:
    """One for each run, of :func:`seeds`."""
    return [np.random.default_rng(seed) for seed in seeds(method, dataset, budget, runs)]


def only_logistic(dataset: Dataset, why: str) -> None:
    """Raise ``DoesNotApply`` unless the data set is a logistic regression."""
    if dataset.regression.family != "logistic":
        raise DoesNotApply(why)
