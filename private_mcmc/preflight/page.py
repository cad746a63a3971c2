"""A preflight's findings as a page: the verdict in one line, why in a few, details below."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from private_mcmc.accounting import Statement
from private_mcmc.model.synthetic import row_words
from private_mcmc.preflight.certificates import Advice, Subject, VerdictWord
from private_mcmc.preflight.estimate import Estimate
from private_mcmc.preflight.refutation import Refutation
from private_mcmc.records import Record
from private_mcmc.report import (
    Block,
    Code,
    Facts,
    Heading,
    Report,
    Table,
    Text,
    Verdict,
    at_most,
    json_types,
    number,
)
from private_mcmc.report.blocks import Tone
from private_mcmc.target import Target, Unit

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class PreflightReport:
    """What preflight found, as words, HTML or plain data; public facts.

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
        unit: who is protected where that is a person with several rows, each of whom counts as a row above.
        estimate: about what one exact draw reveals on synthetic data, which certifies nothing; ``None`` where
            the posterior is private or clipped, and where ``reasons`` say why there is none.

    Example:
        >>> from private_mcmc.models import bounded_mean, bounded_mean_rows
        >>> report = pmc.preflight(bounded_mean, bounded_mean_rows(), pmc.Target(3.0, 1e-6), n=10)
        >>> isinstance(report, pmc.PreflightReport), report.verdict
        (True, 'not private')
        >>> report.refutation.coordinate
        'mean'
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
    unit: Unit | None = None
    estimate: Estimate | None = None

    @property
    def epsilon(self) -> float | None:
        """The certified ε of one exact draw at the target's δ; ``None`` without a certificate."""
        if not self.certificates:
            return None
        return min(statement.epsilon(self.target.delta) for statement in self.certificates)

    def to_dict(self) -> Record:
        """Plain JSON types; infinities as ``"inf"``."""
        fields = {name: value for name, value in vars(self).items() if name not in ("model_name", "unit")}
        fields |= {
            "model": self.model_name,
            "epsilon": self.epsilon,
            "delta": self.target.delta,
            "target": vars(self.target) | ({} if self.unit is None else {"unit": vars(self.unit)}),
            "certificates": [statement.to_dict() for statement in self.certificates],
        }
        result: Record = json_types(fields)
        return result

    @property
    def report(self) -> Report:
        """The report as plain blocks."""
        return Report(f"Preflight of `{self.model_name}`", (verdict(self), *_details(self)))

    def show(self, console: Console | None = None) -> None:
        """Print on a terminal (or on a ``rich.console.Console``)."""
        self.report.show(console)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained HTML page, also written to ``path`` where given."""
        return self.report.to_html(path)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


def _details(found: PreflightReport) -> Iterator[Block]:
    """What would help, what is proved and refuted, and what was read."""
    target, refutation = found.target, found.refutation
    if found.advice:
        yield Heading("What would make it private")
        rows = tuple((item.text, item.value, item.concerns) for item in found.advice)
        yield Table(("any one of these changes", "value", "concerns"), rows)
    yield Heading("Certificates")
    if found.certificates:
        yield Text("Upper bounds on what one exact draw reveals, for every data set in the row domain.")
        at = (f"ε at δ = {at_most(target.delta)}", f"δ at ε = {at_most(target.epsilon)}")
        lines = (
            (
                statement.argument.theorem,
                None if statement.gdp is None else at_most(statement.gdp),
                at_most(statement.epsilon(target.delta)),
                at_most(statement.delta(target.epsilon)),
                bool(statement.delta(target.epsilon) <= target.delta),
            )
            for statement in found.certificates
        )
        yield Table(("theorem", "GDP", *at, "meets the target"), tuple(lines))
        yield Code(found.certificates[0].summary(target.delta))
    else:
        yield Text("None of the theorems applies.")
    if refutation is not None:
        yield Heading("Refutation")
        yield Text(f"{refutation.reason[0].upper()}{refutation.reason[1:]}.")
        sets = (("D", refutation.first), ("D′", refutation.second))
        counts = tuple((name, row_words(row), count) for name, each in sets for row, count in each)
        yield Table(("data set", "row", "times"), counts, title="The synthetic data sets")
        if (event := refutation.violation) is not None:
            bound = math.exp(min(target.epsilon, 700.0)) * event.q_high + target.delta
            chances = ("probability on D", event.p), ("probability on D′", event.q)
            more = ("e^ε · probability on D′ + δ", bound), ("violated by", event.p_low - bound)
            yield Facts((("event", refutation.event), *chances, *more))
            yield Text("Both are integrals with an error bound, which is counted against the refutation.")
    yield from _read(found)


def _read(found: PreflightReport) -> Iterator[Block]:
    facts, latents = found.structure, []
    for item in facts["latents"]:
        lower, upper = item["lower"], item["upper"]
        bend = number(lower) if lower == upper else f"{number(lower)} to {number(upper)}"
        proved = math.isfinite(lower) or math.isfinite(upper)
        latents.append((item["name"], item["family"], bend if proved else "not proved", item["why"]))
    yield Heading("What was read of the model")
    yield Facts(
        (
            ("rows", found.n),
            ("latent dimension", facts["dim"]),
            ("temper", found.temper),
            ("clip", found.clip),
            ("prior strong convexity μ", facts["prior_strong_convexity"]),
            ("one row's gradient at most", facts["row_gradient"]),
            ("observed", ", ".join(f"{item['name']} ({item['family']})" for item in facts["observed"])),
            ("affine predictors of a row", facts["predictors"] or "none is proved"),
            ("a row's likelihood", facts["likelihood"]),
        )
    )
    yield Table(("latent site", "family", "prior curvature", "why"), tuple(latents))


TONES: dict[str, Tone] = {"private": "good", "not private": "bad", "unknown": "unsure"}


def verdict(found: PreflightReport) -> Verdict:
    """The answer."""
    return Verdict(found.verdict, _line(found), TONES[found.verdict], found.reasons)


def _line(found: PreflightReport) -> str:
    target = (
        f"({at_most(found.target.epsilon)}, {at_most(found.target.delta)})-DP under {found.target.adjacency}"
        + ("" if found.unit is None else f" of {found.unit}")
    )
    if found.verdict == "private":
        return f"One exact draw from the {found.subject} is {target}, whatever the data."
    if found.verdict == "not private":
        return f"The {found.subject} is not {target}: there is a proof."
    if found.subject == "no posterior":
        return f"There is no target posterior to ask about {target}; only the run can be."
    about = "" if found.estimate is None else f"; {found.estimate.words(found.target)}"
    return f"That the {found.subject} is {target} is not proved{about}."
