"""The result of an audit: what was found, and the ways to show it."""

from __future__ import annotations

from dataclasses import dataclass

from private_mcmc.auditing.page import audit_report
from private_mcmc.auditing.result import Findings
from private_mcmc.report import Report


@dataclass(frozen=True)
class AuditResult(Findings):
    """What an audit found, as words, HTML or plain data. Attributes and guarantee: :class:`Findings`."""

    @property
    def report(self) -> Report:
        """Tables and plots: bounds, ROC on log axes, trade-off against the claimed one."""
        return audit_report(self)

    def show(self) -> None:
        """Print the report on a terminal."""
        self.report.show()
