"""The farthest corner of a box of gradients, in the norm of a step's noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from private_mcmc.accounting.rounding import FloatArray, product_up, sum_up
from private_mcmc.errors import DeclarationError

# Up to so many coordinates all corners are tried: 2^11, as opposite corners cost the same.
MOST_CORNERS = 12
_UNIT = 2.0**-53


def farthest_corner(widths: Sequence[float], noise: FloatArray) -> float:
    """``sup vᵀN⁻¹v`` over ``|v_j| ≤ widths[j]``, rounded up; ``noise``: ``N`` or its diagonal.

    A convex function is largest at a corner. Diagonal: a sum. Otherwise, up to twelve coordinates, the
    largest over all corners; beyond, ``Σ_ij |N⁻¹|_ij widths_i widths_j``, which no corner exceeds.

    Raises:
        DeclarationError: for a matrix whose inverse float64 does not know to nine digits.
    """
    if noise.ndim == 1:
        return sum_up(
            product_up(width, width, over=(float(entry),)) for width, entry in zip(widths, noise, strict=True)
        )
    dim, scale = len(widths), np.asarray(widths, dtype=np.float64)
    spectrum = np.linalg.eigvalsh(noise)
    # The error of a computed inverse, against the least value that the form can have for a vector.
    slack = 16 * dim * float(spectrum[-1] / spectrum[0]) ** 2 * _UNIT
    if not (spectrum[0] > 0 and slack < 1e-9):
        raise DeclarationError("clips: this noise matrix is too ill-conditioned for a box; rescale it.")
    form = scale[:, None] * cho_solve(cho_factor(noise), np.eye(dim)) * scale[None, :]
    form = (form + form.T) / 2
    if dim > MOST_CORNERS:
        largest = float(np.abs(form).sum())
    else:
        signs = 1.0 - 2.0 * ((np.arange(2 ** (dim - 1))[:, None] >> np.arange(dim)) & 1)
        largest = float(np.einsum("ci,ij,cj->c", signs, form, signs).max())
    return math.nextafter(largest * (1 + slack) * (1 + 1e-12), math.inf)
