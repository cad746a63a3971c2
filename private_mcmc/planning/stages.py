"""What a policy may buy, one stage after the other, and what came of it.

A policy is a pure function of what was released so far: it names the next stage, and in the end turns the
releases into draws. Every stage carries the statement that it is charged by, which holds whatever the
earlier stages released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.errors import DeclarationError
from private_mcmc.model import RowModel
from private_mcmc.potential.rowwise import rowwise
from private_mcmc.records import ON_FEW_ROWS, Fields, Record
from private_mcmc.release import SecondMoments, SecondMomentsPlan, Sums, SumsPlan
from private_mcmc.schedule import Schedule

Array: TypeAlias = npt.NDArray[np.float64]
Row: TypeAlias = Fields


OF_PARAMETERS, OF_LOSSES = "posterior sds", "posterior sds of rows' losses"


@dataclass(frozen=True, eq=False)
class MomentsStage:
    """Buys ``Σ_i V_iᵀV_i`` plus noise, where ``V_i = vectors(row_i)`` has shape ``(p,)`` or ``(k, p)``.

    ``vectors`` may be any function of the row and of earlier releases: the mechanism enforces the bound.
    """

    name: str
    mechanism: SecondMomentsPlan
    vectors: Callable[[Row], jax.Array]

    @property
    def statement(self) -> accounting.Statement:
        """What the stage costs, whatever was released before."""
        return self.mechanism.statement

    def released(self, values: Array) -> SecondMoments:
        """What the mechanism gave, or a file that it was written to."""
        return self.mechanism.released(values)


@dataclass(frozen=True, eq=False)
class CountsStage:
    """Buys how many rows fall into each cell, plus noise; ``cell(row)`` is an integer."""

    name: str
    mechanism: SumsPlan
    cell: Callable[[Row], jax.Array]

    @property
    def statement(self) -> accounting.Statement:
        """What the stage costs, whatever was released before."""
        return self.mechanism.statement

    def released(self, values: Array) -> Sums:
        """What the mechanism gave, or a file that it was written to."""
        return self.mechanism.released(values)[0]


@dataclass(frozen=True, eq=False)
class PathStage:
    """Buys every state of one chain of ``schedule`` from ``start``, shape ``(p,)``: public or released.

    Attributes:
        reading: the model whose gradients the path follows, the plan's own if left out. Every function of a
            row will do: the schedule's clip is enforced.
        derived: columns computed from each row for that model, ``row ↦ {name: value}``.

    Raises:
        DeclarationError: unless the schedule releases the path of one chain.
    """

    name: str
    schedule: Schedule
    start: Array
    reading: RowModel | None = None
    derived: Callable[[Row], Mapping[str, jax.Array]] | None = None

    def __post_init__(self) -> None:
        if self.schedule.release != "path" or self.schedule.num_chains != 1:
            raise DeclarationError("a stage of a plan releases the path of one chain: release='path'.")

    @cached_property
    def statement(self) -> accounting.Statement:
        """What the stage costs, whatever was released before."""
        return accounting.langevin_statement(self.schedule)


Stage: TypeAlias = MomentsStage | CountsStage | PathStage


def of_rows(function: Callable[[Row], Any], rows: Row) -> Any:
    """A stage's function of every row, compiled."""
    return _mapped(*partial_parts(function), rows)


def partial_parts(function: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A partial function's parts: what was released is an argument, so that all stages share one program."""
    if isinstance(function, partial) and all(isinstance(one, float | np.ndarray) for one in function.args):
        return function.func, function.args
    return function, ()


@partial(jax.jit, static_argnums=0, compiler_options=ON_FEW_ROWS)
def _mapped(function: Callable[..., Any], given: tuple[Any, ...], rows: Row) -> Any:
    return jax.vmap(rowwise(partial(function, *given)))(rows)


@dataclass(frozen=True, eq=False)
class CompletedStage:
    """A stage and what it released: moments, counts, or the path's states, shape ``(steps, p)``."""

    stage: Stage
    value: SecondMoments | Sums | Array

    @property
    def path(self) -> PathStage:
        """The stage, which is a path."""
        if not isinstance(self.stage, PathStage):
            raise TypeError(f"the stage {self.stage.name!r} releases no path")
        return self.stage

    @property
    def moments(self) -> SecondMoments:
        """What a query for second moments released."""
        if not isinstance(self.value, SecondMoments):
            raise TypeError(f"the stage {self.stage.name!r} releases no second moments")
        return self.value

    @property
    def counts(self) -> Sums:
        """What a query for counts released."""
        if not isinstance(self.value, Sums):
            raise TypeError(f"the stage {self.stage.name!r} releases no counts")
        return self.value

    @property
    def numbers(self) -> Array:
        """What was released, as plain numbers."""
        value = self.value
        if isinstance(value, SecondMoments):
            value = value.matrix
        elif isinstance(value, Sums):
            value = value.values[0]
        return np.asarray(value)

    @property
    def states(self) -> Array:
        """The states of a path, ``(steps + 1, p)``, its start first."""
        return np.vstack([self.path.start, np.asarray(self.value)])


History: TypeAlias = tuple[CompletedStage, ...]


class Expected(NamedTuple):
    """Of one coefficient: how far its private mean is expected from the exact one, and its exact sd."""

    name: str
    error: float
    sd: float


class Prediction(NamedTuple):
    """Predicted root mean square error of posterior means, and what it is made of.

    ``bias``: of clipping; ``monte_carlo``: of the noise that buys privacy; ``discretisation``: bound on
    the share of a posterior sd that the finite step size adds; ``unit``: the posterior sds of what;
    ``reference``: how uncertain the exact means were that it was measured against; ``low`` and ``high``: what
    nine in ten synthetic tables exceed and stay below, 0 where that was not looked at; ``coefficients``: the
    same of each coefficient in its own units, where they can be told apart.

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
    reference: float = 0.0
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
    """

    draws: Array
    prediction: Prediction
    beyond: bool = False
    located: bool = False
    curvatures: Array | None = None


class Policy(Protocol):
    """Which stages to buy, as a function of what was released so far and of nothing else."""

    def next(self, history: History) -> Stage | None:
        """The next stage, or ``None`` when nothing more is bought.

        Its cost must fit what the budget leaves: the execution refuses a stage that does not.
        """

    def conclude(self, history: History) -> Conclusion:
        """Draws from everything that was released."""


def remaining(budget: float, history: History) -> float:
    """GDP that the stages so far leave of ``budget``: ``√(B² − Σm²)``, rounded down a little."""
    spent = sum((completed.stage.statement.gdp or np.inf) ** 2 for completed in history)
    return float(np.sqrt(max(budget**2 - spent, 0.0))) * (1 - 1e-9)
