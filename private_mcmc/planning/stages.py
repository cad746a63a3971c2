"""What a policy may buy, one stage after the other, and what each released.

Every stage carries the statement that it is charged by, which holds whatever the earlier stages released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.errors import DeclarationError
from private_mcmc.potential.potential import Potential
from private_mcmc.records import Fields
from private_mcmc.release import SecondMoments, SecondMomentsPlan, Sums, SumsPlan
from private_mcmc.schedule import Schedule

Array: TypeAlias = npt.NDArray[np.float64]
Row: TypeAlias = Fields


@dataclass(frozen=True, eq=False)
class QueryStage:
    """Buys a sum over rows plus noise; its mechanism enforces the bound, whatever function ``of_row`` is.

    Second moments ``Σ_i V_iᵀV_i``, where ``V_i = of_row(row_i)`` has shape ``(p,)`` or ``(k, p)``, or how
    many rows fall into each cell, an integer ``of_row(row)``. It may depend on earlier releases.
    """

    name: str
    mechanism: SecondMomentsPlan | SumsPlan
    of_row: Callable[[Row], jax.Array]

    @property
    def statement(self) -> accounting.Statement:
        """What the stage costs, whatever was released before."""
        return self.mechanism.statement

    def released(self, values: Array) -> SecondMoments | Sums:
        """What the mechanism gave, or a file that it was written to."""
        found = self.mechanism.released(values)
        return found[0] if isinstance(found, tuple) else found


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
    reading: Potential | None = None
    derived: Callable[[Row], Mapping[str, jax.Array]] | None = None

    def __post_init__(self) -> None:
        if self.schedule.release != "path" or self.schedule.num_chains != 1:
            raise DeclarationError("a stage of a plan releases the path of one chain: release='path'.")

    @cached_property
    def statement(self) -> accounting.Statement:
        """What the stage costs, whatever was released before."""
        return accounting.langevin_statement(self.schedule)


Stage: TypeAlias = QueryStage | PathStage


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


def passes(history: History) -> int:
    """How often the stages went through all rows: once for each step of a path, once for each query."""
    stages = (completed.stage for completed in history)
    return sum(stage.schedule.num_steps if isinstance(stage, PathStage) else 1 for stage in stages)


def named(history: History, name: str) -> History:
    """The completed stages of that name."""
    return tuple(completed for completed in history if completed.stage.name == name)
