"""What the policy for one affine predictor asks of a model."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from private_mcmc.errors import NotPrivate, NotYetSupported
from private_mcmc.model import Predictor, RowModel

Array = npt.NDArray[np.float64]


def bounded_predictor(reading: RowModel) -> Predictor:
    """The row's one predictor, of bounded design.

    Raises:
        NotYetSupported: for several predictors.
        NotPrivate: for unbounded designs.
    """
    if reading.predictor is None:
        raise NotYetSupported("this policy is for models whose rows enter through one affine predictor.")
    if not reading.predictor.radius < math.inf:
        raise NotPrivate(
            "the rows' design vectors are unbounded: declare Ball(radius, dim) or Box(lo, hi) for the "
            "covariates."
        )
    return reading.predictor


def prior_precision(reading: RowModel) -> Array:
    """The prior's precision matrix, shape ``(p, p)``.

    Raises:
        NotYetSupported: where it is not constant.
    """
    if reading.prior.hessian is None or not reading.prior.strong_convexity > 0:
        raise NotYetSupported("plans need a Normal prior so far (a constant, positive prior precision).")
    hessian = np.asarray(reading.prior.hessian, dtype=np.float64)
    return np.diag(hessian) if hessian.ndim == 1 else hessian
