"""Pairs of numbers with a bounded ratio: regressions whose answers lie near one line."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from private_mcmc.domains.domain import every_other, number
from private_mcmc.domains.real import LARGEST, RealDomain, storage_dtype, working_dtype
from private_mcmc.errors import DeclarationError, construction_checked


@construction_checked
@dataclass(frozen=True)
class Ratio(RealDomain):
    """Pairs ``(x, y)``, ``x_low ≤ x ≤ x_high``, ``|y/x − center| ≤ width``: a column of shape ``(n, 2)``.

    Of a pair outside, ``x`` is clipped, then ``y``, by a few rounding errors more than the bounds say. A NaN
    becomes the number nearest to zero that the bounds allow.

    Raises:
        DeclarationError: unless ``0 < x_low ≤ x_high`` and ``width > 0``, all finite, with
            ``x_high·(|center| + width) ≤ 1e30`` and a ``width`` that numbers near ``center`` can hold.

    Source: Heller, Fetaya 2023, (5), with ``width = n^γ₁``.

    Example:
        >>> rows = pmc.Rows(xy=pmc.Ratio(x_low=1.0, x_high=2.0, center=10.0, width=0.5))
        >>> kept = rows.columns["xy"].project([[1.5, 15.0], [4.0, 0.0], [np.nan, 10.2]])
        >>> print(np.asarray(kept, float).round(3))
        [[ 1.5 15. ]
         [ 2.  19. ]
         [ 1.  10.2]]
    """

    x_low: float
    x_high: float
    center: float
    width: float

    def __post_init__(self) -> None:
        for name in ("x_low", "x_high", "center", "width"):
            object.__setattr__(self, name, number(f"Ratio {name}", getattr(self, name)))
        if not (0 < self.x_low <= self.x_high and self.width > 0):
            raise DeclarationError("Ratio: 0 < x_low <= x_high and a positive width are needed.")
        if not (self.x_low >= 1 / LARGEST and self.x_high * (abs(self.center) + self.width) <= LARGEST):
            raise DeclarationError("Ratio: choose units in which x and y are in [1e-30, 1e30].")
        self._ratios(np.dtype(np.float64))

    @property
    def event_shape(self) -> tuple[int, ...]:
        """``(2,)``."""
        return (2,)

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of ``x`` and of ``y``."""
        low, high = self.center - self.width, self.center + self.width
        ends = [math.nextafter(x * r, away) for x in (self.x_low, self.x_high)
                for r, away in ((low, -math.inf), (high, math.inf))]  # fmt: skip
        return np.array([self.x_low, min(ends)]), np.array([self.x_high, max(ends)])

    @property
    def extremes(self) -> list[np.ndarray]:
        """The four corners and the middle, that of smallest norm first."""
        low, high = self._ratios(np.dtype(np.float64))
        pairs = [(x, x * r) for x in (self.x_low, self.x_high) for r in (low, self.center, high)]
        return sorted((np.array(pair) for pair in pairs), key=np.linalg.norm)

    def project(self, column: ArrayLike, dtype: DTypeLike | None = None) -> jax.Array:
        """Clip ``x``, then ``y`` to where its ratio to the ``x`` that is stored is allowed."""
        storage, working = storage_dtype(dtype), working_dtype()
        low, high = self._ratios(storage)
        rows = jnp.asarray(column).astype(working)
        least, most = _inside(self.x_low, self.x_high, storage)
        x = jnp.where(jnp.isnan(rows[..., 0]), least, jnp.clip(rows[..., 0], least, most)).astype(storage)
        x = jnp.clip(x, storage.type(least), storage.type(most)).astype(working)
        ends = x * low, x * high
        y = jnp.where(jnp.isnan(rows[..., 1]), 0.0, rows[..., 1])
        return jnp.stack([x, jnp.clip(y, *ends)], axis=-1).astype(storage)

    def synthetic(self, random: np.random.Generator, n: int) -> jax.Array:
        """Half the rows at corners, half uniform."""
        share = every_other(n, random.integers(0, 2, (n, 2)), random.random((n, 2)))
        x = self.x_low + share[:, 0] * (self.x_high - self.x_low)
        return self.project(np.stack([x, x * (self.center + (2 * share[:, 1] - 1) * self.width)], axis=-1))

    def _ratios(self, storage: np.dtype) -> tuple[float, float]:
        """Bounds of the ratio, narrowed by what rounding ``y`` to this type can move it."""
        margin = 4 * float(np.finfo(storage).eps) * (abs(self.center) + self.width)
        if not margin < self.width:
            raise DeclarationError(
                f"Ratio: width={self.width:g} is lost in the rounding of {storage} numbers near "
                f"{self.center:g} times x; store float64, or center the ratio."
            )
        return self.center - self.width + margin, self.center + self.width - margin


def _inside(low: float, high: float, storage: np.dtype) -> tuple[float, float]:
    """The bounds, rounded inwards to numbers of this type."""
    least, most = storage.type(low), storage.type(high)
    least = least if float(least) >= low else np.nextafter(least, storage.type(np.inf))
    most = most if float(most) <= high else np.nextafter(most, storage.type(-np.inf))
    if not float(least) <= float(most):
        raise DeclarationError(f"Ratio: no {storage} lies between x_low and x_high; widen them.")
    return float(least), float(most)
