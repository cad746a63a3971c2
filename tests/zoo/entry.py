"""The record of a zoo model: what it is, what preflight says of it, and numbers that say so independently."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from private_mcmc.domains import Rows
from private_mcmc.target import Target

Array = NDArray[np.float64]
LogDensity = Callable[[Array], Array]
Expected = Literal["private", "not private", "unknown"]


@dataclass(frozen=True)
class Pair:
    """One number's posterior on two adjacent data sets, written by hand, up to constants.

    Attributes:
        first: log density on the first.
        second: log density on the second.
        low: left end of a range that holds all but a negligible part of both.
        high: its right end.
    """

    first: LogDensity
    second: LogDensity
    low: float
    high: float


@dataclass(frozen=True)
class Entry:
    """A model with its row domain, and what is expected of preflight.

    Attributes:
        name: unique name.
        model: the NumPyro model.
        rows: the row domain.
        verdict: what preflight answers.
        witness: a ``Pair`` whose exact divergence agrees with the verdict, or the condition that is
            missing, in the words that the report uses.
        n: number of rows.
        target: the target asked about.
        temper: power of the likelihood.
        clip: bound on every row's gradient, if rows are clipped.
        model_args: public arguments of the model.
        provable: of an ``unknown`` model: why it is private after all, by a proof that preflight lacks.
    """

    name: str
    model: Callable[..., Any]
    rows: Rows
    verdict: Expected
    witness: Pair | str
    n: int = 500
    target: Target = Target(1.0, 1e-6)  # noqa: RUF009
    temper: float = 1.0
    clip: float | None = None
    model_args: Mapping[str, Any] = field(default_factory=dict)
    provable: str = ""


def log_sigmoid(t: Array) -> Array:
    """``log 1/(1+e^{−t})``."""
    return -np.logaddexp(0.0, -t)


def normal(t: Array, sd: float, mean: float = 0.0) -> Array:
    """Log density of ``N(mean, sd²)`` up to a constant."""
    return -((t - mean) ** 2) / (2 * sd**2)
