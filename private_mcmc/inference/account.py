"""Where a run is charged: a ledger, the owner's name for the data, and what the run is for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax

from private_mcmc.accounting import Statement
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.inference.decision import Declaration
from private_mcmc.release import Ledger, Reservation


@dataclass(frozen=True)
class Account:
    """``ledger=None`` keeps no books; otherwise ``dataset`` names the data set that is charged."""

    ledger: Ledger | None
    dataset: str | None
    purpose: str

    def __post_init__(self) -> None:
        if (self.ledger is None) != (self.dataset is None):
            raise DeclarationError(
                "give both a ledger and the dataset= that it knows the rows by, or neither."
            )

    def charge(
        self, statement: Statement, declared: Declaration, columns: Mapping[str, Any]
    ) -> AbstractContextManager[Any]:
        """Reserve the statement's cost on entering; it stays spent if what follows fails."""
        if self.ledger is None or self.dataset is None:
            return nullcontext()
        return self.ledger.charge(self.dataset, statement, **self._words(declared, columns))

    def reserve(self, statement: Statement, declared: Declaration, columns: Mapping[str, Any]) -> str | None:
        """Charge a run that may be interrupted and go on; the reservation stays open until ``settle``."""
        if self.ledger is None or self.dataset is None:
            return None
        return self.ledger.reserve(self.dataset, statement, **self._words(declared, columns)).identity

    def check_open(self, reservation: str | None) -> None:
        """Raise ``ReleaseError`` unless the run was charged here, or to no ledger, and has not released."""
        if self._open(reservation) is None and (reservation is not None or self.ledger is not None):
            raise ReleaseError(
                "this run has released already, or was charged elsewhere: resume it with the ledger and the "
                "dataset= that it was started with."
            )

    def settled(self, reservation: str | None) -> bool:
        """Whether the ledger knows of a release, or an end without one, of the run charged so."""
        if self.ledger is None or reservation is None:
            return False
        charges = self.ledger.history(self.dataset)
        return any(c.identity == reservation and c.outcome != "reserved" for c in charges)

    def settle(self, reservation: str | None) -> None:
        """Record that the run releases. Raises ``LedgerError`` the second time."""
        if reservation is not None and self.ledger is not None:
            self.check_open(reservation)
            found = self._open(reservation)
            if found is not None:
                self.ledger.settle(found)

    def _open(self, reservation: str | None) -> Reservation | None:
        if self.ledger is None or reservation is None:
            return None
        charges = self.ledger.history(self.dataset)
        return next((c for c in charges if c.identity == reservation and c.outcome == "reserved"), None)

    def _words(self, declared: Declaration, columns: Mapping[str, Any]) -> dict[str, Any]:
        name = f"{declared.model.__module__}.{declared.model.__qualname__}"
        # One of several processes sees a part of the rows only: the data set is known by its name then.
        seen = dict(columns) if jax.process_count() == 1 else None
        model = f"{name} on rows {declared.rows.fingerprint[:16]}"
        return {"purpose": self.purpose, "model": model, "data": seen}
