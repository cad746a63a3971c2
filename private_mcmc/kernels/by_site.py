"""A diagonal given site by site, by the names of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from private_mcmc.errors import DeclarationError
from private_mcmc.model import Site
from private_mcmc.schedule import Matrix


@dataclass(frozen=True)
class BySite:
    """One number for a site, or one for each of its unconstrained coordinates."""

    values: tuple[tuple[str, tuple[float, ...]], ...]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From ``{"w": 0.5, "b": [1.0, 2.0]}``."""
        return cls(
            tuple((name, tuple(np.ravel(np.asarray(value, np.float64)))) for name, value in given.items())
        )

    def diagonal(self, sites: Sequence[Site], dim: int) -> Matrix:
        """The diagonal over the flat unconstrained vector.

        Raises:
            DeclarationError: for a site without a value, a value without a site, or a wrong number of them.
        """
        named = {site.name: site for site in sites}
        values = dict(self.values)
        if named.keys() != values.keys():
            raise DeclarationError(
                f"noise by site: give {sorted(named)}; these were given: {sorted(values)}."
            )
        flat = np.empty(dim)
        for name, site in named.items():
            size = site.slice.stop - site.slice.start
            if len(values[name]) not in (1, size):
                raise DeclarationError(f"noise of {name!r}: one number, or {size}.")
            flat[site.slice] = values[name]
        return tuple(flat.tolist())
