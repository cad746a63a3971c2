"""Released values: what a run gives away, with the statement that prices it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.release.expectations.declared import Bounds, SiteFunction
from private_mcmc.release.noise import FloatArray


@dataclass(frozen=True, eq=False)
class ReleasedValue:
    """One released expectation.

    Attributes:
        name: as declared.
        value: noised value.
        noise_sd: sd of the privacy noise, entry by entry; ``None`` for a choice among candidates.
        error: root of noise variance plus a data-free bound on the Monte Carlo variance; ``inf`` where
            nothing is proved about the chain's mixing.
    """

    name: str
    value: FloatArray
    noise_sd: FloatArray | None
    error: FloatArray | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        known = self.error is not None and bool(np.all(np.isfinite(self.error)))
        return {
            "value": self.value.tolist(),
            "noise_sd": None if self.noise_sd is None else self.noise_sd.tolist(),
            "error": self.error.tolist() if self.error is not None and known else None,
        }

    def __str__(self) -> str:
        noise = "chosen among candidates" if self.noise_sd is None else f"± {self.noise_sd.max():.3g} (noise)"
        return f"{self.name} = {self.value.round(6).tolist()} {noise}"


@dataclass(frozen=True, eq=False)
class ReleasedExpectations:
    """Released expectations and what they cost; ``released["w"]`` is a value.

    Attributes:
        values: in the order of the declaration.
        statement: what they cost.
        provenance: where the run's randomness came from, as plain values.
    """

    values: tuple[ReleasedValue, ...]
    statement: Statement
    provenance: Mapping[str, str]

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
            "provenance": dict(self.provenance),
        }

    def to_json(self) -> str:
        """``to_dict`` as text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def __repr__(self) -> str:
        lines = [str(value) for value in self.values]
        seeded = ["seed chosen by the caller: reproducible, not private"] if _seeded(self.provenance) else []
        return "\n".join([*lines, *seeded, str(self.statement)])


def _seeded(provenance: Mapping[str, str]) -> bool:
    return provenance.get("source") == "caller"


def mean_and_square(site: str, bounds: Bounds) -> dict[str, SiteFunction]:
    """``{site: g, site²: (g − c)²}`` with ``g`` the site clamped to ``[a, b]`` and ``c`` its middle.

    For ``Expectations(mean_and_square("w", (-3, 3)))``. Both slopes are proved: that of the square is at
    most ``b − a`` times the site's, so that a narrow ``[a, b]`` costs less.

    Raises:
        DeclarationError: unless ``a < b`` are finite.
    """
    low, high = (float(end) for end in bounds)
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise DeclarationError(f"bounds of {site!r} are ({low}, {high}): need finite a < b.")

    def clamped(sites: Mapping[str, Any]) -> Any:
        return jnp.clip(sites[site], low, high)

    def squared(sites: Mapping[str, Any]) -> Any:
        return (clamped(sites) - (low + high) / 2) ** 2

    return {site: clamped, f"{site}²": squared}


def variance(released: ReleasedExpectations, site: str, bounds: Bounds) -> FloatArray:
    """``E(g − c)² − (E g − c)²`` from what ``mean_and_square`` released, not below 0.

    Noise on the mean makes it smaller by the noise's variance on average, which is added back.

    Example:
        >>> from private_mcmc.release import ReleasedExpectations, ReleasedValue
        >>> price = pmc.accounting.laplace(1.0, adjacency="replace_one", sensitivity=1.0, scale=1.0)
        >>> released = ReleasedExpectations(
        ...     (
        ...         ReleasedValue("w", np.array(0.5), np.array(0.1), None),
        ...         ReleasedValue("w²", np.array(1.0), np.array(0.1), None),
        ...     ), price, {},
        ... )
        >>> pmc.variance(released, "w", (-3.0, 3.0)).round(6).tolist()
        0.76
    """
    mean, square = released[site], released[f"{site}²"]
    centre = (bounds[0] + bounds[1]) / 2
    noise = 0.0 if mean.noise_sd is None else mean.noise_sd**2
    found: FloatArray = np.maximum(square.value - (mean.value - centre) ** 2 + noise, 0.0)
    return found
