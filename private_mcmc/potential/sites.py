"""The latent and observed sites of a model, as its terms know them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpyro.distributions import constraints


@dataclass(frozen=True)
class Site:
    """A latent site.

    Attributes:
        name: its name in the model.
        shape: shape of its value.
        unconstrained_shape: shape on the unconstrained space.
        slice: where it lies in the flat unconstrained vector.
        support: name of the support, for example ``real``, ``positive``, ``simplex``.
        constraint: NumPyro's object of the support, if its bounds are known numbers, else ``None``.
        family: name of the distribution class, without wrappers.
        plates: names of the plates around it.
        improper: its density is known not to integrate.
    """

    name: str
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    slice: slice
    support: str
    constraint: constraints.Constraint | None
    family: str
    plates: tuple[str, ...]
    improper: bool

    @property
    def coordinates(self) -> list[str]:
        """A name for every unconstrained coordinate, as ``w[2]``."""
        places = np.ndindex(self.unconstrained_shape)
        return [f"{self.name}[{','.join(map(str, place))}]" if place else self.name for place in places]


@dataclass(frozen=True)
class Observation:
    """An observed site.

    Attributes:
        name: its name in the model.
        family: name of the distribution class, without wrappers.
        shape: shape of its value and distribution together, in one row.
        plates: names of the plates around it.
        whole: its values are whole numbers.
    """

    name: str
    family: str
    shape: tuple[int, ...]
    plates: tuple[str, ...]
    whole: bool
