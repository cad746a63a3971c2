"""What Heller and Fetaya's attack found, epoch by epoch, beside the claim."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from private_mcmc.accounting import Statement

if TYPE_CHECKING:
    from private_mcmc.audit.experiments.hf import HFExperiment
    from private_mcmc.report import Report


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

    experiment: HFExperiment
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
        from private_mcmc.audit.experiments.page import hf_report

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
                    "epsilon_upper": self.upper(at),
                    "largest_provable": at.largest,
                    "accuracy": at.accuracy,
                    "probability_without_row": at.without,
                    "probability_with_row": at.with_row,
                }
                for at in self.epochs
            ],
        }
