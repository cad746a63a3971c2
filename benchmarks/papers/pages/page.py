"""A page about one paper: its claims beside our numbers, and plots; as JSON, HTML and a table in the docs."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from private_mcmc.report import Block, Facts, Heading, Report, Table, Verdict, json_types, number

_TIGHT = 1.01


@dataclass(frozen=True)
class Claim:
    """One number of a paper beside ours; the status follows from the two.

    Attributes:
        name: as the paper numbers it.
        states: what it says, in words.
        what: the quantity compared, at the settings of the page.
        relation: what the paper says of the true value: it is ``at most``, ``at least`` or ``equals`` its
            number, or is ``above`` it, where how far does not matter.
        printed: the paper's number, computed as printed (or read from its text), or ``None``.
        ours: our number; ``None`` where the setting of this run does not compute it.
        by: ``exact``: the true value (or, of a claim that is refuted, a value that is reached);
            ``certified``: a bound of ours on the same side; ``measured``: a simulation.
        why: why they differ.
        code, test: where ours is computed and tested.
        proved: whether the paper's proof holds; a number without one is no bound, however small.
        within: relative tolerance of ``equals``; of trained networks, three standard errors.
    """

    name: str
    states: str
    what: str
    relation: Literal["at most", "at least", "equals", "above"]
    printed: float | None
    ours: float | None
    by: Literal["exact", "certified", "measured"]
    why: str
    code: str
    test: str = "benchmarks/papers/tests/test_pages.py"
    proved: bool = True
    within: float = 1e-3

    @property
    def factor(self) -> float | None:
        """How many times as far as ours the paper's number is; below 1: on the wrong side of ours."""
        if self.ours is None or self.printed is None or self.relation in ("equals", "above"):
            return None
        far, near = (self.printed, self.ours) if self.relation == "at most" else (self.ours, self.printed)
        return math.inf if near == 0 else far / near

    @property
    def status(self) -> str:
        """One of the words that ``benchmarks.papers.docs`` explains; ``undecided`` should be none."""
        if self.ours is None or self.printed is None:
            return "not run"
        if self.relation == "equals":
            same = math.isclose(self.printed, self.ours, rel_tol=min(self.within, 1.0))
            if self.by == "measured" and same and self.within >= 1:
                return "within noise"
            other = "not reproduced" if self.by == "measured" else "false"
            return "holds" if same else other
        if self.relation == "above":
            return "holds" if self.ours > self.printed else "false"
        factor = self.factor
        if not self.proved:
            return "not proved"
        if factor is None or factor < 1 - 1e-9:
            return "undecided" if self.by == "certified" else "false"
        return "holds" if factor <= _TIGHT else "loose"

    @property
    def words(self) -> str:
        """The status with its factor."""
        if self.status == "loose" and self.factor is not None:
            return f"loose by {number(self.factor, 3)}×"
        if self.status == "not proved" and self.factor is not None:
            return f"not proved ({number(self.factor, 3)} × ours)"
        return self.status

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, with the status."""
        record: dict[str, Any] = json_types(self)
        return {**record, "status": self.status, "words": self.words, "factor": json_types(self.factor)}


@dataclass(frozen=True)
class Section:
    """Claims that belong together, and what is shown of them."""

    claims: tuple[Claim, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """What ``python -m benchmarks.papers`` makes of one paper.

    Attributes:
        key: ``000``, ``001``, …: the paper's file, or the page's name.
        title: authors and paper.
        settings: every number the page was computed with.
        claims: in the paper's order.
        blocks: sections and plots.
        seconds: run time.
        lead: the first line, in place of how many claims have which status.
    """

    key: str
    title: str
    settings: Mapping[str, str | float | int]
    claims: tuple[Claim, ...]
    blocks: tuple[Block, ...]
    seconds: float = 0.0
    full: bool = False
    lead: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """How many claims have each status."""
        found = [claim.status for claim in self.claims]
        return {status: found.count(status) for status in dict.fromkeys(sorted(found))}

    @property
    def report(self) -> Report:
        """The page as blocks."""
        counted = ", ".join(f"{count} {status}" for status, count in self.counts.items())
        facts = Facts(
            (
                *self.settings.items(),
                ("size", "full" if self.full else "fast; --full for the paper's size"),
                ("machine", machine()),
                ("run time", f"{self.seconds:.1f} s"),
            )
        )
        verdict = Verdict(f"{len(self.claims)} claims", self.lead or counted, "plain")
        return Report(self.title, (verdict, facts, *self._tables(), *self.blocks))

    def _tables(self) -> tuple[Block, ...]:
        numbers = tuple((c.name, c.what, _cell(c.printed), _cell(c.ours, c.by), c.words) for c in self.claims)
        reasons = tuple((c.name, c.states, c.why) for c in self.claims)
        return (
            Heading("What the paper states, and what we get"),
            Table(("claim", "quantity", "paper", "ours", "status"), numbers),
            Heading("Why they differ"),
            Table(("claim", "states", "why"), reasons),
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, plots included, in plain JSON types."""
        return {
            "paper": self.key,
            "title": self.title,
            "machine": machine(),
            "seconds": round(self.seconds, 2),
            "full": self.full,
            "settings": dict(self.settings),
            "claims": [claim.to_dict() for claim in self.claims],
            "report": self.report.to_dict(),
        }


def _cell(value: float | None, by: str = "") -> str:
    if value is None:
        return "—"
    return f"{number(value)} ({by})" if by else number(value)


def machine() -> str:
    """Processor family and Python, no names."""
    import os

    import numpy as np

    cores = os.cpu_count() or 1
    return f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, NumPy {np.__version__}"


def assemble(
    key: str,
    title: str,
    settings: Mapping[str, str | float | int],
    sections: tuple[Section, ...],
    full: bool,
) -> Page:
    """The page of these sections, in order."""
    claims = tuple(claim for section in sections for claim in section.claims)
    blocks = tuple(block for section in sections for block in section.blocks)
    return Page(key, title, settings, claims, blocks, full=full)
