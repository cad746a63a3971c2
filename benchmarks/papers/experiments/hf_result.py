"""What Heller and Fetaya's attack found, epoch by epoch, beside the claim."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.papers.experiments.hf_settings import HFSettings
from private_mcmc.accounting import Statement
from private_mcmc.report import Facts, Line, Plot, Report, Rule, Table, Verdict, floats, number


@dataclass(frozen=True)
class EpochResult:
    """One epoch's networks.

    Attributes:
        epoch: epochs of training.
        epsilon_lower: what the attack proves, each epoch with its own failure probability.
        largest: the most that so many networks can prove.
        statement: the accountant's claim, ``None`` without clipping.
        accuracy: mean over all networks on images nobody trained on.
        without, with_row: mean probability that networks trained without and with the adversarial row
            give its label to it.
    """

    epoch: int
    epsilon_lower: float
    largest: float
    statement: Statement | None
    accuracy: float
    without: float
    with_row: float


@dataclass(frozen=True)
class HFResult:
    """Lower bounds epoch by epoch beside the claim, which without clipping is that there is none."""

    experiment: HFSettings
    epochs: tuple[EpochResult, ...]

    def upper(self, at: EpochResult) -> float:
        """The claimed ``ε`` at the experiment's ``δ``; infinite without clipping."""
        return float("inf") if at.statement is None else at.statement.epsilon(self.experiment.delta)

    @property
    def sound(self) -> bool:
        """True if no epoch's lower bound exceeds its claim."""
        return all(at.epsilon_lower <= self.upper(at) for at in self.epochs)

    @property
    def report(self) -> Report:
        """Table and plots."""
        return hf_report(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "experiment": asdict(self.experiment),
            "sound": self.sound,
            "epochs": [
                {
                    "epoch": at.epoch,
                    "epsilon_lower": at.epsilon_lower,
                    "epsilon_upper": None if at.statement is None else self.upper(at),
                    "largest_provable": at.largest,
                    "accuracy": at.accuracy,
                    "probability_without_row": at.without,
                    "probability_with_row": at.with_row,
                }
                for at in self.epochs
            ],
        }


def hf_report(result: HFResult) -> Report:
    """Lower bound, claim and accuracy by epoch."""
    experiment, epochs = result.experiment, result.epochs
    uppers = [result.upper(at) for at in epochs]
    numbers = floats(at.epoch for at in epochs)
    return Report(
        "SGLD attacked: LeNet5 on digit images",
        (
            _verdict(result),
            Facts(
                (
                    ("rows", experiment.num_rows),
                    ("weight of the likelihood", number(experiment.as_rows / experiment.num_rows)),
                    ("batches, of fixed size", experiment.batch_size),
                    ("learning rate of a row", experiment.learning_rate),
                    ("clip", "none" if experiment.clip is None else experiment.clip),
                    ("networks learned from, and as many counted on", 2 * experiment.models),
                    ("failure probability of each epoch's lower bound", experiment.failure_probability),
                    ("δ", experiment.delta),
                    ("the largest ε so many networks can prove", number(epochs[0].largest)),
                    ("the claim rests on", _theorem(result)),
                )
            ),
            _bounds(result, numbers, uppers),
            _learning(result, numbers),
            Table(
                ("epoch", "ε at least", "ε at most", "accuracy", "p(label | row), without it", "with it"),
                tuple(
                    (at.epoch, number(at.epsilon_lower), number(upper), number(at.accuracy, 3),
                     number(at.without, 3), number(at.with_row, 3))
                    for at, upper in zip(epochs, uppers, strict=True)
                ),
                "Epoch by epoch",
            ),
        ),
    )  # fmt: skip


def _verdict(result: HFResult) -> Verdict:
    """The last epoch speaks: the largest of many bounds would need a smaller failure probability."""
    last = result.epochs[-1]
    line = f"after {last.epoch} epochs the attack proves ε ≥ {number(last.epsilon_lower)}"
    if result.experiment.clip is None:
        return Verdict("no claim", line, "unsure", ("without clipping nothing bounds what a row does",))
    claim = f"claimed: ε ≤ {number(result.upper(last))}"
    if result.sound:
        return Verdict("sound", line, "good", (claim, "no epoch's lower bound exceeds its claim"))
    return Verdict("claim refuted", line, "bad", (claim, "an epoch's lower bound exceeds its claim"))


def _theorem(result: HFResult) -> str:
    statement = result.epochs[-1].statement
    return "nothing" if statement is None else statement.argument.theorem


def _bounds(result: HFResult, numbers: tuple[float, ...], uppers: list[float]) -> Plot:
    lower = Line(
        numbers, floats(at.epsilon_lower for at in result.epochs), "proved by the attack", 1, marker=True
    )
    drawn: tuple[Line | Rule, ...] = (lower, Rule("y", result.epochs[0].largest, "most provable"))
    if np.isfinite(uppers).all():
        drawn = (*drawn, Line(numbers, floats(uppers), "claimed upper bound", 0, "dashed"))
    return Plot(
        "What is lost",
        "epochs of training",
        f"ε at δ = {number(result.experiment.delta)}",
        drawn,
        "Lower bound on ε of each epoch's network, and the claimed upper bound where there is one.",
    )


def _learning(result: HFResult, numbers: tuple[float, ...]) -> Plot:
    return Plot(
        "What is learned",
        "epochs of training",
        "probability",
        (
            Line(numbers, floats(at.accuracy for at in result.epochs), "accuracy on new images", 2),
            Line(numbers, floats(at.with_row for at in result.epochs), "the row's label, trained with it", 1),
            Line(
                numbers,
                floats(at.without for at in result.epochs),
                "the row's label, without it",
                0,
                "dashed",
            ),
        ),
        "Accuracy, and mean probability of the adversarial row's label with and without it in the data.",
        y_range=(0.0, 1.0),
    )
