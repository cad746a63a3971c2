"""What the experiments on noise and batch sizes did; none of it is a bound."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from private_mcmc.errors import DeclarationError

NoiseShape = Literal["per layer", "proportional", "none"]


@dataclass(frozen=True)
class NoiseSettings:
    """``x' = x − η∇f(x) + N(0, Σ(x))`` on a batch's mean loss, for data sets that differ in a row.

    ``"per layer"``: ``Σ = σ² max|∇f| I`` in each layer; ``"proportional"``: ``Σ_ii = σ²|∇_i f|``; ``"none"``:
    plain SGD. Networks on ``D`` and ``D'`` share starts, batches and noise; in ``D'`` one row is left out.

    Attributes:
        num_rows: ``N``; the paper has 1,000.
        hidden: units of the one hidden layer; the paper has 10, 100, and 30 for the histograms. 0: LeNet5.
        steps: the paper has 10,000, and 3,000 for the histograms.
        pairs: ``T_1`` data sets ``D'``, each without another row of ``D``.
        repeats: ``T_2`` trainings on ``D`` and on each ``D'``.
        runs: of the whole experiment, each with rows of its own; the paper has one.
        noise: ``σ²``; the paper has 0.01, and 0.001 for CIFAR-10.
        deviation: take the entries of ``Σ`` as standard deviations, which programs ask for, not as variances.
        on_gradient: add the noise to the gradient, before the learning rate, not to the parameters.
        epsilons: where Algorithm 1 reads its ``δ``.

    Source: Sections 6.2, 6.3, 6.4 and Appendix C.
    """

    num_rows: int = 200
    hidden: int = 10
    steps: int = 1_000
    batch_size: int = 50
    learning_rate: float = 0.1
    noise: float = 0.01
    deviation: bool = False
    on_gradient: bool = False
    pairs: int = 4
    repeats: int = 5
    runs: int = 1
    epsilons: tuple[float, ...] = (0.001, 0.01, 0.1)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_rows", "steps", "batch_size", "pairs", "repeats", "runs"):
            if not getattr(self, name) >= 1:
                raise DeclarationError(f"{name}={getattr(self, name)}: must be at least 1.")
        if not (self.hidden >= 0 and self.pairs <= self.num_rows):
            raise DeclarationError("hidden: at least 0; and a row of D for every pair.")


Runs = tuple[float, ...]


@dataclass(frozen=True)
class Trained:
    """What one kind of noise did, run by run.

    Attributes:
        deltas: ``(ε, δ of every run)`` by Algorithm 1, a heuristic.
        worst_loss: the highest mean loss over ``D`` of a network trained on it.
        worst_row: the highest loss of one row of ``D``: the paper's "highest loss over the train data over
            all runs".
        mean_loss: over rows and networks, trained on ``D``.
        with_row, without: losses of the rows left out, trained with and without them.
    """

    name: str
    shape: NoiseShape
    batch_size: int
    deltas: tuple[tuple[float, Runs], ...]
    worst_loss: Runs
    worst_row: Runs
    mean_loss: Runs
    with_row: tuple[Runs, ...]
    without: tuple[Runs, ...]

    @property
    def distances(self) -> Runs:
        """Difference of the mean losses of the rows left out, in every run."""
        pairs = zip(self.with_row, self.without, strict=True)
        return tuple(float(np.mean(two) - np.mean(one)) for one, two in pairs)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: means over runs with their standard errors; the losses of the rows left out."""
        return {
            "name": self.name,
            "shape": self.shape,
            "batch_size": self.batch_size,
            "deltas": [[at, *spread(runs)] for at, runs in self.deltas],
            "worst_loss": spread(self.worst_loss),
            "worst_row": spread(self.worst_row),
            "mean_loss": spread(self.mean_loss),
            "distance": spread(self.distances),
            "with_row": _short(self.with_row),
            "without": _short(self.without),
        }


def _short(runs: tuple[Runs, ...]) -> list[float]:
    return [float(f"{loss:.3g}") for run in runs for loss in run]


def spread(runs: Runs) -> tuple[float, float]:
    """Mean over runs and its standard error, 0 of a single run."""
    error = float(np.std(runs, ddof=1) / len(runs) ** 0.5) if len(runs) > 1 else 0.0
    return float(np.mean(runs)), error


@dataclass(frozen=True)
class NoiseResult:
    """Kinds of noise side by side; nothing here is a privacy statement or a bound."""

    experiment: NoiseSettings
    found: tuple[Trained, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "experiment": asdict(self.experiment),
            "heuristic": "Algorithm 1 of Borovykh et al.: not a bound on delta",
            "found": [one.to_dict() for one in self.found],
        }
