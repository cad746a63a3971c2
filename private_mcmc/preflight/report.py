"""The report of a preflight: what was found, and the ways to show it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from private_mcmc.preflight.findings import Findings
from private_mcmc.preflight.page import page
from private_mcmc.report import Report


@dataclass(frozen=True)
class PreflightReport(Findings):
    """What preflight found, as words, HTML or plain data; public facts. Attributes: :class:`Findings`.

    Example:
        >>> from private_mcmc.models import bounded_mean, bounded_mean_rows
        >>> report = pmc.preflight(bounded_mean, bounded_mean_rows(), pmc.Target(3.0, 1e-6), n=10)
        >>> isinstance(report, pmc.PreflightReport), report.verdict
        (True, 'not private')
        >>> report.refutation.coordinate
        'mean'
    """

    @property
    def report(self) -> Report:
        """The report as plain blocks."""
        return page(self)

    def show(self, console: Any = None) -> None:
        """Print on a terminal (or on a ``rich.console.Console``)."""
        self.report.show(console)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained HTML page, also written to ``path`` where given."""
        return self.report.to_html(path)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()
