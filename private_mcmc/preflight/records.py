"""What preflight answers with: plain records of public facts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

from private_mcmc.accounting import Statement
from private_mcmc.preflight.certify.certificates import Subject
from private_mcmc.preflight.refute.pairs import DataSet
from private_mcmc.records import Record
from private_mcmc.report import plain
from private_mcmc.target import Target, Unit

VerdictWord = Literal["private", "not private", "unknown"]


@dataclass(frozen=True)
class Refutation:
    """A pair of adjacent, synthetic data sets of the domain, and an event that tells their posteriors apart.

    ``kind="event"``: ``P[A|first] ≥ p_low > e^ε q_high + δ ≥ e^ε P[A|second] + δ``. ``kind="no posterior"``:
    the posterior of ``first`` does not integrate, so there is nothing that could be private.

    Attributes:
        event: the event in words.
        coordinate: the quantity that ``intervals`` and ``density`` are about.
        intervals: the event on a line; empty where the event is a union of boxes.
        coordinates: the quantities that ``boxes`` are about.
        boxes: the event in two or three dimensions, ``(low, high)`` for each coordinate.
        density: the two posterior densities of the coordinate, ``(x, first, second)``, for a plot.
    """

    kind: Literal["event", "no posterior"]
    reason: str
    first: DataSet
    second: DataSet | None = None
    event: str = ""
    coordinate: str = ""
    intervals: tuple[tuple[float, float], ...] = ()
    coordinates: tuple[str, ...] = ()
    boxes: tuple[tuple[tuple[float, float], ...], ...] = ()
    p: float = 0.0
    q: float = 0.0
    p_low: float = 0.0
    q_high: float = 0.0
    density: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    def to_dict(self) -> Record:
        """Plain data; infinite ends of intervals as ``None``."""
        kept = {name: value for name, value in vars(self).items() if name != "density"}
        ends = [[None if abs(end) == float("inf") else end for end in pair] for pair in self.intervals]
        second = None if self.second is None else self.second.to_dict()
        sets = {"first": self.first.to_dict(), "second": second, "intervals": ends}
        result: Record = plain(kept | sets)
        return result


@dataclass(frozen=True)
class Advice:
    """One change that would certify the target, with its number.

    ``change`` is a stable key (``temper``, ``clip``, ``radius``, ``prior precision``, ``proper prior``,
    ``steps``, ``release``, ``time``, ``delta``), ``value`` the computed number, ``text`` the sentence.
    """

    change: str
    value: float | None
    text: str
    concerns: Literal["posterior", "run"] = "posterior"


@dataclass(frozen=True)
class RunPart:
    """The statement of a run by the given schedule, and what it means beside the posterior's verdict.

    Attributes:
        statement: the run's statement; ``None`` for an average, whose noise decides.
        meets: whether it certifies the target.
        text: what that means beside the posterior's verdict.
        distance: the total variation that the law of the run keeps from the posterior for one of two
            adjacent data sets, where a refuted posterior and a private run make one necessary.
        interim: an ε at which a released state of this run is provably not (ε, δ)-DP, whatever the posterior
            is; ``None`` where the laws of its states are not known.
        refuted: whether ``interim`` is above the target's ε: the run is provably not private.
        by_steps: ``(steps, ε of the path, ε of the last state)`` for several lengths of the run.
    """

    statement: Statement | None
    meets: bool
    text: str
    distance: float | None = None
    interim: float | None = None
    by_steps: tuple[tuple[int, float, float], ...] = ()
    refuted: bool = False


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
        unit: who is protected where that is a person with several rows, each of whom counts as a row above.
        unclipped: where clipping binds and what it leaves is not certified: the certificate at the target of
            the model's own posterior, if there is one.
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
    structure: Record
    advice: tuple[Advice, ...]
    run: RunPart | None
    unit: Unit | None = None
    unclipped: Statement | None = None

    @property
    def epsilon(self) -> float | None:
        """The certified ε of one exact draw at the target's δ; ``None`` without a certificate."""
        if not self.certificates:
            return None
        return min(statement.epsilon(self.target.delta) for statement in self.certificates)

    def to_dict(self) -> Record:
        """Plain JSON types; infinities as ``"inf"``."""
        run = None
        if self.run is not None:
            statement = None if self.run.statement is None else self.run.statement.to_dict()
            run = vars(self.run) | {"statement": statement}
        result: Record = plain(
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
                    **({} if self.unit is None else {"unit": asdict(self.unit)}),
                },
                "n": self.n,
                "temper": self.temper,
                "clip": self.clip,
                "certificates": [statement.to_dict() for statement in self.certificates],
                "refutation": None if self.refutation is None else self.refutation.to_dict(),
                "structure": self.structure,
                "advice": [vars(advice) for advice in self.advice],
                "run": run,
                "unclipped": None if self.unclipped is None else self.unclipped.to_dict(),
            }
        )
        return result
