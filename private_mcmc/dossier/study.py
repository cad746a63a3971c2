"""A released run with its answers, its page and its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from private_mcmc.dossier.folder import new_dossier
from private_mcmc.dossier.page import page
from private_mcmc.dossier.record import StudyRecord
from private_mcmc.report import Report


@dataclass(frozen=True, eq=False, kw_only=True)
class Study(StudyRecord):
    """One released run: a fit, a plan or a declared kernel. Every value in it is public or released.

    Attributes: :class:`private_mcmc.dossier.record.StudyRecord`.

    Example:
        >>> pmc.Study.load("no such folder")
        Traceback (most recent call last):
            ...
        private_mcmc.errors.DeclarationError: no such folder: cannot be read (No such file or directory).
    """

    def report(self, prob: float = 0.9) -> Report:
        """The dossier: results first, then risk, question, plan, ledger, and what a person must confirm."""
        return page(self, prob)

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def save(self, folder: str | Path) -> Path:
        """Write the dossier into a folder: record, page, draws, model and schema.

        Raises:
            OutputError: if there is a dossier already, or a file cannot be written.
        """
        with new_dossier(folder) as place:
            place.write(self)
        return Path(folder)
