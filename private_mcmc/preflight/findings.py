"""What a preflight found: verdict, reasons, certificates, refutation, structure, advice, run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from private_mcmc.accounting import Statement
from private_mcmc.preflight.certify.certificates import Subject
from private_mcmc.preflight.records import Advice, Refutation, RunPart, VerdictWord
from private_mcmc.report import plain
from private_mcmc.target import Target


@dataclass(frozen=True)
class Findings:
    """What preflight found; public facts only.

    Attributes:
        model_name: name of the model.
        verdict: ``"private"``, ``"not private"`` or ``"unknown"``, of one exact draw from ``subject``.
        reasons: the verdict's reasons, a line each.
        target: what was asked.
        n: number of rows (or its public bound).
        temper: power of the likelihood.
        clip: bound on a row's gradient that a kernel enforces, if any.
        subject: which density the verdict is about: the posterior, the posterior of the Huberised
            likelihood, or none (clipped rows that are no loss of one predictor).
        certificates: proved statements about one exact draw, the best at the target first.
        refutation: the pair and event that violate the target, if one was found.
        structure: what was read of the model.
        advice: computed changes that would certify the target.
        run: the statement of the run by the given schedule, if one was given.
    """

    model_name: str
    verdict: VerdictWord
    reasons: tuple[str, ...]
    target: Target
    n: int
    temper: float
    clip: float | None
    subject: Subject
    certificates: tuple[Statement, ...]
    refutation: Refutation | None
    structure: dict[str, Any]
    advice: tuple[Advice, ...]
    run: RunPart | None

    @property
    def epsilon(self) -> float | None:
        """The certified ε of one exact draw at the target's δ; ``None`` without a certificate."""
        if not self.certificates:
            return None
        return min(statement.epsilon(self.target.delta) for statement in self.certificates)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; infinities as ``"inf"``."""
        run = None
        if self.run is not None:
            statement = None if self.run.statement is None else self.run.statement.to_dict()
            run = {
                "meets": self.run.meets,
                "text": self.run.text,
                "distance": self.run.distance,
                "interim": self.run.interim,
                "by_steps": self.run.by_steps,
                "statement": statement,
            }
        result: dict[str, Any] = plain(
            {
                "model": self.model_name,
                "verdict": self.verdict,
                "reasons": self.reasons,
                "subject": self.subject,
                "epsilon": self.epsilon,
                "delta": self.target.delta,
                "target": {
                    "epsilon": self.target.epsilon,
                    "delta": self.target.delta,
                    "adjacency": self.target.adjacency,
                },
                "n": self.n,
                "temper": self.temper,
                "clip": self.clip,
                "certificates": [statement.to_dict() for statement in self.certificates],
                "refutation": None if self.refutation is None else self.refutation.to_dict(),
                "structure": self.structure,
                "advice": [
                    {"change": a.change, "value": a.value, "text": a.text, "concerns": a.concerns}
                    for a in self.advice
                ],
                "run": run,
            }
        )
        return result
