"""Where a run is charged: a ledger, the owner's name for the data, and what the run is for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from private_mcmc.accounting import Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.inference.decision import Declaration
from private_mcmc.release import Ledger


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
        name = f"{declared.model.__module__}.{declared.model.__qualname__}"
        model = f"{name} on rows {declared.rows.fingerprint[:16]}"
        return self.ledger.charge(
            self.dataset, statement, purpose=self.purpose, model=model, data=dict(columns)
        )
