"""A preflight's answer in one or two lines: of the posterior, and of the run."""

from __future__ import annotations

from private_mcmc.preflight.records import Findings
from private_mcmc.report import Block, Verdict, number
from private_mcmc.report.blocks import Tone

TONES: dict[str, Tone] = {"private": "good", "not private": "bad", "unknown": "unsure"}


def verdicts(found: Findings) -> list[Block]:
    """The answer; what is known of the run comes first where it differs from that of the posterior."""
    if found.run is None or not (found.run.refuted or (found.run.meets and found.verdict != "private")):
        return [Verdict(found.verdict, _line(found), TONES[found.verdict], found.reasons), *_own(found)]
    words = found.run.text[0].upper() + found.run.text[1:] + "."
    known = "not private" if found.run.refuted else "private"
    ran = Verdict(f"the run is {known}", words, TONES[known])
    tone: Tone = "good" if found.verdict == "private" else "unsure"
    alone = Verdict(f"the posterior alone: {found.verdict}", _line(found), tone, found.reasons)
    return [ran, *(_own(found) or (alone,))]


def _own(found: Findings) -> list[Block]:
    """The posterior without clipping, where that is private and what clipping leaves is not known."""
    if found.unclipped is None:
        return []
    epsilon = number(found.unclipped.epsilon(found.target.delta))
    words = (
        f"One exact draw from the posterior that the model states has ε = {epsilon} at "
        f"δ = {number(found.target.delta)}, by {found.unclipped.argument.theorem}."
    )
    clipped = "Whether what clipping leaves of it is private is not decided."
    return [Verdict("the posterior, unclipped: private", words, "good", (clipped,))]


def _line(found: Findings) -> str:
    target = (
        f"({number(found.target.epsilon)}, {number(found.target.delta)})-DP under {found.target.adjacency}"
        + ("" if found.unit is None else f" of {found.unit}")
    )
    if found.verdict == "private":
        return f"One exact draw from the {found.subject} is {target}, whatever the data."
    if found.verdict == "not private":
        return f"The {found.subject} is not {target}: there is a proof."
    if found.subject == "no posterior":
        return f"There is no target posterior to ask about {target}; only the run can be."
    return f"Whether the {found.subject} is {target} is not decided."
