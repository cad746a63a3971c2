"""A posterior variance from two released averages: the second is post-processing and free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from private_mcmc.errors import DeclarationError
from private_mcmc.release.expectations.declared import Bounds, SiteFunction
from private_mcmc.release.expectations.released import ReleasedExpectations
from private_mcmc.release.noise import FloatArray


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
    """
    mean, square = released[site], released[f"{site}²"]
    centre = (bounds[0] + bounds[1]) / 2
    noise = 0.0 if mean.noise_sd is None else mean.noise_sd**2
    found: FloatArray = np.maximum(square.value - (mean.value - centre) ** 2 + noise, 0.0)
    return found
