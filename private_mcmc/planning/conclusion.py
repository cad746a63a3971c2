"""What a policy is asked, and what its releases amount to.

A policy is a pure function of what was released so far: it names the next stage, and in the end turns the
releases into draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from private_mcmc.kernels.synthetic import Followed
from private_mcmc.planning.estimates import inverse_of, metric_of
from private_mcmc.planning.stages import Array, History, PathStage, Stage
from private_mcmc.records import Record

OF_PARAMETERS = "posterior sds"


class Expected(NamedTuple):
    """Of one coefficient: how far its private mean is expected from the exact one, and its exact sd."""

    name: str
    error: float
    sd: float


class Prediction(NamedTuple):
    """Predicted root mean square error of posterior means, and what it is made of.

    ``bias``: of clipping; ``monte_carlo``: of the noise that buys privacy; ``discretisation``: bound on
    the share of a posterior sd that the finite step size adds; ``low`` and ``high``: what nine in ten tables
    are between, 0 where that is not known; ``coefficients``: the same of each coefficient in its own units,
    where they can be told apart.

    Example:
        >>> from private_mcmc.planning import Prediction
        >>> Prediction(rms=0.5, bias=0.3, monte_carlo=0.4, discretisation=0.02).unit
        'posterior sds'
    """

    rms: float
    bias: float
    monte_carlo: float
    discretisation: float
    unit: str = OF_PARAMETERS
    low: float = 0.0
    high: float = 0.0
    coefficients: tuple[Expected, ...] = ()

    def scaled_to(self, rms: float) -> Prediction:
        """Of another error of parameters, its two parts in proportion."""
        share = rms / max(math.hypot(self.bias, self.monte_carlo), 1e-300)
        bias, monte_carlo = share * self.bias, share * self.monte_carlo
        return Prediction(rms, bias, monte_carlo, self.discretisation, coefficients=self.coefficients)

    def to_record(self) -> Record:
        """Plain JSON types."""
        return self._asdict() | {"coefficients": [one._asdict() for one in self.coefficients]}

    @classmethod
    def from_record(cls, record: Record) -> Prediction:
        """The prediction that ``to_record`` tells of."""
        of_each = tuple(
            Expected(str(one["name"]), float(one["error"]), float(one["sd"]))
            for one in record.get("coefficients", ())
        )
        numbers = {
            name: float(value) for name, value in record.items() if name not in ("unit", "coefficients")
        }
        return cls(**numbers, unit=str(record.get("unit", OF_PARAMETERS)), coefficients=of_each)


class Known(NamedTuple):
    """What tells the error of a run before it is bought.

    With a curvature ``H`` of which the bound leaves the share ``s`` and a mean score of covariance ``N`` the
    mode is known up to ``(sH)^{-1}N(sH)^{-1}``.

    Attributes:
        centre: about the mode, ``(p,)``.
        precision: the prior's, ``(p, p)``.
        curvatures: of rows' losses that releases allow, ``(draws, p, p)``.
        share: of the curvature that the bound on influence leaves.
        bias: error of the bound, in posterior sds.
        noise: covariance of the score's mean: of privacy's noise, and of what the clip takes, ``(p, p)``.
    """

    centre: Array
    precision: Array
    curvatures: Array
    share: float
    bias: float
    noise: Array

    def of_each(self) -> Iterator[tuple[Array, Array]]:
        """For each curvature the posterior's covariance, and that of the draws' mean around its mean."""
        information = np.linalg.inv(self.noise)
        for one in self.curvatures:
            exact = inverse_of(one + self.precision)
            told = self.share**2 * one @ information @ one
            both = inverse_of(inverse_of(told) + inverse_of(one))
            yield exact, inverse_of(self.precision + both) - exact + self.bias**2 * exact


def noise_of(run: PathStage, temper: float) -> Array:
    """``2M^{-1}/(Tw²)``: of the mean score over a path of time ``T`` at weight ``w`` in the metric ``M``."""
    weight = run.schedule.temper / temper
    return inverse_of(metric_of(run.schedule)) * (2 / (run.schedule.total_time * weight**2))


class Lost(NamedTuple):
    """What a clip takes from the sum of rows' gradients: mean ``(p,)`` and covariance ``(p, p)``."""

    mean: Array
    covariance: Array


@dataclass(frozen=True, eq=False)
class Conclusion:
    """What the releases amount to: post-processing, free.

    Attributes:
        draws: of the flat unconstrained parameter, shape ``(draws, p)``.
        prediction: the error to expect of them, from releases and public facts.
        beyond: whether persons reach further than the model says, which a likelihood of releases is made of.
        located: whether the mean of the draws is an estimate from the path's mean score and the curvature.
        curvatures: of all rows' losses, near the last path, drawn as the noise of their release allows,
            ``(draws, p, p)``; none where no matrix was bought.
        lost: what the last path's clip takes, where released counts say it.
    """

    draws: Array
    prediction: Prediction
    beyond: bool = False
    located: bool = False
    curvatures: Array | None = None
    lost: Lost | None = None


class Policy(Protocol):
    """Which stages to buy, as a function of what was released so far and of nothing else."""

    def next(self, history: History) -> Stage | None:
        """The next stage, or ``None`` when nothing more is bought.

        Its cost must fit what the budget leaves: the execution refuses a stage that does not.
        """

    def conclude(self, history: History) -> Conclusion:
        """Draws from everything that was released."""

    def known(self, history: History, run: PathStage) -> Known:
        """What tells the error of ``run``, bought after ``history``."""

    def followed(self, stage: PathStage) -> Followed:
        """What a path's gradients are of, whatever its metric and clip: one function for all stages."""


def remaining(budget: float, history: History) -> float:
    """GDP that the stages so far leave of ``budget``: ``√(B² − Σm²)``, rounded down a little."""
    spent = sum((completed.stage.statement.gdp or np.inf) ** 2 for completed in history)
    return float(np.sqrt(max(budget**2 - spent, 0.0))) * (1 - 1e-9)
