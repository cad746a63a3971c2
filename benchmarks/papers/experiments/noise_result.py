"""What the experiments on noise and batch sizes did, and their report; none of it is a bound."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from private_mcmc.errors import DeclarationError
from private_mcmc.report import Facts, Line, Note, Plot, Plots, Report, Table, floats, number

NoiseShape = Literal["per layer", "proportional", "none"]

_BINS = 16
_LEAST_LOSS = 1e-4


@dataclass(frozen=True)
class NoiseSettings:
    """``x' = x − η∇f(x) + N(0, Σ(x))`` on a batch's mean loss, for data sets that differ in a row.

    ``"per layer"``: ``Σ = σ² max|∇f| I`` in each layer; ``"proportional"``: ``Σ_ii = σ²|∇_i f|``; ``"none"``:
    plain SGD. Networks on ``D`` and ``D'`` share starts, batches and noise; in ``D'`` one row is left out.

    Attributes:
        num_rows: ``N``; the paper has 1,000.
        hidden: units of the one hidden layer; the paper has 10, 100, and 30 for the histograms.
        steps: the paper has 10,000, and 3,000 for the histograms.
        pairs: ``T_1`` adjacent pairs of data sets.
        repeats: ``T_2`` trainings on each of them.
        noise: ``σ²``; the paper has 0.01.
        deviation: take the entries of ``Σ`` as standard deviations, which programs ask for, not as variances.
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
    pairs: int = 4
    repeats: int = 10
    epsilons: tuple[float, ...] = (0.001, 0.01, 0.1)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_rows", "hidden", "steps", "batch_size", "pairs", "repeats"):
            if not getattr(self, name) >= 1:
                raise DeclarationError(f"{name}={getattr(self, name)}: must be at least 1.")
        if not self.batch_size <= self.num_rows:
            raise DeclarationError(f"batch_size={self.batch_size}: there are {self.num_rows} rows.")


@dataclass(frozen=True)
class Trained:
    """What one kind of noise did.

    Attributes:
        deltas: ``(ε, δ)`` by Algorithm 1, a heuristic.
        worst_loss, mean_loss: over rows, pairs and repeats, trained on ``D``.
        with_row, without: the loss of the row that ``D'`` lacks, run by run.
    """

    name: str
    shape: NoiseShape
    batch_size: int
    deltas: tuple[tuple[float, float], ...]
    worst_loss: float
    mean_loss: float
    with_row: tuple[float, ...]
    without: tuple[float, ...]

    @property
    def distance(self) -> float:
        """Difference of the mean losses of the row that ``D'`` lacks."""
        return float(np.mean(self.without) - np.mean(self.with_row))


@dataclass(frozen=True)
class NoiseResult:
    """Kinds of noise side by side; nothing here is a privacy statement or a bound."""

    experiment: NoiseSettings
    found: tuple[Trained, ...]

    @property
    def report(self) -> Report:
        """Table, and histograms of the loss of the row left out."""
        return noise_report(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "experiment": asdict(self.experiment),
            "heuristic": "Algorithm 1 of Borovykh et al.: not a bound on delta",
            "found": [asdict(one) | {"distance": one.distance} for one in self.found],
        }


def noise_report(result: NoiseResult) -> Report:
    """Algorithm 1's numbers, losses, and histograms of the loss of the row left out."""
    experiment = result.experiment
    return Report(
        "Noise and batch sizes, after Borovykh, Kantas, Parpas, Pavliotis",
        (
            Note(
                "δ by Algorithm 1 is a heuristic: it is positive for two seeds on one data set, and bounds "
                "nothing. It orders settings of one experiment; it is never compared with a privacy claim.",
                "unsure",
            ),
            Facts(
                (
                    ("rows", experiment.num_rows),
                    ("hidden units", experiment.hidden),
                    ("steps", experiment.steps),
                    ("pairs of data sets × repeats", f"{experiment.pairs} × {experiment.repeats}"),
                    ("σ²", None if all(one.shape == "none" for one in result.found) else experiment.noise),
                )
            ),
            Table(
                ("setting", *(f"δ({at:g})" for at in experiment.epsilons), "worst loss", "mean loss", "gap"),
                tuple(
                    (one.name, *(number(delta, 3) for _, delta in one.deltas), number(one.worst_loss, 3),
                     number(one.mean_loss, 3), number(one.distance, 3))
                    for one in result.found
                ),
                "Heuristic δ(ε), losses, and how much worse the row left out fares (gap of mean losses)",
            ),
            Plots(tuple(_histogram(result, index) for index in range(len(result.found)))),
        ),
    )  # fmt: skip


def _histogram(result: NoiseResult, index: int) -> Plot:
    one = result.found[index]
    everything = [value for each in result.found for value in (*each.with_row, *each.without)]
    low, high = max(min(everything), _LEAST_LOSS), max(*everything, 2 * _LEAST_LOSS)
    edges = np.geomspace(low * 0.99, high * 1.01, _BINS + 1)

    def line(values: tuple[float, ...], name: str, color: int) -> Line:
        shares = np.histogram(np.maximum(values, low), edges)[0] / len(values)
        # A step at each edge.
        return Line(floats(np.repeat(edges, 2)[1:-1]), floats(np.repeat(shares, 2)), name, color, fill=True)

    return Plot(
        one.name,
        "loss of the row left out of D′",
        "share of runs",
        (line(one.with_row, "trained on D", 1), line(one.without, "trained on D′", 0)),
        "Histograms of the loss of one row over runs with and without it.",
        x_log=True,
    )
