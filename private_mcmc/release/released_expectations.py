"""Released values: what a run gives away, with the statement that prices it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from private_mcmc.accounting import Statement
from private_mcmc.errors import ReleaseError
from private_mcmc.release.noise import FloatArray


@dataclass(frozen=True, eq=False)
class ReleasedValue:
    """One released expectation.

    Attributes:
        name: as declared.
        value: noised value.
        noise_sd: sd of the privacy noise, entry by entry.
        error: root of noise variance plus a data-free bound on the Monte Carlo variance; ``inf`` where
            nothing is proved about the chain's mixing.
    """

    name: str
    value: FloatArray
    noise_sd: FloatArray
    error: FloatArray

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "value": self.value.tolist(),
            "noise_sd": self.noise_sd.tolist(),
            "error": self.error.tolist(),
        }


@dataclass(frozen=True, eq=False)
class ReleasedExpectations:
    """Released expectations and what they cost; ``released["w"]`` is a value."""

    values: tuple[ReleasedValue, ...]
    statement: Statement

    def __getitem__(self, name: str) -> ReleasedValue:
        for value in self.values:
            if value.name == name:
                return value
        raise ReleaseError(
            f"{name!r} was not declared before the run; released were {[v.name for v in self.values]}. "
            "Another expectation needs another run, charged again."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, the statement included."""
        return {
            "expectations": {value.name: value.to_dict() for value in self.values},
            "statement": self.statement.to_dict(),
        }

    def __repr__(self) -> str:
        lines = [
            f"{v.name} = {v.value.round(6).tolist()} ± {v.noise_sd.max():.3g} (noise)" for v in self.values
        ]
        return "\n".join([*lines, str(self.statement)])
